// Sockets as programs use them, within one process and its children; linked statically, so that no library is in the way. What it
// prints must be the same over kernel TCP and under a supervisor.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
}

static const char *error(int result) {
    return result >= 0 ? "fine" : strerror(errno);
}

static struct sockaddr_in at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return address;
}

static int port_of(int fd, int peer) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int result = peer ? getpeername(fd, (void *)&address, &length) : getsockname(fd, (void *)&address, &length);
    return result < 0 ? -errno : ntohs(address.sin_port);
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) < 0 ? -errno : value;
}

static int tcp(int flags) { return socket(AF_INET, SOCK_STREAM | flags, 0); }

static int listener(int flags, int *port) {
    int fd = tcp(flags), one = 1;
    struct sockaddr_in address = at(0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&address, sizeof address) < 0 || listen(fd, 16) < 0) say("listener: %s", error(-1));
    *port = port_of(fd, 0);
    return fd;
}

static int dial(int fd, int port) {
    struct sockaddr_in address = at(port);
    return connect(fd, (void *)&address, sizeof address);
}

// A connection: the client's end and the server's.
static void connected(int *client, int *server) {
    int port, fd = listener(0, &port);
    *client = tcp(0);
    if (dial(*client, port) < 0) say("connect: %s", error(-1));
    *server = accept(fd, NULL, NULL);
    close(fd);
}

static void blocking(void) {
    int port, fd = listener(0, &port);
    pid_t child = fork();
    if (child == 0) {
        int client = tcp(0);
        char text[32] = {0};
        usleep(50000);
        if (dial(client, port) < 0) exit(1);
        if (port_of(client, 1) != port || port_of(client, 0) <= 0) exit(2);
        if (write(client, "question", 8) != 8 || shutdown(client, SHUT_WR) < 0) exit(3);
        size_t got = 0;
        for (ssize_t more; (more = read(client, text + got, sizeof text - got)) > 0;) got += more;
        exit(strcmp(text, "answer") ? 4 : 0);
    }
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    char text[32] = {0};
    int server = accept(fd, (void *)&peer, &length);
    say("accept: %s, length %d, family %d, %s", error(server), (int)length, peer.sin_family, inet_ntoa(peer.sin_addr));
    say("names agree: %d %d", ntohs(peer.sin_port) == port_of(server, 1), port_of(server, 0) == port);
    size_t got = 0;
    for (ssize_t more; (more = read(server, text + got, sizeof text - got)) > 0;) got += more;
    say("read to the end: %s", text);
    write(server, "answer", 6);
    close(server);
    int status;
    waitpid(child, &status, 0);
    say("client: %d", WEXITSTATUS(status));
    close(fd);
}

static void options(void) {
    int fd = tcp(SOCK_CLOEXEC), one = 1;
    say("fresh: type %d domain %d protocol %d accepts %d error %d", option(fd, SOL_SOCKET, SO_TYPE), option(fd, SOL_SOCKET, SO_DOMAIN),
        option(fd, SOL_SOCKET, SO_PROTOCOL), option(fd, SOL_SOCKET, SO_ACCEPTCONN), option(fd, SOL_SOCKET, SO_ERROR));
    say("flags: %d %d", fcntl(fd, F_GETFD), fcntl(fd, F_GETFL) & O_NONBLOCK);
    int before = option(fd, IPPROTO_TCP, TCP_NODELAY), set = setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    say("no delay: %d %d %d", before, set, option(fd, IPPROTO_TCP, TCP_NODELAY));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    int idle = 77;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    say("alive: %d %d", option(fd, SOL_SOCKET, SO_KEEPALIVE), option(fd, IPPROTO_TCP, TCP_KEEPIDLE));
    say("unknown: %d", option(fd, IPPROTO_TCP, 999));
    struct linger linger = {1, 5};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    socklen_t length = sizeof linger;
    memset(&linger, 0, sizeof linger);
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length);
    say("linger: %d %d %d", linger.l_onoff, linger.l_linger, (int)length);
    struct timeval wait = {0, 100000};
    int client, server;
    connected(&client, &server);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    char byte;
    say("waited: %s", error(read(client, &byte, 1)));
    struct tcp_info info;
    length = sizeof info;
    memset(&info, 0, sizeof info);
    int result = getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &length);
    say("info: %s, state %d", error(result), info.tcpi_state);
    say("listens: %d", option(server, SOL_SOCKET, SO_ACCEPTCONN));
    close(client);
    close(server);
    close(fd);
}

