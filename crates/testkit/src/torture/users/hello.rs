//! Authentication of honest programs. The first bytes of a connection are signed with a secret that only honest
//! programs have, and so is the answer. The signature covers the address from which the client believes to connect.

use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The variable with which honest programs get the secret. The kernel shows a program's environment to its own user and
/// root only.
pub const VARIABLE: &str = "TORTURE_SECRET";
/// The size of a hello in bytes.
pub const HELLO: usize = 64;
/// The size of the answer in bytes.
pub const ANSWER: usize = 24;

const MAGIC: u64 = u64::from_be_bytes(*b"HONEST01");

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The connection follows its script.
    Script,
    /// The server sends back all bytes, until the end.
    Echo,
}

/// The client's identity and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Never used twice.
    pub nonce: u64,
    /// The number of the script.
    pub number: u64,
    /// The user of the client.
    pub user: u32,
    /// The use of the connection.
    pub kind: Kind,
    /// The result of `getsockname` at the client.
    pub address: SocketAddr,
}

/// The secret of a run.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The secret that this process inherited.
    pub fn inherited() -> Self {
        Self(
            std::env::var(VARIABLE)
                .expect("set by `torture users`")
                .into_bytes(),
        )
    }

    fn sign(&self, signer: u8, bytes: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for part in [&self.0[..], &[signer], bytes, &self.0] {
            hasher.write(part);
        }
        hasher.finish()
    }

    /// Encodes a hello.
    pub fn hello(&self, hello: &Hello) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC.to_be_bytes());
        put(&hello.nonce.to_be_bytes());
        put(&hello.number.to_be_bytes());
        put(&hello.user.to_be_bytes());
        put(&u16::from(hello.kind == Kind::Echo).to_be_bytes());
        put(&hello.address.port().to_be_bytes());
        put(&plain(hello.address.ip()).octets());
        let signature = self.sign(1, &bytes[..HELLO - 8]);
        bytes[HELLO - 8..].copy_from_slice(&signature.to_be_bytes());
        bytes
    }

    /// Decodes a hello. `None` unless an honest client made it.
    pub fn read(&self, bytes: &[u8; HELLO]) -> Option<Hello> {
        let word = |at: usize| {
            let eight = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_be_bytes(eight)
        };
        if word(0) != MAGIC || word(HELLO - 8) != self.sign(1, &bytes[..HELLO - 8]) {
            return None;
        }
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let ip: [u8; 16] = bytes[32..48].try_into().expect("sixteen bytes");
        Some(Hello {
            nonce: word(8),
            number: word(16),
            user: u32::from_be_bytes(bytes[24..28].try_into().expect("four bytes")),
            kind: if half(28) == 0 {
                Kind::Script
            } else {
                Kind::Echo
            },
            address: SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), half(30)),
        })
    }

    /// The answer to a hello.
    pub fn answer(&self, nonce: u64) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&nonce.to_be_bytes());
        let signature = self.sign(2, &bytes[..16]);
        bytes[16..].copy_from_slice(&signature.to_be_bytes());
        bytes
    }
}

fn plain(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

/// An address as both ends see it, whichever family their sockets have.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_secret_is_believed() {
        let secret = Secret(b"one".to_vec());
        let hello = Hello {
            nonce: 7,
            number: 1 << 40,
            user: 61001,
            kind: Kind::Echo,
            address: "127.0.0.1:10001".parse().expect("an address"),
        };
        let bytes = secret.hello(&hello);
        assert_eq!(secret.read(&bytes), Some(hello));
        assert_eq!(Secret(b"two".to_vec()).read(&bytes), None);
        for at in 0..HELLO {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(secret.read(&changed), None);
        }
        assert_ne!(secret.answer(7), secret.answer(8));
        assert_ne!(secret.answer(7), Secret(b"two".to_vec()).answer(7));
    }
}
