//! Answers as servers send them, and as nobody should.

mod lookups;
mod messages;

use core::net::IpAddr;

use super::message::Question;
use super::name::Name;

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn question(text: &str, kind: u16) -> Question {
    Question {
        id: 0x1234,
        name: name(text),
        kind,
        is_raw: false,
    }
}

/// A record whose owner stands at `owner` in the message.
fn record(owner: u16, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = (0xc000 | owner).to_be_bytes().to_vec();
    for word in [kind, 1, 0, 60, u16::try_from(data.len()).unwrap()] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    bytes
}

/// An answer to a question, with records behind it.
fn answer(question: &Question, code: u8, records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = question.message();
    bytes[2] |= 0x80;
    bytes[3] = 0x80 | code;
    bytes[7] = u8::try_from(records.len()).unwrap();
    bytes.extend(records.iter().flatten());
    bytes
}