static void states(void) {
    int port, fd = listener(0, &port), other = tcp(0);
    struct sockaddr_in address = at(port);
    say("taken: %s", error(bind(other, (void *)&address, sizeof address)));
    say("accept without listening: %s", error(accept(other, NULL, NULL)));
    say("peer of none: %d", port_of(other, 1));
    say("shut of none: %s", error(shutdown(other, SHUT_WR)));
    say("connect a listener: %s", error(dial(fd, port)));
    say("listens: %d, twice: %s", option(fd, SOL_SOCKET, SO_ACCEPTCONN), error(listen(fd, 5)));
    close(other);
    int client, server;
    connected(&client, &server);
    say("connected twice: %s", error(dial(client, port)));
    say("listen connected: %s", error(listen(client, 5)));
    close(client);
    close(server);
    close(fd);
    client = tcp(0);
    say("refused: %s", error(dial(client, port)));
    say("error then: %d, peer %d", option(client, SOL_SOCKET, SO_ERROR), port_of(client, 1));
    fd = listener(0, &port);
    say("again: %s", error(dial(client, port)));
    close(client);
    close(fd);
    say("protocol: %s", error(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP)));
}

static void bad(void) {
    int port, fd = listener(0, &port), client = tcp(0);
    void *nowhere = (void *)8;
    socklen_t length = 16;
    struct sockaddr_in address = at(port);
    say("connect: %s", error(connect(client, nowhere, 16)));
    say("connect, length: %s", error(connect(client, (void *)&address, 4096)));
    say("connect, short: %s", error(connect(client, (void *)&address, 3)));
    say("bind: %s", error(bind(client, nowhere, 16)));
    say("name: %s", error(getsockname(client, nowhere, &length)));
    say("name, length: %s", error(getsockname(client, (void *)&address, nowhere)));
    length = -1;
    say("name, negative: %s", error(getsockname(client, (void *)&address, &length)));
    say("option: %s", error(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, nowhere, 4)));
    say("option, short: %s", error(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &port, 1)));
    length = 4;
    say("option, out: %s", error(getsockopt(client, IPPROTO_TCP, TCP_NODELAY, nowhere, &length)));
    length = 2;
    memset(&address, 0, sizeof address);
    int cut = getsockname(fd, (void *)&address, &length);
    say("name, cut: %s, %d, family %d, port %d", error(cut), (int)length, address.sin_family, address.sin_port);
    say("closed: %s %s", error(connect(-1, (void *)&address, sizeof address)), error(listen(999, 1)));
    say("no socket: %s", error(listen(1, 1)));
    close(client);
    close(fd);
}

static void ready(void) {
    int port, fd = listener(SOCK_NONBLOCK, &port);
    say("none waits: %s", error(accept(fd, NULL, NULL)));
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = 1}, got;
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    say("epoll: %d", epoll_wait(set, &got, 1, 50));
    // Added before it is connected.
    int client = tcp(SOCK_NONBLOCK);
    int clients = epoll_create1(0);
    event.events = EPOLLOUT | EPOLLIN | EPOLLET;
    event.data.u32 = 2;
    int kept = dup(client);
    int began = dial(client, port);
    say("connect: %s", error(began));
    epoll_ctl(clients, EPOLL_CTL_ADD, client, &event);
    say("epoll: %d", epoll_wait(clients, &got, 1, 2000));
    say("there: %x, error %d, peer %d", got.events & (EPOLLOUT | EPOLLIN | EPOLLERR | EPOLLHUP), option(client, SOL_SOCKET, SO_ERROR), port_of(client, 1) == port);
    struct pollfd poll_one = {.fd = fd, .events = POLLIN | POLLOUT};
    int told = poll(&poll_one, 1, 2000);
    say("poll: %d %x", told, poll_one.revents);
    say("edge: %d", epoll_wait(set, &got, 1, 2000));
    say("no edge: %d", epoll_wait(set, &got, 1, 50));
    int server = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("accept: %s, flags %d %d", error(server), fcntl(server, F_GETFD), fcntl(server, F_GETFL) & O_NONBLOCK);
    say("none waits: %s", error(accept(fd, NULL, NULL)));
    poll_one.revents = 0;
    told = poll(&poll_one, 1, 50);
    say("poll: %d %x", told, poll_one.revents);
    // A duplicate made before the connect.
    close(client);
    say("duplicate: %s", error(write(kept, "x", 1)));
    char byte = 0;
    struct pollfd wait = {.fd = server, .events = POLLIN};
    poll(&wait, 1, 2000);
    int got_bytes = read(server, &byte, 1);
    say("read: %d %c", got_bytes, byte);
    say("empty: %s", error(read(server, &byte, 1)));
    close(kept);
    poll(&wait, 1, 2000);
    say("end: %d", (int)read(server, &byte, 1));
    close(server);
    close(fd);
    usleep(20000);
    client = tcp(SOCK_NONBLOCK);
    began = dial(client, port);
    if (began < 0 && errno == EINPROGRESS) {
        wait.fd = client;
        wait.events = POLLOUT;
        poll(&wait, 1, 2000);
        int first = option(client, SOL_SOCKET, SO_ERROR), second = option(client, SOL_SOCKET, SO_ERROR);
        say("refused: %x %s, then %d", wait.revents & (POLLERR | POLLHUP | POLLOUT), strerror(first), second);
    } else {
        say("refused: %s", error(began));
    }
    close(client);
    close(set);
    close(clients);
}

