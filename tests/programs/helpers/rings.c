/* Programs with rings of io_uring. Calls named raw_* are inline, as those of liburing are: no library sees them.
 *
 * serve PORT        a server by libc alone: what comes is sent back, until each client ends
 * ring-serves PORT  the same with a ring that was there before the listener, for all of it
 * late-serves PORT  the same: listens and accepts by libc, with a ring made in between, for what is read and written
 * asked PORT        asks for rings by functions of libc and liburing, says what it got; then connects without
 * before PORT       makes a ring, connects by libc, sends and receives by the ring
 * by-ring PORT      the same, and connects by the ring
 * between PORT      connects, makes a ring, connects again; sends and receives by the ring on both
 * over-exec PORT    connects, makes a ring that outlives an exec, executes itself; there sends and receives by a ring
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef WITH_LIBURING
#include <liburing.h>
#endif

enum { BYTES = 300000, PIECE = 10000 };

static long raw(long number, long a, long b, long c, long d, long e, long f) {
    long result;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    result = x0;
#else
#error "no inline call for this machine"
#endif
    return result;
}

static void fail(const char *what, long error) {
    printf("%s: %s\n", what, strerror((int)error));
    exit(1);
}

/* ---- a ring ------------------------------------------------------------------------------------------------------ */

static int ring = -1;
static struct io_uring_params parameters;
static char *rings;
static struct io_uring_sqe *submissions;

static unsigned *word(unsigned offset) {
    return (unsigned *)(rings + offset);
}

static void make_ring(void) {
    memset(&parameters, 0, sizeof parameters);
    ring = (int)raw(SYS_io_uring_setup, 8, (long)&parameters, 0, 0, 0, 0);
    if (ring < 0) {
        printf("no rings here: %s\n", strerror(-ring));
        exit(77);
    }
    rings = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    submissions = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    if (rings == MAP_FAILED || submissions == MAP_FAILED) fail("mmap", errno);
}

/* One operation, waited for. */
static long by_ring(int operation, int fd, const void *at, unsigned length) {
    unsigned tail = *word(parameters.sq_off.tail);
    unsigned place = tail & *word(parameters.sq_off.ring_mask);
    struct io_uring_sqe *one = &submissions[place];
    memset(one, 0, sizeof *one);
    one->opcode = (uint8_t)operation;
    one->fd = fd;
    one->addr = (uint64_t)(uintptr_t)at;
    one->len = length;
    if (operation == IORING_OP_CONNECT) {
        one->off = length;
        one->len = 0;
    }
    word(parameters.sq_off.array)[place] = place;
    __atomic_store_n(word(parameters.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
    long entered = raw(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    if (entered < 0) fail("io_uring_enter", -entered);
    unsigned head = *word(parameters.cq_off.head);
    if (head == __atomic_load_n(word(parameters.cq_off.tail), __ATOMIC_ACQUIRE)) fail("no completion", 0);
    struct io_uring_cqe *done = (struct io_uring_cqe *)(rings + parameters.cq_off.cqes);
    long result = done[head & *word(parameters.cq_off.ring_mask)].res;
    __atomic_store_n(word(parameters.cq_off.head), head + 1, __ATOMIC_RELEASE);
    return result;
}

/* ---- bytes, by libc where there is no ring ------------------------------------------------------------------------ */

static long put(int fd, const void *bytes, size_t length) {
    if (ring < 0) return send(fd, bytes, length, 0);
    return by_ring(IORING_OP_SEND, fd, bytes, (unsigned)length);
}

static long take(int fd, void *bytes, size_t length) {
    if (ring < 0) return recv(fd, bytes, length, 0);
    return by_ring(IORING_OP_RECV, fd, bytes, (unsigned)length);
}

static void put_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        long some = put(fd, bytes, length);
        if (some <= 0) fail("send", some < -1 ? -some : errno);
        bytes += some;
        length -= (size_t)some;
    }
}

/* What is sent comes back. */
static void talk(const char *name, int fd) {
    char out[PIECE], in[PIECE];
    for (unsigned begun = 0; begun < BYTES; begun += PIECE) {
        for (unsigned at = 0; at < PIECE; at++) out[at] = (char)((begun + at) * 2654435761u >> 16);
        put_all(fd, out, PIECE);
        for (size_t got = 0; got < PIECE;) {
            long some = take(fd, in + got, PIECE - got);
            if (some <= 0) fail("recv", some < -1 ? -some : errno);
            got += (size_t)some;
        }
        if (memcmp(out, in, PIECE) != 0) fail("other bytes came back", 0);
    }
    shutdown(fd, SHUT_WR);
    long end = take(fd, in, PIECE);
    printf("%s: %d bytes came back, then %ld\n", name, BYTES, end);
    close(fd);
}

static struct sockaddr_in address(const char *port) {
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return made;
}

static int connected(const char *port) {
    struct sockaddr_in to = address(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) fail("connect", errno);
    return fd;
}

static int listening(const char *port) {
    struct sockaddr_in at = address(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 16) < 0) fail("listen", errno);
    return fd;
}

