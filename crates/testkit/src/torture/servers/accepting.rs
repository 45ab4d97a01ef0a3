//! The servers of a round: who accepts, and who serves what was accepted.

use netchannel_testkit::support::{
    Child, Ended, fork_child, set_blocking, set_nonblocking, uninterrupted,
};
use netchannel_testkit::sys::{self, Descriptor, Errno};

use crate::step::wait_in_poll;

use super::board::Board;
use super::handed_on;
use super::one::{accept, accept_and_serve, serve_one, set_with};
use super::shape::{Plan, Shape};
use super::{LONGEST, await_end, random_of, start};

/// Connections that one child of a rotating server serves.
const BEFORE_ROTATION: usize = 4;

/// Serves until the board says that the round ends.
pub fn serve(listening: Descriptor, plan: &Plan, board: &Board) {
    match plan.shape {
        Shape::Threads => in_threads(plan, || {
            while let Some(socket) = accept(listening, board) {
                serve_one(socket, plan, board, true);
            }
        }),
        Shape::Prefork => in_children(plan, board, || {
            while let Some(socket) = accept(listening, board) {
                serve_one(socket, plan, board, false);
            }
        }),
        Shape::PreforkLocked => {
            let lock = lock_file();
            in_children(plan, board, || {
                while let Some(socket) = locked(&lock, || accept(listening, board)) {
                    serve_one(socket, plan, board, false);
                }
            });
        }
        Shape::PreforkPoll => {
            set_nonblocking(listening);
            in_children(plan, board, || {
                while !board.ends() {
                    wait_in_poll(listening, sys::IN);
                    accept_and_serve(listening, plan, board);
                }
            });
        }
        Shape::PreforkSets { exclusive } => {
            set_nonblocking(listening);
            let events = if exclusive {
                sys::IN | libc::EPOLLEXCLUSIVE.cast_unsigned()
            } else {
                sys::IN | sys::ET
            };
            in_children(plan, board, || {
                let set = set_with(listening, events);
                while !board.ends() {
                    uninterrupted(|| sys::epoll_wait(set, 4, -1)).expect("epoll_wait");
                    while accept_and_serve(listening, plan, board) && events & sys::ET != 0 {}
                }
            });
        }
        Shape::SharedSet => {
            set_nonblocking(listening);
            let set = set_with(listening, sys::IN);
            in_children(plan, board, || {
                while !board.ends() {
                    uninterrupted(|| sys::epoll_wait(set, 4, -1)).expect("epoll_wait");
                    accept_and_serve(listening, plan, board);
                }
            });
        }
        Shape::ForkEach { restarts } => {
            let flags = if restarts { libc::SA_RESTART } else { 0 };
            sys::handle_signal(libc::SIGCHLD, on_child, flags).expect("sigaction");
            for_each_child(listening, plan, board, |socket| {
                board.enter();
                serve_one(socket, plan, board, false);
                board.leave();
            });
        }
        Shape::ExecuteEach => for_each_child(listening, plan, board, |socket| {
            sys::dup2(socket, 0).expect("dup2");
            sys::close(socket).expect("close");
            execute(plan);
        }),
        Shape::Pass => pass(listening, plan, board),
        Shape::HandToThreads => {
            let [reader, writer] = sys::pipe(libc::O_CLOEXEC).expect("pipe");
            std::thread::scope(|scope| {
                for _ in 0..plan.workers {
                    scope.spawn(|| {
                        while let Some(socket) = take_number(reader) {
                            serve_one(socket, plan, board, true);
                        }
                    });
                }
                while let Some(socket) = accept(listening, board) {
                    let written = uninterrupted(|| sys::write(writer, &socket.to_ne_bytes()));
                    assert_eq!(written, Ok(4), "write");
                }
                sys::close(writer).expect("close");
            });
        }
        Shape::ThreadsOneShot => {
            set_nonblocking(listening);
            let events = sys::IN | libc::EPOLLONESHOT.cast_unsigned();
            let set = set_with(listening, events);
            in_threads(plan, || {
                while !board.ends() {
                    let ready = uninterrupted(|| sys::epoll_wait(set, 4, 50)).expect("epoll_wait");
                    if ready.is_empty() {
                        continue;
                    }
                    let accepted = uninterrupted(|| sys::accept(listening));
                    sys::epoll_control(set, libc::EPOLL_CTL_MOD, listening, events, 0)
                        .expect("epoll_ctl");
                    match accepted {
                        Ok(socket) if board.ends() => sys::close(socket).expect("close"),
                        Ok(socket) => serve_one(socket, plan, board, true),
                        Err(errno) => assert_eq!(errno, Errno(libc::EAGAIN), "accept"),
                    }
                }
            });
        }
        Shape::Rotating => rotate(listening, plan, board),
        Shape::HandedOn => handed_on::serve(listening, plan, board),
        Shape::PreforkKilled => kill_and_replace(listening, plan, board),
    }
}

extern "C" fn on_child(_: libc::c_int) {}

/// Serves the connection that is this program's descriptor 0.
pub fn serve_executed(plan: &Plan, board: &Board) {
    set_blocking(0);
    serve_one(0, plan, board, false);
}

fn in_threads(plan: &Plan, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..plan.workers {
            scope.spawn(&work);
        }
    });
}

fn in_children(plan: &Plan, board: &Board, work: impl Fn()) {
    let children: Vec<_> = (0..plan.workers).map(|_| start(board, &work)).collect();
    await_all(&children);
}

fn await_all(children: &[Child]) {
    for child in children {
        let ended = await_end(child);
        assert_eq!(ended, Ended::Exit(0), "a worker");
    }
}

