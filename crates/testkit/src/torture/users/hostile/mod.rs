//! A program of the hostile user: system calls only, no library. Each process runs one part for a while, with actions
//! drawn from its seed.

mod flood;
mod hostile_program;
mod kinds;
mod link;
mod packet;

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use netchannel_abi::address::Address;
use netchannel_abi::message::{MESSAGE_BYTES, Operation};
use netchannel_testkit::support::Random;

use super::board::{Board, Counter, FIRST_PORT, PORTS};
use crate::Options;
use hostile_program::HostileProgram;
use packet::{Attach, MOST};

/// The variable with which a hostile program finds the daemon.
pub const SOCKET_VARIABLE: &str = "TORTURE_SOCKET";
/// The variable with the user that a program started as root switches to.
pub const BECOMES_VARIABLE: &str = "TORTURE_BECOMES";

/// One part: its name, and the function that runs it.
type Part = (&'static str, fn(&Stage, &mut Random));

/// All parts. The names are for `--only`.
pub const PARTS: [Part; 14] = [
    ("requests", requests),
    ("squat", squat),
    ("lies", lies),
    ("former-root", former_root),
    ("both-ends", both_ends),
    ("handing-on", handing_on),
    ("stream", plain_clients),
    ("deposits", flood::deposits),
    ("ports", flood::ports),
    ("programs", flood::programs),
    ("half-open", flood::half_open),
    ("holes", flood::holes),
    ("listeners", flood::listeners),
    ("unread", flood::unread),
];

/// The place and duration of a part.
pub struct Stage {
    /// The state that all processes of the run share.
    pub board: Board,
    /// The path at which the daemon serves.
    pub socket: PathBuf,
    end: Instant,
}

impl Stage {
    /// Whether the part goes on.
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.end && !self.board.is_ending()
    }

    fn attach(&self) -> Option<HostileProgram> {
        let attached = HostileProgram::attach(self.board, &self.socket);
        if attached.is_none() {
            // The daemon may be down, or this user may have reached a limit.
            thread::sleep(Duration::from_millis(20));
        }
        attached
    }
}

/// Runs one part.
pub fn run(options: &Options) {
    let board = Board::inherited();
    board.count(Counter::Programs, 1);
    // The daemon has to hold descriptors. This program raises its own limit as far as it may.
    if let Ok(limit) = netchannel_testkit::sys::descriptor_limit() {
        let _ = netchannel_testkit::sys::set_descriptor_limit(limit.rlim_max);
    }
    let stage = Stage {
        board,
        socket: PathBuf::from(std::env::var_os(SOCKET_VARIABLE).unwrap_or_default()),
        end: Instant::now() + Duration::from_millis(options.milliseconds),
    };
    let mut random = Random::new(options.seed);
    if let Some((_, play)) = PARTS.iter().find(|(name, _)| *name == options.only) {
        play(&stage, &mut random);
    }
}

/// Sends any request, with any words and descriptors, between valid ones.
fn requests(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        for _ in 0..random.between(1, 60) {
            match random.below(12) {
                0 => drop(attached.squat(random)),
                1 => drop(attached.connect(random)),
                2 => drop(attached.reserve(random.between(1, 300) as u64)),
                3 => attached.serve(random),
                4 => lie_about_region(&attached, random),
                _ => request(&mut attached, random),
            }
        }
        if random.once_in(3) {
            attached.links.iter().for_each(|link| link.lie(random, 200));
        }
    }
}

/// Sends one message of any kind.
fn request(attached: &mut HostileProgram, random: &mut Random) {
    let operation = match random.below(10) {
        0 => u32::from_le_bytes([random.number().to_le_bytes()[0], 0, 0, 0]),
        _ => u32::try_from(random.between(1, 16)).unwrap_or(1),
    };
    let mut words = [0; 14];
    for word in &mut words[..random.between(0, 14)] {
        *word = attached.word(random);
    }
    let wanted = match Operation::from_word(operation) {
        Some(Operation::Attach | Operation::Listen | Operation::Ports) => random.below(2),
        Some(Operation::Deposit | Operation::Enter) => 1,
        Some(Operation::Reoffer) => 3,
        _ => 0,
    };
    let count = match random.below(12) {
        0 => random.below(5),
        1 => MOST,
        _ => wanted,
    };
    if operation == Operation::Attach as u32 && !random.once_in(4) {
        words[..2].copy_from_slice(&[
            u64::from(netchannel_abi::VERSION),
            netchannel_abi::LAYOUT_HASH,
        ]);
        let entries = [64, 65_536, u64::MAX, 0][random.below(4)];
        words[5] = if wanted == 1 { entries } else { 0 };
    }
    if operation == Operation::Ports as u32 && count == 0 && words[0] != 0 {
        // The judge has to know which ports are granted.
        attached.reserve(words[0]);
        return;
    }
    let mut made = Vec::new();
    let one = attached.descriptor(random, &mut made);
    let descriptors: Vec<RawFd> = (0..count)
        .map(|index| {
            if index < 4 {
                attached.descriptor(random, &mut made)
            } else {
                one
            }
        })
        .collect();
    attached.board.count(Counter::Requests, 1);
    let times = if random.once_in(10) { 3 } else { 1 };
    for _ in 0..times {
        if !attached.attach.send_request(operation, words, &descriptors) {
            return;
        }
    }
    if random.once_in(12) {
        // Bytes that are not a message.
        let bytes = vec![0xa5; random.below(2 * MESSAGE_BYTES) + 1];
        let _ = packet::send(attached.attach.socket.as_raw_fd(), &bytes, &descriptors);
    }
    if random.once_in(20) {
        thread::sleep(Duration::from_millis(random.below(200) as u64));
    }
    if !random.once_in(4) {
        let _ = packet::receive(attached.attach.socket.as_raw_fd(), 5);
    }
}

