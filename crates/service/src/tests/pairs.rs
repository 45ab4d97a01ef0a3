//! Two links and the pair between them: what one program does, the other sees.

use super::*;
use crate::pair::{Moved, Pair, Turn};
use netchannel_abi::link::side_flags;
use netchannel_ring::held::{self, OnReply};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

struct Relayed {
    /// The programs' lanes, and the links that keep them.
    programs: [Option<Lane>; 2],
    pair: Option<Pair>,
    links: [(Arc<LinkEnd>, Arc<LinkEnd>); 2],
}

fn relayed() -> Relayed {
    let links = [link(), link()];
    let (one, incoming) = connect(&links[0].0, &links[0].1);
    let (outgoing, other) = connect(&links[1].0, &links[1].1);
    other.set_flags(side_flags::ACCEPTED);
    Relayed {
        programs: [Some(one), Some(other)],
        pair: Some(Pair::new(incoming, outgoing)),
        links,
    }
}

impl Relayed {
    fn program(&mut self, which: usize) -> &mut Lane {
        self.programs[which].as_mut().unwrap()
    }

    /// Turns until nothing more can be done. True when the connection is over.
    fn turn(&mut self) -> bool {
        loop {
            match self.pair.as_mut().unwrap().turn() {
                Turn::Waits(_) => return false,
                Turn::Busy => {}
                Turn::Over(ending) => {
                    self.pair.take().unwrap().close(ending);
                    return true;
                }
            }
        }
    }

    fn flags(&mut self, which: usize) -> u32 {
        self.program(which).peer_flags()
    }
}

#[test]
fn bytes_go_through_both_ways_with_back_pressure() {
    let mut relayed = relayed();
    let bytes = pattern(3_000_000, 3);
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < bytes.len() {
        sent += write(relayed.program(0), &bytes[sent..]);
        assert!(!relayed.turn());
        // Nobody read: what is under way is bounded by rings.
        assert!(sent - got.len() <= 16 << 20);
        got.extend(read(relayed.program(1)));
    }
    assert_eq!(got, bytes);
    assert_eq!(write(relayed.program(1), b"back"), 4);
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(0)), b"back");
}

#[test]
fn an_end_comes_after_the_bytes() {
    let mut relayed = relayed();
    write(relayed.program(0), b"last");
    relayed.program(0).set_flags(side_flags::FIN);
    assert!(!relayed.turn());
    assert_eq!(relayed.flags(1) & side_flags::FIN, side_flags::FIN);
    assert_eq!(ends_at(relayed.program(1)), Some(4));
    // The other direction is open.
    write(relayed.program(1), b"more");
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(0)), b"more");
    relayed.programs[1].take().unwrap().close(false);
    assert!(relayed.turn());
    assert_ne!(relayed.flags(0) & side_flags::CLOSED, 0);
    relayed.programs[0].take().unwrap().close(false);
    for (client, server) in &relayed.links {
        assert_eq!((client.connections(), server.connections()), (0, 0));
    }
}

#[test]
fn a_close_waits_for_room_and_a_reset_does_not() {
    for reset in [false, true] {
        let mut relayed = relayed();
        let bytes = pattern(2_000_000, 9);
        let mut sent = 0;
        loop {
            let put = write(relayed.program(0), &bytes[sent..]);
            assert!(!relayed.turn());
            if put == 0 {
                break;
            }
            sent += put;
        }
        relayed.programs[0].take().unwrap().close(reset);
        assert_eq!(relayed.turn(), reset);
        if reset {
            assert_ne!(relayed.flags(1) & side_flags::RESET, 0);
            continue;
        }
        let mut got = Vec::new();
        loop {
            got.extend(read(relayed.program(1)));
            if relayed.pair.is_none() || relayed.turn() {
                break;
            }
        }
        got.extend(read(relayed.program(1)));
        assert_eq!(got, bytes[..sent]);
        assert_eq!(relayed.flags(1) & side_flags::RESET, 0);
        assert_ne!(relayed.flags(1) & side_flags::CLOSED, 0);
    }
}

#[test]
fn a_program_that_dies_is_an_end_or_a_reset() {
    for unread in [false, true] {
        let mut relayed = relayed();
        if unread {
            write(relayed.program(0), b"never read");
            assert!(!relayed.turn());
        }
        write(relayed.program(1), b"last words");
        relayed.programs[1] = None;
        relayed.pair.as_mut().unwrap().lane_mut(1).on_token(true);
        assert!(relayed.turn());
        assert_eq!(read(relayed.program(0)), b"last words");
        let flags = relayed.flags(0);
        assert_ne!(flags & side_flags::CLOSED, 0);
        assert_eq!(flags & side_flags::RESET != 0, unread);
    }
}

