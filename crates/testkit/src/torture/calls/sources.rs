//! Objects that some calls need to test anything: sets with members, files, pipes.

use super::form::Form;
use super::generate::Generator;
use super::model::Stage;
use super::program::SECOND;
use super::words::OPTIONS;

impl Generator {
    /// A set with members, for an actor that has none.
    pub(super) fn set(&mut self, actor: usize) {
        let bit = self.model.bit(actor);
        if self.model.sets.iter().any(|(_, owners)| owners & bit != 0) && !self.model.percent(5) {
            return;
        }
        let set = self.add("epoll_create1", actor, vec![vec![0]]);
        self.model.sets.push((set, bit));
        for _ in 0..self.model.one(&[1, 2, 2]) {
            if let Some(place) = self
                .model
                .socket(actor, |socket| socket.stage != Stage::Closed)
            {
                let member = self.model.sockets[place].variable;
                let events = self.model.one(&[
                    libc::EPOLLIN,
                    libc::EPOLLIN | libc::EPOLLOUT,
                    libc::EPOLLIN | libc::EPOLLET,
                    libc::EPOLLIN | libc::EPOLLONESHOT,
                    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET,
                ]);
                let add = i64::from(libc::EPOLL_CTL_ADD);
                self.add(
                    "epoll_ctl",
                    actor,
                    vec![
                        vec![set],
                        vec![add],
                        vec![member],
                        vec![i64::from(events) & 0xffff_ffff, member, 0],
                    ],
                );
            }
        }
    }

    /// A file that can be passed to `sendfile`, or a pipe for `splice`.
    pub(super) fn source(&mut self, form: &'static Form, actor: usize) {
        let bit = self.model.bit(actor);
        if form.name == "sendfile" {
            let file = self.add("file", actor, vec![vec![3000]]);
            if let Some(place) = self
                .model
                .socket(actor, |socket| socket.stage == Stage::Connected)
            {
                let socket = self.model.sockets[place].variable;
                let word = self.model.one(&[0, 1, 2]);
                let size = self.model.one(&[10, 100, 5000, 0]);
                self.add(
                    form.name,
                    actor,
                    vec![vec![socket], vec![file], vec![word, 50], vec![size]],
                );
                self.model.sent(place, 100);
            }
            self.model.others.push((file, bit));
            return;
        }
        let pipe = self.add("pipe2", actor, vec![vec![0], vec![0]]);
        self.model
            .others
            .extend([(pipe, bit), (pipe + SECOND, bit)]);
        let flags = self.model.one(&[0, 0, 2, 1, 4]);
        if let Some(place) = self
            .model
            .socket(actor, |socket| socket.stage == Stage::Connected)
        {
            let socket = self.model.sockets[place].variable;
            if self.model.sockets[place].waiting > 0 {
                self.add(
                    "splice",
                    actor,
                    vec![
                        vec![socket],
                        vec![0, 0],
                        vec![pipe + SECOND],
                        vec![0, 0],
                        vec![1000],
                        vec![flags],
                    ],
                );
                self.model.received(place, 1000);
                self.add("read", actor, vec![vec![pipe], vec![0], vec![1000]]);
            } else {
                self.add(
                    "write",
                    actor,
                    vec![vec![pipe + SECOND], vec![0], vec![100]],
                );
                self.add(
                    "splice",
                    actor,
                    vec![
                        vec![pipe],
                        vec![0, 0],
                        vec![socket],
                        vec![0, 0],
                        vec![100],
                        vec![flags],
                    ],
                );
                self.model.sent(place, 100);
            }
        }
    }

