//! Domains, servers, the order of addresses.

use core::net::IpAddr;

use super::super::message::{Question, Reply, kinds};
use super::super::{Failure, Found, Resolver, Settings, sort};
use super::{answer, ip, record};

#[test]
fn resolv_conf_is_read() {
    let file = b"# one\nnameserver 10.0.0.1\n nameserver 10.0.0.9\nnameserver fe80::1%eth0\nnameserver fd00::1\n\
        domain a.example\nsearch b.example  c.example\noptions ndots:2 timeout:99 attempts:0 rotate no-aaaa ndots:x\n\
        nameserver 10.0.0.2\nnameserver 10.0.0.3\n; end";
    let read = Settings::read(file, b"host.other.example");
    assert_eq!(
        read.servers,
        [ip("10.0.0.1"), ip("fd00::1"), ip("10.0.0.2")]
    );
    assert_eq!(read.search, [b"b.example", b"c.example"]);
    assert_eq!(
        (read.dots, read.timeout, read.attempts, read.no_aaaa),
        (2, 30, 1, true)
    );
    let read = Settings::read(b"\xff\xfe options\n", b"host.other.example");
    assert_eq!(read.search, [b"other.example"]);
    assert_eq!((read.dots, read.timeout, read.attempts), (1, 5, 2));
    assert_eq!(Settings::read(b"search\n", b"host.x").search.len(), 0);
}

/// What a resolver finds that answers with these codes by name; 0 with an address, 100 not at all. And the names that were asked for.
fn search(file: &str, text: &str, codes: &[(&str, u8)]) -> (Result<Found, Failure>, Vec<String>) {
    let settings = Settings::read(file.as_bytes(), b"host");
    let mut asked = Vec::new();
    let mut ask = |_: IpAddr, questions: &[Question]| {
        let answer = |question: &Question| {
            let text = question.name.host().unwrap();
            let code = codes.iter().find(|(name, _)| *name == text);
            let code = code.map_or(3, |(_, code)| *code);
            asked.push(text);
            let data = record(12, kinds::A, &[10, 0, 0, 1]);
            let records = if code == 0 && question.kind == kinds::A {
                vec![data]
            } else {
                Vec::new()
            };
            let message = answer(question, if code == 9 { 0 } else { code & 15 }, &records);
            Reply::read(&message, question).filter(|_| code != 100)
        };
        questions.iter().map(answer).collect()
    };
    let result = Resolver {
        settings: &settings,
        servers: &[ip("10.0.0.53"), ip("10.0.0.54")],
        ask: &mut ask,
        is_raw: false,
        random: || 7,
    }
    .search(text.as_bytes(), &[kinds::A, kinds::AAAA]);
    asked.dedup();
    (result, asked)
}

#[test]
fn names_are_looked_for_in_domains() {
    const FILE: &str = "search b.example c.example\noptions ndots:2";
    let names = |text: &str, codes: &[(&str, u8)]| search(FILE, text, codes).1.join(" ");
    let all = "a.b.example a.c.example a";
    assert_eq!(names("a", &[]), all);
    assert_eq!(names("a.", &[]), "a");
    assert_eq!(names("x.y", &[]), "x.y.b.example x.y.c.example x.y");
    assert_eq!(names("x.y.z", &[]), "x.y.z x.y.z.b.example x.y.z.c.example");
    assert_eq!(names("a", &[("a.c.example", 0)]), "a.b.example a.c.example");
    let failure = |text: &str, codes: &[(&str, u8)]| search(FILE, text, codes).0.unwrap_err();
    assert_eq!(failure("a", &[]), Failure::NotFound);
    // 9 stands for a name without addresses.
    assert_eq!(failure("a", &[("a.b.example", 9)]), Failure::NoData);
    assert_eq!(failure("a", &[("a.b.example", 2)]), Failure::TryAgain);
    assert_eq!(failure("x.y.z", &[("x.y.z", 2)]), Failure::TryAgain);
    assert_eq!(
        failure("x.y.z", &[("x.y.z.b.example", 9)]),
        Failure::NotFound
    );
    assert_eq!(failure("a.", &[("a", 1)]), Failure::NoRecovery);
    // Who does not answer for one domain is not asked for the others.
    let (result, asked) = search(FILE, "a", &[("a.b.example", 100), ("a", 100)]);
    assert_eq!(result.unwrap_err(), Failure::Unanswered);
    assert_eq!(asked.join(" "), "a.b.example a");
    let found = search(FILE, "a.", &[("a", 0)]).0.unwrap();
    assert_eq!(found.addresses(), [ip("10.0.0.1")]);
}

#[test]
fn addresses_are_tried_in_the_order_of_the_c_library() {
    let order = |addresses: &str, own: &[&str]| {
        let mut all: Vec<IpAddr> = addresses.split(' ').map(ip).collect();
        sort(&mut all, |to| {
            let mut own = own.iter().map(|own| ip(own));
            own.find(|own| own.is_ipv4() == to.to_canonical().is_ipv4())
        });
        let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
        shown.join(" ")
    };
    let mixed = "10.7.0.9 10.7.0.2 2001:db8::9 fd00::9";
    // What has no source comes last, and the rest stays.
    assert_eq!(order(mixed, &["10.88.0.2"]), mixed);
    let v6 = "2001:db8::9 10.7.0.9 10.7.0.2 fd00::9";
    assert_eq!(order(mixed, &["10.88.0.2", "2001:db8::2"]), v6);
    let private = "fd00::9 10.7.0.9 10.7.0.2 2001:db8::9";
    assert_eq!(order(mixed, &["10.88.0.2", "fd00::2"]), private);
    let near = order("2001:db8:1::1 2001:db8:2::1", &["2001:db8:2::2"]);
    assert_eq!(near, "2001:db8:2::1 2001:db8:1::1");
}
