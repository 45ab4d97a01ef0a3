//! Both ends of a handshake over bytes: that it opens a channel, and everything that must not.

use netchannel_wire::{
    Class, Established, Frame, GoAwayReason, HEADER, HelloAnswer, HelloProof, HostId, Identity,
    Initiator, Key, Kind, Limits, MOST_FIXED_FRAME, Nonce, Parser, Proof, Refused, Responder, Step,
    VERSION, Violation, layout,
};

const DIALLER: HostId = HostId([1; 16]);
const DIALLED: HostId = HostId([2; 16]);
const NUMBER: u32 = 7;

fn key() -> Key {
    Key::from_bytes(&core::array::from_fn::<u8, 32, _>(|at| {
        u8::try_from(at).unwrap()
    }))
    .unwrap()
}

fn other_key() -> Key {
    Key::from_bytes(b"another key, which is long enough").unwrap()
}

fn dialler(nonce: u8) -> Identity {
    Identity {
        host: DIALLER,
        epoch: 0x11,
        limits: Limits::default(),
        nonce: Nonce([nonce; 32]),
    }
}

fn dialled(nonce: u8) -> Identity {
    Identity {
        host: DIALLED,
        epoch: 0x22,
        ..dialler(nonce)
    }
}

fn initiator(nonce: u8) -> Initiator {
    Initiator::new(dialler(nonce), Class::Throughput, NUMBER)
}

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; MOST_FIXED_FRAME];
    let length = frame.encode(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

/// What a peer reads from these bytes at the beginning of a channel.
fn read(bytes: &[u8]) -> Result<Frame<'_>, Violation> {
    match Parser::new(1 << 18).next(bytes)? {
        Step::Frame { frame, .. } => Ok(frame),
        step => panic!("{step:?}"),
    }
}

/// The three frames, as bytes.
#[derive(Debug)]
struct Transcript {
    hello: Vec<u8>,
    answer: Vec<u8>,
    proof: Vec<u8>,
}

/// Carries a handshake out, each frame changed on its way.
fn carry_out(
    keys: [&Key; 2],
    nonces: [u8; 2],
    change: impl Fn(Kind, &mut [u8]),
) -> Result<(Transcript, [Established; 2]), Refused> {
    let initiator = initiator(nonces[0]);
    let mut hello = bytes_of(&initiator.hello());
    change(Kind::Hello, &mut hello);
    let responder = Responder::new(dialled(nonces[1]), &read(&hello)?)?;
    let mut answer = bytes_of(&responder.answer(keys[1]));
    change(Kind::HelloAnswer, &mut answer);
    let (frame, opened) = initiator.handle_answer(&read(&answer)?, keys[0])?;
    let mut proof = bytes_of(&frame);
    change(Kind::HelloProof, &mut proof);
    let accepted = responder.handle_proof(&read(&proof)?, keys[1])?;
    let transcript = Transcript {
        hello,
        answer,
        proof,
    };
    Ok((transcript, [opened, accepted]))
}

fn leave(_: Kind, _: &mut [u8]) {}

#[test]
fn with_the_same_key_both_ends_agree() {
    let (_, [opened, accepted]) = carry_out([&key(), &key()], [10, 11], leave).unwrap();
    let expected = Established {
        class: Class::Throughput,
        number: NUMBER,
        dialler: DIALLER,
        peer: DIALLED,
        epoch: 0x22,
        limits: Limits::default(),
    };
    assert_eq!(opened, expected);
    let expected = Established {
        peer: DIALLER,
        epoch: 0x11,
        ..expected
    };
    assert_eq!(accepted, expected);
    assert!(DIALLER.keeps(&DIALLED) && !DIALLED.keeps(&DIALLER));
}

/// The proofs as another implementation computes them: HMAC-SHA256 with the key 00 01 .. 1f over
/// label, HELLO and the same part of HELLO_ANSWER.
#[test]
fn golden_proofs() {
    let (transcript, _) = carry_out([&key(), &key()], [10, 11], leave).unwrap();
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|it| format!("{it:02x}")).collect() };
    assert_eq!(
        hex(&transcript.answer[HEADER + layout::hello_answer::PROOF..]),
        "2ea8cc4e63429ce25fe274aa681e2c7603f750053f89a10f2df3c5ba23c1d7bd"
    );
    assert_eq!(
        hex(&transcript.proof[HEADER + layout::hello_proof::PROOF..]),
        "6b4a11ebfed22282c4f53afd8ecc3a04dd4699aabcf42e48386fab6c3f07e021"
    );
}

