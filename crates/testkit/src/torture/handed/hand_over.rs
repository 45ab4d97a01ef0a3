//! The ways in which an end goes from one holder to the next.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use netchannel_testkit::support::{Baton, Random, uninterrupted};
use netchannel_testkit::sys::{self, Descriptor};

use super::GOES_ON;
use super::end::End;
use super::wait::Wait;
use crate::program::this_program;
use crate::rounds;
use crate::script::Role;

/// When a former holder closes its descriptor.
#[derive(Clone, Copy)]
enum Keeping {
    Not,
    ForAMoment,
    ToTheEnd,
    /// It does not: it ends at once, or is killed.
    Ends {
        killed: bool,
    },
}

impl Keeping {
    /// As it is, where who ends may do so before the next holder has the connection.
    fn unless_ends(self) -> Self {
        match self {
            Self::Ends { .. } => Self::ToTheEnd,
            other => other,
        }
    }

    fn draw(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::Not,
            1 => Self::ForAMoment,
            2 => Self::ToTheEnd,
            _ => Self::Ends {
                killed: random.once_in(2),
            },
        }
    }
}

/// Hands an end on to a holder that does `go_on`. Returns it where the caller has it still, and `None` after another
/// holder has come to the end.
pub fn hand_on(end: End, random: &mut Random, go_on: fn(End)) -> Option<End> {
    let keeping = Keeping::draw(random);
    match random.below(9) {
        0 => return Some(copied(without_set(end))),
        1 => return Some(sent_to_itself(without_set(end), random.once_in(2))),
        2 => {
            let next = std::thread::spawn(move || go_on(end));
            next.join().expect("a panic ends the process");
        }
        3 => execute(end, false),
        4 => to_child(end, keeping, go_on),
        5 => to_child(end, keeping, |end| execute(end, false)),
        6 => spawn(end, keeping),
        7 => send(without_set(end), keeping, |end, channel, received| {
            let end = received_from(end, channel);
            received.pass();
            received.close();
            go_on(end);
        }),
        _ => send(
            without_set(end),
            keeping.unless_ends(),
            |end, channel, received| {
                received.pass();
                received.close();
                execute(
                    End {
                        socket: channel,
                        ..end
                    },
                    true,
                );
            },
        ),
    }
    None
}

/// The end that an executed image was given, see [`words`].
pub fn received(words: &[String]) -> End {
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let size = |at: usize| usize::try_from(number(at)).expect("a size");
    let end = End {
        seed: number(0),
        role: [Role::Client, Role::Server][size(1)],
        stage: number(2),
        socket: Descriptor::try_from(number(3)).expect("a descriptor"),
        sent: size(4),
        received: size(5),
        is_shut: number(6) == 1,
        has_ended: number(7) == 1,
        wait: Wait::from_words([number(8), number(9), number(10)]),
    };
    if number(11) == 1 {
        received_from(end, end.socket)
    } else {
        end
    }
}

/// The arguments of an image that goes on with an end. It receives the end's socket where `by_message` is true, and
/// `end.socket` is the channel.
fn words(end: End, by_message: bool) -> Vec<String> {
    let [set, how, outer] = end.wait.to_words();
    let numbers = [
        end.seed,
        u64::from(end.role == Role::Server),
        end.stage,
        u64::try_from(end.socket).expect("a descriptor"),
        end.sent as u64,
        end.received as u64,
        u64::from(end.is_shut),
        u64::from(end.has_ended),
        set,
        how,
        outer,
        u64::from(by_message),
    ];
    numbers.iter().map(u64::to_string).collect()
}

fn command(end: End, by_message: bool) -> Command {
    let mut command = Command::new(this_program());
    command.arg(GOES_ON).args(words(end, by_message));
    command
}

/// Goes on in another image of this process.
fn execute(end: End, by_message: bool) {
    let error = command(end, by_message).exec();
    panic!("exec: {error}");
}

fn received_from(end: End, channel: Descriptor) -> End {
    let socket = uninterrupted(|| sys::recv_descriptor(channel)).expect("recvmsg");
    sys::close(channel).expect("close");
    End { socket, ..end }
}

/// Gives up the set: its member would have another number, or another process has no descriptor of it.
fn without_set(end: End) -> End {
    end.wait.close();
    End {
        wait: Wait::Poll,
        ..end
    }
}

/// Goes on under another number.
fn copied(end: End) -> End {
    let socket = sys::dup(end.socket).expect("dup");
    sys::close(end.socket).expect("close");
    End { socket, ..end }
}

/// Goes on under the number that a message to this process gives it.
fn sent_to_itself(end: End, closes_first: bool) -> End {
    let [there, here] = channel();
    uninterrupted(|| sys::send_descriptor(there, end.socket)).expect("sendmsg");
    if closes_first {
        sys::close(end.socket).expect("close");
    }
    let next = received_from(end, here);
    if !closes_first {
        sys::close(end.socket).expect("close");
    }
    sys::close(there).expect("close");
    next
}

fn channel() -> [Descriptor; 2] {
    sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).expect("socketpair")
}

fn to_child(end: End, keeping: Keeping, work: impl FnOnce(End)) {
    let received = Baton::new();
    let child = rounds::start(|| {
        sys::outlive_parent();
        received.pass();
        received.close();
        work(end);
    });
    received.take();
    received.close();
    keep_while(end, keeping, || {
        rounds::expect_end_or_kill(&child, "the next holder")
    });
}

/// Starts a program that inherits the socket.
fn spawn(end: End, keeping: Keeping) {
    let mut started = command(end, false).spawn().expect("spawn");
    keep_while(end, keeping, || {
        let status = started.wait().expect("wait");
        let killed = status.signal() == Some(libc::SIGKILL);
        assert!(status.success() || killed, "the next holder: {status}");
    });
}

/// Sends the socket to a child that did not inherit it.
/// `work` says when it has it: until then it may be lost with its sender, where no daemon serves.
fn send(end: End, keeping: Keeping, work: impl FnOnce(End, Descriptor, Baton)) {
    let [there, here] = channel();
    let received = Baton::new();
    let child = rounds::start(|| {
        sys::outlive_parent();
        sys::close(there).expect("close");
        sys::close(end.socket).expect("close");
        work(end, here, received);
    });
    sys::close(here).expect("close");
    uninterrupted(|| sys::send_descriptor(there, end.socket)).expect("sendmsg");
    received.take();
    received.close();
    keep_while(end, keeping, || {
        rounds::expect_end_or_kill(&child, "the next holder")
    });
    sys::close(there).expect("close");
}

/// Closes the former holder's descriptors, while it waits for the next holder or afterwards.
fn keep_while(end: End, keeping: Keeping, wait: impl FnOnce()) {
    let close = || {
        end.wait.close();
        sys::close(end.socket).expect("close");
    };
    match keeping {
        Keeping::Not => close(),
        Keeping::ForAMoment => {
            std::thread::sleep(Duration::from_millis(1));
            close();
        }
        Keeping::ToTheEnd => {}
        Keeping::Ends { killed: true } => drop(sys::kill(sys::getpid(), libc::SIGKILL)),
        Keeping::Ends { killed: false } => sys::exit_now(0),
    }
    wait();
    if matches!(keeping, Keeping::ToTheEnd) {
        close();
    }
}
