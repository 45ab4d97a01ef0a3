#!/bin/bash
# Programs that the library can not enter, under the supervisor of their system calls: C without the dynamic linker (glibc and musl) and
# Go. On one host, then as a tenant in a namespace that has nothing but loopback: they reach a world outside, are reached from it, and
# reach one another and programs with the library. What they observe is compared with kernel TCP. Then a supervisor that is killed.
LIMIT=${LIMIT:-220}
. "$(dirname "$0")/common.sh"
need go cc curl "$PYTHON"

# ---- one host ------------------------------------------------------------------------------------------------------

build() {
    GOFLAGS='' GO111MODULE=off GOCACHE=${GOCACHE:-$TMP/go-cache} CGO_ENABLED=0 GOTOOLCHAIN=local \
        go build -o "$TMP/web" "$HERE/helpers/static.go"
    cc -O1 -static -pthread -o "$TMP/sockets" "$HERE/helpers/static.c" || skip "no static C library"
    if command -v musl-gcc >/dev/null; then
        musl-gcc -O1 -static -pthread -o "$TMP/musl" "$HERE/helpers/static.c"
        musl-gcc -O1 -pthread -o "$TMP/musl-dynamic" "$HERE/helpers/static.c"
        musl-gcc -O1 -static -o "$TMP/names" "$HERE/helpers/static_names.c"
    else
        left_out "musl"
    fi
}

# enter_static MODE: `plain` has all under a supervisor, `server` the server only.
enter_static() {
    MODE=$1
    SERVER=() CLIENT=()
    local run=("$NETCHANNEL_PROGRAM" run --socket "$SOCKET")
    [ "$MODE" != kernel ] || return 0
    start_daemon
    case $MODE in
        plain) SERVER=("${run[@]}" --static=plain --) CLIENT=("${run[@]}" --static=plain --) ;;
        server) SERVER=("${run[@]}" --static=plain --) CLIENT=("${run[@]}" --) ;;
    esac
}

# told NAME COMMAND...: its exit code and what it says.
told() {
    local name=$1 code=0
    shift
    limited 40 "$@" >"$TMP/client.log" 2>"$TMP/client.err.log" || code=$?
    observe "$name: exit $code"
    observe "$name: $(tr '\n' '|' <"$TMP/client.log")"
}

one_host() {
    local program
    for program in sockets musl musl-dynamic; do
        if [ -x "$TMP/$program" ]; then told "$program" "${CLIENT[@]}" "$TMP/$program"; fi
    done
    free_port PORT
    start web "${SERVER[@]}" "$TMP/web" serve "127.0.0.1:$PORT"
    until_true 10 "the server" curl --silent --output /dev/null "http://127.0.0.1:$PORT/small"
    web "127.0.0.1:$PORT"
    stop "$LAST_STARTED"
    told "nobody listens" "${CLIENT[@]}" "$TMP/web" dial 127.0.0.1:1
}

# web ADDRESS: clients of the Go server there.
web() {
    told "fetch" "${CLIENT[@]}" "$TMP/web" fetch "http://$1/large?bytes=30000000"
    told "put" "${CLIENT[@]}" "$TMP/web" put "http://$1/put" "$TMP/large"
    told "curl" "${CLIENT[@]}" curl --silent --show-error -T "$TMP/large" "http://$1/put"
    told "many" "${CLIENT[@]}" "$TMP/web" get "http://$1/small" 1000 8
}

# ---- a tenant ------------------------------------------------------------------------------------------------------

tenant() {
    MODE=$1
    case $MODE in
        kernel)
            IN=(nsenter --net="/run/netns/$INSIDE")
            AT=$OWN:80
            ;;
        tenant)
            IN=("$NETCHANNEL_PROGRAM" tenants --socket "$SOCKET" run web -- nsenter --net="/run/netns/$EMPTY")
            AT=$HOST_ADDRESS:8080
            printf '%s\n' '[host]' 'name = "host"' '[[tenants]]' 'name = "web"' "addresses = [\"$OWN\"]" 'reach = ["10.7.0.0/24"]' \
                "publish = [\"$HOST_ADDRESS:8080:80\"]" "resolver = \"$WORLD\"" >"$TMP/netchannel.toml"
            start daemon "${ON_HOST[@]}" "$NETCHANNEL_PROGRAM" daemon --socket "$SOCKET" --config "$TMP/netchannel.toml"
            DAEMON=$LAST_STARTED
            until_true 10 "the tenant's socket" test -S "$TENANT_SOCKET"
            ;;
    esac
    CLIENT=("${IN[@]}")
}

