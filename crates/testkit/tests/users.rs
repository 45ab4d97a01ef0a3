//! Servers that switch to another user, as most that start as root do: workers behind an inherited listener, children
//! that serve one accepted connection, programs that give up their rights alone. They are served as before, and share
//! no memory with relatives that still run as the former user. Needs root; left out by name otherwise.

mod served;
#[path = "served/subject.rs"]
mod subject;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use netchannel_testkit::support::pattern;
use netchannel_testkit::sys::{self, IN};
use served::Served;
use subject::Subject;

/// The user that servers switch to.
const OTHER: libc::uid_t = 33;

fn start() -> Option<Served> {
    // SAFETY: plain question.
    if unsafe { libc::geteuid() } != 0 {
        println!("left out: to become another user's takes root");
        return None;
    }
    Served::start(&[])
}

/// The numbers of a line of the subject.
fn numbers(line: &str) -> Vec<u32> {
    let words = line.split_whitespace();
    words.map(|word| word.parse().unwrap()).collect()
}

/// The writable shared mappings of a process, and its memory descriptors: device and inode of each.
fn shared_memory(process: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mapped = maps.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let shared = words[1].starts_with("rw") && words[1].ends_with('s');
        shared.then(|| format!("{} {}", words[3], words[4]))
    });
    let folder = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let open = folder.flatten().filter_map(|one| {
        use std::os::linux::fs::MetadataExt;
        let target = std::fs::read_link(one.path()).ok()?;
        let file = std::fs::metadata(one.path()).ok()?;
        let is_memory = target.to_string_lossy().starts_with("/memfd:");
        let (major, minor) = (file.st_dev() >> 8, file.st_dev() & 0xff);
        is_memory.then(|| format!("{major:02x}:{minor:02x} {}", file.st_ino()))
    });
    mapped.chain(open).collect()
}

fn assert_nothing_in_common(one: u32, other: u32) {
    let (ours, theirs) = (shared_memory(one), shared_memory(other));
    assert!(!ours.is_empty(), "{one} has a region");
    let both: Vec<_> = ours.iter().filter(|name| theirs.contains(name)).collect();
    assert!(both.is_empty(), "{one} and {other} share {both:?}");
}

/// Whether the daemon shows a virtual connection of a process.
fn is_virtual_at(served: &Served, process: u32) -> bool {
    assert!(served.connections() > 0, "{}", served.ask(&["ss"]));
    served.connections_of(|one| *one == process) > 0
}

/// A master that only waits, and a worker of another user.
fn worker_serves(how: &str) {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, &format!("worker {how}"));
    let port = server.said("port:");
    let [master, worker] = numbers(&server.said("processes:"))[..] else {
        panic!("two processes");
    };
    let mut client = Subject::start(&served, &format!("client {port}"));
    for _ in 0..3 {
        assert_eq!(client.ask("connect"), worker.to_string());
        assert!(is_virtual_at(&served, worker), "{}", served.ask(&["ss"]));
        assert_eq!(client.ask("talk 100000"), "ok");
        assert_nothing_in_common(master, worker);
    }
    if how == "chroot" {
        // The process cannot see its own mappings.
        return;
    }
    // The worker writes a live thread's number everywhere it can, and lives on; the master serves.
    assert_eq!(client.ask("scribble"), "ok");
    assert_eq!(server.ask("serve"), "ok");
    // A client that knows the worker's loop goes on to offer connections to it.
    let mut client = Subject::start(&served, &format!("client {port}"));
    for _ in 0..3 {
        assert_eq!(client.ask("connect"), master.to_string());
        assert_eq!(client.ask("talk 100000"), "ok");
        assert!(is_virtual_at(&served, master), "{}", served.ask(&["ss"]));
    }
}

#[test]
fn a_worker_with_an_event_loop() {
    worker_serves("epoll");
}

#[test]
fn a_worker_with_an_event_loop_of_its_master() {
    worker_serves("inherited");
}

/// A worker that cannot reach the daemon's socket any more.
#[test]
fn a_worker_behind_chroot() {
    worker_serves("chroot");
}

#[test]
fn a_worker_that_polls() {
    worker_serves("poll");
}

#[test]
fn a_worker_that_sleeps_in_accept() {
    worker_serves("accept");
}

/// Like inetd: a child for each connection switches to another user and serves the connection.
#[test]
fn a_child_that_serves_what_its_parent_accepted() {
    children_serve("itself");
}

