//! The script of a connection, derived from the seed and the connection's number, so that both ends know it without
//! exchanging it.

use std::sync::OnceLock;

use netchannel_testkit::support::{Random, file_of, pattern};
use netchannel_testkit::sys::{Descriptor, Errno};

/// The period of a stream: a prime, so that no buffer's size divides it.
const PERIOD: usize = 1_000_003;

/// The largest size of one send or receive.
pub const LARGEST: usize = 256 * 1024;

/// How often a stream fills the small buffers of its connection at most. The kernel's TCP may move only one such buffer
/// in 200 ms: its window stays below a segment, and the persist timer drives the transfer.
const FILLINGS: usize = 16;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

impl Role {
    pub fn other(self) -> Self {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both ends send all bytes, shut down sending, and read to the end.
    Graceful,
    /// One end resets the connection after it has sent its part.
    Reset(Role),
    /// One end closes the connection after it has sent its part, without reading.
    Close(Role),
    /// One end is killed at some moment.
    Killed,
}

/// A connection's script.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub seed: u64,
    pub number: u64,
    pub to_server: usize,
    pub to_client: usize,
    pub ending: Ending,
    /// Sizes of the buffers to set, or `None`.
    pub buffers: Option<libc::c_int>,
    /// Whether some bytes are sent as urgent ones, which stay in the stream.
    pub urgent: bool,
}

impl Script {
    /// The script of a connection.
    pub fn of(seed: u64, number: u64) -> Self {
        let mut random = Random::new(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let mut to_server = stream_length(&mut random);
        let mut to_client = stream_length(&mut random);
        let aborter = if random.once_in(2) {
            Role::Client
        } else {
            Role::Server
        };
        let ending = match random.below(8) {
            0 => Ending::Reset(aborter),
            1 => Ending::Close(aborter),
            _ => Ending::Graceful,
        };
        let small = random.between(2_000, 40_000);
        let buffers = random.once_in(4).then(|| {
            to_server = to_server.min(FILLINGS * small);
            to_client = to_client.min(FILLINGS * small);
            libc::c_int::try_from(small).unwrap_or(4_000)
        });
        Self {
            seed,
            number,
            to_server,
            to_client,
            ending,
            buffers,
            urgent: number % 4 == 3,
        }
    }

    /// The script of a connection of moderate length that ends in good order.
    pub fn brief(seed: u64, number: u64) -> Self {
        let script = Self::of(seed, number);
        Self {
            to_server: script.to_server % 100_000,
            to_client: script.to_client % 100_000,
            ending: Ending::Graceful,
            buffers: None,
            ..script
        }
    }

    /// The script of a connection one of whose ends will be killed: both ends send without limit.
    pub fn killed(seed: u64, number: u64) -> Self {
        let endless = usize::MAX / 2;
        let (to_server, to_client) = (endless, endless);
        Self {
            seed,
            number,
            to_server,
            to_client,
            ending: Ending::Killed,
            buffers: None,
            urgent: number % 4 == 3,
        }
    }

    /// How many bytes this end sends.
    pub fn sends(&self, role: Role) -> usize {
        match role {
            Role::Client => self.to_server,
            Role::Server => self.to_client,
        }
    }

    /// Whether this end breaks the connection.
    pub fn aborts(&self, role: Role) -> bool {
        self.ending == Ending::Reset(role) || self.ending == Ending::Close(role)
    }

    /// Whether this end must accept a partial stream, and errors.
    pub fn is_lenient(&self, role: Role) -> bool {
        self.ending == Ending::Killed || self.aborts(role.other())
    }

    /// Whether a call of this end may fail so, as the other end breaks the connection.
    pub fn may_fail(&self, role: Role, errno: Errno) -> bool {
        [libc::ECONNRESET, libc::EPIPE].contains(&errno.0) && self.is_lenient(role)
    }

    /// The stream that this end sends.
    pub fn stream(&self, role: Role) -> Stream {
        let direction = if role == Role::Client { 1 } else { 2 };
        let mut random = Random::new(self.seed.wrapping_add(self.number * 4 + direction));
        Stream {
            offset: random.below(PERIOD),
        }
    }

    /// The random sizes of this end's calls.
    pub fn sizes(&self, role: Role, salt: u64) -> Random {
        let direction = if role == Role::Client { 3 } else { 5 };
        Random::new(self.seed ^ (self.number << 8) ^ (salt << 4) ^ direction)
    }
}

fn stream_length(random: &mut Random) -> usize {
    match random.below(8) {
        0 => 0,
        1 | 2 => random.between(1, 200),
        3 | 4 => random.between(1, 20_000),
        5 | 6 => random.between(1, 300_000),
        _ => random.between(1, 3_000_000),
    }
}

/// The size of one call.
pub fn call_size(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.between(1, 64),
        1 => random.between(1, 2_000),
        2 => random.between(1, 40_000),
        _ => random.between(1, LARGEST),
    }
}

/// An endless sequence of bytes.
#[derive(Clone, Copy)]
pub struct Stream {
    offset: usize,
}

impl Stream {
    /// The bytes at a position, for a length up to [`LARGEST`].
    pub fn at(self, position: usize, length: usize) -> &'static [u8] {
        let start = self.start(position);
        &block()[start..start + length]
    }

    /// A file, and the offset at which it holds the bytes of a position, for a length up to [`LARGEST`].
    pub fn in_a_file(self, position: usize) -> (Descriptor, i64) {
        static FILE: OnceLock<Descriptor> = OnceLock::new();
        let file = *FILE.get_or_init(|| file_of(block()));
        (file, i64::try_from(self.start(position)).unwrap_or(0))
    }

    fn start(self, position: usize) -> usize {
        (self.offset + position) % PERIOD
    }
}

/// A period of all streams, and as much of the next one as a call takes.
fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut block = pattern(0, PERIOD);
        block.extend_from_within(..LARGEST);
        block
    })
}

#[cfg(test)]
mod tests {
    use super::{LARGEST, PERIOD, Role, Script, Stream};

    #[test]
    fn a_stream_is_the_same_however_it_is_cut() {
        for offset in [0, 1, PERIOD - 1] {
            let stream = Stream { offset };
            for start in [0, PERIOD - 5, PERIOD, 7 * PERIOD + 3] {
                let whole = stream.at(start, LARGEST);
                for cut in [1, 1000, LARGEST - 1] {
                    let pieces = [stream.at(start, cut), stream.at(start + cut, LARGEST - cut)];
                    assert!(whole == pieces.concat(), "{offset} {start} {cut}");
                }
            }
        }
    }

    #[test]
    fn both_directions_and_all_connections_differ() {
        let script = Script::of(1, 1);
        let start = |script: &Script, role: Role| script.stream(role).at(0, 64);
        assert_ne!(start(&script, Role::Client), start(&script, Role::Server));
        assert_ne!(
            start(&script, Role::Client),
            start(&Script::of(1, 2), Role::Client)
        );
        assert_ne!(
            start(&script, Role::Client),
            start(&Script::of(2, 1), Role::Client)
        );
    }
}
