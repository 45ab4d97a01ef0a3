//! Everything that a frame must not be, with the words in which it is refused.

use netchannel_wire::layout::{
    address, hello, listen, listen_end, ncsyn, ncsyn_ack, urgent, window,
};
use netchannel_wire::{
    Address, Class, DataHeader, Fin, Frame, GoAwayReason, HEADER, Handle, Hello, HelloProof,
    HostId, Kind, LEAST_PAYLOAD, Limits, Listen, ListenEnd, MOST_ADDRESSES, MOST_FIXED_FRAME,
    MOST_PAYLOAD, NcSyn, NcSynAck, Nonce, Parser, Proof, Rst, Step, Urgent, Violation, Window,
    encode_data_header, layout,
};

const HANDLE: Handle = Handle {
    index: 1,
    generation: 2,
};

fn bytes_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = [0; MOST_FIXED_FRAME];
    let length = frame.encode(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn open_parser() -> Parser {
    let mut parser = Parser::new(LEAST_PAYLOAD);
    parser.open();
    parser
}

/// In which words an open channel, or else one in its handshake, refuses these bytes.
fn refused_by(mut parser: Parser, bytes: &[u8]) -> String {
    match parser.next(bytes) {
        Err(violation) => {
            assert_eq!(parser.next(&[]), Err(violation));
            violation.to_string()
        }
        Ok(step) => panic!("{step:?}"),
    }
}

/// A frame with some of its bytes replaced, on an open channel.
fn changed(frame: &Frame<'_>, at: usize, bytes: &[u8]) -> String {
    let mut whole = bytes_of(frame);
    whole[at..at + bytes.len()].copy_from_slice(bytes);
    let parser = match frame.kind().is_handshake() {
        true => Parser::new(LEAST_PAYLOAD),
        false => open_parser(),
    };
    refused_by(parser, &whole)
}

const FIN: Frame<'static> = Frame::Fin(Fin {
    handle: HANDLE,
    sequence: 9,
});
const PING: Frame<'static> = Frame::Ping(9);

fn ncsyn() -> Frame<'static> {
    Frame::NcSyn(NcSyn {
        handle: HANDLE,
        client: Address::v4([10, 0, 0, 1], 1),
        server: Address::v4([10, 0, 0, 2], 2),
        limit: 3,
        listener: 4,
        class: Some(Class::Latency),
    })
}

fn data(sequence: u64, length: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let data = DataHeader {
        handle: HANDLE,
        sequence,
        length,
    };
    encode_data_header(&mut bytes, &data);
    bytes
}

#[test]
fn headers() {
    use layout::header::{FLAGS, GENERATION, INDEX, KIND, LENGTH, RESERVED, SEQUENCE};
    for code in (0..=u8::MAX).filter(|code| Kind::from_code(*code).is_none()) {
        let wanted = format!("no frame has the kind {code}");
        assert_eq!(changed(&FIN, KIND, &[code]), wanted);
    }
    assert_eq!(changed(&FIN, FLAGS, &[1]), "FIN has unknown flags 0x01");
    for at in [RESERVED, RESERVED + 1] {
        assert_eq!(changed(&FIN, at, &[1]), "FIN: reserved must be zero");
    }
    assert_eq!(
        changed(&FIN, LENGTH, &[1]),
        "FIN cannot have a payload of 1 bytes"
    );
    assert_eq!(
        changed(&FIN, GENERATION, &[0; 4]),
        "FIN names a socket of generation 0"
    );
    for at in [INDEX, GENERATION] {
        assert_eq!(changed(&PING, at, &[1]), "PING: handle must be zero");
    }
    assert_eq!(
        changed(&ncsyn(), SEQUENCE + 7, &[1]),
        "NCSYN: sequence must be zero"
    );
    assert_eq!(
        changed(&ncsyn(), LENGTH, &[0xff; 4]),
        "NCSYN cannot have a payload of 4294967295 bytes"
    );
}

