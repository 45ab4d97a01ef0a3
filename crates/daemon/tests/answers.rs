//! Answers to commands and fetches of metrics, over regions whose owners lie: they come to an end, cost nobody memory, and others are
//! served meanwhile.

mod support;

use netchannel_abi::address::Address;
use netchannel_abi::message::Operation;
use netchannel_abi::program::{
    ENTRIES_OFFSET, HOLDERS, Header, Holder, SocketEntry, State, held, holder, size,
};
use netchannel_configuration::Configuration;
use netchannel_control::types::{Request, Response, Sockets};
use netchannel_daemon::Limits;
use netchannel_shm::{Access, Region};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use support::{Client, Served, small};

const PATIENCE: Duration = Duration::from_secs(60);

/// Entries of the regions here: several times what one turn gets through.
const ENTRIES: usize = 8192;

fn limits() -> Limits {
    Limits {
        entries: u32::try_from(ENTRIES).unwrap(),
        ..small()
    }
}

/// A program with its region.
struct Liar {
    client: Client,
    file: OwnedFd,
    region: Region,
}

impl Liar {
    fn new(served: &Served, entries: usize) -> Self {
        let mut client = Client::connect(served);
        let (answer, mut descriptors) = client.attach();
        assert_eq!(answer.status, 0);
        let file = descriptors.remove(0);
        let region = Region::map(file.as_raw_fd(), size(entries), Access::ReadWrite).unwrap();
        let header: &Header = region.at(0).unwrap();
        header.high_water.store(u32::MAX, Relaxed);
        header.holders.store(u32::MAX, Relaxed);
        Self {
            client,
            file,
            region,
        }
    }

    fn entry(&self, index: usize) -> &SocketEntry {
        let place = ENTRIES_OFFSET + index * size_of::<SocketEntry>();
        self.region.at(place).unwrap()
    }

    fn words(&self) -> &[AtomicU64] {
        self.region.slice(0, self.region.size() / 8).unwrap()
    }

    /// Everything is a connection, of links and slots that may exist.
    fn connect_all(&self, entries: usize, random: &mut impl FnMut() -> u64) {
        for index in 0..entries {
            let entry = self.entry(index);
            entry.link.store(random() % 64, Relaxed);
            entry.listener.store(low(random()) % 64, Relaxed);
            entry.slot.store(low(random()), Relaxed);
            entry.generation.store(1, Relaxed);
            entry.state.store(State::Virtual as u32, Relaxed);
        }
    }

    /// All records name processes that may have ended, and hold everything.
    fn hold_all(&self, entries: usize, random: &mut impl FnMut() -> u64) {
        let here = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
        for index in 0..HOLDERS {
            let record: &Holder = self.region.at(holder(entries, index)).unwrap();
            // More than the kernel ever gives.
            let process = (1 << 22) + random() % 0x7f00_0000;
            record.process.store(here << 32 | process, Relaxed);
            for entry in (0..entries).step_by(64) {
                let word: &AtomicU64 = self.region.at(held(entries, index, entry)).unwrap();
                word.store(u64::MAX, Relaxed);
            }
        }
    }

    fn occupied(&self) -> u64 {
        let file = std::fs::File::from(self.file.try_clone().unwrap());
        file.metadata().unwrap().blocks() * 512
    }
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).unwrap()
}

/// Words without a pattern, always the same.
fn random() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn sockets(served: &Served) -> Sockets {
    match netchannel_control::request(&served.path(), Request::Sockets, PATIENCE) {
        Ok(Response::Sockets(sockets)) => sockets,
        other => panic!("{other:?}"),
    }
}

/// Memory of this process that it wrote itself, and that it mapped of others'.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kibibytes: u64 = line
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap();
    kibibytes * 1024
}

fn command(served: &Served, request: &[u8]) -> UnixStream {
    let path = netchannel_control::path::control_socket(&served.path());
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    stream
}

