//! Both ends with blocking calls: a thread that sends and one that receives per connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use netchannel_testkit::support::{close_with_reset, set_linger, uninterrupted};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::receiver::Receiver;
use crate::script::{Ending, Role, Script};
use crate::sender::Sender;
use crate::step::Step;
use crate::{STOP, accept_script, open};

/// Runs one end of a connection until it is done.
pub fn run(socket: Descriptor, script: Script, role: Role) {
    let sending = thread::spawn(move || send(socket, &script, role));
    if !script.aborts(role) {
        receive(socket, &script, role);
    }
    sending.join().expect("a panic ends the process");
    close(socket, &script, role);
}

/// Closes as the script says; sometimes the close waits until the peer has the bytes.
pub fn close(socket: Descriptor, script: &Script, role: Role) {
    if script.ending == Ending::Reset(role) {
        return close_with_reset(socket);
    }
    if script.number.is_multiple_of(5) {
        set_linger(socket, 5);
    }
    let closed = sys::close(socket);
    assert!(closed.is_ok(), "{script:?} as {role:?}: close: {closed:?}");
}

fn expect_break(script: &Script, role: Role, errno: Errno) {
    assert!(
        script.may_fail(role, errno),
        "{script:?} as {role:?}: {errno:?}"
    );
}

fn send(socket: Descriptor, script: &Script, role: Role) {
    let mut sender = Sender::new(socket, script, role);
    loop {
        match sender.step() {
            Step::Moved => {}
            Step::Wait => panic!(
                "{script:?} as {role:?}: a blocking send did not block: call {}",
                sender.kind
            ),
            Step::Broken(errno) => return expect_break(script, role, errno),
            Step::End => break,
        }
    }
    if !script.aborts(role) {
        let answer = sys::shutdown(socket, libc::SHUT_WR);
        assert!(
            answer.is_ok() || script.is_lenient(role),
            "{script:?}: {answer:?}"
        );
    }
}

fn receive(socket: Descriptor, script: &Script, role: Role) {
    let mut receiver = Receiver::new(socket, script, role);
    loop {
        match receiver.step() {
            Step::Moved => {}
            Step::Wait => panic!("{script:?} as {role:?}: a blocking recv did not block"),
            Step::Broken(errno) => {
                expect_break(script, role, errno);
                break;
            }
            Step::End => {
                let whole = receiver.position == script.sends(role.other());
                let position = receiver.position;
                assert!(
                    whole || script.is_lenient(role),
                    "{script:?}: an end after {position}"
                );
                break;
            }
        }
    }
    if script.is_lenient(role) {
        // The sender may sleep in a full buffer that is no longer read.
        let _ = sys::shutdown(socket, libc::SHUT_RDWR);
    }
}

/// Serves until a client sends the stop number.
pub fn serve(listening: Descriptor, seed: u64) {
    let mut threads = Vec::new();
    loop {
        let socket = uninterrupted(|| sys::accept(listening)).expect("accept");
        let Some(number) = accept_script(socket) else {
            sys::close(socket).expect("close");
            continue;
        };
        if number == STOP {
            sys::close(socket).expect("close");
            break;
        }
        let script = Script::of(seed, number);
        threads.push(thread::spawn(move || run(socket, script, Role::Server)));
        threads.retain(|thread| !thread.is_finished());
    }
    for thread in threads {
        thread.join().expect("a panic ends the process");
    }
}

/// Keeps a number of connections busy until the time is over.
pub fn drive(
    address: SocketAddr,
    seed: u64,
    connections: usize,
    numbers: &Arc<AtomicU64>,
    end: Instant,
) {
    let work = |numbers: Arc<AtomicU64>| {
        move || {
            while Instant::now() < end {
                let script = Script::of(seed, numbers.fetch_add(1, Ordering::Relaxed));
                run(open(address, &script), script, Role::Client);
            }
        }
    };
    let threads: Vec<_> = (0..connections)
        .map(|_| thread::spawn(work(Arc::clone(numbers))))
        .collect();
    for thread in threads {
        thread.join().expect("a panic ends the process");
    }
}