/// Like inetd in full: the child executes another program, which serves.
#[test]
fn a_program_that_serves_what_its_parent_accepted() {
    children_serve("by exec");
}

fn children_serve(how: &str) {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, &format!("child {how}"));
    let port = server.said("port:");
    let mut client = Subject::start(&served, &format!("client {port}"));
    for bytes in [0, 1, 100_000, 3_000_000] {
        let child = client.ask("connect").parse().unwrap();
        assert!(
            is_virtual_at(&served, server_of(child)),
            "{}",
            served.ask(&["ss"])
        );
        assert_nothing_in_common(child, server_of(child));
        assert_eq!(client.ask(&format!("talk {bytes}")), "ok");
        assert_eq!(client.ask("names"), "ok");
        assert_eq!(client.ask("half-close"), "ok");
    }
}

/// The parent of a process.
fn server_of(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}

/// Like sshd: the child serves for a while and ends. The parent, which has the connection all the time, goes on.
#[test]
fn a_connection_that_its_parent_goes_on_with() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "monitor");
    let port = server.said("port:");
    let mut client = Subject::start(&served, &format!("client {port}"));
    client.ask("connect");
    assert_eq!(client.ask("talk 5000"), "ok");
    server.said("alone");
    for _ in 0..3 {
        assert_eq!(client.ask("talk 5000"), "ok");
    }
    assert!(is_virtual_at(
        &served,
        server.said("parent:").parse().unwrap()
    ));
}

/// The server's connections go on over memory where no other process has the region.
fn keeps_connections(how: &str) {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, &format!("alone {how}"));
    let port = server.said("port:");
    let mut client = Subject::start(&served, &format!("client {port}"));
    for _ in 0..2 {
        let process = client.ask("connect").parse().unwrap();
        assert_eq!(client.ask("talk 100000"), "ok");
        assert!(is_virtual_at(&served, process), "{}", served.ask(&["ss"]));
        assert_eq!(client.ask("half-close"), "ok");
    }
}

#[test]
fn who_becomes_another_user_alone_keeps_connections() {
    keeps_connections("for good");
}

#[test]
fn who_may_go_back_changes_nothing() {
    keeps_connections("for a while");
}

/// Like a server that hands connections to workers of other users: they get local sockets, and no memory.
#[test]
fn a_connection_passed_to_another_user() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "passes");
    let port = server.said("port:");
    let [master, worker] = numbers(&server.said("processes:"))[..] else {
        panic!("two processes");
    };
    let mut client = Subject::start(&served, &format!("client {port}"));
    for bytes in [1, 100_000] {
        assert_eq!(client.ask("connect"), worker.to_string());
        assert_eq!(client.ask(&format!("talk {bytes}")), "ok");
        assert_nothing_in_common(master, worker);
        assert_eq!(client.ask("half-close"), "ok");
    }
}

/// A connection in an event loop, and its timeouts, before and after.
#[test]
fn a_set_goes_on_with_a_connection_that_was_handed() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "set");
    let port = server.said("port:");
    let mut client = Subject::start(&served, &format!("client {port}"));
    client.ask("connect");
    assert_eq!(client.ask("talk 5000"), "ok");
    server.said("changed");
    for _ in 0..2 {
        assert_eq!(client.ask("talk 5000"), "ok");
    }
    assert_eq!(server.said("reports:"), "1 1");
}

/// Connections accepted before the change, and connections that wait at that moment.
#[test]
fn what_waits_at_the_change_is_accepted_after_it() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "late");
    let port = server.said("port:");
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = Subject::start(&served, &format!("client {port}"));
            assert_eq!(client.ask("begin"), "ok");
            client
        })
        .collect();
    server.ask("go");
    for client in &mut clients {
        client.ask("greet");
        assert_eq!(client.ask("talk 5000"), "ok");
    }
}