static void members(void) {
    // A member of a set from before the connect.
    int port, fd = listener(0, &port), client = tcp(SOCK_NONBLOCK), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u32 = 7}, got;
    epoll_ctl(set, EPOLL_CTL_ADD, client, &event);
    epoll_wait(set, &got, 1, 20);
    dial(client, port);
    int told = 0;
    for (int tries = 0; tries < 20 && !(told & EPOLLOUT && !(told & EPOLLHUP)); tries++)
        if (epoll_wait(set, &got, 1, 100) > 0) told = got.events;
    say("member: %x", told & (EPOLLOUT | EPOLLIN | EPOLLHUP));
    int server = accept(fd, NULL, NULL);
    write(server, "x", 1);
    told = 0;
    for (int tries = 0; tries < 20 && !(told & EPOLLIN); tries++)
        if (epoll_wait(set, &got, 1, 100) > 0) told = got.events;
    say("member reads: %x", told & EPOLLIN);
    event.events = EPOLLIN;
    say("changed: %s", error(epoll_ctl(set, EPOLL_CTL_MOD, client, &event)));
    say("removed: %s", error(epoll_ctl(set, EPOLL_CTL_DEL, client, NULL)));
    close(client);
    close(server);
    close(fd);
    close(set);
}

static void resets(void) {
    int client, server;
    char byte;
    connected(&client, &server);
    struct linger at_once = {1, 0};
    setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(server);
    say("linger 0: %s", error(read(client, &byte, 1)));
    say("then: %s", error(read(client, &byte, 1)));
    close(client);
    connected(&client, &server);
    write(client, "unread", 6);
    usleep(50000);
    close(server);
    say("closed unread: %s", error(read(client, &byte, 1)));
    close(client);
    connected(&client, &server);
    close(server);
    usleep(50000);
    signal(SIGPIPE, SIG_IGN);
    say("closed: read %d", (int)read(client, &byte, 1));
    say("first write: %s", error(write(client, "x", 1)));
    usleep(50000);
    say("second write: %s", error(write(client, "x", 1)));
    close(client);
    signal(SIGPIPE, SIG_DFL);
}

static void children(void) {
    int client, server;
    connected(&client, &server);
    if (fork() == 0) {
        write(client, "child ", 6);
        exit(0);
    }
    wait(NULL);
    if (fork() == 0) {
        dup2(client, 1);
        execl("/bin/sh", "sh", "-c", "echo executed", NULL);
        exit(1);
    }
    wait(NULL);
    shutdown(client, SHUT_WR);
    char text[64] = {0};
    size_t got = 0;
    for (ssize_t more; (more = read(server, text + got, sizeof text - got)) > 0;) got += more;
    text[strcspn(text, "\n")] = 0;
    say("children: %s", text);
    close(client);
    close(server);
}

static volatile int rung;
static void ring(int signal) { rung = signal; }

static void interrupted(void) {
    int port, fd = listener(0, &port);
    struct sigaction action = {.sa_handler = ring};
    sigaction(SIGALRM, &action, NULL);
    ualarm(100000, 0);
    int none = accept(fd, NULL, NULL);
    say("accept: %s, %d", error(none), rung);
    // With SA_RESTART it goes on, and gets the connection.
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    pid_t child = fork();
    if (child == 0) {
        int client = tcp(0);
        usleep(300000);
        exit(dial(client, port) < 0);
    }
    ualarm(100000, 0);
    int server = accept(fd, NULL, NULL);
    say("goes on: %s", error(server));
    int status;
    waitpid(child, &status, 0);
    say("child: %d", WEXITSTATUS(status));
    close(server);
    close(fd);
}

