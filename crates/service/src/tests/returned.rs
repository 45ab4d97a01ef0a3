//! Acceptors that are killed before they accept: all that was sent to them comes to the next one.

use super::*;
use crate::pair::Turn;
use crate::relayed::Relayed;
use crate::routing::{Destination, Refused};
use netchannel_abi::link::side_flags;
use std::time::Instant;

/// A connection on its way to its listener, and the programs with their links.
struct Way {
    client: Lane,
    state: Relayed,
    /// The program to which it was announced last.
    acceptor: Option<Lane>,
    links: Vec<[Arc<LinkEnd>; 2]>,
}

fn way() -> Way {
    let (one, other) = link();
    let (client, incoming) = connect(&one, &other);
    let wanted = Destination {
        listener: 3,
        client: HERE,
        server: THERE,
        since: Instant::now(),
    };
    Way {
        client,
        state: Relayed::Pending(incoming, wanted),
        acceptor: None,
        links: vec![[one, other]],
    }
}

impl Way {
    /// It is announced to a program.
    fn announce(&mut self) {
        let (one, other) = link();
        let (outgoing, acceptor) = connect(&one, &other);
        self.state.establish(outgoing);
        self.acceptor = Some(acceptor);
        self.links.push([one, other]);
    }

    /// That program is killed. True if the connection waits for another one.
    fn kill(&mut self) -> bool {
        self.acceptor = None;
        self.state.on_token(1, true);
        self.state
            .wait_anew()
            .map(|outgoing| outgoing.close(true))
            .is_some()
    }

    /// Turns until nothing more can be done. True when the connection is over.
    fn turn(&mut self) -> bool {
        let Relayed::Open(pair, _) = &mut self.state else {
            panic!("it is not open");
        };
        loop {
            match pair.turn() {
                Turn::Waits(_) => return false,
                Turn::Busy => {}
                Turn::Over(ending) => {
                    let state = std::mem::replace(&mut self.state, Relayed::Changing);
                    if let Relayed::Open(pair, _) = state {
                        pair.close(ending);
                    }
                    return true;
                }
            }
        }
    }
}

#[test]
fn what_killed_acceptors_were_sent_comes_to_the_next() {
    let mut random = Random(88_172_645_463_325_252);
    let mut below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
    for _ in 0..60 {
        let mut way = way();
        let bytes = pattern(below(900_000), below(200));
        let ends = below(2) == 0;
        let mut sent = 0;
        for _ in 0..=below(4) {
            way.announce();
            for _ in 0..below(4) {
                let piece = below(bytes.len() - sent + 1);
                sent += write(&mut way.client, &bytes[sent..sent + piece]);
                assert!(!way.turn());
            }
            assert!(way.kill());
        }
        way.announce();
        let (mut got, mut ended) = (Vec::new(), false);
        way.acceptor
            .as_ref()
            .unwrap()
            .set_flags(side_flags::ACCEPTED);
        while got.len() < bytes.len() || ends && !ended {
            sent += write(&mut way.client, &bytes[sent..]);
            if ends && sent == bytes.len() {
                way.client.set_flags(side_flags::FIN);
            }
            assert!(!way.turn());
            let acceptor = way.acceptor.as_mut().unwrap();
            ended = acceptor.peer_flags() & side_flags::FIN != 0;
            got.extend(read(acceptor));
        }
        assert!(got == bytes, "other bytes came");
        // Both directions work.
        write(way.acceptor.as_mut().unwrap(), b"answer");
        assert!(!way.turn());
        assert_eq!(read(&mut way.client), b"answer");
        assert_eq!(way.client.peer_flags() & side_flags::RESET, 0);
    }
}

/// As TCP: what a client sends before it closes lies at the listener until somebody accepts it.
#[test]
fn a_client_that_closes_meanwhile_is_accepted_too() {
    let mut way = way();
    way.announce();
    write(&mut way.client, b"first");
    assert!(!way.turn());
    assert!(way.kill());
    write(&mut way.client, b" and last");
    let flags = side_flags::FIN | side_flags::CLOSED;
    way.client.set_flags(flags);
    assert!(!way.state.is_given_up());
    way.announce();
    assert!(way.turn());
    let acceptor = way.acceptor.as_mut().unwrap();
    assert_eq!(read(acceptor), b"first and last");
    assert_eq!(acceptor.peer_flags() & side_flags::RESET, 0);
}

#[test]
fn what_an_acceptor_has_done_something_with_is_nobody_elses() {
    let deeds: [fn(&mut Lane); 4] = [
        |lane| lane.set_flags(side_flags::ACCEPTED),
        |lane| lane.set_flags(side_flags::FIN),
        |lane| assert_eq!(read(lane), b"request"),
        |lane| assert_eq!(write(lane, b"answer"), 6),
    ];
    for deed in deeds {
        let mut way = way();
        way.announce();
        write(&mut way.client, b"request");
        assert!(!way.turn());
        deed(way.acceptor.as_mut().unwrap());
        assert!(!way.kill());
        assert!(way.turn());
        assert_ne!(way.client.peer_flags() & side_flags::CLOSED, 0);
    }
}

#[test]
fn one_whose_listener_is_closed_meanwhile_is_reset() {
    let mut way = way();
    way.announce();
    assert!(way.kill());
    assert!(way.state.was_open());
    way.state.refuse(Refused::NoListener);
    assert_ne!(way.client.peer_flags() & side_flags::RESET, 0);
    assert_eq!(way.client.peer_error(), 0);
}
