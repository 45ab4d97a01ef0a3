//! The text below every `--help`: examples and exit codes.

/// Of the program itself.
pub const PROGRAM: &str = "\
Examples:
  netchannel run -- redis-server        run a server with NetChannel under it
  netchannel run -- redis-benchmark     and a client: they talk memory to memory
  netchannel daemon --config FILE       keep channels to other hosts, which FILE names
  netchannel ss                         see which path every socket takes
  netchannel top                        see what moves
  netchannel doctor                     see what this host lacks
  netchannel profile -- COMMAND         see where its time goes

Exit codes:
  0  done    1  failed    2  the command line is wrong
  Commands name others below their own --help.";

/// Of `run`.
pub const RUN: &str = "\
Examples:
  netchannel run -- nginx -g 'daemon off;'
  netchannel run -- curl http://127.0.0.1:8080/
  netchannel run --require -- iperf3 -c 127.0.0.1
  netchannel run --class latency -- redis-server
  netchannel run --refuse-rings -- ./server-with-static-liburing
  netchannel run --static=plain -- ./go-server
  netchannel run --socket /tmp/mine.sock -- python3 server.py

A daemon is started where none serves; it ends by itself after 30 seconds without a program. Where
NetChannel cannot be used, one sentence says why and the program runs over kernel TCP. With
--static=plain the kernel asks a supervisor about the connections of programs that the library cannot
enter, and of all they start: docs/static.md.

Exit codes:
  the program's own, and
  125  the command line is wrong, NetChannel itself failed, or it could not be used and --require
       was given
  126  the program cannot be executed
  127  the program does not exist";

/// Of `daemon`.
pub const DAEMON: &str = "\
Examples:
  netchannel daemon
  netchannel daemon --background --idle-exit 60
  netchannel daemon --config /etc/netchannel/netchannel.toml
  netchannel daemon --socket /run/netchannel/test.sock --log /var/log/netchannel.log

SIGTERM and SIGINT end it cleanly; SIGHUP makes it read its configuration again, or ends it where it was started without --config.
Connections between programs of this host go on without it, and new ones go over kernel TCP; connections with other hosts end with it.
A service manager that asks for it (sd_notify) is told when the daemon serves and when it stops.

Exit codes:
  0  ended cleanly    1  could not serve    2  the command line is wrong
  3  another daemon serves at the path";

/// Of `status`.
pub const STATUS: &str = "\
Examples:
  netchannel status
  netchannel status --json
  netchannel status --tenant web
  netchannel status --socket /run/netchannel/test.sock

Exit codes:
  0  a daemon answered    1  none did, or it refused    2  the command line is wrong";

/// Of `stop`.
pub const STOP: &str = "\
Examples:
  netchannel stop
  netchannel stop --socket /run/netchannel/test.sock

Says how many connections with other hosts end with the daemon. Programs go on; new connections go over kernel TCP.

Exit codes:
  0  the daemon is stopping    1  none answered, or it refused    2  the command line is wrong";

/// Of `completions`.
pub const COMPLETIONS: &str = "\
Examples:
  source <(netchannel completions bash)
  netchannel completions zsh > ~/.zfunc/_netchannel
  netchannel completions fish > ~/.config/fish/completions/netchannel.fish

Exit codes:
  0  done    1  standard output cannot be written    2  the command line is wrong";

/// Of `ss`.
pub const SS: &str = "\
Examples:
  netchannel ss
  netchannel ss --program redis-server
  netchannel ss --path kernel
  netchannel ss --tenant web
  netchannel ss --listening --json

Reasons why a socket is kernel TCP:
  no-daemon, no-listener, remote, peer-down, backlog-full, quota, option, plain-client,
  unsupported, link-failed, no-entry, no-port, user-changed, io-uring, confined,
  shared

Exit codes:
  0  a daemon answered    1  none did, or it refused    2  the command line is wrong";

/// Of `top`.
pub const TOP: &str = "\
Examples:
  netchannel top
  netchannel top --interval 0.5
  netchannel top --once
  netchannel top --json --interval 5      rates over five seconds, for scripts

Keys: q ends it, as Ctrl-C does; blank looks at once.

Exit codes:
  0  ended as asked    1  no daemon answered    2  the command line is wrong";

/// Of `peers`.
pub const PEERS: &str = "\
Examples:
  netchannel peers
  netchannel peers --peer beta --json

L and T are channels of the latency class and of the throughput class: those that are up, and
in brackets how many there may be. docs/operating.md explains every column.

Exit codes:
  0  a daemon answered    1  none did, or it refused    2  the command line is wrong";

/// Of `channels`.
pub const CHANNELS: &str = "\
Examples:
  netchannel channels
  netchannel channels --peer beta --json

Exit codes:
  0  a daemon answered    1  none did, or it refused    2  the command line is wrong";

/// Of `stack`.
pub const STACK: &str = "\
Examples:
  netchannel stack kernel --name egress
  netchannel stack kernel --name egress --namespace /run/netns/wan --processors 2-3 --user 1500

