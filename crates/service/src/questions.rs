//! Questions of programs' own resolvers, as they come over the pair of a socket that asks name servers: the server's address, then the
//! datagram. Answers go back the same way.

use netchannel_abi::address::Address;
use netchannel_abi::message::{MOST_QUESTION, NAMES_PORT};
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use std::os::fd::AsFd;

/// The address before each datagram.
pub const HEAD: usize = 24;
/// The longest question with its address.
pub const ROOM: usize = HEAD + MOST_QUESTION;

/// Reads what a program sent: the server, and the datagram to it.
#[must_use]
pub fn read(packet: &[u8]) -> Option<(Address, &[u8])> {
    let (head, datagram) = packet.split_first_chunk::<HEAD>()?;
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(head.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    let asked = Address::from_words(words);
    let is_question = asked.port == NAMES_PORT && !datagram.is_empty();
    (is_question && datagram.len() <= MOST_QUESTION).then_some((asked, datagram))
}

/// Gives a program the answer of the server that it names so, if there is room.
pub fn answer(end: impl AsFd, asked: &Address, answer: &[u8]) {
    let mut head = [0; HEAD];
    for (bytes, word) in head.chunks_exact_mut(8).zip(asked.to_words()) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let parts = [IoSlice::new(&head), IoSlice::new(answer)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut none = SendAncillaryBuffer::default();
    let _ = rustix::net::sendmsg(end, &parts, &mut none, flags);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::owned_pair;
    use rustix::net::{RecvFlags, SocketType};

    #[test]
    fn only_questions_are_read_and_answers_have_their_server() {
        let asked = Address::v4([10, 0, 0, 53], NAMES_PORT);
        let packet = |asked: &Address, length: usize| {
            let (one, other) = owned_pair(SocketType::SEQPACKET).unwrap();
            answer(&one, asked, &vec![7; length]);
            let mut room = [0; ROOM + 2];
            let (got, _) = rustix::net::recv(&other, &mut room, RecvFlags::DONTWAIT).unwrap();
            room[..got].to_vec()
        };
        let whole = packet(&asked, 30);
        assert_eq!(read(&whole), Some((asked, &[7; 30][..])));
        assert_eq!(read(&whole[..HEAD]), None);
        assert_eq!(read(&whole[..HEAD - 1]), None);
        assert_eq!(read(&packet(&asked, MOST_QUESTION + 1)), None);
        assert_eq!(read(&packet(&Address { port: 54, ..asked }, 30)), None);
    }
}