/// Writes untrue words into its own region, for processes that read it.
fn lie_about_region(attached: &HostileProgram, random: &mut Random) {
    let size = netchannel_abi::program::size(65_536);
    let Some(words) = super::memory::map(attached.memory.as_raw_fd(), size, true) else {
        return;
    };
    let values: Vec<u64> = (0..32).map(|_| attached.word(random)).collect();
    let count = random.between(1, 2000);
    for _ in 0..count {
        let index = match random.below(3) {
            0 => random.below(512),
            _ => 512 + random.below(48 * 4000),
        };
        let value = values[random.below(values.len())];
        words[index].store(value, std::sync::atomic::Ordering::Relaxed);
    }
    attached.board.count(Counter::Words, count as u64);
    super::memory::unmap(words);
}

/// Listens at ports of honest servers, closes the kernel's socket, and keeps the daemon's listener.
fn squat(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        let start = Instant::now();
        let life = Duration::from_millis(random.between(300, 4000) as u64);
        while stage.goes_on() && start.elapsed() < life {
            if attached.listeners.len() < 12 {
                attached.squat(random);
            }
            attached.serve(random);
            if attached.links.len() > 64 {
                attached.links.clear();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Connects to honest servers with any source address, and writes random values into the shared memory.
fn lies(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        attached.reserve(16);
        for _ in 0..random.between(1, 6) {
            let Some((listener, to)) = attached.connect(random) else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            for _ in 0..random.between(1, 12) {
                let from = attached.address(random);
                if let Some(link) = attached.links.last_mut() {
                    link.announce(listener, from, to, random);
                    stage.board.count(Counter::Announced, 1);
                }
            }
            if random.once_in(2) {
                thread::sleep(Duration::from_millis(random.below(60) as u64));
            }
            // Addresses too, so that the claimed address may be any by now.
            for _ in 0..random.between(0, 20) {
                let count = random.between(1, 300);
                stage.board.count(Counter::Words, count as u64);
                attached
                    .links
                    .iter()
                    .for_each(|link| link.lie(random, count));
                thread::sleep(Duration::from_micros(random.below(500) as u64));
            }
        }
        thread::sleep(Duration::from_millis(random.below(50) as u64));
    }
}

/// Attaches as root, then switches to another user. Root's rights must not stay.
fn former_root(stage: &Stage, random: &mut Random) {
    let becomes = std::env::var(BECOMES_VARIABLE).ok();
    let Some(user) = becomes.and_then(|user| user.parse::<libc::uid_t>().ok()) else {
        return;
    };
    let mut programs: Vec<HostileProgram> = (0..8).filter_map(|_| stage.attach()).collect();
    // SAFETY: takes integers.
    unsafe {
        libc::setgroups(0, std::ptr::null());
        libc::setresgid(user, user, user);
        if libc::setresuid(user, user, user) != 0 {
            return;
        }
    }
    while stage.goes_on() && !programs.is_empty() {
        for attached in &mut programs {
            let index = random.below(PORTS);
            let port = FIRST_PORT + u16::try_from(index).unwrap_or(0);
            let host = [[127, 0, 0, 1], [0; 4]][random.below(2)];
            if random.once_in(2) {
                // No socket has this cookie.
                let cookie = 1 << 50 | random.below(1 << 20) as u64;
                attached.announce(Address::v4(host, port), cookie, &[], random);
            } else {
                // Some socket has this cookie.
                let cookie = attached.cookie.saturating_sub(random.below(400) as u64);
                attached.announce(Address::v4(host, port), cookie, &[], random);
            }
            attached.serve(random);
            request(attached, random);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Gives the daemon both ends of a pair of sockets, with bytes in it.
fn both_ends(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        for _ in 0..random.between(1, 4) {
            let Some((one, other)) = packet::pair(libc::SOCK_SEQPACKET) else {
                break;
            };
            let mut through = Attach::over(one);
            // An Attach of another version is answered with an errno, for any sender.
            let operation = if random.once_in(2) {
                1
            } else {
                random.between(2, 10)
            };
            let mut words = [0; 14];
            words[0] = attached.word(random);
            through.send_request(u32::try_from(operation).unwrap_or(1), words, &[]);
            let ends = [through.socket.as_raw_fd(), other.as_raw_fd()];
            for end in ends {
                attached.board.count(Counter::Requests, 1);
                if attached
                    .attach
                    .ask(Operation::Adopt, &[0], &[end])
                    .is_none()
                {
                    break;
                }
            }
        }
        // The new form of Adopt returns an end, but there is no child for it.
        if let Some(mut again) = stage.attach()
            && let Some((_, mut ends)) = again.attach.want(Operation::Adopt, &[0], &[])
            && let Some(end) = ends.pop()
        {
            let mut child = Attach::over(end);
            child.attach();
            request(&mut again, random);
            let _ = again
                .attach
                .want(Operation::Adopt, &[0], &[child.socket.as_raw_fd()]);
        }
        thread::sleep(Duration::from_millis(random.below(100) as u64));
    }
}

/// Passes memory that it made to the servers of others, as a connection that another holder did not accept.
fn handing_on(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        attached.connect(random);
        for _ in 0..20 {
            let Some((listener, _)) = attached.honest(random) else {
                break;
            };
            let link = match random.below(3) {
                0 => random.number() & 0xff_ffff_ffff,
                _ => attached.links.last().map_or(1, |link| link.number),
            };
            let own = attached
                .links
                .last()
                .map(|link| link.descriptors[0].as_raw_fd());
            let sizes = kinds::sizes();
            let forged = kinds::memory(libc::MFD_ALLOW_SEALING, sizes[2], kinds::SEALS);
            let forged = forged.as_ref().map(AsRawFd::as_raw_fd);
            let memory = if random.once_in(2) { own } else { forged };
            let channel = packet::pair(libc::SOCK_SEQPACKET);
            let anchor = packet::pair(libc::SOCK_STREAM);
            if let (Some(memory), Some(channel), Some(anchor)) = (memory, channel, anchor) {
                let ends = [memory, channel.0.as_raw_fd(), anchor.0.as_raw_fd()];
                let words = [link, u64::from(listener), random.below(64) as u64, 0];
                stage.board.count(Counter::Requests, 1);
                if attached
                    .attach
                    .ask(Operation::Reoffer, &words, &ends)
                    .is_none()
                {
                    break;
                }
                let _ = packet::send(anchor.1.as_raw_fd(), &[7; 32], &[]);
                thread::sleep(Duration::from_millis(1));
            }
        }
        thread::sleep(Duration::from_millis(random.below(50) as u64));
    }
}

/// Makes ordinary connections over kernel TCP, as any user may.
fn plain_clients(stage: &Stage, random: &mut Random) {
    let mut kept = Vec::new();
    while stage.goes_on() {
        let port = FIRST_PORT + u16::try_from(random.below(PORTS)).unwrap_or(0);
        kept.extend(plain_client(&stage.board, port));
        if kept.len() > 50 || random.once_in(10) {
            kept.clear();
        }
        if let Some(stream) = kept.last_mut() {
            let _ = std::io::Write::write(stream, &random.number().to_le_bytes());
        }
        thread::sleep(Duration::from_millis(random.below(10) as u64));
    }
}

/// One such connection. Its port is recorded as the hostile user's before any process sees it.
fn plain_client(board: &Board, port: u16) -> Option<TcpStream> {
    use netchannel_testkit::sys;
    let any: SocketAddr = "127.0.0.1:0".parse().ok()?;
    let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).ok()?;
    // SAFETY: a new descriptor without another owner.
    let owned = unsafe { OwnedFd::from_raw_fd(socket) };
    sys::bind(socket, any).ok()?;
    board.grant(sys::getsockname(socket).ok()?.port());
    sys::connect(socket, SocketAddr::from(([127, 0, 0, 1], port))).ok()?;
    let stream = TcpStream::from(owned);
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// The path of the control socket that belongs to an attach socket.
pub fn control_socket(attach: &Path) -> PathBuf {
    netchannel_control::path::control_socket(attach)
}