/// DATA and WINDOW have a way of their own through the parser.
#[test]
fn headers_of_frequent_frames() {
    use layout::header::{FLAGS, GENERATION, LENGTH, RESERVED};
    let opened = bytes_of(&Frame::Window(Window {
        handle: HANDLE,
        filled: 7,
        limit: 8,
        fin: true,
        ask: true,
        again: true,
    }));
    for (name, whole) in [("DATA", data(0, 9).to_vec()), ("WINDOW", opened)] {
        assert!(open_parser().next(&whole).is_ok());
        let refused = |at: usize, bytes: &[u8]| {
            let mut whole = whole.clone();
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            refused_by(open_parser(), &whole)
        };
        let wanted = format!("{name} has unknown flags 0x80");
        assert_eq!(refused(FLAGS, &[0x80]), wanted);
        let wanted = format!("{name}: reserved must be zero");
        assert_eq!(refused(RESERVED, &[1]), wanted);
        assert_eq!(refused(RESERVED + 1, &[1]), wanted);
        let wanted = format!("{name} names a socket of generation 0");
        assert_eq!(refused(GENERATION, &[0; 4]), wanted);
        if name == "WINDOW" {
            let wanted = "WINDOW cannot have a payload of 9 bytes";
            assert_eq!(refused(LENGTH, &[9]), wanted);
        }
    }
}

#[test]
fn every_flag_that_a_kind_does_not_have() {
    for kind in Kind::ALL {
        for flag in (0..8).map(|bit| 1 << bit) {
            let mut bytes = [0; HEADER];
            bytes[..2].copy_from_slice(&[*kind as u8, flag]);
            let refused = open_parser().next(&bytes).unwrap_err();
            let unknown = matches!(refused, Violation::UnknownFlags { .. });
            assert_eq!(unknown, kind.rules().flags & flag == 0, "{kind} {flag}");
        }
    }
}

#[test]
fn streams() {
    assert_eq!(
        refused_by(open_parser(), &data(0, 0)),
        "DATA cannot have a payload of 0 bytes"
    );
    assert_eq!(
        refused_by(open_parser(), &data(0, LEAST_PAYLOAD + 1)),
        "DATA with 4097 bytes, where at most 4096 were announced"
    );
    assert_eq!(
        refused_by(open_parser(), &data(u64::MAX - 3, 4)),
        "DATA with 4 bytes at sequence 18446744073709551612 goes beyond 2^64"
    );
    assert!(open_parser().next(&data(u64::MAX - 4, 4)).is_ok());
    // Whatever a host asks for, its parser keeps to the contract.
    for (asked, most) in [(0, LEAST_PAYLOAD), (u32::MAX, MOST_PAYLOAD)] {
        let mut parser = Parser::new(asked);
        parser.open();
        assert!(parser.clone().next(&data(0, most)).is_ok());
        assert!(parser.next(&data(0, most + 1)).is_err());
    }
}

#[test]
fn sockets() {
    let at = HEADER + ncsyn::CLIENT + address::FAMILY;
    assert_eq!(
        changed(&ncsyn(), at, &[1]),
        "NCSYN: client is not an address"
    );
    let at = HEADER + ncsyn::SERVER + address::BYTES + 4;
    assert_eq!(
        changed(&ncsyn(), at, &[1]),
        "NCSYN: server is not an address"
    );
    let at = HEADER + ncsyn::CLASS;
    assert_eq!(changed(&ncsyn(), at, &[3]), "NCSYN: class cannot be 3");
    let at = HEADER + ncsyn::RESERVED + 2;
    assert_eq!(changed(&ncsyn(), at, &[3]), "NCSYN: reserved must be zero");

    let granted = Frame::NcSynAck(NcSynAck {
        handle: HANDLE,
        responder: HANDLE,
        limit: 0,
    });
    assert_eq!(
        changed(&granted, HEADER + ncsyn_ack::GENERATION, &[0]),
        "NCSYN_ACK names a socket of generation 0"
    );
    let opened = Frame::Window(Window {
        handle: HANDLE,
        filled: 7,
        limit: 7,
        fin: false,
        ask: false,
        again: false,
    });
    assert_eq!(
        changed(&opened, HEADER + window::LIMIT, &[6]),
        "WINDOW: filled to 7, but the limit is 6"
    );
    let reset = Frame::Rst(Rst {
        handle: HANDLE,
        reason: netchannel_wire::ResetReason::Aborted,
    });
    assert_eq!(changed(&reset, HEADER, &[0]), "RST: reason cannot be 0");
    let gone = Frame::GoAway(GoAwayReason::Retired);
    assert_eq!(
        changed(&gone, HEADER + 3, &[1]),
        "GOAWAY: reason cannot be 16777217"
    );
}