#[test]
fn another_key_is_refused_by_both_ends() {
    let refused = carry_out([&key(), &other_key()], [10, 11], leave).unwrap_err();
    assert_eq!(refused, Refused::WrongKey);
    assert_eq!(refused.reason(), Some(GoAwayReason::Authentication));
    assert!(refused.to_string().contains("different keys"));

    // An initiator that does not care for the answer, and has another key.
    let honest = initiator(10);
    let responder = Responder::new(dialled(11), &honest.hello()).unwrap();
    let shadow = Responder::new(dialled(11), &honest.hello()).unwrap();
    let answer = shadow.answer(&other_key());
    let (proof, _) = honest.handle_answer(&answer, &other_key()).unwrap();
    let refused = responder.handle_proof(&proof, &key()).unwrap_err();
    assert_eq!(refused, Refused::WrongKey);
}

#[test]
fn an_old_answer_is_refused() {
    let (old, _) = carry_out([&key(), &key()], [10, 11], leave).unwrap();
    let answer = read(&old.answer).unwrap();
    let refused = initiator(12).handle_answer(&answer, &key()).unwrap_err();
    assert_eq!(refused, Refused::Replayed);

    // Made to look new.
    let Frame::HelloAnswer(mut answer) = answer else {
        panic!("{answer:?}");
    };
    answer.challenge = Nonce([12; 32]);
    let refused = initiator(12)
        .handle_answer(&Frame::HelloAnswer(answer), &key())
        .unwrap_err();
    assert_eq!(refused, Refused::WrongKey);
}

#[test]
fn an_old_proof_is_refused() {
    let (old, _) = carry_out([&key(), &key()], [10, 11], leave).unwrap();
    let replayed = |nonce, proof: &Frame<'_>| {
        let responder = Responder::new(dialled(nonce), &read(&old.hello).unwrap()).unwrap();
        responder.handle_proof(proof, &key())
    };
    let proof = read(&old.proof).unwrap();
    assert_eq!(replayed(12, &proof), Err(Refused::Replayed));
    // Only a nonce used twice would let it pass.
    assert!(replayed(11, &proof).is_ok());

    let Frame::HelloProof(mut proof) = proof else {
        panic!("{proof:?}");
    };
    proof.challenge = Nonce([12; 32]);
    assert_eq!(
        replayed(12, &Frame::HelloProof(proof)),
        Err(Refused::WrongKey)
    );
}

#[test]
fn own_words_are_refused() {
    // HELLO comes back as it was, or as the beginning of an answer.
    let own = initiator(10).hello();
    let refused = initiator(10).handle_answer(&own, &key()).unwrap_err();
    assert_eq!(refused, Refused::Reflected);
    let Frame::Hello(hello) = own else {
        panic!("{own:?}");
    };
    let answer = HelloAnswer {
        hello,
        challenge: hello.nonce,
        proof: Proof([0; 32]),
    };
    let refused = initiator(10)
        .handle_answer(&Frame::HelloAnswer(answer), &key())
        .unwrap_err();
    assert_eq!(refused, Refused::Reflected);

    // The responder's own proof is no proof of the initiator.
    let responder = Responder::new(dialled(11), &own).unwrap();
    let Frame::HelloAnswer(answer) = responder.answer(&key()) else {
        panic!("an answer");
    };
    let reflected = HelloProof {
        challenge: answer.hello.nonce,
        proof: answer.proof,
    };
    let refused = responder.handle_proof(&Frame::HelloProof(reflected), &key());
    assert_eq!(refused, Err(Refused::WrongKey));
}

/// Somebody without the key dials the initiator back with its own challenge, to let it answer that
/// itself: the proof it gets is for the other part.
#[test]
fn a_proof_from_a_parallel_handshake_is_refused() {
    let victim = initiator(10);
    let Frame::Hello(mut hello) = victim.hello() else {
        panic!("a hello");
    };
    hello.host = DIALLED;
    let parallel = Responder::new(dialler(13), &Frame::Hello(hello)).unwrap();
    let Frame::HelloAnswer(mut answer) = parallel.answer(&key()) else {
        panic!("an answer");
    };
    answer.hello.host = DIALLED;
    let refused = victim
        .handle_answer(&Frame::HelloAnswer(answer), &key())
        .unwrap_err();
    assert_eq!(refused, Refused::WrongKey);
}