tenant() {
    start world "${OUT[@]}" "$TMP/web" serve "$WORLD:8000"
    until_true 10 "the world's server" "${OUT[@]}" curl --silent --output /dev/null "http://$WORLD:8000/small"
    web "$WORLD:8000"
    told "nobody listens outside" "${IN[@]}" "$TMP/web" dial "$WORLD:8001"
    told "own address" "${IN[@]}" "$TMP/web" dial "$OWN:81"
    names
    # A listener of the tenant, from outside and from within.
    start web "${IN[@]}" "$TMP/web" serve "0.0.0.0:80"
    until_true 10 "the tenant's server" "${OUT[@]}" curl --silent --output /dev/null --max-time 1 "http://$AT/small"
    told "who" "${OUT[@]}" curl --silent "http://$AT/who"
    told "large" "${OUT[@]}" "$TMP/web" fetch "http://$AT/large?bytes=30000000"
    told "upload" "${OUT[@]}" curl --silent -T "$TMP/large" "http://$AT/put"
    told "many from outside" "${OUT[@]}" "$TMP/web" get "http://$AT/small" 1000 8
    told "a neighbour with the library" "${IN[@]}" curl --silent -T "$TMP/large" "http://127.0.0.1:80/put"
    told "a neighbour without" "${IN[@]}" "$TMP/web" put "http://$OWN:80/put" "$TMP/large"
    stop "$LAST_STARTED"
    told "a second server" "${IN[@]}" sh -c "'$TMP/web' serve :80 & sleep 0.3; '$TMP/web' serve :80; kill \$!"
    told "nobody listens inside" "${OUT[@]}" "$TMP/web" dial "$AT"
}

# Programs' own resolvers, over UDP: Go's and musl's.
names() {
    local name
    start names "${OUT[@]}" "$PYTHON" "$HERE/helpers/dns_server.py" "$WORLD" 53 "$WORLD"
    until_true 10 "the world's names" "${OUT[@]}" "$PYTHON" -c "import socket; socket.create_connection(('$WORLD', 53))"
    printf 'search world.test\nnameserver %s\noptions timeout:2\n' "$WORLD" >"$TMP/resolv.conf"
    BY=(unshare --mount sh -c 'mount --bind "$0" /etc/resolv.conf && exec "$@"' "$TMP/resolv.conf" "${IN[@]}")
    for name in alias.world.test four six.world.test many.world.test empty.world.test missing.world.test broken.world.test; do
        told "Go: $name" "${BY[@]}" "$TMP/web" names "$name"
    done
    told "Go: a page by name" "${BY[@]}" "$TMP/web" fetch "http://four.world.test:8000/small"
    if [ -x "$TMP/names" ]; then
        told "musl" "${BY[@]}" "$TMP/names" four four.world.test six.world.test empty.world.test missing.world.test
    fi
}

# ---- a supervisor that is killed -------------------------------------------------------------------------------------

