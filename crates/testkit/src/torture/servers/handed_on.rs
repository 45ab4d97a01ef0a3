//! A listener that goes from process to process. Who has it serves some connections, waits for them in a drawn way, and
//! hands it on: no client may notice.

use std::process::Command;

use netchannel_testkit::support::{Random, set_blocking, set_nonblocking};
use netchannel_testkit::sys::{self, Descriptor};

use crate::hand_over::{Held, hand_on, received_from};
use crate::program::this_program;
use crate::step::{wait_in_poll, wait_in_set};
use crate::{Options, interrupter, rounds};

use super::board::Board;
use super::one::{accept, accept_and_serve, serve_one, set_with};
use super::shape::Plan;
use super::{LONGEST, random_of};

/// The commands of programs that go on with a listener, which they inherit or receive.
pub const HOLDS: &str = "servers-holds";
pub const RECEIVES: &str = "servers-receives";

/// The most connections of a holder, where it does not take all that have come.
const MOST: usize = 5;

/// The listener, in the hands of whoever has it now.
#[derive(Clone, Copy)]
struct Listening<'round> {
    descriptor: Descriptor,
    /// How many holders it had before.
    stage: u64,
    plan: &'round Plan,
    board: Board,
}

impl Held for Listening<'_> {
    fn descriptor(self) -> Descriptor {
        self.descriptor
    }

    fn at(self, descriptor: Descriptor) -> Self {
        Self { descriptor, ..self }
    }

    fn close(self) {
        sys::close(self.descriptor).expect("close");
    }

    fn command(self, by_message: bool) -> Command {
        let mut command = Command::new(this_program());
        command
            .arg(if by_message { RECEIVES } else { HOLDS })
            .args(["--family", self.plan.family.name()])
            .args(["--seed", &self.plan.seed.to_string()])
            .args(["--board", &self.board.file().to_string()])
            .args(["--descriptor", &self.descriptor.to_string()])
            .args(["--index", &self.stage.to_string()]);
        command
    }

    /// A signal that comes before the next image catches it would end the process.
    fn before_exec(self) {
        self.board.leave();
        for signal in interrupter::SIGNALS {
            sys::ignore_signal(signal).expect("sigaction");
        }
    }

    /// Who is killed while it listens may take a connection with it, where no kernel can (8.17).
    fn before_end(self, killed: bool) {
        if killed {
            self.close();
        }
        self.board.leave();
    }
}

/// Serves until the board says that the round ends.
pub fn serve(descriptor: Descriptor, plan: &Plan, board: &Board) {
    sys::adopt_orphans();
    let others = rounds::children();
    let first = Listening {
        descriptor,
        stage: 0,
        plan,
        board: *board,
    };
    let first_holder = rounds::start(|| go_on(first));
    sys::close(descriptor).expect("close");
    rounds::expect_end_or_kill(&first_holder, "the first holder");
    rounds::expect_all_end_or_kill(&others);
}

/// Goes on in a program that was started for it.
pub fn executed(options: &Options, by_message: bool) {
    sys::alarm(LONGEST);
    interrupter::prepare();
    let plan = Plan::draw(options.seed, options.family, |name| name == "HandedOn");
    let listening = Listening {
        descriptor: options.descriptor,
        stage: options.index as u64,
        plan: &plan,
        board: Board::inherited(options.board),
    };
    go_on(if by_message {
        received_from(listening, options.descriptor)
    } else {
        listening
    });
}

/// Serves as long as this process has the listener, and waits for the end of who has it next.
fn go_on(mut listening: Listening) {
    let board = listening.board;
    board.enter();
    while !board.ends() {
        let mut random = random_of(listening.plan, 0x71_0000 + listening.stage);
        serve_some(&listening, &mut random);
        if board.ends() {
            break;
        }
        listening.stage += 1;
        match hand_on(listening, &mut random, go_on) {
            Some(next) => listening = next,
            None => return board.leave(),
        }
    }
    listening.close();
    board.leave();
}

/// Serves some connections, as a holder of the listener.
fn serve_some(listening: &Listening, random: &mut Random) {
    let Listening {
        descriptor,
        plan,
        board,
        ..
    } = *listening;
    let events = match random.below(6) {
        0 => return serve_blocking(listening, random.below(MOST + 1)),
        1 => 0,
        2 => sys::IN,
        3 => sys::IN | sys::ET,
        4 => sys::IN | libc::EPOLLEXCLUSIVE.cast_unsigned(),
        _ => sys::IN | libc::EPOLLONESHOT.cast_unsigned(),
    };
    set_nonblocking(descriptor);
    let set = (events != 0).then(|| set_with(descriptor, events));
    let (mut served, most) = (0, random.below(MOST + 1));
    while served < most && !board.ends() {
        match set {
            Some(set) => wait_in_set(set),
            None => wait_in_poll(descriptor, sys::IN),
        }
        while accept_and_serve(descriptor, plan, &board) {
            served += 1;
            if events & sys::ET == 0 || board.ends() {
                break;
            }
        }
        if let Some(set) = set
            && events & libc::EPOLLONESHOT.cast_unsigned() != 0
        {
            sys::epoll_control(set, libc::EPOLL_CTL_MOD, descriptor, events, 0).expect("epoll_ctl");
        }
    }
    if let Some(set) = set {
        sys::close(set).expect("close");
    }
}

fn serve_blocking(listening: &Listening, most: usize) {
    set_blocking(listening.descriptor);
    for _ in 0..most {
        let Some(socket) = accept(listening.descriptor, &listening.board) else {
            return;
        };
        serve_one(socket, listening.plan, &listening.board, false);
    }
}
