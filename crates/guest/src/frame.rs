//! Frames: a header of two words, then the payload.
//!
//! ```text
//!  word 0: which connection (or port)      word 1: kind (8 bits) | bytes of the payload (24) | argument (32)
//! ```

use crate::violation::Violation;
use netchannel_abi::address::{Address, INET, INET6};

/// Bytes of a header. Frames begin at multiples of it.
pub const HEADER: usize = 16;
/// Words of the payload of an `Open`.
pub const OPEN_WORDS: usize = 8;
/// Addresses in a `Welcome`.
pub const MOST_ADDRESSES: usize = 16;
/// Words of the payload of a `Welcome`: each address is three.
pub const WELCOME_WORDS: usize = 2 + 3 * MOST_ADDRESSES;
/// Words before the bytes of a `Datagram`.
pub const SERVER_WORDS: usize = 3;
/// The largest payload.
pub const MOST_PAYLOAD: usize = 64 << 10;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: what follows is at the ring's beginning.
    Pad,
    /// (host) The guest is a tenant, and which addresses it has.
    Welcome,
    /// A connection is wanted. The argument is how many bytes may be sent on it.
    Open,
    /// It is there. The argument is how many bytes may be sent on it.
    Accept,
    /// Bytes.
    Data,
    /// So many bytes more may be sent.
    Credit,
    /// No byte follows.
    Fin,
    /// The last frame of a side about a connection. The argument is an errno where it was not ended in good order.
    Close,
    /// (guest) Programs listen at a port, by these families.
    Listen,
    /// The other side is to answer.
    Ping,
    /// The answer.
    Pong,
    /// A datagram between one that asks and a name server, whose address is before it.
    Datagram,
    /// (guest) Nobody asks under this number any more.
    Forget,
}

const KINDS: [Kind; 13] = [
    Kind::Pad,
    Kind::Welcome,
    Kind::Open,
    Kind::Accept,
    Kind::Data,
    Kind::Credit,
    Kind::Fin,
    Kind::Close,
    Kind::Listen,
    Kind::Ping,
    Kind::Pong,
    Kind::Datagram,
    Kind::Forget,
];

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is said.
    pub kind: Kind,
    /// Of which connection, or port.
    pub id: u64,
    /// Bytes that follow.
    pub length: usize,
    /// By the kind.
    pub argument: u32,
}

impl Header {
    /// As words.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        let kind = KINDS.iter().position(|one| *one == self.kind).unwrap_or(0);
        let length = self.length as u64 & 0xff_ffff;
        [
            self.id,
            kind as u64 | length << 8 | u64::from(self.argument) << 32,
        ]
    }

    /// From words of the other side.
    ///
    /// # Errors
    /// Where they are no header.
    pub fn from_words([id, word]: [u64; 2]) -> Result<Self, Violation> {
        let [kind, a, b, c, ..] = word.to_le_bytes();
        let kind = KINDS.get(usize::from(kind)).copied();
        let kind = kind.ok_or(Violation("a frame of an unknown kind"))?;
        let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        let fits = match kind {
            Kind::Pad => true,
            Kind::Data => length > 0 && length <= MOST_PAYLOAD,
            Kind::Datagram => length > 8 * SERVER_WORDS && length <= MOST_PAYLOAD,
            Kind::Open => length == 8 * OPEN_WORDS,
            Kind::Welcome => length == 8 * WELCOME_WORDS,
            _ => length == 0,
        };
        if !fits {
            return Err(Violation("a frame of a wrong length"));
        }
        Ok(Self {
            kind,
            id,
            length,
            argument: u32::try_from(word >> 32).unwrap_or(u32::MAX),
        })
    }
}

/// A connection that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Where it goes.
    pub to: Address,
    /// Where it comes from.
    pub from: Address,
    /// How its packets are to be marked; 0 where the program does not care.
    pub dscp: u8,
}

impl Open {
    /// As words.
    #[must_use]
    pub fn to_words(self) -> [u64; OPEN_WORDS] {
        let [a, b, c] = self.to.to_words();
        let [d, e, f] = self.from.to_words();
        [u64::from(self.dscp), a, b, c, d, e, f, 0]
    }

    /// From words of the other side.
    ///
    /// # Errors
    /// Where the addresses are none.
    pub fn from_words([dscp, a, b, c, d, e, f, _]: [u64; OPEN_WORDS]) -> Result<Self, Violation> {
        let (to, from) = (address([a, b, c])?, address([d, e, f])?);
        let dscp = u8::try_from(dscp).ok().filter(|dscp| *dscp < 64);
        let dscp = dscp.ok_or(Violation("a mark that is none"))?;
        Ok(Self { to, from, dscp })
    }
}

