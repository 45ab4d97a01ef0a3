//! Corner 7, what one process does to a socket, and what sets of its relatives are told.

use std::time::Duration;

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor, ERR, ET, HUP, IN, OUT, RDHUP};

use crate::case::cases;
use crate::corner_12_dissolve::connect_unspecified;

cases! {
    families: [
        corner_07_relatives_are_told_of_a_shutdown,
        corner_07_relatives_are_told_of_a_shutdown_in_a_shared_set,
        corner_07_relatives_are_told_of_a_dissolved_connection,
        corner_07_relatives_are_told_of_a_reset,
        corner_07_relatives_get_an_edge_once,
        corner_07_relatives_that_wait_all_hear,
        corner_07_relatives_killed_in_their_sleep_cost_nothing,
        corner_07_relatives_that_poll_take_no_wake_up,
        corner_07_relatives_that_sleep_hear_of_new_members,
    ];
}

const ALL: u32 = IN | OUT | RDHUP;

/// Who has the set, and when it was made.
#[derive(Clone, Copy, Debug)]
enum Watcher {
    Parent,
    Child,
    ParentShared,
    ChildShared,
}

const ALONE: [Watcher; 2] = [Watcher::Parent, Watcher::Child];
const SHARED: [Watcher; 2] = [Watcher::ParentShared, Watcher::ChildShared];

/// The events of the first report to the watcher after a relative has acted, 0 for none.
fn expect_told(
    watcher: Watcher,
    watched: Descriptor,
    asked: u32,
    waits: bool,
    expected: u32,
    act: &dyn Fn(),
) {
    let make = || {
        let set = sys::epoll_create().unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, watched, asked, 7).unwrap();
        set
    };
    let (watches, acted) = (Baton::new(), Baton::new());
    let watch = |set: Descriptor| {
        let edge = asked & ET != 0;
        let before = sys::epoll_wait(set, 4, 0).unwrap();
        assert_eq!(before.len(), usize::from(edge && asked & OUT != 0));
        watches.pass();
        if !waits || expected == 0 {
            acted.take();
        }
        let timeout = if waits && expected != 0 { 10_000 } else { 0 };
        let told = sys::epoll_wait(set, 4, timeout).unwrap();
        let events = told.first().map_or(0, |event| event.events);
        assert_eq!(events, expected, "{watcher:?} {asked:x} {waits}");
    };
    let act = || {
        watches.take();
        if waits {
            std::thread::sleep(Duration::from_millis(20));
        }
        act();
        acted.pass();
    };
    let shared = matches!(watcher, Watcher::ParentShared | Watcher::ChildShared).then(make);
    if matches!(watcher, Watcher::Parent | Watcher::ParentShared) {
        let set = shared.unwrap_or_else(make);
        let child = fork_child(act);
        watch(set);
        child.join();
        sys::close(set).unwrap();
    } else {
        let child = fork_child(|| watch(shared.unwrap_or_else(make)));
        act();
        child.join();
        if let Some(set) = shared {
            sys::close(set).unwrap();
        }
    }
}

fn close_both(client: Descriptor, server: Descriptor) {
    sys::close(client).unwrap();
    sys::close(server).unwrap();
}

fn told_of_a_shutdown(family: Family, watchers: [Watcher; 2]) {
    let after = |how, ended| {
        let input = if how == libc::SHUT_WR { 0 } else { IN | RDHUP };
        let over = how == libc::SHUT_RDWR || how == libc::SHUT_WR && ended;
        let ended = if ended { IN | RDHUP } else { 0 };
        OUT | input | ended | if over { HUP } else { 0 }
    };
    for watcher in watchers {
        for how in [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR] {
            for waits in [false, true] {
                for asked in [IN, RDHUP, 0, ALL | ET, IN | ET, OUT | ET] {
                    let (client, server) = pair(family);
                    let expected = after(how, false) & (asked | HUP);
                    expect_told(watcher, client, asked, waits, expected, &|| {
                        sys::shutdown(client, how).unwrap();
                    });
                    close_both(client, server);
                }
                // Where the other side has ended before.
                for asked in [0, OUT | ET] {
                    let (client, server) = pair(family);
                    sys::shutdown(server, libc::SHUT_WR).unwrap();
                    await_events(client, libc::POLLRDHUP);
                    let expected = after(how, true) & (asked | HUP);
                    expect_told(watcher, client, asked, waits, expected, &|| {
                        sys::shutdown(client, how).unwrap();
                    });
                    close_both(client, server);
                }
            }
        }
    }
}

fn corner_07_relatives_are_told_of_a_shutdown(family: Family) {
    told_of_a_shutdown(family, ALONE);
}

fn corner_07_relatives_are_told_of_a_shutdown_in_a_shared_set(family: Family) {
    told_of_a_shutdown(family, SHARED);
}

fn corner_07_relatives_are_told_of_a_dissolved_connection(family: Family) {
    for watcher in ALONE.into_iter().chain(SHARED) {
        for waits in [false, true] {
            for asked in [0, IN, OUT | ET] {
                let (client, server) = pair(family);
                let expected = OUT & asked | ERR | HUP;
                expect_told(watcher, client, asked, waits, expected, &|| {
                    connect_unspecified(client).unwrap();
                });
                close_both(client, server);
            }
        }
    }
}

/// A relative's bytes meet a peer that has closed.
fn corner_07_relatives_are_told_of_a_reset(family: Family) {
    for watcher in ALONE.into_iter().chain(SHARED) {
        for waits in [false, true] {
            for asked in [0, OUT | ET] {
                let (client, server) = pair(family);
                sys::close(server).unwrap();
                await_events(client, libc::POLLRDHUP);
                let expected = OUT & asked | ERR | HUP;
                expect_told(watcher, client, asked, waits, expected, &|| {
                    send_all(client, b"x");
                    if !waits {
                        await_events(client, libc::POLLHUP);
                    }
                });
                sys::close(client).unwrap();
            }
        }
    }
}