/// An address that a client writes for itself, or for the server, is believed only if it is correct.
#[test]
fn a_client_that_names_addresses_that_it_has_not() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "told");
    let port = server.said("port:");
    let mut honest = Subject::start(&served, &format!("client {port}"));
    assert_eq!(honest.ask("begin"), "ok");
    assert_eq!(server.ask("accept"), "ok");
    honest.ask("greet");
    let lies = [
        "peer 127.0.0.1:22",
        "peer 203.0.113.9:0",
        "peer 127.0.0.1:50001",
        "own 127.0.0.9:0",
        "own 127.0.0.1:22",
    ];
    for lie in lies {
        let mut liar = Subject::start(&served, &format!("client {port}"));
        assert_eq!(liar.ask("begin"), "ok");
        assert_eq!(liar.ask(&format!("lie {lie}")), "ok");
        // This connection is not accepted, the next one is.
        let mut other = Subject::start(&served, &format!("client {port}"));
        assert_eq!(other.ask("begin"), "ok");
        assert_eq!(server.ask("accept"), "ok");
        other.ask("greet");
        assert_eq!(other.ask("names"), "ok");
        assert_eq!(liar.ask("is reset"), "ok", "{lie}");
    }
    assert_eq!(honest.ask("names"), "ok");
}

/// A port that the client's program has bound itself, below the daemon's ports.
#[test]
fn a_client_that_bound_its_port() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "told");
    let port = server.said("port:");
    let mut client = Subject::start(&served, &format!("client {port}"));
    assert_eq!(client.ask("bound"), "ok");
    assert_eq!(server.ask("accept"), "ok");
    client.ask("greet");
    assert_eq!(client.ask("names"), "ok");
    assert!(
        is_virtual_at(&served, server.child.id()),
        "{}",
        served.ask(&["ss"])
    );
}

/// The size of the shared memory that a process has mapped and touched.
fn touched(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssShmem:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.trim().parse::<usize>().unwrap() << 10
}

/// A page of a ring that is read but was never written is charged to the reader. A client of another user can make a
/// server touch a bounded amount of memory, while the transferred bytes are not bounded.
#[test]
fn a_server_touches_little_of_another_users_rings() {
    let Some(served) = start() else { return };
    let mut server = Subject::start(&served, "sink");
    let port = server.said("port:");
    let mut client = Subject::start(&served, &format!("flood {port}"));
    assert_eq!(client.ask("go"), "ok");
    assert!(
        served.connections() >= 2 * STREAMS,
        "{}",
        served.ask(&["ss"])
    );
    let (reader, writer) = (touched(server.child.id()), touched(client.child.id()));
    println!(
        "touched: {} MiB by the server, {} by the client",
        reader >> 20,
        writer >> 20
    );
    assert!(writer > 72 << 20, "rings are large: {writer}");
    assert!(reader < 64 << 20, "{reader}");
}

#[test]
fn subject() {
    let Some(part) = served::part() else { return };
    let (part, how) = part.split_once(' ').unwrap_or((&part, ""));
    match part {
        "worker" => worker(how),
        "child" => child(how),
        "given" => {
            // SAFETY: the program that executed this one left the descriptor for it.
            serve(unsafe { TcpStream::from_raw_fd(how.parse().unwrap()) });
            std::process::exit(0);
        }
        "monitor" => monitor(),
        "alone" => alone(how),
        "set" => set(),
        "late" => late(),
        "told" => told(),
        "passes" => passes(),
        "sink" => sink(),
        "flood" => flood(how.parse().unwrap()),
        "client" => client(how.parse().unwrap()),
        _ => panic!("no part {part}"),
    }
}

fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nport: {}", listener.local_addr().unwrap().port());
    listener
}

/// A fork whose child ends with its parent.
fn fork() -> libc::pid_t {
    let parent = std::process::id();
    // SAFETY: the harness has started no thread that holds anything the child needs.
    let made = unsafe { libc::fork() };
    if made == 0 {
        end_with_parent();
        if std::os::unix::process::parent_id() != parent {
            std::process::exit(1);
        }
    }
    made
}

fn end_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn become_other() {
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(libc::setgid(OTHER), 0);
        assert_eq!(libc::setuid(OTHER), 0);
    }
    // The change of the user has reset this.
    end_with_parent();
}

/// Sends the server's process id, then answers each byte with itself. A first `!` asks for something else.
fn serve(mut connection: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    greet(&mut connection);
    loop {
        let count = connection.read(&mut buffer).unwrap();
        match &buffer[..count] {
            [] => break,
            b"!scribble" => {
                scribble();
                connection.write_all(b"ok").unwrap();
                loop {
                    std::thread::park();
                }
            }
            b"!names" => {
                let (peer, own) = (
                    connection.peer_addr().unwrap(),
                    connection.local_addr().unwrap(),
                );
                let _ = connection.set_nodelay(true);
                assert!(connection.nodelay().unwrap());
                connection
                    .write_all(format!("{peer} {own}").as_bytes())
                    .unwrap();
            }
            bytes => connection.write_all(bytes).unwrap(),
        }
    }
    connection.write_all(b"end").unwrap();
}

