//! Corner 3: a process leaves a connection to its child, which uses and ends it at that very moment.

use std::net::SocketAddr;

use netchannel_testkit::support::*;
use netchannel_testkit::sys;

use crate::case::cases;

cases! {
    families: [
        corner_03_left_to_a_child_that_ends_it_meanwhile,
    ];
}

/// What waits for the child: looking at it takes longer than all else that the child does.
const UNREAD: usize = 200_000;
/// What both ends of a later connection send.
const LATER: usize = 100_000;
const ATTEMPTS: usize = 20;
/// So many of them in which the child was stopped in the middle of a look.
const ENOUGH: usize = 3;
/// Milliseconds in which a close that waits for nobody is done.
const PROMPT: libc::c_int = 30;

/// What the processes tell each other.
#[derive(Default)]
struct Batons {
    child: Baton,
    leave: Baton,
    left: Baton,
    end: Baton,
    ended: Baton,
    again: Baton,
    go: Baton,
    waiting: Baton,
}

/// A client that connects, hands the connection to a child, and closes its own number when it is told.
fn leave_to_child(address: SocketAddr, batons: &Batons) {
    let client = connect_to(address);
    let child = fork_child(|| {
        await_events(client, libc::POLLIN);
        let mut bytes = vec![0; UNREAD];
        while !batons.end.is_passed_within(0) {
            let seen = sys::recv(client, &mut bytes, libc::MSG_PEEK | libc::MSG_DONTWAIT);
            let seen = seen.expect("recv");
            assert_eq!(pattern_mismatch(0, &bytes[..seen]), None);
        }
        batons.end.take();
        expect_pattern(client, 0, UNREAD);
        sys::close(client).unwrap();
        batons.ended.pass();
    });
    batons.child.send(u64::try_from(child.process).unwrap());
    batons.leave.take();
    sys::close(client).unwrap();
    batons.left.pass();
    child.join();
    batons.again.take();
    // The next connection of this process, which it leaves to a child, too.
    let client = connect_to(address);
    let child = fork_child(|| {
        send_pattern(client, 1, LATER);
        expect_pattern(client, 2, LATER);
    });
    sys::close(client).unwrap();
    child.join();
}

/// Stops a process, and waits until it stands.
fn stop(process: libc::pid_t) {
    sys::kill(process, libc::SIGSTOP).unwrap();
    eventually("the process stops", || {
        let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
        state.is_ok_and(|state| state.rsplit(')').next().unwrap_or("").starts_with(" T"))
    });
}

fn resume(process: libc::pid_t) {
    sys::kill(process, libc::SIGCONT).unwrap();
}

fn corner_03_left_to_a_child_that_ends_it_meanwhile(family: Family) {
    let (listening, address) = listener(family);
    let mut waited = 0;
    let batons = Batons::default();
    for _ in 0..ATTEMPTS {
        let other = fork_child(|| {
            batons.go.take();
            let client = connect_to(address);
            batons.waiting.pass();
            expect_bytes(client, b"other");
        });
        let parent = fork_child(|| leave_to_child(address, &batons));
        let server = sys::accept(listening).unwrap();
        send_pattern(server, 0, UNREAD);
        let child = libc::pid_t::try_from(batons.child.receive()).unwrap();
        batons.go.pass();
        batons.waiting.take();
        stop(child);
        batons.leave.pass();
        // Stopped in the middle of a look, the child may keep its parent from closing.
        let waits = !batons.left.is_passed_within(PROMPT);
        if waits {
            stop(parent.process);
        }
        batons.end.pass();
        resume(child);
        batons.ended.take();
        // The next socket may get what the child's had.
        let third = sys::accept(listening).unwrap();
        if waits {
            resume(parent.process);
        }
        batons.left.take();
        expect_end(server);
        sys::close(server).unwrap();
        batons.again.pass();
        let later = sys::accept(listening).unwrap();
        expect_pattern(later, 1, LATER);
        send_pattern(later, 2, LATER);
        expect_end(later);
        sys::close(later).unwrap();
        send_all(third, b"other");
        expect_end(third);
        sys::close(third).unwrap();
        other.join();
        parent.join();
        waited += usize::from(waits);
        if waited == ENOUGH {
            return;
        }
    }
}
