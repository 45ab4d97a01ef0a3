//! The bytes of every frame, written out, and that they are read again as what they were.

use netchannel_wire::{
    Address, Class, DataHeader, Fin, Frame, GoAwayReason, HEADER, Handle, Hello, HelloAnswer,
    HelloProof, HostId, Kind, Limits, Listen, ListenEnd, MOST_FIXED_FRAME, NcRst, NcSyn, NcSynAck,
    NoSocket, Nonce, Parser, Proof, Refusal, ResetReason, Rst, Step, Unlisten, Urgent, Window,
    encode_addresses, encode_data_header,
};

const HANDLE: Handle = Handle {
    index: 0x0403_0201,
    generation: 0x0807_0605,
};
const SEQUENCE: u64 = 0x100f_0e0d_0c0b_0a09;

/// Bytes from hexadecimal digits; spaces and lines between them mean nothing.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = [0xee; MOST_FIXED_FRAME];
    let length = frame.encode(&mut buffer).unwrap();
    assert!(buffer[length..].iter().all(|byte| *byte == 0xee));
    buffer[..length].to_vec()
}

fn check(frame: Frame<'_>, hex: &str) {
    let encoded = encoded(&frame);
    assert_eq!(encoded, bytes(hex), "{}", frame.kind());
    assert_eq!(encoded[0], frame.kind() as u8);
    let mut parser = Parser::new(1 << 20);
    if !frame.kind().is_handshake() {
        parser.open();
    }
    let step = parser.next(&encoded).unwrap();
    let consumed = encoded.len();
    assert_eq!(step, Step::Frame { frame, consumed });
    for room in 0..consumed {
        let refused = frame.encode(&mut vec![0; room]).unwrap_err();
        assert_eq!(refused.needed, consumed);
    }
}

fn hello() -> Hello {
    Hello {
        class: Class::Latency,
        number: 0x0403_0201,
        limits: Limits {
            payload: 0x0004_0302,
            sockets: 0x0807_0605,
            silence: 0x0c0b_0a09,
        },
        host: HostId(core::array::from_fn(|at| 0xa0 + u8::try_from(at).unwrap())),
        epoch: 0xb7b6_b5b4_b3b2_b1b0,
        nonce: Nonce(core::array::from_fn(|at| 0xc0 + u8::try_from(at).unwrap())),
    }
}

const HELLO: &str = "
    4e43574952453031 03000000 01 000000 01020304 02030400 05060708 090a0b0c
    a0a1a2a3a4a5a6a7a8a9aaabacadaeaf b0b1b2b3b4b5b6b7
    c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf";

fn ones(value: u8) -> String {
    format!("{value:02x}").repeat(32)
}

#[test]
fn handshake() {
    check(
        Frame::Hello(hello()),
        &format!("01 00 0000 58000000 00000000 00000000 0000000000000000 {HELLO}"),
    );
    check(
        Frame::HelloAnswer(HelloAnswer {
            hello: hello(),
            challenge: Nonce([0x11; 32]),
            proof: Proof([0x22; 32]),
        }),
        &format!(
            "02 00 0000 98000000 00000000 00000000 0000000000000000 {HELLO} {} {}",
            ones(0x11),
            ones(0x22)
        ),
    );
    check(
        Frame::HelloProof(HelloProof {
            challenge: Nonce([0x11; 32]),
            proof: Proof([0x22; 32]),
        }),
        &format!(
            "03 00 0000 40000000 00000000 00000000 0000000000000000 {} {}",
            ones(0x11),
            ones(0x22)
        ),
    );
}

#[test]
fn channel() {
    check(
        Frame::GoAway(GoAwayReason::Collision),
        "04 00 0000 04000000 00000000 00000000 0000000000000000 03000000",
    );
    check(
        Frame::Ping(SEQUENCE),
        "05 00 0000 00000000 00000000 00000000 090a0b0c0d0e0f10",
    );
    check(
        Frame::Pong(SEQUENCE),
        "06 00 0000 00000000 00000000 00000000 090a0b0c0d0e0f10",
    );
}

