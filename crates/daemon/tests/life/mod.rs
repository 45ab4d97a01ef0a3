//! Arbitrary lives of programs in the attach protocol, and arbitrary requests of commands, against a daemon. Run by `../lives.rs` with
//! bytes from a seed, and by the targets `attach` and `control` of `fuzz/` with bytes from a fuzzer.
//!
//! Whatever is done, the daemon answers each message or hangs up, with the answer that belongs to it, and knows nothing any more of
//! who has gone.
#![allow(dead_code, reason = "each user of the body calls some of it")]

#[path = "../support/mod.rs"]
pub mod support;

use arbitrary::{Arbitrary, Result, Unstructured};
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::{LAYOUT_HASH, VERSION};
use netchannel_control::types::{Request, Response};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{Client, Served, listen_words, listening, receive, send};

/// Steps of a life at most.
const MOST_STEPS: usize = 48;
/// Programs at a time.
const MOST_CLIENTS: usize = 5;
/// Descriptors that are kept to be sent again.
const MOST_KEPT: usize = 64;
/// Every so many lives the daemon is asked what it still knows.
const LOOKS: u64 = 32;

static LIVES: AtomicU64 = AtomicU64::new(0);

/// What the programs of a life have.
struct Life<'a> {
    served: &'a Served,
    clients: Vec<Client>,
    kept: Vec<OwnedFd>,
    listening: Vec<TcpListener>,
    /// Numbers that the daemon gave: of listeners, links, regions, ports.
    numbers: Vec<u64>,
}

/// One life.
pub fn attach(served: &Served, data: &[u8]) {
    let mut life = Life {
        served,
        clients: Vec::new(),
        kept: Vec::new(),
        listening: Vec::new(),
        numbers: vec![0, 1],
    };
    // Where the bytes have run out the life ends.
    let _ = life.go(&mut Unstructured::new(data));
    drop(life);
    if LIVES.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOKS) {
        served.await_status(|status| status.programs.is_empty() && status.listeners == 0);
    }
}