pub(crate) fn address(words: [u64; 3]) -> Result<Address, Violation> {
    let Address {
        family,
        port,
        scope,
        bytes,
    } = Address::from_words(words);
    match family {
        INET => {
            let [a, b, c, d, ..] = bytes;
            Ok(Address::v4([a, b, c, d], port))
        }
        INET6 => Ok(Address::v6(bytes, port, scope)),
        _ => Err(Violation("an address of an unknown family")),
    }
}

/// A question to a name server, or its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The guest's number of the one that asks.
    pub asker: u64,
    /// The server, as the guest's program names it.
    pub server: Address,
    /// What is sent.
    pub bytes: Vec<u8>,
}

/// What the host tells a guest that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The tenant's addresses, without ports.
    pub addresses: Vec<Address>,
    /// Connections that each side may have opened.
    pub most: u32,
}

impl Welcome {
    /// As words. Addresses beyond [`MOST_ADDRESSES`] are left out.
    #[must_use]
    pub fn to_words(&self) -> [u64; WELCOME_WORDS] {
        let mut words = [0; WELCOME_WORDS];
        let count = self.addresses.len().min(MOST_ADDRESSES);
        let own = self.addresses.iter().take(count);
        let head = [u64::from(self.most), count as u64];
        let all = head.into_iter().chain(own.flat_map(|one| one.to_words()));
        for (place, word) in words.iter_mut().zip(all) {
            *place = word;
        }
        words
    }

    /// From words of the other side.
    ///
    /// # Errors
    /// Where they make no sense.
    pub fn from_words(words: &[u64; WELCOME_WORDS]) -> Result<Self, Violation> {
        let [most, count, own @ ..] = words;
        let most = u32::try_from(*most).map_err(|_| Violation("a limit that is none"))?;
        let count = usize::try_from(*count).ok();
        let count = count.filter(|count| (1..=MOST_ADDRESSES).contains(count));
        let count = count.ok_or(Violation("a guest without addresses"))?;
        let own = own.chunks_exact(3).take(count);
        let own = own.map(|words| match *words {
            [a, b, c] => address([a, b, c]),
            _ => Err(Violation("a guest without addresses")),
        });
        Ok(Self {
            addresses: own.collect::<Result<_, _>>()?,
            most,
        })
    }
}

/// The families by which programs listen at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Families {
    /// Nobody listens.
    pub const NONE: Self = Self {
        v4: false,
        v6: false,
    };

    /// As an argument.
    #[must_use]
    pub fn to_argument(self) -> u32 {
        u32::from(self.v4) | u32::from(self.v6) << 1
    }

    /// From an argument.
    ///
    /// # Errors
    /// Where it names other families.
    pub fn from_argument(argument: u32) -> Result<Self, Violation> {
        if argument > 3 {
            return Err(Violation("families that are none"));
        }
        Ok(Self {
            v4: argument & 1 != 0,
            v6: argument & 2 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written_and_others_refused() {
        for (kind, length) in [
            (Kind::Data, 65_536),
            (Kind::Pad, 0),
            (Kind::Open, 64),
            (Kind::Close, 0),
        ] {
            let header = Header {
                kind,
                id: u64::MAX - 5,
                length,
                argument: 0xdead_beef,
            };
            assert_eq!(Header::from_words(header.to_words()), Ok(header));
        }
        for word in [
            13,
            255,
            11 | 24 << 8,
            12 | 16 << 8,
            4,
            4 | 65_537 << 8,
            2 | 63 << 8,
            6 | 1 << 8,
            1,
        ] {
            assert!(Header::from_words([1, word]).is_err(), "{word:#x}");
        }
    }

    #[test]
    fn openings_and_welcomes_are_read_as_they_were_written() {
        let open = Open {
            to: Address::v4([10, 7, 0, 2], 80),
            from: Address::v6([7; 16], 40_000, 0),
            dscp: 46,
        };
        assert_eq!(Open::from_words(open.to_words()), Ok(open));
        let mut words = open.to_words();
        words[1] = 9;
        assert!(Open::from_words(words).is_err());
        words = open.to_words();
        words[0] = 64;
        assert!(Open::from_words(words).is_err());
        let welcome = Welcome {
            addresses: vec![Address::v4([10, 88, 0, 2], 0), Address::v6([1; 16], 0, 0)],
            most: 100,
        };
        let words = welcome.to_words();
        assert_eq!(Welcome::from_words(&words), Ok(welcome));
        for count in [0, 17, u64::MAX] {
            let mut words = words;
            words[1] = count;
            assert!(Welcome::from_words(&words).is_err());
        }
        assert!(Families::from_argument(4).is_err());
    }
}