fn greet(connection: &mut TcpStream) {
    connection
        .write_all(format!("{:10}", std::process::id()).as_bytes())
        .unwrap();
}

/// Writes this thread's number into all memory that other processes may have too, except links, over which this
/// connection goes.
fn scribble() {
    let thread = sys::gettid().cast_unsigned();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps
        .lines()
        .filter(|line| line.contains("rw-s") && !line.contains("link"))
    {
        let (from, to) = line
            .split_whitespace()
            .next()
            .unwrap()
            .split_once('-')
            .unwrap();
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
        // Not the header and not the first entries, which this process itself still uses.
        let from = from + 4096 + 16 * 384;
        for place in (from..to.min(from + (1 << 20))).step_by(4) {
            let place = std::ptr::with_exposed_provenance_mut::<u32>(place);
            // SAFETY: mapped, writable; what else uses it uses it as words.
            unsafe { place.write_volatile(thread) };
        }
    }
}

fn worker(how: &str) {
    let listener = listen();
    let inherited = sys::epoll_create().unwrap();
    if how == "inherited" {
        listener.set_nonblocking(true).unwrap();
        sys::epoll_control(inherited, libc::EPOLL_CTL_ADD, listener.as_raw_fd(), IN, 0).unwrap();
    }
    let made = fork();
    if made == 0 {
        become_other();
        println!(
            "\nprocesses: {} {}",
            std::os::unix::process::parent_id(),
            std::process::id()
        );
        let set = if how == "inherited" {
            inherited
        } else {
            sys::epoll_create().unwrap()
        };
        if how == "epoll" {
            listener.set_nonblocking(true).unwrap();
            sys::epoll_control(set, libc::EPOLL_CTL_ADD, listener.as_raw_fd(), IN, 0).unwrap();
        }
        loop {
            match how {
                "epoll" | "inherited" => {
                    sys::epoll_wait(set, 16, -1).unwrap();
                }
                "poll" => {
                    listener.set_nonblocking(true).unwrap();
                    let mut all = [libc::pollfd {
                        fd: listener.as_raw_fd(),
                        events: libc::POLLIN,
                        revents: 0,
                    }];
                    sys::poll(&mut all, -1).unwrap();
                }
                _ => {}
            }
            if let Ok((connection, _)) = listener.accept() {
                connection.set_nonblocking(false).unwrap();
                serve(connection);
            }
        }
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    sys::kill(made, libc::SIGSTOP).unwrap();
    println!("answer: ok");
    listener.set_nonblocking(false).unwrap();
    loop {
        serve(listener.accept().unwrap().0);
    }
}

fn child(how: &str) {
    let listener = listen();
    loop {
        let (connection, _) = listener.accept().unwrap();
        if fork() == 0 {
            become_other();
            drop(listener);
            if how == "by exec" {
                let fd = connection.as_raw_fd();
                sys::fcntl(fd, libc::F_SETFD, 0).unwrap();
                let mut program = std::process::Command::new(std::env::current_exe().unwrap());
                program.args(["--exact", "subject", "--nocapture"]);
                let failed = program.env(served::SUBJECT, format!("given {fd}")).exec();
                panic!("{failed}");
            }
            serve(connection);
            std::process::exit(0);
        }
    }
}

fn monitor() {
    let listener = listen();
    let (mut connection, _) = listener.accept().unwrap();
    let made = fork();
    if made == 0 {
        become_other();
        greet(&mut connection);
        let mut bytes = [0; 5000];
        connection.read_exact(&mut bytes).unwrap();
        connection.write_all(&bytes).unwrap();
        // Until the client has received all bytes.
        std::thread::sleep(Duration::from_millis(300));
        std::process::exit(0);
    }
    sys::waitpid(made, 0).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    println!("alone");
    println!("parent: {}", std::process::id());
    let mut bytes = [0; 5000];
    while connection.read_exact(&mut bytes).is_ok() {
        connection.write_all(&bytes).unwrap();
    }
}

fn alone(how: &str) {
    let listener = listen();
    let mut first = true;
    loop {
        let (connection, _) = listener.accept().unwrap();
        // SAFETY: no pointers.
        unsafe {
            if how == "for good" && first {
                assert_eq!(libc::setuid(OTHER), 0);
            } else if how == "for a while" {
                assert_eq!(libc::seteuid(OTHER), 0);
                assert_eq!(libc::seteuid(0), 0);
            }
        }
        first = false;
        serve(connection);
    }
}

fn set() {
    let listener = listen();
    let (mut connection, _) = listener.accept().unwrap();
    if fork() != 0 {
        drop(connection);
        loop {
            std::thread::park();
        }
    }
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, connection.as_raw_fd(), IN, 7).unwrap();
    connection
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    greet(&mut connection);
    let mut bytes = [0; 5000];
    let mut reports = Vec::new();
    for round in 0..3 {
        if round == 1 {
            become_other();
            let begun = Instant::now();
            assert!(connection.read(&mut [0]).is_err(), "nothing came");
            assert!(
                begun.elapsed() > Duration::from_millis(50),
                "the timeout is kept"
            );
            println!("changed");
        }
        let told = sys::epoll_wait(set, 16, -1).unwrap();
        reports.push(told.iter().filter(|one| one.data == 7).count());
        connection.set_read_timeout(None).unwrap();
        connection.read_exact(&mut bytes).unwrap();
        connection
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        assert!(
            sys::epoll_wait(set, 16, 50).unwrap().is_empty(),
            "all was read"
        );
        connection.write_all(&bytes).unwrap();
    }
    println!("reports: {} {}", reports[0], reports[2]);
    loop {
        std::thread::park();
    }
}