impl Life<'_> {
    fn go(&mut self, source: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..MOST_STEPS {
            if source.is_empty() {
                break;
            }
            self.step(source)?;
            let excess = self.kept.len().saturating_sub(MOST_KEPT);
            self.kept.drain(..excess);
        }
        Ok(())
    }

    fn step(&mut self, source: &mut Unstructured<'_>) -> Result<()> {
        if self.clients.is_empty() {
            self.clients.push(Client::connect(self.served));
        }
        let which = source.choose_index(self.clients.len())?;
        match source.int_in_range(0..=15)? {
            0 if self.clients.len() < MOST_CLIENTS => {
                self.clients.push(Client::connect(self.served));
            }
            0 | 1 => {
                let words = [u64::from(VERSION), LAYOUT_HASH, 1, 7];
                self.ask(which, Operation::Attach, &words, &[]);
            }
            2 => {
                let socket = listening();
                let words = listen_words(&socket);
                self.ask(which, Operation::Listen, &words, &[]);
                self.listening.push(socket);
            }
            3 if !self.listening.is_empty() => {
                let one = source.choose_index(self.listening.len())?;
                drop(self.listening.swap_remove(one));
            }
            4 if !self.listening.is_empty() => {
                // Its own, or another's: it has the socket.
                let one = source.choose_index(self.listening.len())?;
                let words = listen_words(&self.listening[one]);
                let mut shown = words.to_vec();
                shown.push(1);
                let socket = OwnedFd::from(self.listening[one].try_clone().unwrap());
                self.ask(which, Operation::Listen, &shown, &[socket.as_fd()]);
            }
            5 | 6 => {
                let words = [self.number(source)?];
                self.ask(which, Operation::Connect, &words, &[]);
            }
            7 => {
                let words = [u64::arbitrary(source)? % 300];
                self.ask(which, Operation::Ports, &words, &[]);
            }
            8 => self.adopt(which, source)?,
            9 => drop(self.clients.swap_remove(which)),
            10 => self.take_offer(source)?,
            11 => {
                let bytes = source.bytes(source.len().min(2 * MESSAGE_BYTES) / 2)?;
                send(&self.clients[which].socket, bytes, &[]);
                if receive(&self.clients[which].socket).is_none() {
                    self.clients.swap_remove(which);
                }
            }
            _ => self.message(which, source)?,
        }
        Ok(())
    }

    /// A number that means something, or nearly.
    fn number(&self, source: &mut Unstructured<'_>) -> Result<u64> {
        let known = *source.choose(&self.numbers)?;
        Ok(match u8::arbitrary(source)? {
            0 => known.wrapping_add(1),
            1 => known.wrapping_sub(1),
            2 => u64::arbitrary(source)?,
            3 => u64::MAX,
            _ => known,
        })
    }

    /// Asks, and keeps what comes.
    fn ask(
        &mut self,
        which: usize,
        operation: Operation,
        words: &[u64],
        descriptors: &[BorrowedFd<'_>],
    ) {
        match self.clients[which].ask(operation, words, descriptors) {
            Some((answer, descriptors)) => self.keep(&answer, descriptors),
            None => drop(self.clients.swap_remove(which)),
        }
    }

    fn keep(&mut self, answer: &Message, descriptors: Vec<OwnedFd>) {
        if answer.status == 0 {
            self.numbers.extend([answer.words[0], answer.words[3]]);
        } else {
            assert!(
                descriptors.is_empty(),
                "a refusal gives nothing: {answer:?}"
            );
        }
        self.kept.extend(descriptors);
    }

    /// A child, which goes on as a program.
    fn adopt(&mut self, which: usize, source: &mut Unstructured<'_>) -> Result<()> {
        let listener = self.number(source)?;
        let answer = self.clients[which].ask(Operation::Adopt, &[1, listener], &[]);
        match answer {
            Some((answer, mut ends)) if answer.status == 0 => {
                let end = ends.pop().expect("an adopted child has an end");
                if self.clients.len() < MOST_CLIENTS {
                    self.clients.push(Client::over(end));
                }
            }
            Some(_) => {}
            None => drop(self.clients.swap_remove(which)),
        }
        Ok(())
    }

    /// What waits on an accept channel, or on anything else that was given.
    fn take_offer(&mut self, source: &mut Unstructured<'_>) -> Result<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let one = source.choose_index(self.kept.len())?;
        let kind = rustix::net::sockopt::socket_type(&self.kept[one]);
        if kind == Ok(SocketType::SEQPACKET)
            && rustix::io::ioctl_fionread(&self.kept[one]).is_ok_and(|bytes| bytes > 1)
            && let Some((offer, descriptors)) = receive(&self.kept[one])
        {
            self.keep(&offer, descriptors);
        }
        Ok(())
    }

    /// Any message with any descriptors. It is answered, or the daemon hangs up.
    fn message(&mut self, which: usize, source: &mut Unstructured<'_>) -> Result<()> {
        let mut words = [0; 14];
        let count = source.int_in_range(0..=14)?;
        for word in &mut words[..count] {
            *word = self.number(source)?;
        }
        let operation = source.int_in_range(0..=12)?;
        if operation == Operation::Attach as u32 && bool::arbitrary(source)? {
            words[..2].copy_from_slice(&[u64::from(VERSION), LAYOUT_HASH]);
        }
        let message = Message {
            operation,
            status: u32::from(source.ratio(1, 16)?),
            sequence: u32::arbitrary(source)?,
            words,
        };
        let mut made = Vec::new();
        for _ in 0..[0, 0, 0, 1, 1, 3, 3, 40][source.choose_index(8)?] {
            made.push(self.descriptor(source)?);
        }
        let beside: Vec<_> = made.iter().map(AsFd::as_fd).collect();
        let client = &self.clients[which];
        send(&client.socket, &message.to_bytes(), &beside);
        match receive(&client.socket) {
            Some((answer, descriptors)) => {
                let belongs = (answer.operation, answer.sequence);
                assert_eq!(belongs, (message.operation, message.sequence));
                self.keep(&answer, descriptors);
            }
            None => drop(self.clients.swap_remove(which)),
        }
        Ok(())
    }

    /// Something that was given, or of some kind.
    fn descriptor(&self, source: &mut Unstructured<'_>) -> Result<OwnedFd> {
        if !self.kept.is_empty() && bool::arbitrary(source)? {
            let one = source.choose_index(self.kept.len())?;
            return Ok(self.kept[one].try_clone().unwrap());
        }
        let size = *source.choose(&[
            netchannel_abi::program::size(64),
            support::small().layout().size(),
            4096,
            0,
        ])?;
        let pair = |kind| {
            let ends =
                rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
            ends.unwrap().0
        };
        Ok(match source.int_in_range(0..=7)? {
            0 => memory(MemfdFlags::HUGETLB, 2 << 20, SealFlags::all()),
            1 => memory(MemfdFlags::empty(), size, SealFlags::empty()),
            2 => memory(MemfdFlags::empty(), size, SealFlags::all()),
            3 => pair(SocketType::SEQPACKET),
            4 => pair(SocketType::STREAM),
            5 => std::io::pipe().unwrap().0.into(),
            6 => listening().into(),
            _ => std::fs::File::open("/dev/null").unwrap().into(),
        })
    }
}