static void *shut(void *fd) {
    usleep(100000);
    shutdown(*(int *)fd, SHUT_RDWR);
    return NULL;
}

static int thread_port;
static void *in_thread(void *unused) {
    (void)unused;
    int fd = tcp(0);
    char text[8] = {0};
    if (dial(fd, thread_port) < 0 || read(fd, text, 6) != 6) say("thread: %s", error(-1));
    say("thread: %s", text);
    close(fd);
    return NULL;
}

static void threads(void) {
    int port, fd = listener(0, &port);
    pthread_t thread;
    thread_port = port;
    pthread_create(&thread, NULL, in_thread, NULL);
    int server = accept(fd, NULL, NULL);
    write(server, "thread", 6);
    pthread_join(thread, NULL);
    close(server);
    pthread_create(&thread, NULL, shut, &fd);
    say("shut: %s", error(accept(fd, NULL, NULL)));
    pthread_join(thread, NULL);
    close(fd);
}

static void others(void) {
    int one = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = at(0);
    bind(one, (void *)&address, sizeof address);
    address = at(port_of(one, 0));
    char text[8] = {0};
    sendto(other, "packet", 6, 0, (void *)&address, sizeof address);
    int got = recv(one, text, 8, 0);
    say("packet: %d %s", got, text);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    write(pair[0], "local", 5);
    memset(text, 0, 8);
    got = read(pair[1], text, 8);
    say("local: %d %s, family %d", got, text, option(pair[0], SOL_SOCKET, SO_DOMAIN));
    int netlink = socket(AF_NETLINK, SOCK_RAW, 0);
    say("netlink: %s", error(netlink));
    close(one), close(other), close(pair[0]), close(pair[1]), close(netlink);
}

static void reading(void) {
    int client, server, waiting;
    char text[16] = {0};
    connected(&client, &server);
    write(client, "abcdef", 6);
    usleep(50000);
    ioctl(server, FIONREAD, &waiting);
    int peeked = recv(server, text, 3, MSG_PEEK), all = recv(server, text, 6, MSG_WAITALL);
    say("waits: %d, peeked %d, all %d %.6s", waiting, peeked, all, text);
    say("not at once: %s", error(recv(server, text, 6, MSG_DONTWAIT)));
    // More than fits anywhere.
    static char large[4 << 20];
    if (fork() == 0) {
        size_t sent = 0;
        for (ssize_t more; sent < sizeof large && (more = write(client, large, sizeof large - sent)) > 0;) sent += more;
        exit(0);
    }
    close(client);
    size_t got = 0;
    usleep(100000);
    for (ssize_t more; (more = read(server, large, sizeof large)) > 0;) got += more;
    say("large: %zu", got);
    wait(NULL);
    close(server);
}

static void many(void) {
    int port, fd = listener(0, &port), right = 0;
    for (int count = 0; count < 300; count++) {
        int client = tcp(0);
        if (dial(client, port) < 0) break;
        int server = accept(fd, NULL, NULL);
        char byte;
        write(client, "x", 1);
        right += read(server, &byte, 1) == 1;
        close(count % 2 ? client : server);
        close(count % 2 ? server : client);
    }
    say("many: %d", right);
    int held[100], waiting = 0;
    for (int count = 0; count < 10; count++) {
        held[count] = tcp(0);
        waiting += dial(held[count], port) == 0;
    }
    say("waiting: %d", waiting);
    for (int count = 0; count < 10; count++) close(accept(fd, NULL, NULL)), close(held[count]);
    close(fd);
}

int main(int count, char **words) {
    struct {
        const char *name;
        void (*test)(void);
    } all[] = {{"options", options}, {"states", states}, {"bad", bad}, {"blocking", blocking}, {"ready", ready}, {"members", members},
               {"resets", resets}, {"children", children}, {"interrupted", interrupted}, {"threads", threads}, {"others", others},
               {"reading", reading}, {"many", many}};
    for (size_t index = 0; index < sizeof all / sizeof *all; index++)
        if (count < 2 || !strcmp(words[1], all[index].name)) {
            say("== %s", all[index].name);
            all[index].test();
        }
    return 0;
}