#[test]
fn a_program_that_dies_resets_nothing_that_is_over() {
    let mut relayed = relayed();
    write(relayed.program(0), b"never read");
    for which in [0, 1] {
        relayed.program(which).set_flags(side_flags::FIN);
    }
    assert!(!relayed.turn());
    relayed.programs[1] = None;
    relayed.pair.as_mut().unwrap().lane_mut(1).on_token(true);
    assert!(relayed.turn());
    assert_eq!(relayed.flags(0) & side_flags::RESET, 0);
}

/// TCP would have brought them to the program before it died.
#[test]
fn what_was_on_its_way_to_a_program_that_dies_resets() {
    let mut relayed = relayed();
    write(relayed.program(0), b"never moved");
    write(relayed.program(1), b"last words");
    hold(relayed.program(1), OnReply::Keeps, milliseconds());
    write(relayed.program(1), b"held back");
    relayed.programs[1] = None;
    relayed.pair.as_mut().unwrap().lane_mut(1).on_token(true);
    assert!(relayed.turn());
    assert_eq!(read(relayed.program(0)), b"last words");
    assert_ne!(relayed.flags(0) & side_flags::RESET, 0);
}

#[test]
fn what_is_sent_to_a_dead_program_blocks_nobody() {
    let mut relayed = relayed();
    let bytes = pattern(2_000_000, 4);
    let mut sent = 0;
    loop {
        let put = write(relayed.program(1), &bytes);
        assert!(!relayed.turn());
        if put == 0 {
            break;
        }
        sent += put;
    }
    relayed.programs[1] = None;
    relayed.pair.as_mut().unwrap().lane_mut(1).on_token(true);
    // Its last words wait for room, and nobody is kept waiting for them who writes.
    let mut written = 0;
    for _ in 0..100 {
        assert!(!relayed.turn());
        written += write(relayed.program(0), &bytes);
    }
    assert!(written > 4 << 20);
    let mut got = 0;
    while !relayed.turn() {
        got += read(relayed.program(0)).len();
    }
    got += read(relayed.program(0)).len();
    assert_eq!(got, sent);
    assert_ne!(relayed.flags(0) & side_flags::RESET, 0);
}

#[test]
fn a_reset_behind_the_end_is_told_as_a_broken_pipe() {
    let broken = Errno::PIPE.raw_os_error().unsigned_abs();
    for (ended, dies) in [(false, false), (true, false), (true, true)] {
        let mut relayed = relayed();
        if ended {
            relayed.program(0).set_flags(side_flags::FIN);
        }
        write(relayed.program(1), b"never read");
        assert!(!relayed.turn());
        let program = relayed.programs[0].take().unwrap();
        if dies {
            drop(program);
            relayed.pair.as_mut().unwrap().lane_mut(0).on_token(true);
        } else {
            if ended {
                program.set_reset_error(broken);
            }
            program.close(true);
        }
        assert!(relayed.turn());
        assert_ne!(relayed.flags(1) & side_flags::RESET, 0);
        let (_, peer) = relayed.program(1).sides().unwrap();
        let told = peer.error.load(Ordering::Relaxed);
        assert_eq!(told == broken, ended, "died: {dies}");
    }
}

#[test]
fn what_is_sent_to_a_closed_program_blocks_nobody() {
    let mut relayed = relayed();
    // The answer fills the ring of a program that does not read but write.
    let bytes = pattern(2_000_000, 4);
    while write(relayed.program(1), &bytes) > 0 {
        assert!(!relayed.turn());
    }
    relayed.programs[1].take().unwrap().close(false);
    assert!(!relayed.turn());
    let mut written = 0;
    for _ in 0..100 {
        written += write(relayed.program(0), &bytes);
        assert!(!relayed.turn());
    }
    assert!(written > 4 << 20);
}

#[test]
fn a_fault_ends_both() {
    let mut relayed = relayed();
    let (own, _) = relayed.program(0).sides().unwrap();
    own.tail
        .store(1 << 50, std::sync::atomic::Ordering::Relaxed);
    assert!(relayed.turn());
    assert_ne!(relayed.flags(0) & side_flags::RESET, 0);
    assert_ne!(relayed.flags(1) & side_flags::RESET, 0);
}

/// Holds back what the program writes next.
fn hold(lane: &Lane, answer: OnReply, now: u64) {
    let (own, _) = lane.sides().unwrap();
    held::publish(&own.held, held::word(lane.published(), answer, now));
}

/// The clock of programs.
fn milliseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap()
}

