//! The loop of the supervisor: the kernel's questions, the events of sockets, the program's end.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::calls::Calls;
use crate::names::Names;
use crate::notify::Notify;
use crate::processes::Children;
use crate::pump::{Outcome, READ};
use crate::sockets::{Key, NO_SOCKET, Side, Sockets, State};
use crate::system::{self, ERR, Epoll, Event, HUP, OUT, Sys};
use crate::threads::Threads;

/// How long bytes of a program that has ended may take.
const LINGER: Duration = Duration::from_secs(120);
/// Questions that are answered before events have a turn.
const QUESTIONS: usize = 16;

const fn token(number: u32) -> u64 {
    (NO_SOCKET as u64) << 32 | number as u64
}
const QUESTION: u64 = token(0);
const CHILD: u64 = token(1);
const RUNNER: u64 = token(2);

/// A supervisor.
pub struct Supervisor {
    calls: Calls,
    children: Children,
    /// Sockets with more to do at once.
    ready: VecDeque<Key>,
    scratch: Vec<u8>,
    /// Since when nobody asks any more.
    deserted: Option<Instant>,
}

impl Supervisor {
    /// A supervisor that answers at `notify`, looks after the children, and ends the program when `runner` is gone. Also names are
    /// served where a tenant is.
    ///
    /// # Errors
    /// The errno.
    pub fn new(
        notify: OwnedFd,
        children: Children,
        runner: BorrowedFd<'_>,
        serves_names: bool,
    ) -> Sys<Self> {
        let epoll = Epoll::new()?;
        let notify = Notify::new(notify);
        epoll.add_level(notify.as_fd(), QUESTION)?;
        epoll.add_level(children.signals(), CHILD)?;
        epoll.add_level(runner, RUNNER)?;
        Ok(Self {
            calls: Calls {
                notify,
                epoll,
                sockets: Sockets::default(),
                threads: Threads::default(),
                names: Names::default(),
                serves_names,
            },
            children,
            ready: VecDeque::new(),
            scratch: vec![0; READ],
            deserted: None,
        })
    }

    /// Serves until nobody is left.
    pub fn serve(&mut self, runner: BorrowedFd<'_>) {
        loop {
            if let Some(since) = self.deserted {
                let is_late = since.elapsed() > LINGER;
                if (is_late || !self.calls.sockets.owes()) && self.children.are_gone() {
                    return;
                }
            }
            let patience = match (self.ready.is_empty(), self.deserted) {
                (false, _) => 0,
                (true, Some(_)) => 1000,
                (true, None) => -1,
            };
            if self.take_events(patience, runner) {
                self.answer(runner);
            }
            for _ in 0..self.ready.len() {
                if let Some(key) = self.ready.pop_front() {
                    self.pump(key, false);
                }
            }
        }
    }

    /// Waits for events, and handles them. Whether the kernel asks.
    fn take_events(&mut self, patience: c_int, runner: BorrowedFd<'_>) -> bool {
        let mut is_asked = false;
        for event in self.calls.epoll.wait(patience) {
            match event.token {
                QUESTION => is_asked = true,
                CHILD => self.children.look(),
                RUNNER => {
                    // Whoever ends the runner by force means the program.
                    self.calls.epoll.remove(runner);
                    self.children.runner_is_gone();
                }
                token if token >= QUESTION => self.calls.names.on_event(token, event.events),
                _ => self.on_event(event),
            }
        }
        is_asked
    }

    /// Answers questions. What the program closed before it asked is closed before it is answered: a connect must not find a
    /// listener that is gone, nor a bind its port.
    fn answer(&mut self, runner: BorrowedFd<'_>) {
        for number in 0..QUESTIONS {
            let (is_asked, is_over) = system::is_readable(self.calls.notify.as_fd());
            if !is_asked {
                if is_over {
                    self.calls.epoll.remove(self.calls.notify.as_fd());
                    self.deserted = Some(Instant::now());
                }
                return;
            }
            let Ok(Some(call)) = self.calls.notify.receive() else {
                continue;
            };
            if number > 0 && matches!(call.number, libc::SYS_connect | libc::SYS_bind) {
                self.take_events(0, runner);
            }
            self.calls.handle(&call);
        }
    }

    fn on_event(&mut self, event: Event) {
        let (key, side) = Key::of(event.token);
        let Some(socket) = self.calls.sockets.get(key) else {
            return;
        };
        let is_left = side == Side::Ours && event.events & HUP != 0;
        match &socket.state {
            State::Connected => {
                self.pump(key, is_left);
                if side == Side::Stream && event.events & ERR != 0 {
                    self.look_for_error(key);
                }
            }
            _ if is_left => self.calls.give_up(key, libc::EBADF),
            State::Connecting(..)
                if side == Side::Stream && event.events & (OUT | HUP | ERR) != 0 =>
            {
                self.calls.go_on(key);
                self.pump(key, false);
            }
            State::Listening(_) if side == Side::Stream => self.calls.take_waiting(key),
            _ => {}
        }
    }

    fn pump(&mut self, key: Key, is_left: bool) {
        let Some(socket) = self.calls.sockets.get(key) else {
            return;
        };
        if !matches!(socket.state, State::Connected) {
            return;
        }
        if is_left {
            socket.pump.leave();
        }
        let (ours, stream) = (socket.ours.as_fd(), socket.stream.as_fd());
        match socket.pump.turn(ours, stream, &mut self.scratch) {
            Outcome::Waits => {}
            Outcome::Again => self.ready.push_back(key),
            Outcome::Finished => drop(self.calls.sockets.remove(key, 0)),
            Outcome::ProgramReset => {
                let at_once = [1_i32, 0].map(i32::to_ne_bytes).concat();
                let _ = system::set_option(stream, libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
                drop(self.calls.sockets.remove(key, 0));
            }
            Outcome::StreamFailed(error) => self.reset(key, error),
        }
    }

    /// An error that no read or write has told.
    fn look_for_error(&mut self, key: Key) {
        if let Some(socket) = self.calls.sockets.get(key) {
            let error = system::waiting_error(socket.stream.as_fd());
            if error != 0 {
                self.reset(key, error);
            }
        }
    }

    /// The program's end becomes one that was reset: what it wrote and nobody read is a reset for AF_UNIX, and if there is
    /// nothing of the kind, a byte is written in its name.
    fn reset(&mut self, key: Key, error: i32) {
        let Some(socket) = self.calls.sockets.get(key) else {
            return;
        };
        let (thread, number) = socket.holder;
        let (inode, hint) = (socket.inode, (thread, number.unwrap_or(-1)));
        if let Some(end) = self.calls.threads.search(inode, hint) {
            let _ = system::send(end.as_fd(), &[0]);
        }
        drop(self.calls.sockets.remove(key, error));
    }
}
