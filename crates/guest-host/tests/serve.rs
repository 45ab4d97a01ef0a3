//! The host's end over kernel TCP, as it is without the library, with a guest that is played.

#[path = "../../guest/tests/support/mod.rs"]
mod support;

use netchannel_abi::address::Address;
use netchannel_guest::{Event, Families, Open, Taken, Tunnel};
use netchannel_guest_host::{Bells, Host};
use netchannel_shm::Region;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{Played, new_guest, region, welcome};

const PATIENCE: Duration = Duration::from_secs(20);

/// The host's end on a thread, and the guest's.
struct Guest {
    tunnel: Tunnel<Played>,
    memory: Arc<Region>,
    events: Vec<Event>,
    stop: UnixStream,
    host: Option<JoinHandle<()>>,
}

impl Guest {
    fn new(bells: Option<Bells>) -> Self {
        let memory = region(1 << 20);
        let (stop, there) = UnixStream::pair().unwrap();
        let shared = Arc::clone(&memory);
        let host = std::thread::spawn(move || {
            let host = Host::new(shared, bells, welcome(100), there).unwrap();
            host.unwrap().serve().unwrap();
        });
        let mut guest = Self {
            tunnel: new_guest(&memory),
            memory,
            events: Vec::new(),
            stop,
            host: Some(host),
        };
        guest.wait(|guest| guest.tunnel.is_ready());
        guest
    }

    fn wait(&mut self, mut until: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !until(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "nothing came: {:?}",
                self.events
            );
            let now = Instant::now();
            self.tunnel.poll(now);
            self.tunnel.work(now);
            self.events
                .extend(std::iter::from_fn(|| self.tunnel.next_event()));
            let _ = self.tunnel.flush();
            std::thread::yield_now();
        }
    }

    fn end(&mut self) {
        if let Some(host) = self.host.take() {
            self.stop.write_all(b"s").unwrap();
            host.join().unwrap();
        }
    }

    fn dial(&mut self, to: SocketAddr, sink: &Played) -> u64 {
        self.tunnel.open(open(to), sink.clone()).unwrap()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

fn open(to: SocketAddr) -> Open {
    Open {
        to: Address::v4([127, 0, 0, 1], to.port()),
        from: Address::v4([10, 88, 0, 2], 40_000),
        dscp: 0,
    }
}

fn server() -> (TcpListener, SocketAddr) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    (server, at)
}

fn free_port() -> u16 {
    server().1.port()
}

#[test]
fn programs_of_the_guest_connect() {
    let mut guest = Guest::new(None);
    let (server, at) = server();
    let sink = Played::new(b"request");
    guest.dial(at, &sink);
    guest.wait(|_| sink.0.borrow().accepted);
    let (mut stream, _) = server.accept().unwrap();
    let mut got = [0; 7];
    guest.wait(|_| sink.0.borrow().gives.is_empty());
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"request");
    stream.write_all(&[7; 300_000]).unwrap();
    drop(stream);
    guest.wait(|_| sink.0.borrow().ended);
    assert_eq!(sink.0.borrow().got, [7; 300_000]);
}

#[test]
fn a_connect_that_is_refused_and_a_connection_that_is_reset() {
    let mut guest = Guest::new(None);
    let (server, at) = server();
    let (refused, reset) = (Played::new(b"x"), Played::new(b"x"));
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    guest.dial(nobody, &refused);
    guest.wait(|_| refused.0.borrow().closed.is_some());
    assert_eq!(refused.0.borrow().closed, Some((Some(111), false)));
    guest.dial(at, &reset);
    guest.wait(|_| reset.0.borrow().accepted);
    let (stream, _) = server.accept().unwrap();
    guest.wait(|_| reset.0.borrow().gives.is_empty());
    // Unread bytes make a reset of it.
    let mut looked = [0; 1];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    while stream.peek(&mut looked).unwrap() == 0 {}
    drop(stream);
    guest.wait(|_| reset.0.borrow().closed.is_some());
    assert_eq!(reset.0.borrow().closed, Some((Some(104), true)));
}

#[test]
fn clients_reach_the_guest_until_it_is_gone() {
    let mut guest = Guest::new(None);
    let port = free_port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let v4 = Families {
        v4: true,
        v6: false,
    };
    guest.tunnel.listen(port, v4);
    let mut client = None;
    guest.wait(|_| {
        client = TcpStream::connect(at).ok();
        client.is_some()
    });
    let mut client = client.unwrap();
    guest.events.clear();
    guest.wait(|guest| {
        guest
            .events
            .iter()
            .any(|one| matches!(one, Event::Open(..)))
    });
    let Some(Event::Open(serial, open)) = guest.events.pop() else {
        panic!("{:?}", guest.events);
    };
    assert_eq!(
        (open.to.port, open.from.port),
        (port, client.local_addr().unwrap().port())
    );
    let sink = Played::new(b"page");
    sink.0.borrow_mut().then = Some(Taken::End);
    guest.tunnel.attach(serial, sink.clone());
    guest.tunnel.accept(serial);
    client.write_all(b"GET").unwrap();
    guest.wait(|_| sink.0.borrow().got == b"GET");
    let mut page = String::new();
    client.read_to_string(&mut page).unwrap();
    assert_eq!(page, "page");
    // Killed, and another one there.
    guest.tunnel = new_guest(&guest.memory);
    guest.wait(|guest| guest.tunnel.is_ready());
    let read = client.read(&mut [0; 1]);
    assert!(matches!(read, Ok(0) | Err(_)));
    guest.wait(|_| TcpStream::connect(at).is_err());
}

#[test]
fn a_guest_that_breaks_the_rules_loses_its_connections_and_no_more() {
    use netchannel_guest::Side;
    use netchannel_guest::layout::word;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    let mut guest = Guest::new(None);
    let (server, at) = server();
    let sink = Played::new(b"x");
    guest.dial(at, &sink);
    guest.wait(|_| sink.0.borrow().accepted);
    let (mut stream, _) = server.accept().unwrap();
    let tail: &AtomicU64 = guest.memory.at(Side::Guest.page() + word::TAIL).unwrap();
    tail.store(u64::MAX - 7, SeqCst);
    guest.wait(|guest| guest.events.contains(&Event::Down));
    assert_eq!(sink.0.borrow().closed, Some((Some(104), true)));
    let mut rest = Vec::new();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let read = stream.read_to_end(&mut rest);
    assert!(read.is_err(), "{read:?}: it is a reset");
    guest.wait(|guest| guest.tunnel.is_ready());
    let again = Played::new(b"x");
    guest.dial(at, &again);
    guest.wait(|_| again.0.borrow().accepted);
}

#[test]
fn the_end_of_the_doorbell_is_the_end_of_the_guest() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("bell");
    std::fs::write(&path, "precious").unwrap();
    assert!(Bells::bind(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    let mut guest = Guest::new(Some(Bells::bind(&path).unwrap()));
    let (server, at) = server();
    let machine = UnixStream::connect(&path).unwrap();
    let sink = Played::new(b"x");
    guest.dial(at, &sink);
    guest.wait(|_| sink.0.borrow().accepted);
    let (mut stream, _) = server.accept().unwrap();
    drop(machine);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let start = Instant::now();
    assert!(
        stream.read_to_end(&mut Vec::new()).is_err(),
        "it is a reset"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
    guest.end();
    assert!(!path.exists());
}