#[test]
fn sockets() {
    check(
        Frame::NcSyn(NcSyn {
            handle: HANDLE,
            client: Address::v4([10, 1, 2, 3], 0x1f90),
            server: Address::v6(core::array::from_fn(|at| u8::try_from(at).unwrap()), 443, 0),
            limit: SEQUENCE,
            listener: 0x1413_1211,
            class: Some(Class::Throughput),
        }),
        "10 00 0000 38000000 01020304 05060708 0000000000000000
         0200 901f 0a010203 000000000000000000000000
         0a00 bb01 000102030405060708090a0b0c0d0e0f
         090a0b0c0d0e0f10 11121314 02 000000",
    );
    check(
        Frame::NcSynAck(NcSynAck {
            handle: HANDLE,
            responder: Handle {
                index: 0x1413_1211,
                generation: 0x1817_1615,
            },
            limit: SEQUENCE,
        }),
        "11 00 0000 10000000 01020304 05060708 0000000000000000
         11121314 15161718 090a0b0c0d0e0f10",
    );
    check(
        Frame::NcRst(NcRst {
            handle: HANDLE,
            reason: Refusal::Quota,
        }),
        "12 00 0000 04000000 01020304 05060708 0000000000000000 04000000",
    );
    check(
        Frame::Window(Window {
            handle: HANDLE,
            filled: SEQUENCE,
            limit: SEQUENCE + 0x10,
            fin: true,
            ask: true,
            again: true,
        }),
        "14 07 0000 08000000 01020304 05060708 090a0b0c0d0e0f10 190a0b0c0d0e0f10",
    );
    check(
        Frame::Fin(Fin {
            handle: HANDLE,
            sequence: SEQUENCE,
        }),
        "15 00 0000 00000000 01020304 05060708 090a0b0c0d0e0f10",
    );
    check(
        Frame::Urgent(Urgent {
            handle: HANDLE,
            sequence: SEQUENCE,
            first: SEQUENCE - 3,
        }),
        "18 00 0000 08000000 01020304 05060708 090a0b0c0d0e0f10 060a0b0c0d0e0f10",
    );
    check(
        Frame::Rst(Rst {
            handle: HANDLE,
            reason: ResetReason::ProgramEnded,
        }),
        "16 00 0000 04000000 01020304 05060708 0000000000000000 02000000",
    );
    check(
        Frame::NoSocket(NoSocket { handle: HANDLE }),
        "17 00 0000 00000000 01020304 05060708 0000000000000000",
    );
}

#[test]
fn announcements() {
    check(
        Frame::Listen(Listen {
            serial: SEQUENCE,
            listener: 0x1413_1211,
            address: Address::v6([0; 16], 80, 0),
            v6_only: true,
        }),
        "21 01 0000 18000000 00000000 00000000 090a0b0c0d0e0f10
         0a00 5000 00000000000000000000000000000000 11121314",
    );
    check(
        Frame::Unlisten(Unlisten {
            serial: SEQUENCE,
            listener: 0x1413_1211,
        }),
        "22 00 0000 04000000 00000000 00000000 090a0b0c0d0e0f10 11121314",
    );
    check(
        Frame::ListenEnd(ListenEnd {
            serial: SEQUENCE,
            first: 0x0807_0605_0403_0201,
        }),
        "23 00 0000 08000000 00000000 00000000 090a0b0c0d0e0f10 0102030405060708",
    );
}

#[test]
fn addresses() {
    let told = [
        Address::v4([10, 1, 2, 3], 77),
        Address::v6([0x20; 16], 0, 3),
    ];
    let hex = "20 00 0000 28000000 00000000 00000000 090a0b0c0d0e0f10
         0200 0000 0a010203 000000000000000000000000
         0a00 0000 20202020202020202020202020202020";
    let mut buffer = [0; 64];
    let length = encode_addresses(SEQUENCE, &told, &mut buffer).unwrap();
    assert_eq!(&buffer[..length], bytes(hex));
    assert!(encode_addresses(SEQUENCE, &told, &mut buffer[..length - 1]).is_err());

    let mut parser = Parser::new(1 << 20);
    parser.open();
    let Step::Frame { frame, consumed } = parser.next(&buffer).unwrap() else {
        panic!("a frame");
    };
    assert_eq!(consumed, length);
    let Frame::Addresses(read) = frame else {
        panic!("{frame:?}");
    };
    let plain = [Address::v4([10, 1, 2, 3], 0), Address::v6([0x20; 16], 0, 0)];
    assert_eq!(read.serial, SEQUENCE);
    assert_eq!(read.list.iter().collect::<Vec<_>>(), plain);
    check(frame, hex);
}

#[test]
fn data() {
    let mut header = [0xee; HEADER];
    let data = DataHeader {
        handle: HANDLE,
        sequence: SEQUENCE,
        length: 0x0002_0304,
    };
    encode_data_header(&mut header, &data);
    let hex = "13 00 0000 04030200 01020304 05060708 090a0b0c0d0e0f10";
    assert_eq!(header, *bytes(hex));
    assert_eq!(header[0], Kind::Data as u8);

    let mut parser = Parser::new(1 << 20);
    parser.open();
    let step = parser.next(&header).unwrap();
    let expected = Step::Data {
        handle: HANDLE,
        sequence: SEQUENCE,
        payload: HEADER..HEADER,
        missing: 0x0002_0304,
    };
    assert_eq!(step, expected);
}