#[test]
fn holes_cost_nothing() {
    let most = Limits::default().entries;
    let served = Served::new(
        Limits {
            entries: most,
            ..small()
        },
        None,
    );
    let entries = usize::try_from(most).unwrap();
    let liars: Vec<Liar> = (0..50).map(|_| Liar::new(&served, entries)).collect();
    // One entry at the far end is found.
    let last = liars[7].entry(entries - 1);
    last.descriptor.store(4711, Relaxed);
    last.state.store(State::Kernel as u32, Relaxed);
    let occupied: Vec<u64> = liars.iter().map(Liar::occupied).collect();
    let before = resident();
    let shown = sockets(&served);
    assert_eq!(shown.list.len(), 1);
    assert_eq!(shown.list[0].descriptor, 4711);
    assert_eq!(served.status().programs.len(), 50);
    let after: Vec<u64> = liars.iter().map(Liar::occupied).collect();
    assert_eq!(occupied, after, "no page was made");
    // Fifty regions of holes are 1.2 GB.
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

#[test]
fn lies_do_not_hide_who_is_honest() {
    let served = Served::new(limits(), None);
    let mut random = random();
    let noise = Liar::new(&served, ENTRIES);
    for word in noise.words() {
        word.store(random(), Relaxed);
    }
    let connected = Liar::new(&served, ENTRIES);
    connected.connect_all(ENTRIES, &mut random);
    let held = Liar::new(&served, ENTRIES);
    held.connect_all(ENTRIES, &mut random);
    held.hold_all(ENTRIES, &mut random);
    let mut honest = Liar::new(&served, ENTRIES);
    let (listener, _accepts) = honest.client.listen();
    let entry = honest.entry(3);
    entry.descriptor.store(5, Relaxed);
    entry.listener.store(low(listener), Relaxed);
    entry.local.store(&Address::v4([127, 0, 0, 1], 4711));
    entry.state.store(State::Listener as u32, Relaxed);
    let shown = sockets(&served);
    assert!(!shown.cut);
    let program = |number: u32| shown.list.iter().filter(move |one| one.program == number);
    let numbers: std::collections::BTreeSet<u32> =
        shown.list.iter().map(|one| one.program).collect();
    let [.., last] = numbers.iter().copied().collect::<Vec<u32>>()[..] else {
        panic!("nothing is shown");
    };
    let mine: Vec<_> = program(last).collect();
    assert_eq!(mine.len(), 1);
    assert_eq!(mine[0].local, "127.0.0.1:4711");
    assert_eq!(mine[0].state, "LISTEN");
    let full = numbers
        .iter()
        .filter(|number| program(**number).count() == ENTRIES);
    assert!(full.count() >= 1, "who says that he has them is shown");
    assert!(shown.list.iter().all(|one| one.send_queue < 16 << 20));
    served.status();
}

#[test]
fn others_are_served_while_an_answer_is_found() {
    let served = Served::new(limits(), None);
    let mut random = random();
    // Processes that have ended hold everything: it takes long to find out that there is nothing to show.
    let liars: Vec<Liar> = (0..40).map(|_| Liar::new(&served, ENTRIES)).collect();
    for liar in &liars {
        liar.connect_all(ENTRIES, &mut random);
        liar.hold_all(ENTRIES, &mut random);
    }
    let mut server = Client::attached(&served);
    let mut asker = Client::attached(&served);
    let (listener, _accepts) = server.listen();
    let has_ended = AtomicBool::new(false);
    let mut stream = command(&served, b"\"sockets\"\n");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            has_ended.store(true, Relaxed);
            answer
        });
        for _ in 0..2 {
            assert_eq!(asker.status_of(Operation::Connect, &[listener]), 0);
        }
        // Programs come and go between two turns.
        for _ in 0..2 {
            drop(Liar::new(&served, ENTRIES));
        }
        assert!(
            !has_ended.load(Relaxed),
            "they were served only when the answer was whole"
        );
        let answer = reader.join().unwrap();
        assert_eq!(answer.last(), Some(&b'\n'));
        let answer: Response = serde_json::from_slice(&answer).unwrap();
        assert!(matches!(answer, Response::Sockets(_)), "another answer");
    });
}

#[test]
fn who_does_not_read_costs_one_buffer() {
    let served = Served::new(limits(), None);
    let mut random = random();
    let liars: Vec<Liar> = (0..4).map(|_| Liar::new(&served, ENTRIES)).collect();
    for liar in &liars {
        liar.connect_all(ENTRIES, &mut random);
    }
    let before = resident();
    // Each answer has more than 12 MB.
    let silent: Vec<UnixStream> = (0..12)
        .map(|_| command(&served, b"\"sockets\"\n"))
        .collect();
    for _ in 0..20 {
        served.status();
    }
    std::thread::sleep(Duration::from_millis(200));
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes more");
    // It goes on where it stopped. On a slow machine the second would be given up while the first is read.
    std::thread::scope(|scope| {
        for mut stream in silent.iter().take(2) {
            scope.spawn(move || {
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                let answer: Response = serde_json::from_slice(&answer).unwrap();
                let Response::Sockets(sockets) = answer else {
                    panic!("another answer");
                };
                assert_eq!(sockets.list.len(), 4 * ENTRIES);
            });
        }
    });
}

fn fetch(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The value of one sample.
fn sample(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn slow_readers_of_metrics_hold_nobody_up() {
    let place = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let address = address.unwrap();
    let file = place.path().join("netchannel.toml");
    let text = format!("[host]\nname = \"this\"\n\n[metrics]\nlisten = \"{address}\"\n");
    std::fs::write(&file, text).unwrap();
    let configuration = Configuration::load(&file).unwrap();
    let served = Served::with(limits(), None, Some(configuration));
    let mut random = random();
    let liar = Liar::new(&served, ENTRIES);
    liar.connect_all(ENTRIES, &mut random);
    let header: &Header = liar.region.at(0).unwrap();
    header.connects.store(5, Relaxed);
    let mut slow: Vec<TcpStream> = Vec::new();
    for index in 0..100 {
        let mut stream = TcpStream::connect(address).unwrap();
        if index % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        slow.push(stream);
    }
    let text = fetch(address);
    assert_eq!(
        sample(&text, "netchannel_sockets{path=\"virtual\"}"),
        ENTRIES as u64
    );
    assert_eq!(sample(&text, "netchannel_programs"), 1);
    let user = rustix::process::geteuid().as_raw();
    let connects = format!("netchannel_connects_total{{user=\"{user}\"}}");
    assert_eq!(sample(&text, &connects), 5);
    // What was counted a moment ago is told again, and does not go back when a program ends.
    let since = Instant::now();
    drop(liar);
    served.await_status(|status| status.programs.is_empty());
    let again = fetch(address);
    if since.elapsed() < Duration::from_millis(500) {
        assert_eq!(text.lines().last(), again.lines().last());
    }
    std::thread::sleep(Duration::from_millis(1100));
    let later = fetch(address);
    assert_eq!(sample(&later, &connects), 5);
    assert_eq!(sample(&later, "netchannel_programs"), 0);
}
