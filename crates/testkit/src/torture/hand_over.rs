//! The ways in which a descriptor goes from one holder to the next: an end of a connection, or a listener.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::Duration;

use netchannel_testkit::support::{Baton, Random, uninterrupted};
use netchannel_testkit::sys::{self, Descriptor};

use crate::rounds;

/// What goes from holder to holder.
pub trait Held: Copy + Send {
    /// Its descriptor.
    fn descriptor(self) -> Descriptor;

    /// The same under another number.
    fn at(self, descriptor: Descriptor) -> Self;

    /// The same without what no message can bring.
    fn for_message(self) -> Self {
        self
    }

    /// Closes all that the calling process has of it.
    fn close(self);

    /// The program that goes on with it. It inherits the descriptor, or receives it over that where `by_message` is
    /// true.
    fn command(self, by_message: bool) -> Command;

    /// Called before this process executes that program.
    fn before_exec(self) {}

    /// Called before this process ends or is `killed`, while the next holder goes on.
    fn before_end(self, killed: bool) {
        let _ = killed;
    }
}

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

/// Hands it on to a holder that does `go_on`. Returns it where the caller has it still, and `None` after another holder
/// has come to the end.
pub fn hand_on<H: Held>(
    held: H,
    random: &mut Random,
    go_on: impl Fn(H) + Copy + Send,
) -> Option<H> {
    let keeping = Keeping::draw(random);
    match random.below(9) {
        0 => return Some(copied(held.for_message())),
        1 => return Some(sent_to_itself(held.for_message(), random.once_in(2))),
        2 => std::thread::scope(|scope| {
            let next = scope.spawn(move || go_on(held));
            next.join().expect("a panic ends the process");
        }),
        3 => execute(held, false),
        4 => to_child(held, keeping, go_on),
        5 => to_child(held, keeping, |held| execute(held, false)),
        6 => spawn(held, keeping),
        7 => send(held.for_message(), keeping, |held, channel, received| {
            let held = received_from(held, channel);
            received.pass();
            received.close();
            go_on(held);
        }),
        _ => send(
            held.for_message(),
            keeping.unless_ends(),
            |held, channel, received| {
                received.pass();
                received.close();
                execute(held.at(channel), true);
            },
        ),
    }
    None
}

/// Goes on in another image of this process.
fn execute<H: Held>(held: H, by_message: bool) {
    held.before_exec();
    let error = held.command(by_message).exec();
    panic!("exec: {error}");
}

/// The same under the number that a message over the channel gives it.
pub fn received_from<H: Held>(held: H, channel: Descriptor) -> H {
    let descriptor = uninterrupted(|| sys::recv_descriptor(channel)).expect("recvmsg");
    sys::close(channel).expect("close");
    held.at(descriptor)
}

/// Goes on under another number.
fn copied<H: Held>(held: H) -> H {
    let descriptor = sys::dup(held.descriptor()).expect("dup");
    sys::close(held.descriptor()).expect("close");
    held.at(descriptor)
}

/// Goes on under the number that a message to this process gives it.
fn sent_to_itself<H: Held>(held: H, closes_first: bool) -> H {
    let [there, here] = channel();
    uninterrupted(|| sys::send_descriptor(there, held.descriptor())).expect("sendmsg");
    if closes_first {
        sys::close(held.descriptor()).expect("close");
    }
    let next = received_from(held, here);
    if !closes_first {
        sys::close(held.descriptor()).expect("close");
    }
    sys::close(there).expect("close");
    next
}

fn channel() -> [Descriptor; 2] {
    sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM).expect("socketpair")
}

fn to_child<H: Held>(held: H, keeping: Keeping, work: impl FnOnce(H)) {
    let received = Baton::new();
    let child = rounds::start(|| {
        sys::outlive_parent();
        received.pass();
        received.close();
        work(held);
    });
    received.take();
    received.close();
    keep_while(held, keeping, || {
        rounds::expect_end_or_kill(&child, "the next holder")
    });
}

/// Starts a program that inherits the socket.
fn spawn<H: Held>(held: H, keeping: Keeping) {
    let mut started = held.command(false).spawn().expect("spawn");
    keep_while(held, keeping, || {
        let status = started.wait().expect("wait");
        let killed = status.signal() == Some(libc::SIGKILL);
        assert!(status.success() || killed, "the next holder: {status}");
    });
}

/// Sends the socket to a child that did not inherit it.
/// `work` says when it has it: until then it may be lost with its sender, where no daemon serves.
fn send<H: Held>(held: H, keeping: Keeping, work: impl FnOnce(H, Descriptor, Baton)) {
    let [there, here] = channel();
    let received = Baton::new();
    let child = rounds::start(|| {
        sys::outlive_parent();
        sys::close(there).expect("close");
        sys::close(held.descriptor()).expect("close");
        work(held, here, received);
    });
    sys::close(here).expect("close");
    uninterrupted(|| sys::send_descriptor(there, held.descriptor())).expect("sendmsg");
    received.take();
    received.close();
    keep_while(held, keeping, || {
        rounds::expect_end_or_kill(&child, "the next holder")
    });
    sys::close(there).expect("close");
}

/// Closes the former holder's descriptors, while it waits for the next holder or afterwards.
fn keep_while<H: Held>(held: H, keeping: Keeping, wait: impl FnOnce()) {
    match keeping {
        Keeping::Not => held.close(),
        Keeping::ForAMoment => {
            std::thread::sleep(Duration::from_millis(1));
            held.close();
        }
        Keeping::ToTheEnd => {}
        Keeping::Ends { killed } => {
            held.before_end(killed);
            if killed {
                let _ = sys::kill(sys::getpid(), libc::SIGKILL);
            }
            sys::exit_now(0);
        }
    }
    wait();
    if matches!(keeping, Keeping::ToTheEnd) {
        held.close();
    }
}
