//! The parts of the event loops that need no system call: their lists, and when an edge is due.

#[allow(dead_code, reason = "the sets ask for more than this test")]
#[path = "../src/waiting/epoll/edges.rs"]
mod edges;
#[path = "../src/waiting/epoll/lists.rs"]
mod lists;

use std::collections::{HashMap, VecDeque};

use edges::{Reported, Snapshot};
use lists::{DescriptorMap, NumberSet, Queue};

/// Numbers that follow no order, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % end).expect("small")
    }
}

#[test]
fn queue_keeps_its_order_whatever_leaves_it() {
    let (mut queue, mut model) = (Queue::default(), VecDeque::new());
    let mut random = Random(7);
    for _ in 0..20_000 {
        let number = random.below(40);
        match random.below(4) {
            0 | 1 => {
                queue.push(number);
                if !model.contains(&number) {
                    model.push_back(number);
                }
            }
            2 => {
                queue.remove(number);
                model.retain(|other| *other != number);
            }
            _ => assert_eq!(queue.pop(), model.pop_front()),
        }
        assert_eq!(queue.len(), model.len());
        assert_eq!(queue.front(), model.front().copied());
        assert_eq!(queue.contains(number), model.contains(&number));
    }
}

#[test]
fn bag_holds_each_number_once() {
    let (mut bag, mut model) = (NumberSet::default(), Vec::new());
    let mut random = Random(11);
    for _ in 0..20_000 {
        let number = random.below(40);
        match random.below(5) {
            0..3 => {
                bag.insert(number);
                if !model.contains(&number) {
                    model.push(number);
                }
            }
            3 => {
                assert_eq!(bag.remove(number), model.contains(&number));
                model.retain(|other| *other != number);
            }
            _ => {
                let taken = bag.pop();
                assert_eq!(taken.is_some(), !model.is_empty());
                model.retain(|other| Some(*other) != taken);
            }
        }
        let mut members = bag.as_slice().to_vec();
        members.sort_unstable();
        model.sort_unstable();
        assert_eq!(members, model);
        assert_eq!(bag.is_empty(), model.is_empty());
    }
}

#[test]
fn index_forgets_only_what_it_still_stands_for() {
    let (mut index, mut model) = (DescriptorMap::default(), HashMap::new());
    let mut random = Random(13);
    for _ in 0..5_000 {
        let fd = i32::try_from(random.below(30)).expect("small");
        let number = random.below(30);
        if random.below(2) == 0 {
            index.set(fd, number);
            model.insert(fd, number);
        } else {
            index.clear(fd, number);
            if model.get(&fd) == Some(&number) {
                model.remove(&fd);
            }
        }
        assert_eq!(index.get(fd), model.get(&fd).copied());
    }
    assert_eq!(index.get(-1), None);
}

const IN: u32 = libc::EPOLLIN.cast_unsigned();
const OUT: u32 = libc::EPOLLOUT.cast_unsigned();
const RDHUP: u32 = libc::EPOLLRDHUP.cast_unsigned();

const fn look(mask: u32, arrived: u64, full: u32) -> Snapshot {
    Snapshot {
        mask,
        arrived,
        full,
        news: 0,
        held: false,
        too_few: false,
    }
}

#[test]
fn what_is_held_back_is_no_edge() {
    let seen = Reported::start(&look(OUT, 0, 0));
    let held = Snapshot {
        held: true,
        ..look(OUT, 0, 0)
    };
    assert!(held.held && !seen.differs(&held, IN | OUT));
    assert!(seen.differs(&look(IN | OUT, 4, 0), IN));
}

#[test]
fn too_few_bytes_are_no_edge() {
    let seen = Reported::start(&look(OUT, 0, 0));
    let few = Snapshot {
        too_few: true,
        ..look(OUT, 3, 0)
    };
    assert!(!seen.differs(&few, IN | OUT));
    assert!(seen.differs(&look(IN | OUT, 6, 0), IN | OUT));
}

#[test]
fn an_edge_is_due_for_bytes_only_where_bytes_are_asked_for() {
    let seen = Reported::start(&look(OUT, 0, 0));
    let more = look(IN | OUT, 10, 0);
    assert!(seen.differs(&more, IN));
    assert!(seen.differs(&more, IN | OUT));
    assert!(!seen.differs(&more, OUT));
    let mut seen = seen;
    seen.note(&more);
    assert!(!seen.differs(&more, IN | OUT));
    // Reading is no news, and neither is what is left.
    assert!(!seen.differs(&look(OUT, 10, 0), IN | OUT));
    assert!(seen.differs(&look(IN | OUT, 11, 0), IN));
}

#[test]
fn an_end_is_an_edge_for_everybody_and_once() {
    let mut seen = Reported::start(&look(OUT, 5, 0));
    let ended = look(IN | OUT | RDHUP, 5, 0);
    assert!(seen.differs(&ended, OUT));
    seen.note(&ended);
    assert!(!seen.differs(&ended, IN | OUT | RDHUP));
}

#[test]
fn room_is_an_edge_only_after_a_writer_found_none() {
    let mut seen = Reported::start(&look(OUT, 0, 3));
    assert!(!seen.differs(&look(OUT, 0, 3), OUT));
    // Full: not yet.
    assert!(!seen.differs(&look(0, 0, 4), OUT));
    // Data came meanwhile and was reported: the edge of room stays due.
    seen.note(&look(IN, 1, 4));
    assert!(seen.differs(&look(IN | OUT, 1, 4), OUT));
    assert!(!seen.differs(&look(IN | OUT, 1, 4), IN));
    seen.note(&look(IN | OUT, 1, 4));
    assert!(!seen.differs(&look(IN | OUT, 1, 4), IN | OUT));
}

#[test]
fn a_member_added_while_full_is_told_of_room() {
    let seen = Reported::start(&look(0, 0, 9));
    assert!(seen.differs(&look(OUT, 0, 9), OUT));
}

#[test]
fn what_another_process_was_told_is_told_no_more() {
    let mut seen = Reported::start(&look(OUT, 0, 0));
    let more = look(IN | OUT, 10, 0);
    seen.follow(more.edge());
    assert!(!seen.differs(&more, IN | OUT));
    // Bytes and an end that came after the report are news.
    assert!(seen.differs(&look(IN | OUT, 11, 0), IN));
    let ended = look(IN | OUT | RDHUP, 10, 0);
    assert!(seen.differs(&ended, IN | OUT | RDHUP));
    seen.follow(ended.edge());
    assert!(!seen.differs(&ended, IN | OUT | RDHUP));
    // A wake-up without bytes.
    let woken = Snapshot {
        news: 1,
        ..look(OUT, 11, 0)
    };
    assert!(seen.differs(&woken, OUT));
    seen.follow(woken.edge());
    assert!(!seen.differs(&woken, OUT));
}
