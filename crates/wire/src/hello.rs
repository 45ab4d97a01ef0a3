//! The frames of the handshake, as values. Their order is in `handshake`.

use core::fmt;

use hmac::Hmac;
use hmac::digest::CtOutput;
use sha2::Sha256;

use crate::bytes::{put, take, u32_at, u64_at};
use crate::kind::Kind;
use crate::layout::{hello, hello_answer, hello_proof};
use crate::reason::Class;
use crate::violation::Violation;
use crate::{LEAST_PAYLOAD, MAGIC, MOST_PAYLOAD, VERSION};

pub(crate) type HmacSha256 = Hmac<Sha256>;

/// The identity of a host: 128 random bits, which it keeps at least as long as its daemon lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

impl HostId {
    /// Whether, of two channels of the same class and number, the one that this host has dialled is kept over the one
    /// that `other` has dialled: that of the lower id, compared as bytes.
    #[must_use]
    pub fn keeps(&self, other: &Self) -> bool {
        self < other
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HostId({self})")
    }
}

/// A challenge: 256 bits from the system's random numbers, used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; 32]);

/// An HMAC-SHA256 over a handshake. Compared in constant time.
#[derive(Clone, Copy, Debug)]
pub struct Proof(pub [u8; 32]);

impl PartialEq for Proof {
    fn eq(&self, other: &Self) -> bool {
        let output = |proof: &Self| CtOutput::<HmacSha256>::new(proof.0.into());
        output(self) == output(other)
    }
}

impl Eq for Proof {}

/// The limits of a host towards its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest payload of a DATA frame, [`LEAST_PAYLOAD`] to [`MOST_PAYLOAD`].
    pub payload: u32,
    /// The largest number of virtual sockets that it holds with this peer, at least 1.
    pub sockets: u32,
    /// A channel is dead after this many milliseconds without a frame, at least 1. The peer sends PING if it has sent
    /// no other frame for a third of it.
    pub silence: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload: 1 << 18,
            sockets: 1 << 20,
            silence: 15_000,
        }
    }
}

/// The statement of a host about itself and the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Class of the channel.
    pub class: Class,
    /// Number of the channel within its class.
    pub number: u32,
    /// The limits of this host.
    pub limits: Limits,
    /// The identity of the host; not zero.
    pub host: HostId,
    /// Random for every start of the daemon. A new value means that all its sockets have ended.
    pub epoch: u64,
    /// Its challenge to the other host.
    pub nonce: Nonce,
}

impl Hello {
    /// The payload of HELLO, with which HELLO_ANSWER begins too.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; hello::SIZE] {
        let mut bytes = [0; hello::SIZE];
        put(&mut bytes, hello::MAGIC, &MAGIC);
        put(&mut bytes, hello::VERSION, &VERSION.to_le_bytes());
        put(&mut bytes, hello::CLASS, &[self.class.code()]);
        put(&mut bytes, hello::NUMBER, &self.number.to_le_bytes());
        let limits = self.limits;
        put(&mut bytes, hello::PAYLOAD, &limits.payload.to_le_bytes());
        put(&mut bytes, hello::SOCKETS, &limits.sockets.to_le_bytes());
        put(&mut bytes, hello::SILENCE, &limits.silence.to_le_bytes());
        put(&mut bytes, hello::HOST, &self.host.0);
        put(&mut bytes, hello::EPOCH, &self.epoch.to_le_bytes());
        put(&mut bytes, hello::NONCE, &self.nonce.0);
        bytes
    }

    /// Reads and checks the payload of HELLO, or the beginning of HELLO_ANSWER's.
    pub(crate) fn decode(kind: Kind, bytes: &[u8]) -> Result<Self, Violation> {
        check_version(bytes)?;
        let reserved: [u8; 3] = take(bytes, hello::RESERVED);
        if reserved != [0; 3] {
            let field = "reserved";
            return Err(Violation::NotZero { kind, field });
        }
        let [class] = take(bytes, hello::CLASS);
        let Some(class) = Class::from_code(class) else {
            return Err(Violation::UnknownCode {
                kind,
                field: "class",
                code: u32::from(class),
            });
        };
        let hello = Self {
            class,
            number: u32_at(bytes, hello::NUMBER),
            limits: Limits {
                payload: u32_at(bytes, hello::PAYLOAD),
                sockets: u32_at(bytes, hello::SOCKETS),
                silence: u32_at(bytes, hello::SILENCE),
            },
            host: HostId(take(bytes, hello::HOST)),
            epoch: u64_at(bytes, hello::EPOCH),
            nonce: Nonce(take(bytes, hello::NONCE)),
        };
        hello.check(kind)?;
        Ok(hello)
    }

    fn check(&self, kind: Kind) -> Result<(), Violation> {
        let limits = self.limits;
        let ranges = [
            ("payload", limits.payload, LEAST_PAYLOAD, MOST_PAYLOAD),
            ("sockets", limits.sockets, 1, u32::MAX),
            ("silence", limits.silence, 1, u32::MAX),
        ];
        for (field, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let value = u64::from(value);
                return Err(Violation::OutOfRange { kind, field, value });
            }
        }
        if self.host == HostId([0; 16]) {
            let (field, value) = ("host", 0);
            return Err(Violation::OutOfRange { kind, field, value });
        }
        Ok(())
    }
}

/// The bytes of HELLO and HELLO_ANSWER that have the same meaning in every version.
pub(crate) const VERSION_END: usize = hello::VERSION + 4;

/// Whether the first [`VERSION_END`] bytes of a HELLO are those of this version.
pub(crate) fn check_version(bytes: &[u8]) -> Result<(), Violation> {
    if take(bytes, hello::MAGIC) != MAGIC {
        return Err(Violation::NotNetChannel);
    }
    match u32_at(bytes, hello::VERSION) {
        VERSION => Ok(()),
        theirs => Err(Violation::Version { theirs }),
    }
}

/// The answer to a HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAnswer {
    /// The statement of the responder; class and number are those of HELLO.
    pub hello: Hello,
    /// The nonce of the HELLO that it answers.
    pub challenge: Nonce,
    /// The proof that the responder has the key.
    pub proof: Proof,
}

impl HelloAnswer {
    pub(crate) fn to_bytes(self) -> [u8; hello_answer::SIZE] {
        let mut bytes = [0; hello_answer::SIZE];
        put(&mut bytes, hello_answer::HELLO, &self.hello.to_bytes());
        put(&mut bytes, hello_answer::CHALLENGE, &self.challenge.0);
        put(&mut bytes, hello_answer::PROOF, &self.proof.0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        Ok(Self {
            hello: Hello::decode(Kind::HelloAnswer, bytes)?,
            challenge: Nonce(take(bytes, hello_answer::CHALLENGE)),
            proof: Proof(take(bytes, hello_answer::PROOF)),
        })
    }
}

/// The end of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloProof {
    /// The nonce of the HELLO_ANSWER that it answers.
    pub challenge: Nonce,
    /// The proof that the initiator has the key.
    pub proof: Proof,
}

impl HelloProof {
    pub(crate) fn to_bytes(self) -> [u8; hello_proof::SIZE] {
        let mut bytes = [0; hello_proof::SIZE];
        put(&mut bytes, hello_proof::CHALLENGE, &self.challenge.0);
        put(&mut bytes, hello_proof::PROOF, &self.proof.0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self {
            challenge: Nonce(take(bytes, hello_proof::CHALLENGE)),
            proof: Proof(take(bytes, hello_proof::PROOF)),
        }
    }
}