killed() {
    local runner supervisor reader
    MODE=killed
    start_daemon
    free_port PORT
    start server "$PYTHON" -c "
import socket, time
s = socket.create_server(('127.0.0.1', $PORT))
held = []
while True:
    held.append(s.accept()[0])
    held[-1].send(b'x')"
    wait_port "$PORT" server
    # What a program reads and is told then.
    cc -O1 -static -o "$TMP/held" -x c - <<'C'
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int count, char **words) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(words[count - 1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char byte;
    if (connect(fd, (void *)&a, sizeof a) < 0 || read(fd, &byte, 1) != 1) return 1;
    puts("connected");
    fflush(stdout);
    ssize_t got = read(fd, &byte, 1);
    printf("read: %s\n", got < 0 ? strerror(errno) : "an end");
    printf("socket: %s\n", socket(AF_INET, SOCK_STREAM, 0) < 0 ? strerror(errno) : "made");
    printf("listen: %s\n", listen(fd, 1) < 0 ? strerror(errno) : "fine");
    printf("local: %s\n", socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? strerror(errno) : "made");
    return 7;
}
C
    start held "$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --static=plain -- "$TMP/held" "$PORT"
    runner=$LAST_STARTED
    until_true 10 "a connection" grep -q connected "$TMP/held.log"
    supervisor=$(cat "/proc/$runner/task/$runner/children")
    kill -KILL $supervisor
    local code=0
    wait_end "$runner" 10 || code=$?
    local wanted="connected|read: Connection reset by peer|socket: Network is down|listen: Network is down|local: made|"
    [ "$(tr '\n' '|' <"$TMP/held.log")" = "$wanted" ] || fail "a supervisor that is killed: $(cat "$TMP/held.log")"
    [ "$code" = 7 ] || fail "the program under a killed supervisor ended with $code"
    # What a program leaves behind is answered, too, and nobody waits for those who do.
    limited 10 "$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --static=plain -- \
        sh -c "'$TMP/held' $PORT >'$TMP/left.log' 2>&1 & echo \$!" | cat >"$TMP/left.pid"
    until_true 10 "a connection" grep -q connected "$TMP/left.log"
    supervisor=$(awk '{print $4}' "/proc/$(cat "$TMP/left.pid")/stat")
    kill -KILL "$supervisor"
    until_true 10 "the end of what is left" grep -q local "$TMP/left.log"
    [ "$(tr '\n' '|' <"$TMP/left.log")" = "$wanted" ] || fail "what is left under a supervisor that is killed: $(cat "$TMP/left.log")"
    # Whoever kills the runner means the program.
    start sleeper "$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --static=plain -- sleep 61.25
    runner=$LAST_STARTED
    until_true 10 "the program" pgrep -f '^sleep 61.25'
    kill -KILL "$runner"
    until_true 10 "the end of the program" sh -c '! pgrep -f "^sleep 61.25"'
    code=0
    "$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --static=plain -- sh -c 'kill -TERM $$' || code=$?
    [ "$code" = 143 ] || fail "a program that a signal ended: $code"
    code=0
    "$NETCHANNEL_PROGRAM" run --socket "$SOCKET" --static=plain -- "$TMP/missing" 2>"$TMP/missing.log" || code=$?
    [ "$code" = 127 ] || fail "a program that does not exist: $code"
    stop_scenario
    stop_daemon
    echo "result: 6 ends as they should be"
}

# compare WHERE MODE: runs the scenario over kernel TCP and in a mode.
compare() {
    local where=$1 mode
    rm -f "$TMP"/observed.*
    shift
    for mode in kernel "$@"; do
        echo "== $where ($mode)"
        case $where in
            one_host) enter_static "$mode" ;;
            tenant)
                enter "$mode"
                CLIENT=("${IN[@]}")
                ;;
        esac
        : >"$TMP/observed.$mode"
        "$where"
        stop_all
        DAEMON=
        rm -f "$SOCKET" "$SOCKET.control"
        MODE=
        diff -u --label kernel --label "$mode" "$TMP/observed.kernel" "$TMP/observed.$mode" ||
            fail "$where ($mode) saw something else than over kernel TCP"
    done
    echo "result: $where: $(($# + 1)) modes, $(wc -l <"$TMP/observed.kernel") observations each"
}

build
make_data "$TMP/large" 30000003 large
if [ "$NETCHANNEL_PROGRAM" = none ]; then
    compare one_host
    exit 0
fi
compare one_host plain server
killed
if [ "$(id -u)" = 0 ] && command -v ip nsenter >/dev/null; then
    # Only now: its daemon is the tenant's.
    . "$HERE/helpers/tenant.sh"
    if make_namespaces; then compare tenant tenant; else left_out "a tenant: no network namespace can be made"; fi
else
    left_out "a tenant: namespaces are made by root only"
fi
