//! Names as DNS messages hold them: labels, each behind its length, and a zero byte at the end.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the longest name, with the lengths and the zero byte (RFC 1035, 2.3.4).
const MOST_NAME: usize = 255;
const MOST_LABEL: usize = 63;

/// A name, uncompressed. It has at most 255 bytes, and its labels at most 63.
#[derive(Clone, Debug)]
pub struct Name(Vec<u8>);

impl PartialEq for Name {
    /// Letters count alike in either case. The length of a label is below any letter.
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Name {
    /// Reads what a program wrote; a dot at the end is left out. `None` where it can not be a name.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        let mut wire = Vec::with_capacity(text.len() + 2);
        for label in text.split(|byte| *byte == b'.') {
            // A backslash begins what only master files need; no host has such a name.
            if label.is_empty() || label.len() > MOST_LABEL || label.contains(&b'\\') {
                return None;
            }
            wire.push(u8::try_from(label.len()).ok()?);
            wire.extend_from_slice(label);
        }
        wire.push(0);
        (wire.len() <= MOST_NAME).then_some(Self(wire))
    }

    /// Reads a name of a message, at `at`, and returns where it ends. A pointer leads only to what stands before the run of labels
    /// that it ends, so that none leads back: reading ends.
    pub fn read(message: &[u8], mut at: usize) -> Option<(Self, usize)> {
        let mut wire = Vec::new();
        let mut end = None;
        let mut run = at;
        loop {
            let length = *message.get(at)?;
            match length >> 6 {
                0 => {
                    let label = message.get(at..=at + usize::from(length))?;
                    wire.extend_from_slice(label);
                    at += label.len();
                    if wire.len() > MOST_NAME {
                        return None;
                    }
                    if length == 0 {
                        return Some((Self(wire), end.unwrap_or(at)));
                    }
                }
                3 => {
                    let low = *message.get(at + 1)?;
                    let target = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    if target >= run {
                        return None;
                    }
                    end.get_or_insert(at + 2);
                    (at, run) = (target, target);
                }
                _ => return None,
            }
        }
    }

    /// As a message holds it.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// The labels, without their lengths.
    fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.0.as_slice();
        core::iter::from_fn(move || {
            let (length, behind) = rest.split_first()?;
            let (label, further) = behind.split_at_checked(usize::from(*length))?;
            rest = further;
            (!label.is_empty()).then_some(label)
        })
    }

    /// The name of a host, for a program. `None` for any other: programs pass names on to shells and logs.
    pub fn host(&self) -> Option<String> {
        let mut text = String::with_capacity(self.0.len());
        for label in self.labels() {
            if !text.is_empty() {
                text.push('.');
            }
            for byte in label {
                if !byte.is_ascii_alphanumeric() && !b"-_".contains(byte) {
                    return None;
                }
                text.push(char::from(*byte));
            }
        }
        (!text.is_empty() && !text.starts_with('-')).then_some(text)
    }

    /// The name under which the name of an address is found.
    pub fn reverse(address: IpAddr) -> Option<Self> {
        let text = match address {
            IpAddr::V4(address) => reverse_v4(address),
            IpAddr::V6(address) => match address.to_ipv4_mapped() {
                Some(mapped) => reverse_v4(mapped),
                None => reverse_v6(address),
            },
        };
        Self::parse(text.as_bytes())
    }
}

fn reverse_v4(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("{d}.{c}.{b}.{a}.in-addr.arpa")
}

fn reverse_v6(address: Ipv6Addr) -> String {
    let mut text = String::new();
    for byte in address.octets().iter().rev() {
        text.push_str(&format!("{:x}.{:x}.", byte & 15, byte >> 4));
    }
    text + "ip6.arpa"
}