fn for_each_child(listening: Descriptor, plan: &Plan, board: &Board, work: impl Fn(Descriptor)) {
    let mut children = Vec::new();
    while let Some(socket) = accept(listening, board) {
        children.push(fork_child(|| {
            sys::alarm(LONGEST);
            sys::close(listening).expect("close");
            work(socket);
        }));
        sys::close(socket).expect("close");
        if children.len() > 4 * plan.workers {
            await_all(&children[..1]);
            children.remove(0);
        }
    }
    await_all(&children);
}

/// Children that are replaced after some connections.
fn rotate(listening: Descriptor, plan: &Plan, board: &Board) {
    let work = || {
        for _ in 0..BEFORE_ROTATION {
            let Some(socket) = accept(listening, board) else {
                return;
            };
            serve_one(socket, plan, board, false);
        }
    };
    let mut children: Vec<_> = (0..plan.workers).map(|_| start(board, work)).collect();
    while !board.ends() {
        let (ended, status) = sys::waitpid(-1, libc::WNOHANG).expect("waitpid");
        if ended == 0 {
            std::thread::sleep(std::time::Duration::from_micros(300));
            continue;
        }
        assert_eq!(status, 0, "a worker");
        children.retain(|child| child.process != ended);
        if !board.ends() {
            children.push(start(board, work));
        }
    }
    await_all(&children);
}

/// Children that are killed at any moment, and replaced.
fn kill_and_replace(listening: Descriptor, plan: &Plan, board: &Board) {
    let work = || {
        while let Some(socket) = accept(listening, board) {
            serve_one(socket, plan, board, false);
        }
    };
    let mut random = random_of(plan, 0x6b11);
    let mut children: Vec<_> = (0..plan.workers).map(|_| start(board, work)).collect();
    while !board.ends() {
        std::thread::sleep(std::time::Duration::from_micros(random.below(8_000) as u64));
        let index = random.below(children.len());
        let child = &children[index];
        board.note_killed();
        board.forget(child.process);
        sys::kill(child.process, libc::SIGKILL).expect("kill");
        match await_end(child) {
            Ended::Signal(libc::SIGKILL) => {}
            ended => assert_eq!((ended, board.ends()), (Ended::Exit(0), true), "a worker"),
        }
        children[index] = start(board, work);
    }
    await_all(&children);
}

/// One process accepts, and passes what it has accepted to children in turn.
fn pass(listening: Descriptor, plan: &Plan, board: &Board) {
    let channels: Vec<_> = (0..plan.workers)
        .map(|_| sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).expect("socketpair"))
        .collect();
    let children: Vec<_> = (0..plan.workers)
        .map(|index| {
            start(board, || {
                sys::close(listening).expect("close");
                for [parent, _] in &channels {
                    sys::close(*parent).expect("close");
                }
                let mut byte = [0_u8];
                let own = channels[index][1];
                // The end of the channel is the end of the round.
                while uninterrupted(|| sys::recv(own, &mut byte, libc::MSG_PEEK)) == Ok(1) {
                    let socket = uninterrupted(|| sys::recv_descriptor(own)).expect("recvmsg");
                    serve_one(socket, plan, board, false);
                }
            })
        })
        .collect();
    for [_, child] in &channels {
        sys::close(*child).expect("close");
    }
    let mut next = 0;
    while let Some(socket) = accept(listening, board) {
        let [parent, _] = channels[next % channels.len()];
        uninterrupted(|| sys::send_descriptor(parent, socket)).expect("sendmsg");
        sys::close(socket).expect("close");
        next += 1;
    }
    for [parent, _] in &channels {
        sys::close(*parent).expect("close");
    }
    await_all(&children);
}

/// A number that another thread has written. `None` at the end of the pipe.
fn take_number(reader: Descriptor) -> Option<Descriptor> {
    let mut bytes = [0_u8; 4];
    match uninterrupted(|| sys::read(reader, &mut bytes)).expect("read") {
        4 => Some(Descriptor::from_ne_bytes(bytes)),
        size => {
            assert_eq!(size, 0, "part of a number");
            None
        }
    }
}

/// A file whose lock the children of a server take.
fn lock_file() -> Descriptor {
    // SAFETY: a terminated name, and flags.
    let file = unsafe { libc::memfd_create(c"accept-lock".as_ptr(), 0) };
    assert!(file >= 0, "memfd_create: {:?}", sys::last_errno());
    file
}

fn locked<T>(lock: &Descriptor, work: impl FnOnce() -> T) -> T {
    let set = |kind: libc::c_int| {
        // SAFETY: a lock of zeroes is valid: the whole file.
        let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
        wanted.l_type = libc::c_short::try_from(kind).expect("a small number");
        let pointer = &raw const wanted;
        uninterrupted(|| {
            // SAFETY: the pointer is to a lock of this frame.
            match unsafe { libc::fcntl(*lock, libc::F_SETLKW, pointer) } {
                0 => Ok(()),
                _ => Err(sys::last_errno()),
            }
        })
        .expect("a lock");
    };
    set(libc::F_WRLCK);
    let done = work();
    set(libc::F_UNLCK);
    done
}

/// Executes this program on descriptor 0.
fn execute(plan: &Plan) -> ! {
    use std::os::unix::process::CommandExt;
    let error = std::process::Command::new(crate::program::this_program())
        .args(["servers-executed", "--family", plan.family.name()])
        .args(["--seed", &plan.seed.to_string()])
        .exec();
    panic!("exec: {error}");
}
