#!/bin/bash
# The library under a C library like 2.28, the oldest that the images of tenants may have: this host's, without what came later, and with
# dlsym in a library of its own, which has been loaded or has not.
. "$(dirname "$0")/common.sh"
need cc "$PYTHON"
[ "$(uname -m)" = x86_64 ] || skip "written for x86-64"
[ "$NETCHANNEL_PROGRAM" != none ] || skip "tests nothing but the library"

OLD=$TMP/old
mkdir "$OLD"
LIBC=$(ldd /bin/true | grep -oE '/[^ ]*/libc\.so\.6')
LINKER=$(ldd /bin/true | grep -oE '/[^ ]*/ld-linux[^ ]*')
cp "$LINKER" "$OLD/ld.so"
FROM_PRINTF=$("$PYTHON" "$HERE/helpers/older_libc.py" "$LIBC" "$OLD/libc.so.6")

# What such a C library has itself, and libdl.so.2.
cat >"$TMP/private.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
typedef void *Find(void *, const char *);
static Find *found(void) { return (Find *)((char *)printf + FROM_PRINTF); }
#ifdef LIBDL
/* A jump: dlsym looks at who calls it. */
__attribute__((optimize("O2"))) void *dlsym(void *handle, const char *name) { return found()(handle, name); }
#else
void *__libc_dlopen_mode(const char *name, int mode) {
    if (!(mode & 0x80000000)) return NULL;
    fprintf(stderr, "%s is loaded\n", name);
    return dlopen(name, mode & 0x7fffffff);
}
void *__libc_dlsym(void *handle, const char *name) { return found()(handle, name); }
#endif
END
cc -O2 -fPIC -shared "-DFROM_PRINTF=($FROM_PRINTF)" -DLIBDL -Wl,-soname,libdl.so.2 -o "$OLD/libdl.so.2" "$TMP/private.c"
cc -O2 -fPIC -shared "-DFROM_PRINTF=($FROM_PRINTF)" -o "$OLD/private.so" "$TMP/private.c"

cat >"$TMP/program.c" <<'END'
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static int fails(const char *call) { perror(call); return 1; }
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), got = 0, count;
    if (bind(listener, (void *)&at, length) || listen(listener, 5)) return fails("listen");
    if (getsockname(listener, (void *)&at, &length)) return fails("getsockname");
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, (void *)&at, length)) return fails("connect");
    int server = accept(listener, NULL, NULL);
    char text[100];
    if (!fork()) {
        close(server);
        if (write(client, "through ", 8) != 8) _exit(fails("write"));
        dup2(client, 1);
        execl("/bin/sh", "sh", "-c", "echo memory", NULL);
        _exit(1);
    }
    close(client);
    while ((count = read(server, text + got, sizeof text - 1 - got)) > 0) got += count;
    if (count < 0) return fails("read");
    text[got] = 0;
    fputs(text, stdout);
    fflush(stdout);
    wait(NULL);
    sleep(HOLD);
    return 0;
}
END
cc -O2 -DHOLD=0 -o "$TMP/program" "$TMP/program.c"
cc -O2 -DHOLD=0 -Wl,--no-as-needed -o "$TMP/with-libdl" "$TMP/program.c" -l:libdl.so.2

start_daemon
LIBRARY=$("$NETCHANNEL_PROGRAM" run --socket "$SOCKET" -- sh -c 'echo "$LD_PRELOAD"')
# tries NAME PROGRAM WANTED
tries() {
    local name=$1 program=$2 wanted=$3
    NETCHANNEL_SOCKET=$SOCKET NETCHANNEL_REQUIRE=1 LD_PRELOAD=$OLD/private.so:$LIBRARY limited 20 "$OLD/ld.so" --library-path "$OLD" "$program" \
        >"$TMP/$name.log" 2>&1 || fail "$name: exit $?: $(cat "$TMP/$name.log")"
    [ "$(cat "$TMP/$name.log")" = "$wanted" ] || fail "$name: $(cat "$TMP/$name.log")"
    echo "result: $name: $(wc -l <"$TMP/$name.log") lines"
}
tries "loads it" "$TMP/program" "libdl.so.2 is loaded
through memory"
tries "has it" "$TMP/with-libdl" "through memory"
stop_daemon