fn late() {
    let listener = listen();
    if fork() != 0 {
        loop {
            std::thread::park();
        }
    }
    // The process polls for connections, and so has links, when the others arrive.
    listener.set_nonblocking(true).unwrap();
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, listener.as_raw_fd(), IN, 7).unwrap();
    for _ in 0..20 {
        sys::epoll_wait(set, 16, 50).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    become_other();
    println!("answer: ok");
    let mut threads = Vec::new();
    for _ in 0..3 {
        let connection = loop {
            sys::epoll_wait(set, 16, -1).unwrap();
            if let Ok((connection, _)) = listener.accept() {
                break connection;
            }
        };
        connection.set_nonblocking(false).unwrap();
        threads.push(std::thread::spawn(move || serve(connection)));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

const STREAMS: usize = 24;
/// Bytes of each stream: many times the largest ring.
const FLOOD: usize = 12 << 20;

/// The byte of the flood at one position; it repeats within a megabyte only.
fn wanted(position: usize) -> u8 {
    let position = position % (1 << 20);
    (position ^ position >> 7 ^ position >> 13).to_le_bytes()[0]
}

/// Reads all bytes, and answers with one byte if they were as expected.
fn sink() {
    let expected: Vec<u8> = (0..2 << 20).map(wanted).collect();
    let expected: &[u8] = expected.leak();
    let listener = listen();
    loop {
        let (mut connection, _) = listener.accept().unwrap();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            let mut all = 0;
            while all < FLOOD {
                let count = connection.read(&mut buffer).unwrap();
                assert!(count > 0, "an end after {all}");
                let from = all % (1 << 20);
                assert!(buffer[..count] == expected[from..from + count]);
                all += count;
            }
            connection.write_all(b"x").unwrap();
            let _ = connection.read(&mut buffer);
        });
    }
}

fn flood(port: u16) {
    become_other();
    let bytes: Vec<u8> = (0..1 << 20).map(wanted).collect();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let streams: Vec<_> = (0..STREAMS)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for mut stream in &streams {
            let bytes = &bytes;
            scope.spawn(move || {
                for _ in 0..FLOOD / bytes.len() {
                    stream.write_all(bytes).unwrap();
                }
                stream.read_exact(&mut [0]).unwrap();
            });
        }
    });
    println!("answer: ok");
    loop {
        std::thread::park();
    }
}

/// Passes accepted connections to a worker of another user, which has reported its process id before.
fn passes() {
    let listener = listen();
    let [ours, theirs] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).unwrap();
    if fork() == 0 {
        become_other();
        drop(listener);
        println!(
            "\nprocesses: {} {}",
            std::os::unix::process::parent_id(),
            std::process::id()
        );
        sys::close(ours).unwrap();
        loop {
            let given = sys::recv_descriptor(theirs).unwrap();
            // SAFETY: the descriptor has no other owner.
            serve(unsafe { TcpStream::from_raw_fd(given) });
        }
    }
    sys::close(theirs).unwrap();
    loop {
        let (connection, _) = listener.accept().unwrap();
        sys::send_descriptor(ours, connection.as_raw_fd()).unwrap();
    }
}