static void echo(int fd) {
    char bytes[PIECE];
    for (;;) {
        long some = take(fd, bytes, sizeof bytes);
        if (some <= 0) break;
        put_all(fd, bytes, (size_t)some);
    }
    close(fd);
}

/* ---- programs ----------------------------------------------------------------------------------------------------- */

static void asked(void) {
    static const char *const names[] = {"io_uring_setup", "io_uring_queue_init", "io_uring_queue_init_params",
                                        "io_uring_queue_init_mem"};
    /* Larger than what any of them writes. */
    static char room[3][4096];
    long made = syscall(SYS_io_uring_setup, 8, room[0]);
    fprintf(stderr, "asked syscall: %s\n", made < 0 ? strerror(errno) : "made");
#ifdef WITH_LIBURING
    made = io_uring_queue_init(8, (struct io_uring *)room[0], 0);
    fprintf(stderr, "asked liburing: %s\n", made < 0 ? strerror((int)-made) : "made");
    made = io_uring_queue_init_params(8, (struct io_uring *)room[0], (struct io_uring_params *)room[2]);
    fprintf(stderr, "asked liburing with parameters: %s\n", made < 0 ? strerror((int)-made) : "made");
#endif
    for (unsigned index = 0; index < 4; index++) {
        long (*call)(unsigned, void *, void *, void *, size_t) =
            (long (*)(unsigned, void *, void *, void *, size_t))dlsym(RTLD_DEFAULT, names[index]);
        /* The flags of one of them are where the others have parameters: none, in either case. */
        void *third = index == 1 ? 0 : room[2];
        long got = call == 0 ? -ENOENT : (int)call(8, index == 0 ? room[1] : room[0], third, room[1], sizeof room[1]);
        fprintf(stderr, "asked %s: %s\n", names[index], got < 0 ? strerror((int)-got) : "made");
    }
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IOLBF, 0);
    if (count < 3) return 2;
    const char *what = arguments[1], *port = arguments[2];
    if (strcmp(what, "serve") == 0) {
        int fd = listening(port);
        for (;;) echo(accept(fd, 0, 0));
    } else if (strcmp(what, "ring-serves") == 0) {
        make_ring();
        int fd = listening(port);
        for (;;) {
            long made = by_ring(IORING_OP_ACCEPT, fd, 0, 0);
            if (made < 0) fail("accept", -made);
            echo((int)made);
        }
    } else if (strcmp(what, "late-serves") == 0) {
        int fd = listening(port);
        make_ring();
        for (;;) {
            int made = accept(fd, 0, 0);
            if (made < 0) fail("accept", errno);
            echo(made);
        }
    } else if (strcmp(what, "asked") == 0) {
        asked();
        talk(what, connected(port));
    } else if (strcmp(what, "before") == 0) {
        make_ring();
        talk(what, connected(port));
    } else if (strcmp(what, "by-ring") == 0) {
        make_ring();
        struct sockaddr_in to = address(port);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        long done = by_ring(IORING_OP_CONNECT, fd, &to, sizeof to);
        if (done < 0) fail("connect", -done);
        talk(what, fd);
    } else if (strcmp(what, "between") == 0) {
        /* A connection to a server that takes one after the other: the first must have its say before the second comes. */
        int first = connected(port);
        make_ring();
        int second = connected(port);
        talk("first", first);
        talk("second", second);
    } else if (strcmp(what, "over-exec") == 0) {
        int fd = connected(port);
        char number[16];
        make_ring();
        fcntl(ring, F_SETFD, 0);
        snprintf(number, sizeof number, "%d", fd);
        execl("/proc/self/exe", arguments[0], "executed", number, (char *)0);
        fail("exec", errno);
    } else if (strcmp(what, "executed") == 0) {
        make_ring();
        talk("over-exec", atoi(port));
    } else {
        return 2;
    }
    return 0;
}