#[test]
fn a_host_does_not_take_itself() {
    let refused = Responder::new(dialler(11), &initiator(10).hello()).unwrap_err();
    assert_eq!(refused, Refused::Itself);
    assert_eq!(refused.reason(), Some(GoAwayReason::Itself));
}

#[test]
fn another_version_is_refused_whatever_its_length() {
    for length in [12, 40, 200, 4096] {
        let mut hello = bytes_of(&initiator(10).hello());
        hello.resize(HEADER + length, 0x55);
        hello[layout::header::LENGTH..][..4]
            .copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
        hello[HEADER + layout::hello::VERSION] = 9;
        let violation = read(&hello).unwrap_err();
        assert_eq!(violation, Violation::Version { theirs: 9 });
        assert_eq!(violation.reason(), GoAwayReason::Version);
        let told = format!("version 9 of the wire format, this host has version {VERSION}");
        assert!(violation.to_string().ends_with(&told), "{violation}");
    }
}

#[test]
fn what_is_not_a_daemon_is_refused() {
    let mut hello = bytes_of(&initiator(10).hello());
    hello[HEADER] = b'X';
    let violation = read(&hello).unwrap_err();
    assert_eq!(violation, Violation::NotNetChannel);
    assert!(violation.to_string().contains("\"NCWIRE01\""));
    let http = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    assert_eq!(read(http), Err(Violation::UnknownKind { code: b'H' }));
}

#[test]
fn the_peers_reason_is_told() {
    let gone = Frame::GoAway(GoAwayReason::UnknownPeer);
    let refused = initiator(10).handle_answer(&gone, &key()).unwrap_err();
    assert_eq!(refused, Refused::GoneAway(GoAwayReason::UnknownPeer));
    assert_eq!(refused.reason(), None);
    let told = "the peer refuses the channel: the configuration does not name this peer";
    assert_eq!(refused.to_string(), told);
}

#[test]
fn frames_come_in_order() {
    let proof = Frame::HelloProof(HelloProof {
        challenge: Nonce([11; 32]),
        proof: Proof([0; 32]),
    });
    let early = Responder::new(dialled(11), &proof).unwrap_err();
    let expected = Refused::Unexpected {
        came: Kind::HelloProof,
        due: Kind::Hello,
    };
    assert_eq!(early, expected);
    assert_eq!(early.to_string(), "HELLO_PROOF where HELLO is due");

    let hello = initiator(10).hello();
    let responder = Responder::new(dialled(11), &hello).unwrap();
    assert_eq!(
        responder.handle_proof(&hello, &key()),
        Err(Refused::Unexpected {
            came: Kind::Hello,
            due: Kind::HelloProof
        })
    );
}

#[test]
fn an_answer_for_another_channel_is_refused() {
    let hello = Initiator::new(dialler(10), Class::Latency, NUMBER).hello();
    let responder = Responder::new(dialled(11), &hello).unwrap();
    let refused = initiator(10)
        .handle_answer(&responder.answer(&key()), &key())
        .unwrap_err();
    let (class, number) = (Class::Latency, NUMBER);
    assert_eq!(refused, Refused::OtherChannel { class, number });
}

/// No bit of any of the three frames can be changed on the way.
#[test]
fn every_bit_counts() {
    let (whole, _) = carry_out([&key(), &key()], [10, 11], leave).unwrap();
    let frames = [
        (Kind::Hello, whole.hello.len()),
        (Kind::HelloAnswer, whole.answer.len()),
        (Kind::HelloProof, whole.proof.len()),
    ];
    for (changed, length) in frames {
        // A change of kind or length is another frame; the parser's tests have those.
        for at in (1..length).filter(|at| !(4..8).contains(at)) {
            for bit in 0..8 {
                let change = |kind, bytes: &mut [u8]| {
                    if kind == changed {
                        bytes[at] ^= 1 << bit;
                    }
                };
                let outcome = carry_out([&key(), &key()], [10, 11], change);
                assert!(outcome.is_err(), "{changed}: bit {bit} of byte {at}");
            }
        }
    }
}