/// Accepts when told to, and serves each connection on a thread.
fn told() {
    let listener = listen();
    for line in std::io::stdin().lines() {
        line.unwrap();
        let (connection, _) = listener.accept().unwrap();
        std::thread::spawn(move || serve(connection));
        println!("answer: ok");
    }
}

/// Writes a wrong address into the link to the server: of this client, or of the server that it asked for.
fn lie(stream: &TcpStream, what: &str) {
    let (whose, address) = what.split_once(' ').unwrap();
    let named: std::net::SocketAddrV4 = address.parse().unwrap();
    let now = match whose {
        "own" => stream.peer_addr().unwrap(),
        _ => stream.local_addr().unwrap(),
    };
    let port = if named.port() == 0 {
        now.port()
    } else {
        named.port()
    };
    // Family, port; then the address in network byte order.
    let word = |port: u16| 2 | u64::from(port) << 16;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = 0;
    for line in maps
        .lines()
        .filter(|line| line.contains("rw-s") && line.contains("netchannel-link"))
    {
        let from = line.split_once('-').unwrap().0;
        let from = usize::from_str_radix(from, 16).unwrap();
        for place in (from..from + (1 << 20)).step_by(8) {
            let place = std::ptr::with_exposed_provenance_mut::<u64>(place);
            // SAFETY: mapped, as links are larger; what else uses it uses it as words.
            unsafe {
                if place.read_volatile() == word(now.port()) {
                    place.write_volatile(word(port));
                    place
                        .add(1)
                        .write_volatile(u64::from(u32::from_ne_bytes(named.ip().octets())));
                    found += 1;
                }
            }
        }
    }
    assert!(found > 0, "the link names the address");
}

/// Connects from a port below 1024 of its own choice.
fn connect_bound(port: u16) -> TcpStream {
    for own in 700..1000 {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        if sys::bind(socket, address(own)).is_err() {
            sys::close(socket).unwrap();
            continue;
        }
        sys::connect(socket, address(port)).unwrap();
        // SAFETY: the descriptor has no other owner.
        return unsafe { TcpStream::from_raw_fd(socket) };
    }
    panic!("no port is free");
}

fn client(port: u16) {
    let mut connection: Option<TcpStream> = None;
    let greeted = |stream: &mut TcpStream| {
        let mut who = [0; 10];
        stream.read_exact(&mut who).unwrap();
        String::from_utf8_lossy(&who).trim().to_owned()
    };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        if matches!(word, "connect" | "begin" | "bound") {
            drop(connection.take());
            let made = match word {
                "bound" => connect_bound(port),
                _ => TcpStream::connect(("127.0.0.1", port)).unwrap(),
            };
            made.set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            connection = Some(made);
        }
        let stream = connection.as_mut().unwrap();
        let answer = match word {
            "begin" | "bound" => "ok".to_owned(),
            "lie" => {
                lie(stream, rest);
                "ok".to_owned()
            }
            "is" => match stream.read(&mut [0]) {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    "ok".to_owned()
                }
                other => format!("{other:?}"),
            },
            "connect" | "greet" => greeted(stream),
            "talk" => talk(stream, rest.parse().unwrap()),
            "scribble" => {
                stream.write_all(b"!scribble").unwrap();
                let mut said = [0; 2];
                stream.read_exact(&mut said).unwrap();
                String::from_utf8_lossy(&said).into_owned()
            }
            "names" => {
                stream.write_all(b"!names").unwrap();
                let wanted = format!(
                    "{} {}",
                    stream.local_addr().unwrap(),
                    stream.peer_addr().unwrap()
                );
                let mut said = vec![0; wanted.len()];
                stream.read_exact(&mut said).unwrap();
                assert_eq!(String::from_utf8_lossy(&said), wanted);
                "ok".to_owned()
            }
            _ => {
                stream.shutdown(Shutdown::Write).unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).unwrap();
                assert_eq!(rest, b"end");
                "ok".to_owned()
            }
        };
        println!("answer: {answer}");
    }
}

/// Sends bytes and gets them back, at the same time.
fn talk(stream: &mut TcpStream, count: usize) -> String {
    let sent = pattern(0, count);
    let mut writer = stream.try_clone().unwrap();
    let got = std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&sent).unwrap());
        let mut got = vec![0; count];
        stream.read_exact(&mut got).unwrap();
        got
    });
    assert!(got == sent, "other bytes came back");
    "ok".to_owned()
}
