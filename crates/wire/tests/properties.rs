//! Arbitrary channels, split anywhere: no panic, the same frames, and every frame as it was said.

mod model;

use netchannel_wire::{DataHeader, HEADER, Handle, Parser, Step, encode_data_header};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_read_the_same_however_they_are_split(data in vec(any::<u8>(), 0..600)) {
        model::run(&data);
    }

    /// Headers that are nearly right get farther than arbitrary bytes.
    #[test]
    fn any_header_is_taken_or_refused(
        kind in 0_u8..40,
        flags in prop_oneof![Just(0_u8), 0..4_u8],
        length in prop_oneof![0..200_u32, any::<u32>()],
        words in vec(prop_oneof![Just(0_u8), any::<u8>()], 16),
        payload in vec(prop_oneof![Just(0_u8), Just(2), any::<u8>()], 0..200),
        open in any::<bool>(),
        splits in any::<u64>(),
    ) {
        let mut bytes = vec![kind, flags, 0, 0];
        bytes.extend(length.to_le_bytes());
        bytes.extend(words);
        bytes.extend(payload);
        let whole = model::read_at_once(&bytes, open);
        prop_assert_eq!(model::read_in_pieces(&bytes, open, splits), whole);
    }
}

/// The case for which DATA is parsed in parts: only the start of a payload is in the buffer, and the
/// reader gets the rest past it.
#[test]
fn the_rest_of_a_payload_may_be_read_past_the_buffer() {
    let handle = Handle {
        index: 3,
        generation: 1,
    };
    let data = DataHeader {
        handle,
        sequence: 100,
        length: 1000,
    };
    let mut bytes = [0; HEADER + 10];
    encode_data_header(bytes.first_chunk_mut().unwrap(), &data);
    let mut parser = Parser::new(1 << 20);
    parser.open();
    let step = parser.next(&bytes).unwrap();
    assert_eq!(step.consumed(), bytes.len());
    let expected = Step::Data {
        handle,
        sequence: 100,
        payload: HEADER..HEADER + 10,
        missing: 990,
    };
    assert_eq!(step, expected);

    parser.placed(600);
    let pending = parser.pending().unwrap();
    assert_eq!((pending.sequence, pending.missing), (710, 390));
    assert_eq!(parser.next(&[]), Ok(Step::NeedMore { bytes: 1 }));
    // More than is missing is not the parser's.
    let step = parser.next(&[0; 395]).unwrap();
    assert_eq!(step.consumed(), 390);
    assert_eq!(parser.pending(), None);
    parser.placed(7);
    assert_eq!(parser.next(&[0; 5]), Ok(Step::NeedMore { bytes: HEADER }));
}