    /// Sends a few bytes on some connection, by an actor that has it.
    pub(super) fn send_some_bytes(&mut self) {
        let actor = self.likely_actor();
        if let Some(place) = self
            .model
            .socket(actor, |socket| socket.stage == Stage::Connected)
        {
            let variable = self.model.sockets[place].variable;
            let quiet = i64::from(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            self.add(
                "send",
                actor,
                vec![vec![variable], vec![0], vec![10], vec![quiet]],
            );
            self.model.sent(place, 10);
        }
    }

    /// Sets an option of a listener, which is later read from the accepted socket. Returns the option's index.
    pub(super) fn inherited(&mut self, actor: usize, listener: usize) -> i64 {
        let option = i64::try_from(self.model.random.below(OPTIONS.len())).unwrap_or(0);
        let usual = [
            "TCP_NODELAY",
            "SO_KEEPALIVE",
            "SO_LINGER",
            "SO_RCVTIMEO",
            "TCP_KEEPIDLE",
            "IP_TOS",
        ];
        let name = self.model.one(&usual);
        let known = OPTIONS.iter().position(|option| option.name == name);
        let usual = known
            .and_then(|place| i64::try_from(place).ok())
            .unwrap_or(0);
        let choice = if self.model.percent(70) {
            usual
        } else {
            option
        };
        let value = match name {
            _ if choice != usual => vec![0, 1, 0, 0],
            "SO_LINGER" => vec![1, 1, 0, 0],
            "SO_RCVTIMEO" => vec![2, 0, 10_000, 0],
            "TCP_KEEPIDLE" => vec![0, 77, 0, 0],
            _ => vec![0, self.model.one(&[1, 2, 16]), 0, 0],
        };
        let variable = self.model.sockets[listener].variable;
        self.add(
            "setsockopt",
            actor,
            vec![vec![variable], vec![choice], value],
        );
        choice
    }

    /// Binds a socket before it connects.
    pub(super) fn prepared(&mut self, socket: usize, actor: usize) {
        let variable = self.model.sockets[socket].variable;
        let family = self.model.sockets[socket].family;
        let word = self.model.one(&[1, 2, 9]);
        self.add(
            "bind",
            actor,
            vec![vec![variable], vec![word, 0, family, 0]],
        );
    }

    /// Reads options of a socket that has not been used yet.
    pub(super) fn read_fresh_options(&mut self, actor: usize, socket: usize) {
        let variable = self.model.sockets[socket].variable;
        let own = vec![variable];
        let command = |command: i32, argument: i64| vec![i64::from(command), argument];
        let bits = i64::from(libc::POLLIN | libc::POLLOUT);
        match self.model.random.below(8) {
            0 | 1 => self.add("fcntl", actor, vec![own, command(libc::F_GETFL, 0)]),
            2 => {
                let flags = self.model.one(&[0, libc::O_NONBLOCK]);
                self.model.sockets[socket].nonblocking = flags != 0;
                self.add(
                    "fcntl",
                    actor,
                    vec![own.clone(), command(libc::F_SETFL, flags.into())],
                );
                self.add("fcntl", actor, vec![own, command(libc::F_GETFL, 0)])
            }
            3 => self.add("poll", actor, vec![vec![variable, bits], vec![0]]),
            4 => self.add("getsockname", actor, vec![own, vec![0]]),
            5 => self.add("getpeername", actor, vec![own, vec![0]]),
            6 => self.add(
                "recv",
                actor,
                vec![own, vec![0], vec![10], vec![libc::MSG_DONTWAIT.into()]],
            ),
            _ => {
                let option = i64::try_from(self.model.random.below(OPTIONS.len())).unwrap_or(0);
                self.add("getsockopt", actor, vec![own, vec![option], vec![0]])
            }
        };
    }

    /// Reads bytes again that were only peeked at.
    pub(super) fn read_again(&mut self, actor: usize, target: i64) {
        let last = self.steps.last();
        if last.is_some_and(|step| step.form.peeks(&step.arguments)) && self.model.percent(40) {
            let quiet = i64::from(libc::MSG_DONTWAIT);
            let arguments = [target, 0, 1000, quiet].map(|value| vec![value]);
            self.add("recv", actor, arguments.to_vec());
        }
    }
}
