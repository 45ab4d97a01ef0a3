//! Names and messages.

use super::super::message::{Reply, kinds};
use super::super::name::Name;
use super::{answer, ip, name, question, record};

/// Numbers that follow no order, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }
}

#[test]
fn names_are_written_as_they_are_read() {
    let long = "a".repeat(63);
    let most = [long.as_str(); 4].join(".")[..253].to_owned();
    for text in ["a", "www.example.org", "a_b-c.d", &long, &most] {
        let parsed = name(text);
        assert_eq!(parsed.host().unwrap(), text);
        let (read, end) = Name::read(parsed.wire(), 0).unwrap();
        assert_eq!((read, end), (parsed, text.len() + 2));
    }
    assert_eq!(name("Www.Example."), name("wWW.example"));
    let too_long = [
        "a".repeat(64),
        format!("{most}aa"),
        "a..b".into(),
        String::new(),
    ];
    for text in too_long.iter().map(String::as_str).chain([".", "a\\.b"]) {
        assert!(Name::parse(text.as_bytes()).is_none(), "{text}");
    }
    for text in ["a b", "-a", "a;b", "ä", "a\n"] {
        assert!(name(text).host().is_none(), "{text}");
    }
    assert_eq!(
        Name::reverse(ip("10.1.2.3")),
        Some(name("3.2.1.10.in-addr.arpa"))
    );
    let v6 = Name::reverse(ip("2001:db8::1")).unwrap().host().unwrap();
    assert!(v6.starts_with("1.0.0.0.0.") && v6.ends_with(".8.b.d.0.1.0.0.2.ip6.arpa"));
}

#[test]
fn pointers_lead_back_only() {
    // A name in its middle, one that leads to itself, to what follows, and beyond the end.
    let message = [&[0; 12], b"\x03abc\x00\x01d\xc0\x0c".as_slice()].concat();
    assert_eq!(Name::read(&message, 17), Some((name("d.abc"), 21)));
    for pointer in [[0xc0, 12], [0xc0, 14], [0xc0, 99], [0x80, 0], [0x40, 0]] {
        let message = [[0; 12].as_slice(), &pointer, &[0; 8]].concat();
        assert_eq!(Name::read(&message, 12), None, "{pointer:?}");
    }
    // Two that lead to each other, and a label between.
    let message = [&[0; 12], b"\x01a\xc0\x10\xc0\x0c".as_slice()].concat();
    assert_eq!(Name::read(&message, 16), None);
    assert_eq!(Name::read(&message, 12), None);
}

#[test]
fn answers_lead_over_aliases() {
    let asked = question("www.example", kinds::A);
    // The alias stands behind what it leads to. `www.example` is at 12, `example` at 16; `real` will be in the first record.
    let real = [b"\x04real".as_slice(), &[0xc0, 16]].concat();
    let alias = record(12, kinds::CNAME, &real);
    let start = u16::try_from(answer(&asked, 0, &[]).len() + 12).unwrap();
    let one = record(start, kinds::A, &[10, 0, 0, 1]);
    let two = record(start, kinds::A, &[10, 0, 0, 2]);
    let other = record(12, kinds::AAAA, &[0; 16]);
    let message = answer(&asked, 0, &[alias.clone(), other, one, two]);
    let reply = Reply::read(&message, &asked).unwrap();
    assert_eq!(reply.addresses, [ip("10.0.0.1"), ip("10.0.0.2")]);
    assert_eq!(
        (reply.canonical, reply.aliases),
        (name("real.example"), vec![name("www.example")])
    );
    // Without an address there is no data, and a circle is no answer.
    let reply = Reply::read(&answer(&asked, 0, &[alias]), &asked).unwrap();
    assert!(!reply.has_data() && reply.is_settled());
    let circle = record(12, kinds::CNAME, &[0xc0, 12]);
    assert_eq!(Reply::read(&answer(&asked, 0, &[circle]), &asked), None);
}

#[test]
fn what_is_no_answer_is_not_taken() {
    let asked = question("a.example", kinds::A);
    let good = answer(&asked, 0, &[record(12, kinds::A, &[10, 0, 0, 1])]);
    assert!(Reply::read(&good, &asked).unwrap().has_data());
    for length in 0..good.len() {
        assert_eq!(Reply::read(&good[..length], &asked), None, "{length}");
    }
    let changed = |at: usize, value: u8| {
        let mut message = good.clone();
        message[at] = value;
        Reply::read(&message, &asked)
    };
    // Number, a question, another operation, no question, another name, kind and class.
    for (at, value) in [
        (0, 0),
        (2, 1),
        (2, 0x89),
        (5, 0),
        (13, b'b'),
        (24, 28),
        (26, 3),
    ] {
        assert_eq!(changed(at, value), None, "{at}");
    }
    // More records than there are, and an address of another length.
    assert_eq!(changed(7, 2), None);
    let short = answer(&asked, 0, &[record(12, kinds::A, &[10, 0, 0])]);
    assert_eq!(Reply::read(&short, &asked), None);
    // A failure needs no records.
    for (code, settled) in [(1, true), (2, false), (3, true), (4, false), (5, false)] {
        let reply = Reply::read(&answer(&asked, code, &[]), &asked).unwrap();
        assert_eq!((reply.is_settled(), reply.has_data()), (settled, false));
    }
}

#[test]
fn any_bytes_are_read_to_an_end() {
    let mut random = Random(11);
    let asked = question("www.example", kinds::PTR);
    let real = [b"\x04real".as_slice(), &[0xc0, 16]].concat();
    let good = answer(
        &asked,
        0,
        &[
            record(12, kinds::CNAME, &real),
            record(12, kinds::PTR, &real),
            record(16, kinds::A, &[10, 0, 0, 1]),
        ],
    );
    let mut taken = 0;
    for _ in 0..300_000 {
        let mut message = good.clone();
        for _ in 0..=random.below(6) {
            let at = random.below(message.len());
            message[at] = u8::try_from(random.below(256)).unwrap();
        }
        message.truncate(1 + random.below(message.len() * 2));
        if let Some(reply) = Reply::read(&message, &asked) {
            taken += 1;
            assert!(reply.names.len() + reply.aliases.len() <= 3);
        }
        let start = random.below(message.len());
        if let Some((read, end)) = Name::read(&message, start) {
            assert!(read.wire().len() <= 255 && end <= message.len());
        }
    }
    assert!(taken > 1000, "{taken}");
}