/// Of the processes that share a set, one is told.
fn corner_07_relatives_get_an_edge_once(family: Family) {
    let (client, _server) = pair(family);
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN | ET, 7).unwrap();
    let told = || sys::epoll_wait(set, 4, 0).unwrap().len();
    assert_eq!(told(), 0);
    let (parent_baton, child_baton) = (Baton::new(), Baton::new());
    let child = fork_child(|| {
        child_baton.take();
        assert_eq!(told(), 0);
        sys::shutdown(client, libc::SHUT_RD).unwrap();
        parent_baton.pass();
        child_baton.take();
        assert_eq!(told(), 0);
    });
    child_baton.pass();
    parent_baton.take();
    assert_eq!(told(), 1);
    assert_eq!(told(), 0);
    child_baton.pass();
    child.join();
    assert_eq!(told(), 0);
}

/// Waits for news of a connection.
fn wait_by(way: Way, socket: Descriptor, watches: &Baton) {
    let set = sys::epoll_create().unwrap();
    if way == Way::Set {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, socket, IN, 7).unwrap();
    }
    watches.pass();
    match way {
        Way::Receive => drop(sys::recv(socket, &mut [0; 8], libc::MSG_PEEK)),
        Way::Poll => drop(await_events(socket, libc::POLLIN)),
        Way::Set => assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Receive,
    Poll,
    Set,
}

const WAYS: [Way; 3] = [Way::Receive, Way::Poll, Way::Set];

/// Each waits for itself, and nobody reads.
fn corner_07_relatives_that_wait_all_hear(family: Family) {
    for first in WAYS {
        for second in WAYS {
            for _ in 0..4 {
                let (client, server) = pair(family);
                let watches = Baton::new();
                let children = [first, second].map(|way| {
                    fork_child(|| {
                        sys::close(server).unwrap();
                        wait_by(way, client, &watches);
                    })
                });
                (0..2).for_each(|_| watches.take());
                children
                    .iter()
                    .for_each(|child| await_asleep(child.process));
                send_all(server, b"x");
                children.iter().for_each(Child::join);
                close_both(client, server);
            }
        }
    }
}

/// Processor time of this process.
fn used() -> Duration {
    let used = sys::usage(libc::RUSAGE_SELF).unwrap();
    [used.ru_utime, used.ru_stime]
        .iter()
        .map(|time| {
            Duration::from_secs(time.tv_sec.cast_unsigned())
                + Duration::from_micros(time.tv_usec.cast_unsigned())
        })
        .sum()
}

fn corner_07_relatives_killed_in_their_sleep_cost_nothing(family: Family) {
    for way in WAYS {
        let (client, server) = pair(family);
        let watches = Baton::new();
        let child = fork_child(|| wait_by(way, client, &watches));
        watches.take();
        await_asleep(child.process);
        child.kill();
        let set = sys::epoll_create().unwrap();
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 7).unwrap();
        assert!(sys::epoll_wait(set, 4, 20).unwrap().is_empty());
        let waiter = sys::gettid();
        let (sender, _) = start_thread(move || {
            await_asleep(waiter);
            send_all(server, b"x");
        });
        assert_eq!(sys::epoll_wait(set, 4, 10_000).unwrap().len(), 1);
        expect_bytes(client, b"x");
        join_thread(sender);
        let before = used();
        assert!(sys::epoll_wait(set, 4, 1000).unwrap().is_empty());
        let cost = used() - before;
        assert!(cost < Duration::from_millis(300), "{way:?}: {cost:?}");
        close_both(client, server);
        sys::close(set).unwrap();
    }
}

/// A relative has polled the socket, and seen it ready, before there is the news for which a set sleeps.
fn corner_07_relatives_that_poll_take_no_wake_up(family: Family) {
    let (client, server) = pair(family);
    let (sleeper, sleeps, told) = (sys::gettid(), Baton::new(), Baton::new());
    let child = fork_child(|| {
        sleeps.take();
        await_asleep(sleeper);
        assert_eq!(poll_one(server, libc::POLLOUT, 0), libc::POLLOUT);
        send_all(client, b"x");
        // Its end would wake the sleeper.
        told.take();
    });
    let set = sys::epoll_create().unwrap();
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, server, IN, 7).unwrap();
    sleeps.pass();
    assert_eq!(sys::epoll_wait(set, 4, -1).unwrap().len(), 1);
    told.pass();
    expect_bytes(server, b"x");
    child.join();
}

/// Whoever sleeps in a set without members is told of one that a relative adds, also where it went to sleep before there
/// were relatives.
fn corner_07_relatives_that_sleep_hear_of_new_members(family: Family) {
    let expect_told = |set: Descriptor| {
        let told = sys::epoll_wait(set, 4, 10_000).unwrap();
        assert!(matches!(told[..], [one] if one.data == 5), "{told:?}");
    };
    let (client, server) = pair(family);
    send_all(server, b"unread");
    let set = sys::epoll_create().unwrap();
    let child = fork_child(|| expect_told(set));
    await_asleep(child.process);
    sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 5).unwrap();
    child.join();

    let set = sys::epoll_create().unwrap();
    let (sleeper, task) = start_thread(move || expect_told(set));
    await_asleep(task);
    let child = fork_child(|| {
        sys::epoll_control(set, libc::EPOLL_CTL_ADD, client, IN, 5).unwrap();
    });
    join_thread(sleeper);
    child.join();
}
