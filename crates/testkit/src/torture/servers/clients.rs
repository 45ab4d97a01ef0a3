//! The clients of a round.

use std::net::SocketAddr;

use netchannel_testkit::support::{
    fork_child, set_blocking, socket_error, tcp, tcp_nonblocking, uninterrupted,
};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::flow::Flow;
use crate::readiness::Loop;
use crate::script::{Role, Script};
use crate::send_number;
use crate::step::keep_urgent_bytes;

use super::board::Board;
use super::conduct::conduct;
use super::shape::{Plan, Way};

/// Makes connections until all numbers are used.
pub fn drive(address: SocketAddr, plan: &Plan, board: &Board, way: Way) {
    let most = plan.connections;
    match way {
        Way::OneByOne => {
            while let Some(number) = board.next(most) {
                let socket = open(address, plan, number);
                conduct(socket, plan, board, number, Role::Client, false);
            }
        }
        Way::Threads => std::thread::scope(|scope| {
            for _ in 0..plan.together {
                scope.spawn(|| {
                    while let Some(number) = board.next(most) {
                        let socket = open(address, plan, number);
                        conduct(socket, plan, board, number, Role::Client, true);
                    }
                });
            }
        }),
        Way::Loop(kind) => {
            let mut flows = Loop::new(kind);
            loop {
                while flows.len() < plan.together
                    && let Some(number) = board.next(most)
                {
                    let script = Script::brief(plan.seed, number);
                    let socket = open(address, plan, number);
                    flows.add(Flow::new(socket, script, Role::Client));
                }
                if flows.len() == 0 {
                    break;
                }
                flows.turn(-1);
            }
            flows.close();
        }
        Way::ForkEach => {
            let mut children = Vec::new();
            while let Some(number) = board.next(most) {
                let socket = open(address, plan, number);
                children.push(fork_child(|| {
                    board.enter();
                    conduct(socket, plan, board, number, Role::Client, false);
                    board.leave();
                }));
                sys::close(socket).expect("close");
                if children.len() == plan.together {
                    children.remove(0).join();
                }
            }
            children
                .iter()
                .for_each(netchannel_testkit::support::Child::join);
        }
    }
}

/// A connection that has said its number. Every other one connects without blocking.
fn open(address: SocketAddr, plan: &Plan, number: u64) -> Descriptor {
    let socket = if number.is_multiple_of(2) {
        let socket = tcp(plan.family);
        match sys::connect(socket, address) {
            Ok(()) => {}
            // The connect goes on.
            Err(Errno(libc::EINTR)) => finish(socket),
            Err(errno) => panic!("connect: {errno:?}"),
        }
        socket
    } else {
        let socket = tcp_nonblocking(plan.family);
        match sys::connect(socket, address) {
            Ok(()) => {}
            Err(Errno(libc::EINPROGRESS)) => finish(socket),
            Err(errno) => panic!("connect without blocking: {errno:?}"),
        }
        set_blocking(socket);
        socket
    };
    keep_urgent_bytes(socket);
    let sent = uninterrupted(|| send_number(socket, number));
    assert!(
        sent.is_ok() || plan.may_break(Role::Client),
        "send: {sent:?}"
    );
    socket
}

/// Waits until it is connected. Who is killed in its accept takes no connection along.
fn finish(socket: Descriptor) {
    let mut entries = [libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    }];
    uninterrupted(|| sys::poll(&mut entries, -1)).expect("poll");
    assert_eq!(socket_error(socket), Errno(0), "connect");
}
