//! Programs whose processes pass sockets to each other in messages. Whatever a socket is at that moment, sender and
//! receiver have one open file afterwards.

use super::generate::Generator;
use super::model::{Socket, Stage};
use super::program::SECOND;

/// One program in this many passes sockets. By its number, so that no other program of a seed depends on it.
const ONE_IN: u64 = 8;

/// The two ends of a local stream that all processes have.
#[derive(Clone, Copy)]
pub(super) struct Channel(i64, i64);

impl Generator {
    /// The channel of a program that passes sockets, made before its processes. Between hosts there is none.
    pub(super) fn channel(&mut self, number: u64, between: bool) -> Option<Channel> {
        if number % ONE_IN != ONE_IN - 1 || between {
            return None;
        }
        let kind = vec![vec![libc::AF_UNIX.into()], vec![1], vec![0], vec![0]];
        let made = self.add("socketpair", 0, kind);
        Some(Channel(made, made + SECOND))
    }

    /// Passes a socket to some actor, often one that is not connected yet and that either process connects then.
    pub(super) fn pass(&mut self, channel: Channel) {
        let sender = self.likely_actor();
        if self.model.percent(40) {
            return self.pass_unconnected(channel, sender);
        }
        let wanted = |socket: &Socket| socket.stage != Stage::Closed;
        if let Some(place) = self.model.socket(sender, wanted) {
            let receiver = self.model.actor();
            self.send_and_receive(channel, place, sender, receiver);
        }
    }

    fn pass_unconnected(&mut self, channel: Channel, sender: usize) {
        let fits = |socket: &&Socket| socket.stage == Stage::Listening;
        let listener = self.model.sockets.iter().find(fits).cloned();
        let family = listener.as_ref().map_or(4, |listener| listener.family);
        let socket = self.socket(sender, family, 0);
        let variable = self.model.sockets[socket].variable;
        match self.model.random.below(6) {
            0 => {
                let any_port = vec![1, 0, family, 0];
                self.add("bind", sender, vec![vec![variable], any_port]);
            }
            1 => {
                self.add("dup", sender, vec![vec![variable]]);
            }
            _ => {}
        }
        let receiver = self.model.actor();
        let passed = self.send_and_receive(channel, socket, sender, receiver);
        let Some(listener) = listener.filter(|_| self.model.percent(70)) else {
            return;
        };
        // The kernel connects it: among virtual clients that wait it is accepted in another order (8.23).
        let place = self.model.place(listener.variable);
        let holds = |actor: &usize| {
            let one = self.model.actors[*actor];
            one.alive && listener.owners & (1 << one.process) != 0
        };
        let server = (0..self.model.actors.len()).find(holds);
        let (Some(place), Some(server), 0) = (place, server, listener.waiting) else {
            return;
        };
        let ends = [(sender, socket, passed), (receiver, passed, socket)];
        let (actor, one, other) = self.model.one(&ends);
        self.connect(actor, one, vec![0, listener.variable, family, 0]);
        self.model.sockets[other].stage = self.model.sockets[one].stage;
        self.accept(server, place);
    }

    /// Adds the two steps. Returns the place of the received socket.
    fn send_and_receive(
        &mut self,
        channel: Channel,
        place: usize,
        sender: usize,
        receiver: usize,
    ) -> usize {
        let passed = self.model.sockets[place].clone();
        let message = vec![1, 1, 0, passed.variable];
        self.add("sendmsg", sender, vec![vec![channel.0], message, vec![0]]);
        if self.model.percent(25) {
            self.add("close", sender, vec![vec![passed.variable]]);
            let bit = self.model.bit(sender);
            self.model.sockets[place].owners &= !bit;
        }
        let flags = self.model.one(&[0, 0, libc::MSG_CMSG_CLOEXEC]);
        let room = vec![1, 1, 0, 0];
        let number = self.add(
            "recvmsg",
            receiver,
            vec![vec![channel.1], room, vec![flags.into()]],
        );
        let owners = self.model.bit(receiver);
        self.model.sockets.push(Socket {
            variable: number + SECOND,
            owners,
            ..passed
        });
        self.model.sockets.len() - 1
    }
}
