//! Programs whose memory is limited, as vsftpd limits its addresses and pure-ftpd its data: their connections are virtual, and where the
//! limit allows a client no more, they are made by the kernel; none fails, and no byte is lost. What the budget of `docs/operating.md` says holds
//! by what the kernel counts. This test runs itself under NetChannel.

#[allow(dead_code, reason = "each test asks for a part of it")]
mod served;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;

use netchannel_testkit::support::pattern;
use served::Served;

const MIB: u64 = 1 << 20;
/// `VSFTP_AS_LIMIT` of vsftpd, and `MAX_DATA_SIZE` of pure-ftpd.
const ADDRESSES: u64 = 200 * MIB;
const DATA: u64 = 70 * MIB;
/// Of them a small program needs so much for itself. This one, a test, has more, and gets the rest beyond it.
const OWN: u64 = 20 * MIB;
/// Programs at the other end, each of which has a link with the one that is limited.
const PEERS: usize = 24;
/// A megabyte each way, more than the rings with which a connection begins.
const LARGE: usize = 1 << 20;

/// What the budget allows: for the program, and for each link, addresses; and private memory of all of it.
const OF_PROGRAM: u64 = 48 * MIB;
const OF_LINK: u64 = 5 * MIB;
const PRIVATE: u64 = 28 * MIB;

/// Runs a subject until it says that it is done, then looks at it with `check`, and lets it go.
fn subject_does(part: &str, check: impl FnOnce(&Served, &Child, &str)) {
    let Some(running) = Served::start(&[]) else {
        return;
    };
    let mut child = running.run(part);
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    let done = lines.find(|line| line.contains("done"));
    let done = done.unwrap_or_else(|| panic!("{part} failed"));
    check(&running, &child, &done);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "{part} failed");
}

/// Ends of virtual connections that a process has.
fn virtual_ones(running: &Served, child: &Child) -> usize {
    let process = child.id();
    running.connections_of(|of| of.as_u64() == Some(u64::from(process)))
}

#[test]
fn a_client_with_both_limits_is_virtual() {
    subject_does("client", |running, child, _| {
        assert_eq!(virtual_ones(running, child), PEERS);
    });
}

#[test]
fn a_server_with_both_limits_is_virtual() {
    subject_does("server", |running, child, _| {
        assert_eq!(virtual_ones(running, child), PEERS);
    });
}

#[test]
fn a_client_without_memory_goes_to_the_kernel() {
    subject_does("poor-client", |running, child, _| {
        let ones = virtual_ones(running, child);
        assert!(ones > 0 && ones < PEERS, "{ones} are virtual");
        let status = running.ask(&["status"]).to_string();
        let told = ["quota", "link-failed"];
        assert!(told.iter().any(|why| status.contains(why)), "{status}");
    });
}

#[test]
fn links_that_end_leave_no_private_memory() {
    subject_does("changing", |_, _, _| {});
}

#[test]
fn subject() {
    /// `M_ARENA_MAX`: what the allocator reserves for each thread is none of the library's.
    const MOST_ARENAS: i32 = -8;
    // SAFETY: plain library call.
    unsafe { libc::mallopt(MOST_ARENAS, 1) };
    match served::part().as_deref() {
        Some("client") => client(ADDRESSES - OWN),
        Some("server") => server(ADDRESSES - OWN),
        Some("poor-client") => client(62 * MIB),
        Some("changing") => changing(),
        _ => return,
    }
    println!("done");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// A line of `/proc/self/status`, in bytes.
fn mapped(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let number = line.split_whitespace().nth(1).unwrap();
    number.parse::<u64>().unwrap() * 1024
}

fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the limit is a local.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

/// Sets both limits, to so much more than this process has now.
fn limit_both(addresses: u64) {
    limit(libc::RLIMIT_AS, mapped("VmSize") + addresses);
    limit(libc::RLIMIT_DATA, mapped("VmData") + DATA - OWN);
}

/// The library's mappings that are shared: their addresses together. None of them counts as memory that must be there for strict
/// accounting.
fn shared_addresses() -> u64 {
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut bytes, mut ours) = (0, false);
    for line in all.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or("");
        if first.contains('-') && !first.ends_with(':') {
            ours = line.contains("memfd:netchannel");
        } else if ours && first == "Size:" {
            bytes += words.next().unwrap().parse::<u64>().unwrap() * 1024;
        } else if ours && first == "VmFlags:" {
            assert!(words.all(|flag| flag != "ac"), "{line}");
        }
    }
    bytes
}

/// Forks; the child does `work` and nothing else. It ends with its parent.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the child makes sockets and copies, and ends.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            work();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        child => child,
    }
}

