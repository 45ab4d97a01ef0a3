#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int v[1100];                                   /* descriptors by the step that made them */
static struct { int turn, same; struct sockaddr_storage names[1100]; } *shared;
static int me;                                        /* which actor this process is */

static void on_signal(int number) { (void)number; }
/* Waits for a step's turn, if it is this actor's. */
static int mine(int place, int actor)
{
    if (me != actor)
        return 0;
    while (*(volatile int *)&shared->turn < place)
        usleep(200);
    return 1;
}
/* Not back: a child that was just made ends the step of its fork, and its parent may be further on. */
static void turn_to(int place)
{
    int now = shared->turn;
    while (now < place && !__atomic_compare_exchange_n(&shared->turn, &now, place, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}
static void *bad(void) { return mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
/* A buffer of which only the first half is there. */
static void *edge(size_t size)
{
    size_t round = (size / 2 + 4096) & ~(size_t)4095;
    char *at = mmap(0, round + size + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at + round, size + 4096 & ~(size_t)4095, PROT_NONE);
    return at + round - size / 2;
}
/* An address: of a socket's name, or on this host with some port. */
static socklen_t address(void *to, int what, int of, int family)
{
    struct sockaddr_in *four = to;
    struct sockaddr_in6 *six = to;
    memset(to, 0, sizeof(struct sockaddr_storage));
    if (what == 0 && shared->names[of].ss_family) {
        memcpy(to, &shared->names[of], sizeof(struct sockaddr_storage));
        return four->sin_family == AF_INET6 ? sizeof *six : sizeof *four;
    }
    in_port_t port = what == 0 ? htons(2) : what == 7 ? htons(1) : what == 8 || what == 11 ? ((struct sockaddr_in *)&shared->names[of])->sin_port : 0;
    if (what == 5 || what == 6) {
        four->sin_family = what == 5 ? AF_UNIX : AF_UNSPEC;
        return what == 5 ? 110 : 16;
    }
    if (what == 8 || (family == 6 && what != 9 && what != 10)) {
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
        if (what == 8)
            memcpy(&six->sin6_addr, "\0\0\0\0\0\0\0\0\0\0\377\377\177\0\0\1", 16);
        else if (what != 2)
            six->sin6_addr = in6addr_loopback;
        return sizeof *six;
    }
    four->sin_family = AF_INET;
    four->sin_port = port;
    four->sin_addr.s_addr = htonl(what == 2 ? 0 : what == 9 ? 0x7f000002 : what == 10 ? 0xc0000201 : 0x7f000001);
    return sizeof *four;
}
static void keep_name(int of, const struct sockaddr_storage *name)
{
    shared->names[of] = *name;
    if (name->ss_family == AF_INET && !((struct sockaddr_in *)name)->sin_addr.s_addr)
        ((struct sockaddr_in *)&shared->names[of])->sin_addr.s_addr = htonl(0x7f000001);
    if (name->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)name)->sin6_addr))
        ((struct sockaddr_in6 *)&shared->names[of])->sin6_addr = in6addr_loopback;
}
static void start(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    int signals[] = {SIGALRM, SIGPIPE, SIGUSR1, SIGIO, SIGURG};
    for (int i = 0; i < 5; i++)
        sigaction(signals[i], &action, 0);
    memset(v, 255, sizeof v);
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(2);
}