fn memory(flags: MemfdFlags, size: usize, seals: SealFlags) -> OwnedFd {
    let all = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let Ok(memory) = rustix::fs::memfd_create(c"life", all) else {
        return std::fs::File::open("/dev/zero").unwrap().into();
    };
    let _ = rustix::fs::ftruncate(&memory, size as u64);
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let _ = rustix::fs::fcntl_add_seals(&memory, seals & sealed);
    memory
}

/// One request of a command: as it should be, damaged, or any bytes.
pub fn control(served: &Served, data: &[u8]) {
    let _ = request(served, &mut Unstructured::new(data));
    let answer = netchannel_control::request(&served.path(), Request::Hello, PATIENCE);
    assert!(matches!(answer, Ok(Response::Hello(_))), "{answer:?}");
}

/// A daemon that does not answer a whole request for so long fails the test.
const PATIENCE: Duration = Duration::from_secs(10);

fn request(served: &Served, source: &mut Unstructured<'_>) -> Result<()> {
    let mut line = match source.int_in_range(0..=7)? {
        0 => Vec::new(),
        1..=4 => {
            let name = String::arbitrary(source)?;
            let all = [
                Request::Hello,
                Request::Status,
                Request::Sockets,
                Request::Hosts,
                Request::SetScheduler(Some(name)),
                Request::SetScheduler(None),
            ];
            serde_json::to_vec(source.choose(&all)?).unwrap()
        }
        _ => b"{\"set_scheduler\":{\"a\":[[[[".to_vec(),
    };
    for _ in 0..source.int_in_range(0..=3)? {
        // A byte more, another byte, or a piece of anything.
        let at = source.choose_index(line.len() + 1)?;
        let piece = Vec::<u8>::arbitrary(source)?;
        line.splice(at..at, piece);
    }
    if bool::arbitrary(source)? {
        line.push(b'\n');
    }
    let first = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let asked = serde_json::from_slice::<Request>(first);
    if matches!(asked, Ok(Request::Shutdown)) {
        // The test is its user, whom it obeys.
        return Ok(());
    }
    let path = netchannel_control::path::control_socket(&served.path());
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let cut = source.choose_index(line.len() + 1)?;
    let (one, other) = line.split_at(cut);
    let written = stream.write_all(one).and_then(|()| stream.write_all(other));
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let whole = line.len() > first.len() && line.len() <= 4096;
    if whole && written.is_ok() && asked.is_ok() {
        assert!(read.is_ok(), "{read:?}");
        let response = serde_json::from_slice::<Response>(&answer);
        assert!(response.is_ok(), "{line:?} was answered with {answer:?}");
    }
    Ok(())
}