/// Sends much, and gets it back.
fn talk(client: &mut TcpStream) {
    let mut sender = client.try_clone().unwrap();
    let sending = std::thread::Builder::new().stack_size(64 << 10);
    let sent = sending
        .spawn(move || sender.write_all(&pattern(0, LARGE)).unwrap())
        .unwrap();
    let mut got = vec![0; LARGE];
    client.read_exact(&mut got).unwrap();
    sent.join().unwrap();
    assert!(got == pattern(0, LARGE), "other bytes came back");
}

/// Sends back what comes.
fn echo(stream: &mut TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => stream.write_all(&bytes[..count]).unwrap(),
        }
    }
}

/// Other programs that listen, and where.
fn servers() -> Vec<SocketAddr> {
    let (mut told, teller) = std::os::unix::net::UnixStream::pair().unwrap();
    (0..PEERS)
        .map(|_| {
            let mut teller = teller.try_clone().unwrap();
            fork(move || {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                teller.write_all(&port.to_ne_bytes()).unwrap();
                echo(&mut listener.accept().unwrap().0);
            });
            let mut port = [0; 2];
            told.read_exact(&mut port).unwrap();
            SocketAddr::from(([127, 0, 0, 1], u16::from_ne_bytes(port)))
        })
        .collect()
}

fn client(addresses: u64) {
    let servers = servers();
    let (all, private) = (mapped("VmSize"), mapped("VmData"));
    limit_both(addresses);
    let mut clients: Vec<_> = servers
        .into_iter()
        .map(|address| TcpStream::connect(address).unwrap())
        .collect();
    clients.iter_mut().for_each(talk);
    within_budget(all, private);
    std::mem::forget(clients);
}

fn server(addresses: u64) {
    // A port that is free, by a program that ends.
    let (mut named, mut namer) = std::os::unix::net::UnixStream::pair().unwrap();
    let finder = fork(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        namer.write_all(&port.to_ne_bytes()).unwrap();
    });
    let mut port = [0; 2];
    named.read_exact(&mut port).unwrap();
    // SAFETY: no pointers.
    unsafe { libc::waitpid(finder, std::ptr::null_mut(), 0) };
    let address = SocketAddr::from(([127, 0, 0, 1], u16::from_ne_bytes(port)));
    let (told, teller) = std::os::unix::net::UnixStream::pair().unwrap();
    let clients: Vec<_> = (0..PEERS)
        .map(|_| {
            let (mut told, teller) = (told.try_clone().unwrap(), teller.try_clone().unwrap());
            fork(move || {
                drop(teller);
                let _ = told.read(&mut [0]);
                let mut client = TcpStream::connect(address).unwrap();
                talk(&mut client);
                // It stays until the end is told.
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
            })
        })
        .collect();
    let (all, private) = (mapped("VmSize"), mapped("VmData"));
    limit_both(addresses);
    let listener = TcpListener::bind(address).unwrap();
    // One after the other, and all are there before the first is served.
    let mut streams: Vec<_> = (0..PEERS)
        .map(|_| {
            (&teller).write_all(&[0]).unwrap();
            listener.accept().unwrap().0
        })
        .collect();
    for stream in &mut streams {
        let mut bytes = vec![0; LARGE];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    }
    within_budget(all, private);
    println!("all are served");
    // The books are looked at while the connections are there; then they end in good order.
    println!("done");
    let _ = std::io::stdin().read(&mut [0]);
    drop(streams);
    for client in clients {
        let mut status = 0;
        // SAFETY: the status is a local.
        assert_eq!(unsafe { libc::waitpid(client, &raw mut status, 0) }, client);
        assert_eq!(status, 0, "a client failed");
    }
    std::process::exit(0);
}

/// What has come since it had so many addresses, and so much private memory.
fn within_budget(all: u64, private: u64) {
    let links = PEERS as u64;
    let shared = shared_addresses();
    let (all, private) = (
        mapped("VmSize") - all,
        mapped("VmData").saturating_sub(private),
    );
    let told = format!("{shared} shared, {all} in all, {private} private");
    println!("{told}");
    assert!(shared <= OF_PROGRAM + OF_LINK * links, "{told}");
    assert!(private <= PRIVATE, "{told}");
}

/// Links come and go, one after the other: nothing of them stays that counts as private.
fn changing() {
    let mut private = 0;
    for round in 0..6 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let child = fork(move || {
            let mut client = TcpStream::connect(address).unwrap();
            talk(&mut client);
        });
        echo(&mut listener.accept().unwrap().0);
        // SAFETY: no pointers.
        let waited = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(waited, child);
        drop(listener);
        if round == 1 {
            private = mapped("VmData");
        }
    }
    let now = mapped("VmData");
    assert!(now <= private + MIB, "{private} bytes, then {now}");
}
