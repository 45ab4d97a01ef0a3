//! Messages of name service, as far as they are passed on: a question is read, an answer is fitted to it.

/// Bytes of a header.
const HEADER: usize = 12;
/// What an asker takes who does not say how much.
const USUAL: usize = 512;
/// Kind of the record in which an asker says how much he takes.
const EXTENSION: u16 = 41;

/// The server could not do it.
pub const FAILED: u8 = 2;
/// There is no such name.
pub const NO_NAME: u8 = 3;
const MALFORMED: u8 = 1;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name, without the dot at its end.
    pub name: String,
    /// The kind of record.
    pub kind: u16,
    /// The class, which is the internet's.
    pub class: u16,
    head: [u8; 4],
    text: Vec<u8>,
    most: usize,
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

impl Question {
    /// Reads a packet: one question in plain letters.
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<Self> {
        let head = packet.get(..4)?.try_into().ok()?;
        let is_question = packet[2] & 0xf8 == 0;
        let counts = [word(packet, 4)?, word(packet, 6)?, word(packet, 8)?];
        if !is_question || counts != [1, 0, 0] {
            return None;
        }
        let (mut at, mut name) = (HEADER, String::new());
        loop {
            let length = usize::from(*packet.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            let label = packet.get(at..at + length).filter(|_| length < 64)?;
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if !label.iter().all(is_plain) || name.len() + length > 254 {
                return None;
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(label.iter().map(|byte| char::from(*byte)));
            at += length;
        }
        let (kind, class) = (word(packet, at)?, word(packet, at + 2)?);
        let text = packet.get(HEADER..at + 4)?.to_vec();
        let most = extension(&packet[at + 4..]).unwrap_or(USUAL);
        Some(Self {
            name,
            kind,
            class,
            head,
            text,
            most: most.max(USUAL),
        })
    }

    /// The answer that a server gave to the same question, for who asked this one.
    #[must_use]
    pub fn with_answer(&self, mut answer: Vec<u8>) -> Vec<u8> {
        if answer.len() < HEADER + self.text.len() {
            return self.with_error(FAILED);
        }
        if answer.len() > self.most {
            let mut cut = self.with_error(0);
            // Cut off: the asker may ask over TCP.
            cut[2] |= 2;
            return cut;
        }
        answer[..2].copy_from_slice(&self.head[..2]);
        let asked = &mut answer[HEADER..HEADER + self.text.len()];
        // The asker's own letters, large and small.
        if asked.eq_ignore_ascii_case(&self.text) {
            asked.copy_from_slice(&self.text);
        }
        answer
    }

    /// An answer that only says so.
    #[must_use]
    pub fn with_error(&self, code: u8) -> Vec<u8> {
        let [first, second, flags, _] = self.head;
        // A response, of a server that asks others.
        let mut answer = vec![first, second, flags & 1 | 0x80, 0x80 | code];
        answer.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        answer.extend_from_slice(&self.text);
        answer
    }
}

/// The answer to what is no question that can be passed on.
#[must_use]
pub fn malformed(packet: &[u8]) -> Option<Vec<u8>> {
    let id = packet.get(..2)?;
    let mut answer = vec![id[0], id[1], 0x80, 0x80 | MALFORMED];
    answer.extend([0; 8]);
    Some(answer)
}

/// How much an asker takes, as the record behind the question says.
fn extension(records: &[u8]) -> Option<usize> {
    let is_root = *records.first()? == 0;
    let size = word(records, 3).filter(|_| is_root && word(records, 1) == Some(EXTENSION))?;
    Some(size.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, size: Option<u16>) -> Vec<u8> {
        let additional = u8::from(size.is_some());
        let mut packet = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, additional];
        for label in name.split('.') {
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend_from_slice(label.as_bytes());
        }
        packet.extend([0, 0, 28, 0, 1]);
        if let Some(size) = size {
            packet.extend([0, 0, 41]);
            packet.extend(size.to_be_bytes());
            packet.extend([0; 6]);
        }
        packet
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let packet = asked("Www.example", Some(1232));
        let question = Question::read(&packet).unwrap();
        assert_eq!(
            (question.name.as_str(), question.kind, question.class),
            ("Www.example", 28, 1)
        );
        assert_eq!(question.most, 1232);
        let mut served = asked("www.EXAMPLE", None);
        served[..4].copy_from_slice(&[1, 1, 0x81, 0x80]);
        served.extend([1; 40]);
        let answer = question.with_answer(served.clone());
        assert_eq!(&answer[..4], &[7, 9, 0x81, 0x80]);
        assert_eq!(&answer[13..16], b"Www");
        served.extend([0; 1300]);
        let cut = question.with_answer(served);
        assert_eq!((cut.len(), cut[2] & 2), (HEADER + question.text.len(), 2));
        assert_eq!(question.with_error(NO_NAME)[3], 0x83);
    }

    #[test]
    fn what_is_no_question_is_none() {
        let whole = asked("a.b", Some(512));
        for length in 0..21 {
            assert_eq!(Question::read(&whole[..length]), None, "{length}");
        }
        for (at, value) in [(2, 0x80), (5, 2), (7, 1), (12, 0xc0), (13, b'.'), (13, 0)] {
            let mut packet = whole.clone();
            packet[at] = value;
            assert_eq!(Question::read(&packet), None, "{at}");
        }
        let long = vec!["abcdefghij"; 40].join(".");
        assert_eq!(Question::read(&asked(&long, None)), None);
        assert_eq!(malformed(&[5, 6, 7]).unwrap()[..4], [5, 6, 0x80, 0x81]);
        assert_eq!(malformed(&[5]), None);
    }
}
