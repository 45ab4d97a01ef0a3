//! A side that writes whatever it likes: the other one says so, loses its connections, and nothing else.

mod support;

use netchannel_abi::address::Address;
use netchannel_guest::frame::{HEADER, Header, Kind};
use netchannel_guest::layout::{Ring, ring, word};
use netchannel_guest::{Event, Side};
use netchannel_shm::Region;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use support::{Both, Played, new_guest, open, opened, region};

const SIZE: usize = 64 << 10;

/// The guest, played: an honest one sets it up, then its words are the test's.
struct Hostile {
    both: Both,
    memory: Arc<Region>,
    ring: Ring,
}

impl Hostile {
    fn new(most: u32) -> Self {
        let memory = region(SIZE);
        let mut both = Both::over(&memory, most);
        both.settle();
        both.host_events.clear();
        Self {
            both,
            ring: ring(SIZE, Side::Guest).unwrap(),
            memory,
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.memory.at(offset).unwrap()
    }

    fn own(&self, place: usize) -> &AtomicU64 {
        self.word(Side::Guest.page() + place)
    }

    /// Writes raw words at the tail, and shows so many bytes.
    fn write(&self, words: &[u64], shown: usize) {
        let tail = self.own(word::TAIL).load(SeqCst);
        let at = usize::try_from(tail).unwrap() % self.ring.size;
        for (number, one) in words.iter().enumerate() {
            let place = (at + 8 * number) % self.ring.size;
            self.word(self.ring.offset + place).store(*one, SeqCst);
        }
        self.own(word::TAIL).store(tail + shown as u64, SeqCst);
    }

    fn frame(&self, kind: Kind, id: u64, argument: u32, words: &[u64]) {
        let header = Header {
            kind,
            id,
            length: 8 * words.len(),
            argument,
        };
        let mut all = header.to_words().to_vec();
        all.extend(words);
        let shown = HEADER + (8 * words.len()).next_multiple_of(HEADER);
        self.write(&all, shown);
    }

    fn look(&mut self) -> Vec<Event> {
        let host = &mut self.both.host;
        host.poll(self.both.now);
        host.work(self.both.now);
        let _ = host.flush();
        std::iter::from_fn(|| host.next_event()).collect()
    }

    fn is_refused(&mut self) {
        let events = self.look();
        let violated = events.iter().any(|one| matches!(one, Event::Violated(_)));
        assert!(violated, "{events:?}");
        assert!(events.contains(&Event::Down));
        assert_eq!(self.both.host.count(), 0);
        // It rests, and then listens to an honest one.
        assert!(!self.both.host.is_ready());
        self.both.now += Duration::from_secs(2);
        self.both.settle();
        assert!(self.both.host.is_ready() && self.both.guest.is_ready());
        let (guest, host) = (Played::new(b"honest"), Played::new(&[]));
        self.both.connect(&guest, &host);
        assert_eq!(host.0.borrow().got, b"honest");
    }
}

#[test]
fn indices_that_are_none() {
    for tail in [8, 1 << 40, u64::MAX, u64::MAX - 15] {
        let mut hostile = Hostile::new(10);
        hostile.own(word::TAIL).store(tail, SeqCst);
        hostile.is_refused();
    }
    for head in [u64::MAX, 1 << 30, 8, 0] {
        let mut hostile = Hostile::new(10);
        let (guest, host) = (Played::new(&[]), Played::new(b"something"));
        hostile.both.connect(&guest, &host);
        host.0.borrow_mut().gives = vec![0; 100];
        hostile.both.host.queue(opened(&hostile.both.host_events));
        hostile.own(word::HEAD).store(head, SeqCst);
        hostile.is_refused();
    }
}

#[test]
fn frames_that_are_none() {
    type Write = fn(&Hostile);
    let cases: &[(&str, Write)] = &[
        ("an unknown kind", |one| one.write(&[0, 99], 16)),
        ("longer than what is shown", |one| {
            let header = Header {
                kind: Kind::Data,
                id: 2,
                length: 4096,
                argument: 0,
            };
            one.write(&header.to_words(), 16);
        }),
        ("longer than its ring", |one| {
            let header = Header {
                kind: Kind::Data,
                id: 2,
                length: 65_536,
                argument: 0,
            };
            one.write(&header.to_words(), one.ring.size);
        }),
        ("bytes of no connection", |one| {
            one.frame(Kind::Data, 2, 0, &[1, 2])
        }),
        ("an end of no connection", |one| {
            one.frame(Kind::Fin, 2, 0, &[])
        }),
        ("a last word about no connection", |one| {
            one.frame(Kind::Close, 2, 0, &[])
        }),
        ("credit for no connection", |one| {
            one.frame(Kind::Credit, 2, 9, &[])
        }),
        ("an answer to nothing", |one| {
            one.frame(Kind::Accept, 1, 9, &[])
        }),
        ("a number of the host's", |one| {
            one.frame(Kind::Open, 1, 9, &open().to_words())
        }),
        ("addresses that are none", |one| {
            one.frame(Kind::Open, 4, 9, &[0, 7, 0, 0, 7, 0, 0, 0])
        }),
        ("a mark that is none", |one| {
            let mut words = open().to_words();
            words[0] = 1 << 20;
            one.frame(Kind::Open, 4, 9, &words);
        }),
        ("too much credit", |one| {
            one.frame(Kind::Open, 4, u32::MAX, &open().to_words())
        }),
        ("a port that is none", |one| {
            one.frame(Kind::Listen, 65_536, 1, &[])
        }),
        ("port 0", |one| one.frame(Kind::Listen, 0, 1, &[])),
        ("families that are none", |one| {
            one.frame(Kind::Listen, 80, 4, &[])
        }),
        ("a datagram to elsewhere", |one| {
            let [a, b, c] = open().to.to_words();
            one.frame(Kind::Datagram, 1, 0, &[a, b, c, 7]);
        }),
        ("a datagram to nowhere", |one| {
            one.frame(Kind::Datagram, 1, 0, &[7, 0, 0, 7])
        }),
        ("a question that is too long", |one| {
            let [a, b, c] = Address::v4([10, 0, 0, 53], 53).to_words();
            let mut words = vec![a, b, c];
            words.resize(3 + 4104 / 8, 7);
            one.frame(Kind::Datagram, 1, 0, &words);
        }),
        ("a datagram without bytes", |one| {
            let [a, b, c] = Address::v4([10, 0, 0, 53], 53).to_words();
            one.frame(Kind::Datagram, 1, 0, &[a, b, c]);
        }),
        ("a welcome", |one| one.frame(Kind::Welcome, 0, 0, &[0; 50])),
    ];
    for (what, write) in cases {
        println!("{what}");
        let mut hostile = Hostile::new(10);
        write(&hostile);
        hostile.is_refused();
    }
}

#[test]
fn connections_that_do_what_they_may_not() {
    type Write = fn(&Hostile, u64);
    let cases: &[(&str, Write)] = &[
        ("its number again", |one, id| {
            one.frame(Kind::Open, id, 9, &open().to_words())
        }),
        ("two ends", |one, id| {
            one.frame(Kind::Fin, id, 0, &[]);
            one.frame(Kind::Fin, id, 0, &[]);
        }),
        ("bytes behind the end", |one, id| {
            one.frame(Kind::Fin, id, 0, &[]);
            one.frame(Kind::Data, id, 0, &[1, 2]);
        }),
        ("bytes behind the last word", |one, id| {
            one.frame(Kind::Close, id, 0, &[]);
            one.frame(Kind::Data, id, 0, &[1, 2]);
        }),
        ("two last words", |one, id| {
            one.frame(Kind::Close, id, 0, &[]);
            one.frame(Kind::Close, id, 0, &[]);
        }),
        ("an errno that is none", |one, id| {
            one.frame(Kind::Close, id, 5000, &[])
        }),
        ("an answer to itself", |one, id| {
            one.frame(Kind::Accept, id, 9, &[])
        }),
        ("too much credit", |one, id| {
            one.frame(Kind::Credit, id, 1 << 30, &[]);
            one.frame(Kind::Credit, id, 1 << 30, &[]);
        }),
    ];
    for (what, write) in cases {
        println!("{what}");
        let mut hostile = Hostile::new(10);
        let (guest, host) = (Played::new(&[]), Played::new(&[]));
        let (here, _) = hostile.both.connect(&guest, &host);
        write(&hostile, here << 1);
        hostile.is_refused();
        assert_eq!(
            host.0.borrow().closed.map(|(error, _)| error),
            Some(Some(104))
        );
    }
}

#[test]
fn more_bytes_or_connections_than_were_permitted() {
    let mut hostile = Hostile::new(10);
    let (guest, host) = (Played::new(&[]), Played::new(&[]));
    host.0.borrow_mut().room = 0;
    let (here, _) = hostile.both.connect(&guest, &host);
    let mut events = Vec::new();
    // Its window is 256 KiB; nothing is kept beyond that.
    for _ in 0..40 {
        hostile.frame(Kind::Data, here << 1, 0, &[7; 1000]);
        events = hostile.look();
        if !events.is_empty() {
            break;
        }
    }
    let violated = events.iter().any(|one| matches!(one, Event::Violated(_)));
    assert!(violated, "{events:?}");
    let mut hostile = Hostile::new(3);
    for id in 0..4 {
        hostile.frame(Kind::Open, 100 + 2 * id, 9, &open().to_words());
    }
    hostile.is_refused();
}

#[test]
fn a_connection_that_the_host_has_not_made_yet_has_no_bytes() {
    let mut hostile = Hostile::new(3);
    hostile.frame(Kind::Open, 100, 9, &open().to_words());
    hostile.frame(Kind::Data, 100, 0, &[1, 2]);
    hostile.is_refused();
}

/// Whatever is in the guest's words, the host comes to rest and an honest guest is served afterwards.
#[test]
fn anything_at_all() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let mut hostile = Hostile::new(5);
        let (guest, host) = (Played::new(&[1; 300]), Played::new(&[2; 3000]));
        hostile.both.connect(&guest, &host);
        for _ in 0..50 {
            match random() % 9 {
                0 => hostile
                    .own(word::TAIL)
                    .store((random() % (1 << 18)) & !15, SeqCst),
                1 => hostile
                    .own(word::HEAD)
                    .store((random() % (1 << 18)) & !15, SeqCst),
                2 => hostile.own(word::ASLEEP).store(random(), SeqCst),
                3 => hostile.write(&[random() % 6, random() & 0xf | (random() % 80) << 8], 96),
                4 => hostile.write(&[random(), random()], 16),
                5 => hostile.frame(Kind::Credit, random() % 4, 70, &[]),
                6 => hostile.frame(Kind::Data, random() % 4, 0, &[random(); 64]),
                7 => hostile.frame(Kind::Forget, random() % 4, 0, &[]),
                _ => hostile.frame(Kind::Open, random() % 40, 70, &open().to_words()),
            }
            let _ = hostile.look();
            host.0.borrow_mut().gives = vec![3; 100];
        }
        // A new, honest one.
        hostile.both.guest = new_guest(&hostile.memory);
        hostile.both.now += Duration::from_secs(5);
        hostile.both.settle();
        let (guest, host) = (Played::new(b"honest"), Played::new(&[]));
        hostile.both.connect(&guest, &host);
        assert_eq!(host.0.borrow().got, b"honest");
    }
}
