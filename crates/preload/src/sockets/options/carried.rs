//! Options of a connection that a stack carries with a socket of its own: those that the stack sets on it, and those
//! that it answers from it. No byte passes here.

use core::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;
use netchannel_abi::answer::{BYTES, INFORMATION, NAME, question};
use netchannel_abi::link::{Side, side_flags};
use netchannel_abi::liveness::Liveness;

use super::as_int;
use crate::descriptors::table::Kind;
use crate::ground::{clock, sys};
use crate::sockets::lane::Lane;
use crate::sockets::socket::{Record, Socket, is_on};

/// For how long an answer is waited for, in nanoseconds.
const PATIENCE: u64 = 50_000_000;
/// How often it is looked for, in nanoseconds.
const LOOK_EVERY: i64 = 20_000;

/// Offsets in `struct tcp_info`.
const SEGMENT: usize = 16;
const PATH: usize = 60;

/// The number of the last question of this process.
static QUESTIONS: AtomicU32 = AtomicU32::new(0);

/// Whether the stack sets its socket by an option.
pub(super) const fn is_carried(level: c_int, name: c_int) -> bool {
    matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE)
            | (
                libc::IPPROTO_TCP,
                libc::TCP_KEEPIDLE
                    | libc::TCP_KEEPINTVL
                    | libc::TCP_KEEPCNT
                    | libc::TCP_USER_TIMEOUT
                    | libc::TCP_CONGESTION
            )
    )
}

/// What the program has set, as the words of its side.
fn wanted(socket: &Socket) -> (u64, [u64; 2]) {
    let mut name = [0; NAME];
    let mut set = Liveness {
        keep_alive: is_on(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        ..Liveness::default()
    };
    let mut read = |record: &Record| {
        let value = as_int(record).max(0).cast_unsigned();
        match (record.level, record.name) {
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => set.idle = value,
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => set.interval = value,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => set.probes = value,
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => set.user_timeout = value,
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => name = record.value,
            _ => {}
        }
    };
    if socket.has_options() {
        socket.with_options(|records| records.iter().for_each(&mut read));
    }
    let (eights, _) = name.as_chunks::<8>();
    let word = |at: usize| eights.get(at).copied().map_or(0, u64::from_le_bytes);
    (set.to_word(), [word(0), word(1)])
}

/// Publishes what the program has set. Whether it is another than before: a side begins with nothing.
fn publish_words(socket: &Socket, own: &Side) -> bool {
    let (liveness, congestion) = wanted(socket);
    let words = [(&own.liveness, liveness)].into_iter();
    let mut changed = false;
    for (place, word) in words.chain(own.congestion.iter().zip(congestion)) {
        if place.load(Ordering::Relaxed) != word {
            place.store(word, Ordering::Relaxed);
            changed = true;
        }
    }
    if changed {
        // Release: pairs with the acquire of the stack, which sees the words.
        own.asked.store(next_number() << 1, Ordering::Release);
    }
    changed
}

/// As [`publish_words`], for a side that was just set up: a program that has set nothing has nothing to publish.
#[inline]
pub fn publish_first_words(socket: &Socket, own: &Side) -> bool {
    (socket.has_options() || is_on(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE))
        && publish_words(socket, own)
}

/// An option of a connection was set.
pub(super) fn publish(socket: &Socket, fd: c_int) {
    if socket.word.kind() == Kind::Virtual
        && let Some(lane) = Lane::of(*socket, fd)
        && publish_words(socket, lane.own())
    {
        announce(&lane);
    }
}

/// Makes the stack look at what was published at the start.
pub fn announce_at_start(socket: &Socket, fd: c_int) {
    if let Some(lane) = Lane::of(*socket, fd) {
        announce(&lane);
    }
}

fn announce(lane: &Lane) {
    if lane.peer_flags() & side_flags::ANSWERS != 0 {
        lane.announce_flags();
    }
}

/// What the stack says of its socket.
pub(super) struct Answered([u8; BYTES]);

impl Answered {
    /// `None` where the connection has no socket of a stack, or the stack does not answer.
    #[cold]
    pub(super) fn ask(socket: &Socket, fd: c_int) -> Option<Self> {
        let lane = match socket.word.kind() {
            Kind::Virtual => Lane::of(*socket, fd)?,
            _ => return None,
        };
        let place = lane.link.answer()?;
        let deadline = clock::nanoseconds() + PATIENCE;
        let mut number = 0;
        while lane.peer_flags() & (side_flags::ANSWERS | side_flags::CLOSED) == side_flags::ANSWERS
        {
            let asked = &lane.own().asked;
            // Another thread may ask about the same connection, or set something.
            if number == 0 || asked.load(Ordering::Relaxed) != number {
                number = next_number() << 1 | 1;
                // Release: what another thread has set just before is seen with this number, too.
                asked.store(number, Ordering::Release);
                lane.announce_flags();
            }
            if let Some(bytes) = place.read(question(lane.handle().index, number)) {
                return Some(Self(bytes));
            }
            if clock::nanoseconds() >= deadline {
                return None;
            }
            sys::sleep(LOOK_EVERY);
        }
        None
    }

    /// `struct tcp_info`.
    pub(super) fn information(&self) -> &[u8] {
        &self.0[..INFORMATION]
    }

    /// The name of the congestion control, filled up with zeroes.
    pub(super) fn congestion_control(&self) -> &[u8] {
        &self.0[INFORMATION..]
    }

    /// `TCP_MAXSEG`.
    pub(super) fn segment(&self) -> i32 {
        self.word(SEGMENT)
    }

    /// `IP_MTU`.
    pub(super) fn path(&self) -> i32 {
        self.word(PATH)
    }

    fn word(&self, at: usize) -> i32 {
        let bytes = self.0[at..].first_chunk().copied();
        i32::from_ne_bytes(bytes.unwrap_or_default())
    }
}

/// The numbers of two processes that ask about one connection differ, but for a chance that is not worth a word.
fn next_number() -> u32 {
    let count = QUESTIONS.fetch_add(1, Ordering::Relaxed);
    ((sys::thread() << 8) ^ count) & (u32::MAX >> 1) | 1
}
