//! One actor waits in a call, and another actor does what ends the wait. These programs find lost wake-ups.

use super::generate::Generator;
use super::model::Stage;
use super::program::Argument;

const EVER: i64 = 0;

impl Generator {
    /// Adds two steps, or three if the second actor has to be made.
    pub(super) fn wait_and_wake(&mut self) {
        let connected = |place: &usize| {
            let socket = &self.model.sockets[*place];
            let peer = socket.peer.map(|peer| &self.model.sockets[peer]);
            socket.stage == Stage::Connected
                && socket.owners != 0
                && socket.waiting == 0
                && !socket.nonblocking
                && peer.is_some_and(|peer| peer.owners != 0)
        };
        let places: Vec<usize> = (0..self.model.sockets.len()).filter(connected).collect();
        if places.is_empty() || self.model.percent(20) {
            return self.accept_and_connect();
        }
        let place = self.model.one(&places);
        let Some(peer) = self.model.sockets[place].peer else {
            return;
        };
        let Some((waits, wakes)) = self.two_actors(
            self.model.sockets[place].owners,
            self.model.sockets[peer].owners,
        ) else {
            return;
        };
        let variable = self.model.sockets[place].variable;
        self.wait(waits, variable);
        let other = self.model.sockets[peer].variable;
        let size = self.model.one(&[1, 1, 1, 5, 100, 3000]);
        match self.model.random.below(8) {
            0 => {
                self.add(
                    "shutdown",
                    wakes,
                    vec![vec![other], vec![libc::SHUT_WR.into()]],
                );
            }
            1 => {
                self.add("close", wakes, vec![vec![other]]);
                let bit = self.model.bit(wakes);
                self.model.sockets[peer].owners &= !bit;
            }
            2 => {
                self.add("write", wakes, vec![vec![other], vec![0], vec![size]]);
            }
            3 => {
                self.add("writev", wakes, vec![vec![other], vec![4]]);
            }
            _ => {
                self.add(
                    "send",
                    wakes,
                    vec![vec![other], vec![0], vec![size], vec![0]],
                );
            }
        }
    }

    /// Two actors that own two given sockets. A thread is made where there is only one actor.
    fn two_actors(&mut self, first: u32, second: u32) -> Option<(usize, usize)> {
        let has = |model: &super::model::Model, owners: u32, but: Option<usize>| {
            let actors = (0..model.actors.len())
                .filter(|actor| model.actors[*actor].alive && Some(*actor) != but);
            let actors: Vec<usize> = actors
                .filter(|actor| owners & model.bit(*actor) != 0)
                .collect();
            actors
        };
        let waiting = has(&self.model, first, None);
        if waiting.is_empty() {
            return None;
        }
        let waits = self.model.one(&waiting);
        let mut waking = has(&self.model, second, Some(waits));
        if waking.is_empty() && self.model.actors.len() < 5 && second & self.model.bit(waits) != 0 {
            let made = self.model.actors.len();
            self.add_actor_action("thread", waits, &[vec![i64::try_from(made).unwrap_or(0)]]);
            waking = vec![made];
        }
        (!waking.is_empty()).then(|| (waits, self.model.one(&waking)))
    }

    /// Adds a call that waits for input.
    fn wait(&mut self, actor: usize, variable: i64) {
        let all = i64::from(libc::MSG_WAITALL);
        let input = i64::from(libc::POLLIN);
        let place = |word: i64| -> Argument { vec![word] };
        match self.model.random.below(9) {
            0 => self.add("read", actor, vec![vec![variable], place(0), vec![100]]),
            1 => self.add(
                "recv",
                actor,
                vec![vec![variable], place(0), vec![5], vec![all]],
            ),
            2 => self.add("readv", actor, vec![vec![variable], vec![0]]),
            3 => self.add(
                "recvmsg",
                actor,
                vec![vec![variable], vec![1, 0, 0, 0], vec![0]],
            ),
            4 => self.add("poll", actor, vec![vec![variable, input], vec![-1]]),
            5 => self.add("select", actor, vec![vec![0, 1, variable], vec![EVER]]),
            6 => {
                let set = self.add("epoll_create1", actor, vec![vec![0]]);
                let edge = self.model.one(&[0, libc::EPOLLET]);
                let events = i64::from(libc::EPOLLIN | edge) & 0xffff_ffff;
                let member = vec![events, variable, 0];
                self.add(
                    "epoll_ctl",
                    actor,
                    vec![
                        vec![set],
                        vec![libc::EPOLL_CTL_ADD.into()],
                        vec![variable],
                        member,
                    ],
                );
                let bit = self.model.bit(actor);
                self.model.sets.push((set, bit));
                self.add("epoll_wait", actor, vec![vec![set], vec![16, 0], vec![-1]])
            }
            _ => self.add(
                "recv",
                actor,
                vec![vec![variable], place(0), vec![1000], vec![0]],
            ),
        };
    }

    /// Adds an actor that waits in accept or for a listener, and another one that connects.
    fn accept_and_connect(&mut self) {
        let idle = |place: &usize| {
            let socket = &self.model.sockets[*place];
            socket.stage == Stage::Listening
                && socket.waiting == 0
                && !socket.nonblocking
                && socket.owners != 0
        };
        let places: Vec<usize> = (0..self.model.sockets.len()).filter(idle).collect();
        if places.is_empty() {
            return;
        }
        let listener = self.model.one(&places);
        let Some((waits, wakes)) = self.two_actors(self.model.sockets[listener].owners, u32::MAX)
        else {
            return;
        };
        let family = self.model.sockets[listener].family;
        let socket = self.socket(wakes, family, 0);
        let target = self.model.sockets[listener].variable;
        if self.model.percent(50) {
            // The generator counts the connection as waiting, because the connect will be made.
            self.model.sockets[listener].waiting += 1;
            self.model.sockets[listener].peer = Some(socket);
            self.accept(waits, listener);
            self.connect(wakes, socket, vec![0, target, family, 0]);
            self.model.sockets[listener].waiting = 0;
            self.model.sockets[socket].stage = Stage::Connected;
        } else {
            self.wait(waits, target);
            self.connect(wakes, socket, vec![0, target, family, 0]);
        }
    }
}