#[test]
fn what_is_held_back_waits_for_an_answer_or_its_time() {
    let mut relayed = relayed();
    write(relayed.program(0), b"there");
    hold(relayed.program(0), OnReply::Releases(0), milliseconds());
    write(relayed.program(0), b"held");
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)), b"there");
    let pair = relayed.pair.as_mut().unwrap();
    assert!(matches!(pair.turn(), Turn::Waits(Some(_))));
    // What comes back lets it go in the same turn.
    write(relayed.program(1), b"!");
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)), b"held");
    assert_eq!(relayed.pair.as_mut().unwrap().turn(), Turn::Waits(None));
    // A cork is no matter of answers.
    hold(relayed.program(0), OnReply::Keeps, milliseconds());
    write(relayed.program(0), b"corked");
    write(relayed.program(1), b"!");
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)), b"");
    // Its time has come, and what was seen is not taken back, whatever the word says.
    hold(relayed.program(0), OnReply::Keeps, milliseconds() - 200);
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)), b"corked");
    let (own, _) = relayed.program(0).sides().unwrap();
    held::publish(&own.held, held::word(0, OnReply::Keeps, milliseconds()));
    assert!(!relayed.turn());
    write(relayed.program(0), b"more");
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)), b"");
    let (own, _) = relayed.program(0).sides().unwrap();
    held::release(&own.held);
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)), b"more");
}

#[test]
fn a_hold_that_expires_within_a_turn_is_noticed() {
    let mut relayed = relayed();
    for _ in 0..200 {
        hold(relayed.program(0), OnReply::Keeps, milliseconds() - 199);
        write(relayed.program(0), b"held");
        while relayed.pair.as_mut().unwrap().turn() != Turn::Waits(None) {}
        assert_eq!(read(relayed.program(1)), b"held");
    }
}

#[test]
fn what_is_held_back_goes_with_a_reset_and_is_lost_to_who_closes() {
    let mut dropped = relayed();
    hold(dropped.program(0), OnReply::Keeps, milliseconds());
    write(dropped.program(0), b"held");
    let flags = side_flags::RESET | side_flags::FIN | side_flags::CLOSED;
    dropped.program(0).set_flags(flags);
    assert!(dropped.turn());
    assert_eq!(read(dropped.program(1)), b"");

    let mut lost = relayed();
    hold(lost.program(0), OnReply::Releases(0), milliseconds());
    write(lost.program(0), b"held");
    let flags = side_flags::FIN | side_flags::CLOSED;
    lost.program(1).set_flags(flags);
    assert!(lost.turn());
    assert_ne!(lost.flags(0) & side_flags::RESET, 0);
    assert!(lost.program(0).resets_behind_its_end());
}

#[test]
fn a_full_packet_is_not_held_back() {
    let mut relayed = relayed();
    relayed
        .pair
        .as_mut()
        .unwrap()
        .lane_mut(0)
        .set_packet_size(100);
    hold(relayed.program(0), OnReply::Keeps, milliseconds());
    write(relayed.program(0), &pattern(250, 1));
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)), pattern(250, 1)[..200]);
    write(relayed.program(0), &pattern(60, 2));
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)).len(), 100);
    // Its acknowledgement takes along what is not corked.
    hold(relayed.program(0), OnReply::Releases(0), milliseconds());
    write(relayed.program(0), &pattern(99, 3));
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)).len(), 10);
    write(relayed.program(0), b"1");
    assert!(!relayed.turn());
    assert_eq!(read(relayed.program(1)).len(), 100);
}

#[test]
fn either_way_has_a_limit() {
    let mut relayed = relayed();
    let bytes = pattern(5000, 1);
    assert_eq!(write(relayed.program(0), &bytes), 5000);
    assert_eq!(write(relayed.program(1), &bytes), 5000);
    let pair = relayed.pair.as_mut().unwrap();
    let moved = |bytes, more| Moved { bytes, more };
    let first = pair.turn_within([1000, 0]);
    assert_eq!(first, (Turn::Busy, [moved(1000, true), moved(0, true)]));
    let second = pair.turn_within([0, 5000]);
    assert_eq!(second, (Turn::Busy, [moved(0, true), moved(5000, false)]));
    let third = pair.turn_within([u64::MAX; 2]);
    assert_eq!(
        third,
        (Turn::Waits(None), [moved(4000, false), moved(0, false)])
    );
    assert!(read(relayed.program(1)) == bytes && read(relayed.program(0)) == bytes);
    // An end is told after the last byte only.
    write(relayed.program(0), b"last");
    relayed.program(0).set_flags(side_flags::FIN);
    let pair = relayed.pair.as_mut().unwrap();
    assert_eq!(pair.turn_within([3, 0]).0, Turn::Busy);
    assert_eq!(relayed.flags(1) & side_flags::FIN, 0);
    assert!(!relayed.turn());
    assert_ne!(relayed.flags(1) & side_flags::FIN, 0);
    assert_eq!(read(relayed.program(1)), b"last");
}
