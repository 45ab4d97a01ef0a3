//! Messages: a question is written, and an answer read that any server may have sent.

use core::net::IpAddr;

use super::name::Name;

/// Kinds of records.
pub mod kinds {
    /// An IPv4 address.
    pub const A: u16 = 1;
    /// Another name, under which to look.
    pub const CNAME: u16 = 5;
    /// The name of an address.
    pub const PTR: u16 = 12;
    /// An IPv6 address.
    pub const AAAA: u16 = 28;
}

/// Codes of answers.
pub mod codes {
    /// The name is known.
    pub const DONE: u8 = 0;
    /// The server did not understand.
    pub const FORM: u8 = 1;
    /// There is no such name.
    pub const NO_NAME: u8 = 3;
}

/// The class of the Internet.
const INTERNET: u16 = 1;
/// The server is to ask others.
const RECURSION: u16 = 1 << 8;
const ANSWER: u16 = 1 << 15;
const OPERATION: u16 = 15 << 11;
const HEADER: usize = 12;
/// Names that lead to others, one after the other; more is a circle.
const MOST_ALIASES: usize = 16;

/// A question, and the number by which its answer is known.
#[derive(Clone, Debug)]
pub struct Question {
    pub id: u16,
    pub name: Name,
    pub kind: u16,
    /// The program reads the answer itself.
    pub is_raw: bool,
}

impl Question {
    /// The message that asks it.
    pub fn message(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.name.wire().len() + 4);
        // One question, no records.
        for word in [self.id, RECURSION, 1, 0, 0, 0] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(self.name.wire());
        for word in [self.kind, INTERNET] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// One of [`codes`], or another failure.
    pub code: u8,
    /// The names that only lead on, the one that was asked for first.
    pub aliases: Vec<Name>,
    /// The name to which they lead.
    pub canonical: Name,
    /// Of questions for addresses.
    pub addresses: Vec<IpAddr>,
    /// Of questions for the name of an address.
    pub names: Vec<Name>,
    /// Of questions whose answers the program reads itself: the whole message, and whether it has records.
    pub raw: Option<(Vec<u8>, bool)>,
}

/// A record of an answer.
struct Record<'a> {
    owner: Name,
    kind: u16,
    data: &'a [u8],
    /// Where its data begin in the message, for names in it.
    at: usize,
}

fn word(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at + 2)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

impl Reply {
    /// Reads a message. `None` where it is no answer to this question, or anything in it is not in order.
    pub fn read(message: &[u8], question: &Question) -> Option<Self> {
        let flags = word(message, 2)?;
        let is_answer = word(message, 0)? == question.id && flags & (ANSWER | OPERATION) == ANSWER;
        if !is_answer || word(message, 4)? != 1 {
            return None;
        }
        let (name, mut at) = Name::read(message, HEADER)?;
        let asked = (word(message, at)?, word(message, at + 2)?);
        if name != question.name || asked != (question.kind, INTERNET) {
            return None;
        }
        at += 4;
        let mut records = Vec::new();
        for _ in 0..word(message, 6)? {
            let (record, end) = Record::read(message, at)?;
            records.extend(record);
            at = end;
        }
        let code = u8::try_from(flags & 15).ok()?;
        Self::of_records(message, &records, (code, question))
    }

    /// Follows the names from the one that was asked for to the records that were wanted.
    fn of_records(
        message: &[u8],
        records: &[Record<'_>],
        (code, question): (u8, &Question),
    ) -> Option<Self> {
        let mut reply = Self {
            code,
            aliases: Vec::new(),
            canonical: question.name.clone(),
            addresses: Vec::new(),
            names: Vec::new(),
            raw: None,
        };
        if question.is_raw {
            reply.raw = Some((message.to_vec(), word(message, 6)? != 0));
            return Some(reply);
        }
        let leads_on = |name: &Name| {
            let mut records = records.iter();
            records.find(|record| record.kind == kinds::CNAME && record.owner == *name)
        };
        while let Some(record) = leads_on(&reply.canonical) {
            if reply.aliases.len() == MOST_ALIASES {
                return None;
            }
            let next = record.name(message)?;
            let former = core::mem::replace(&mut reply.canonical, next);
            reply.aliases.push(former);
        }
        for record in records {
            if record.kind != question.kind || record.owner != reply.canonical {
                continue;
            }
            match record.kind {
                kinds::A => {
                    let bytes: [u8; 4] = record.data.try_into().ok()?;
                    reply.addresses.push(bytes.into());
                }
                kinds::AAAA => {
                    let bytes: [u8; 16] = record.data.try_into().ok()?;
                    reply.addresses.push(bytes.into());
                }
                kinds::PTR => reply.names.push(record.name(message)?),
                _ => {}
            }
        }
        Some(reply)
    }

    /// Whether another server need not be asked.
    pub fn is_settled(&self) -> bool {
        matches!(self.code, codes::DONE | codes::FORM | codes::NO_NAME)
    }

    /// Whether it has what was asked for.
    pub fn has_data(&self) -> bool {
        let has_records = self
            .raw
            .as_ref()
            .is_some_and(|(_, has_records)| *has_records);
        let is_empty = self.addresses.is_empty() && self.names.is_empty() && !has_records;
        self.code == codes::DONE && !is_empty
    }
}

impl<'a> Record<'a> {
    /// The record at `at`, if it is of the Internet, and where it ends.
    fn read(message: &'a [u8], at: usize) -> Option<(Option<Self>, usize)> {
        let (owner, at) = Name::read(message, at)?;
        let (kind, class) = (word(message, at)?, word(message, at + 2)?);
        // Between lies for how long it may be kept: nothing is.
        let length = usize::from(word(message, at + 8)?);
        let at = at + 10;
        let data = message.get(at..at + length)?;
        let record = Self {
            owner,
            kind,
            data,
            at,
        };
        Some(((class == INTERNET).then_some(record), at + length))
    }

    /// The name that is its data.
    fn name(&self, message: &[u8]) -> Option<Name> {
        let (name, end) = Name::read(message, self.at)?;
        (end == self.at + self.data.len()).then_some(name)
    }
}
