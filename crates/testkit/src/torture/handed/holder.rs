//! How an end is held, and goes to another program.

use std::process::Command;

use netchannel_testkit::sys::{self, Descriptor};

use super::GOES_ON;
use super::end::End;
use super::wait::Wait;
use crate::hand_over::{Held, received_from};
use crate::program::this_program;
use crate::script::Role;

impl Held for End {
    fn descriptor(self) -> Descriptor {
        self.socket
    }

    fn at(self, descriptor: Descriptor) -> Self {
        Self {
            socket: descriptor,
            ..self
        }
    }

    /// Gives up the set: its member would have another number, or another process has no descriptor of it.
    fn for_message(self) -> Self {
        self.wait.close();
        Self {
            wait: Wait::Poll,
            ..self
        }
    }

    fn close(self) {
        self.wait.close();
        sys::close(self.socket).expect("close");
    }

    fn command(self, by_message: bool) -> Command {
        let mut command = Command::new(this_program());
        command.arg(GOES_ON).args(words(self, by_message));
        command
    }
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