The daemon starts the stacks of its configuration by itself, unless they say start = \"manual\". A stack
ends with its daemon. docs/stacks.md says how to write one.

Exit codes:
  0  the daemon has ended    1  it could not serve    2  the command line is wrong";

/// Of `tenants`.
pub const TENANTS: &str = "\
Examples:
  netchannel tenants
  netchannel tenants --json
  netchannel tenants run web -- podman run -d docker.io/library/nginx
  netchannel tenants run web -- unshare --net curl http://10.0.0.7/
  netchannel tenants run web -- ./go-server            static programs by a supervisor
  netchannel tenants run --static=off web -- nginx     nothing of the kind

A program of a tenant has no network of its own: it reaches what the tenant's table in netchannel.toml permits, and is reached at the
ports that it publishes. docs/tenants.md begins with a container that serves a page.

Exit codes:
  0  a daemon answered    1  none did, or it refused    2  the command line is wrong
  Of run: the program's own, and 125 where nothing serves the tenant, 126 and 127 as of netchannel run";

/// Of `guest`.
pub const GUEST: &str = "\
Examples:
  On the host, where tenant \"web\" is configured; before or after the machine starts:
  netchannel guest host web --memory /dev/shm/web --bell /run/netchannel/web.bell

The machine has the memory as a device, and a port of virtio-serial as doorbell:
  qemu-system-x86_64 ... \\
    -object memory-backend-file,id=nc,share=on,mem-path=/dev/shm/web,size=16M \\
    -device ivshmem-plain,memdev=nc -device virtio-serial \\
    -chardev socket,id=bell,path=/run/netchannel/web.bell,reconnect=1 \\
    -device virtserialport,chardev=bell,name=org.netchannel.0

In the machine, as root; then its programs are programs of the tenant:
  netchannel guest inside &
  netchannel run -- nginx

docs/guest.md has more.

Exit codes:
  0  it was told to end    2  the command line is wrong    125  it can not serve";

/// Of `set`.
pub const SET: &str = "\
Examples:
  netchannel set scheduler                                 the policies in use
  netchannel set scheduler --list                          all there are, with their parameters
  netchannel set scheduler shortest-queue
  netchannel set scheduler hysteresis most=8 busy=80%

What is set holds until the daemon ends or reads its configuration again.

Exit codes:
  0  done    1  no daemon answered, or it refused    2  the command line is wrong";

/// Of `config`.
pub const CONFIG: &str = "\
Without netchannel.toml, a daemon serves connections within its host only. With it, the daemon keeps
channels to the daemons of other hosts, its peers, and connections between their programs take them:

  1. netchannel config example > netchannel.toml     on each host; name the other one in it
  2. (umask 077; openssl rand -hex 32 > beta.key)    once; the same key file on both hosts
  3. netchannel config check netchannel.toml         tells every mistake, with its line
  4. netchannel daemon --config netchannel.toml      on both hosts

Examples:
  netchannel config check /etc/netchannel/netchannel.toml
  netchannel config check --json
  netchannel config reload

Exit codes:
  0  the file is valid, or was read again    1  it is not, or no daemon answered
  2  the command line is wrong";

/// Of `doctor`.
pub const DOCTOR: &str = "\
Examples:
  netchannel doctor
  netchannel doctor --json

Exit codes:
  0  nothing is missing, or only what makes it slower    1  something that is needed is missing
  2  the command line is wrong";

/// Of `bench`.
pub const BENCH: &str = "\
Examples:
  netchannel bench
  netchannel bench stream pingpong --pairs 3
  netchannel bench redis --json
  netchannel bench --plot result.svg
  netchannel bench hosts                           between two hosts
  netchannel bench patterns incast --flows 1,8     traffic patterns between them
  netchannel bench paper --html papers.html        what is found of the papers' figures

Exit codes:
  0  every run gave figures    1  some did not    2  the command line is wrong    130  interrupted";

/// Of `profile`.
pub const PROFILE: &str = "\
Examples:
  netchannel profile -- iperf3 -c 10.0.0.2                     a command, and what it starts
  netchannel profile --attach 1234 --for 5s                    a program that runs
  netchannel profile --system --for 10s --flame host.svg       everybody, as a picture, too
  netchannel profile --system -- netchannel bench stream       everybody, while a command runs
  netchannel profile --plot s.svg --around bench hosts stream  everybody, while a benchmark runs
  netchannel profile --repeat 5 --json -o a.json -- ./client   with the spread of five runs
  netchannel profile diff a.json b.json                        what changed
  netchannel profile --system --unclassified                   what this kernel has that the taxonomy lacks

The categories are those of the study 'Understanding Host Network Stack Overheads', NetChannel's own, and the
program's. An ordinary user sees the user space of his own programs, and it is said. docs/profiling.md explains
how to read it.

Exit codes:
  0  there is a profile    1  there is none, and it is said why    2  the command line is wrong";