#[test]
fn announcements() {
    let announced = Frame::Listen(Listen {
        serial: 5,
        listener: 1,
        address: Address::v4([0; 4], 80),
        v6_only: false,
    });
    assert_eq!(
        changed(&announced, HEADER + listen::LISTENER, &[0]),
        "LISTEN: listener cannot be 0"
    );
    assert_eq!(
        changed(&announced, HEADER + listen::ADDRESS, &[0]),
        "LISTEN: address is not an address"
    );
    let end = Frame::ListenEnd(ListenEnd {
        serial: 5,
        first: 5,
    });
    assert_eq!(
        changed(&end, HEADER + listen_end::FIRST, &[6]),
        "LISTEN_END: the list ends with 5, but begins with 6"
    );

    let row = Frame::Urgent(Urgent {
        handle: HANDLE,
        sequence: 5,
        first: 4,
    });
    assert_eq!(
        changed(&row, HEADER + urgent::FIRST, &[5]),
        "URGENT: the row begins with 5, and ends before 5"
    );

    let list = |elements: &[[u8; address::SIZE]]| {
        let mut bytes = vec![0; HEADER];
        bytes[0] = Kind::Addresses as u8;
        let length = u32::try_from(elements.as_flattened().len()).unwrap();
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes.extend(elements.as_flattened());
        bytes
    };
    let element = |port| netchannel_wire::address::to_bytes(&Address::v4([10, 0, 0, 1], port));
    let most = list(&vec![element(0); MOST_ADDRESSES]);
    assert!(matches!(
        open_parser().next(&most),
        Ok(Step::Frame { consumed, .. }) if consumed == Parser::LEAST_BUFFER
    ));
    assert_eq!(
        refused_by(open_parser(), &list(&vec![element(0); MOST_ADDRESSES + 1])),
        "ADDRESSES cannot have a payload of 5140 bytes"
    );
    for wrong in [element(1), [0; address::SIZE]] {
        assert_eq!(
            refused_by(open_parser(), &list(&[element(0), wrong])),
            "ADDRESSES: number 1 is not an address without a port"
        );
    }
    let mut odd = list(&[element(0)]);
    odd[4] -= 1;
    assert_eq!(
        refused_by(open_parser(), &odd),
        "ADDRESSES cannot have a payload of 19 bytes"
    );
}

#[test]
fn handshakes() {
    let said = Frame::Hello(Hello {
        class: Class::Latency,
        number: 0,
        limits: Limits::default(),
        host: HostId([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        epoch: 0,
        nonce: Nonce([0; 32]),
    });
    assert!(matches!(
        Parser::new(0).next(&bytes_of(&said)),
        Ok(Step::Frame { .. })
    ));
    for (at, bytes, wanted) in [
        (hello::CLASS, &[0][..], "HELLO: class cannot be 0"),
        (hello::RESERVED, &[1], "HELLO: reserved must be zero"),
        (hello::PAYLOAD, &[0; 4], "HELLO: payload cannot be 0"),
        (
            hello::PAYLOAD,
            &[1, 0, 16, 0],
            "HELLO: payload cannot be 1048577",
        ),
        (hello::SOCKETS, &[0; 4], "HELLO: sockets cannot be 0"),
        (hello::SILENCE, &[0; 4], "HELLO: silence cannot be 0"),
        (hello::HOST, &[0; 16], "HELLO: host cannot be 0"),
    ] {
        assert_eq!(changed(&said, HEADER + at, bytes), wanted);
    }
    for length in [0, 11] {
        let wanted = format!("HELLO cannot have a payload of {length} bytes");
        assert_eq!(changed(&said, 4, &[length]), wanted);
    }
    assert_eq!(
        changed(&said, 4, &[89]),
        "HELLO cannot have a payload of 89 bytes"
    );
}

#[test]
fn phases() {
    let proof = Frame::HelloProof(HelloProof {
        challenge: Nonce([1; 32]),
        proof: Proof([2; 32]),
    });
    assert_eq!(
        refused_by(open_parser(), &bytes_of(&proof)),
        "HELLO_PROOF on a channel that is open"
    );
    assert_eq!(
        refused_by(Parser::new(0), &bytes_of(&ncsyn())),
        "NCSYN before the handshake was complete"
    );
    // Not one byte of a stream is waited for before the handshake.
    assert_eq!(
        refused_by(Parser::new(0), &data(0, 1)),
        "DATA before the handshake was complete"
    );

    let gone = bytes_of(&Frame::GoAway(GoAwayReason::Ending));
    for mut parser in [Parser::new(0), open_parser()] {
        assert!(!parser.has_ended());
        assert!(parser.next(&gone).is_ok());
        assert!(parser.has_ended());
        assert_eq!(parser.next(&[]), Ok(Step::NeedMore { bytes: HEADER }));
        parser.open();
        assert_eq!(refused_by(parser, &bytes_of(&PING)), "PING behind GOAWAY");
    }
}
