//! Datagrams of the attach protocol: refused, or read so that they can be written again.
#![no_main]

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;
use netchannel_abi::message::{MAGIC, MESSAGE_BYTES, Message, Operation};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let well_formed = data.len() == MESSAGE_BYTES && data.starts_with(&MAGIC.to_le_bytes());
    let message = Message::from_bytes(data);
    assert_eq!(message.is_some(), well_formed);
    if let Some(message) = message {
        assert_eq!(message.to_bytes(), data);
        check(&message);
    } else if let Ok(body) = <&[u8; MESSAGE_BYTES - 4]>::try_from(data) {
        // So that the fuzzer need not find the magic.
        let bytes = [&MAGIC.to_le_bytes()[..], body].concat();
        let message = Message::from_bytes(&bytes).expect("well formed");
        assert_eq!(message.to_bytes(), bytes[..]);
        check(&message);
    }
});

/// What its words are read as.
fn check(message: &Message) {
    let operation = Operation::from_word(message.operation);
    assert!(operation.is_none_or(|known| known as u32 == message.operation));
    for words in message.words.windows(3) {
        let address = Address::from_words([words[0], words[1], words[2]]);
        assert_eq!(address.to_words(), words);
        assert_eq!(address.unmapped().is_loopback(), address.is_loopback());
        let handle = Handle::from_word(words[0]);
        assert_eq!(handle.to_word(), words[0]);
    }
}
