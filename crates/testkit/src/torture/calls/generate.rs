//! Makes a random program: a beginning that connects sockets, then calls of every kind on them, most of them valid.

use netchannel_testkit::support::Random;

use super::draw::Draw;
use super::form::{self, Form};
use super::model::{Actor, Model, Socket, Stage};
use super::program::{Argument, MOST_ACTORS, Program, SECOND, Step};

/// Calls and how often each is drawn.
const WEIGHTS: &[(&str, usize)] = &[
    ("send", 60),
    ("recv", 60),
    ("sendto", 25),
    ("recvfrom", 25),
    ("read", 35),
    ("write", 35),
    ("readv", 18),
    ("writev", 18),
    ("sendmsg", 25),
    ("recvmsg", 25),
    ("sendmmsg", 10),
    ("recvmmsg", 10),
    ("preadv2", 4),
    ("pwritev2", 4),
    ("pread", 2),
    ("pwrite", 2),
    ("lseek", 2),
    ("sendfile", 8),
    ("splice", 8),
    ("socket", 14),
    ("bind", 8),
    ("listen", 8),
    ("connect", 18),
    ("accept", 14),
    ("accept4", 12),
    ("getsockname", 14),
    ("getpeername", 14),
    ("shutdown", 16),
    ("setsockopt", 40),
    ("getsockopt", 40),
    ("close", 20),
    ("dup", 12),
    ("dup2", 10),
    ("dup3", 8),
    ("fcntl", 24),
    ("ioctl", 24),
    ("close_range", 2),
    ("isfdtype", 2),
    ("sockatmark", 6),
    ("poll", 24),
    ("ppoll", 12),
    ("select", 14),
    ("pselect", 8),
    ("epoll_create", 2),
    ("epoll_create1", 7),
    ("epoll_ctl", 26),
    ("epoll_wait", 22),
    ("epoll_pwait", 9),
    ("epoll_pwait2", 6),
    ("socketpair", 3),
    ("pipe2", 3),
    ("setrlimit", 2),
    ("getrlimit", 2),
    ("fork", 4),
    ("thread", 4),
    ("exec", 2),
    ("exit", 2),
    ("kill", 4),
    ("end", 2),
    ("reap", 2),
    ("action", 6),
    ("numbers", 5),
    ("file", 2),
];

/// Generates one program.
pub struct Generator {
    pub model: Model,
    pub(super) steps: Vec<Step>,
    /// A bit for each process that lives on the other host.
    pub(super) far: u32,
}

/// The program of a seed and a number. For two hosts, the program begins with the processes that live on the other
/// host.
pub fn program(seed: u64, number: u64, between: bool) -> Program {
    let mixed =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mut generator = Generator {
        model: Model::new(Random::new(mixed)),
        steps: Vec::new(),
        far: 0,
    };
    generator.write(number, between);
    Program {
        steps: generator.steps,
    }
}

impl Generator {
    fn write(&mut self, number: u64, between: bool) {
        let channel = self.channel(number, between);
        if self.model.percent(60) || between || channel.is_some() {
            self.add_actor_action("fork", 0, &[vec![1]]);
            if self.model.percent(20) {
                let parent = self.model.random.below(2);
                self.add_actor_action("fork", parent, &[vec![2]]);
            }
        }
        if between {
            self.far = (1_u32 << self.model.actors.len()) - 2;
        }
        let connections = self.model.one(&[0, 1, 1, 1, 1, 2, 2]);
        for _ in 0..connections {
            self.connection();
        }
        let length = self.model.one(&[4, 8, 12, 16, 24]);
        for _ in 0..length {
            match channel {
                Some(channel) if self.model.percent(25) => self.pass(channel),
                _ => self.any(),
            }
        }
        if self.model.percent(60) {
            let actors =
                (0..self.model.actors.len()).filter(|actor| self.model.actors[*actor].alive);
            let alive: Vec<usize> = actors.collect();
            for actor in alive {
                self.add("numbers", actor, Vec::new());
            }
        }
        if self.model.percent(10) {
            self.fill_and_drain();
        }
    }

    /// Adds a step with the arguments as they are. Returns its number.
    pub(super) fn add(&mut self, name: &str, actor: usize, arguments: Vec<Argument>) -> i64 {
        let Some(form) = form::find(name) else {
            return 0;
        };
        let number = i64::try_from(self.steps.len()).unwrap_or(0) + 1;
        let by_number = form.number.is_some() && self.model.percent(15);
        self.steps.push(Step {
            number,
            actor,
            form,
            by_number,
            arguments,
        });
        number
    }

    /// Adds a listener and a connection to it, sometimes with a step of any kind between.
    fn connection(&mut self) {
        let (server, client) = self.two_ends();
        let family = self.model.one(&[4, 4, 4, 6, 6]);
        let listener = self.listener(server, family);
        let inherited = self
            .model
            .percent(12)
            .then(|| self.inherited(server, listener));
        self.sometimes();
        let flags = self
            .model
            .one(&[0, 0, 0, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC]);
        let socket = self.socket(client, family, flags);
        if self.model.percent(10) {
            self.prepared(socket, client);
        }
        if self.model.percent(12) {
            self.read_fresh_options(client, socket);
        }
        let target = self.model.sockets[listener].variable;
        self.connect(client, socket, vec![0, target, family, 0]);
        self.sometimes();
        if self.model.percent(93) {
            self.accept(server, listener);
            let accepted = self.model.sockets.last().map(|socket| socket.variable);
            if let Some((choice, accepted)) = inherited.zip(accepted) {
                self.add(
                    "getsockopt",
                    server,
                    vec![vec![accepted], vec![choice], vec![0]],
                );
            }
        }
    }

    fn sometimes(&mut self) {
        if self.model.percent(12) {
            self.any();
        }
    }

    pub fn socket(&mut self, actor: usize, family: i64, flags: i32) -> usize {
        let domain = if family == 6 {
            libc::AF_INET6
        } else {
            libc::AF_INET
        };
        let kind = i64::from(libc::SOCK_STREAM | flags);
        let variable = self.add(
            "socket",
            actor,
            vec![vec![domain.into()], vec![kind], vec![0]],
        );
        let owners = self.model.bit(actor);
        self.model.sockets.push(Socket {
            variable,
            stage: Stage::Fresh,
            family,
            nonblocking: flags & libc::SOCK_NONBLOCK != 0,
            owners,
            peer: None,
            waiting: 0,
        });
        self.model.sockets.len() - 1
    }

    pub(super) fn listener(&mut self, actor: usize, family: i64) -> usize {
        let flags = self.model.one(&[0, 0, libc::SOCK_NONBLOCK]);
        let socket = self.socket(actor, family, flags);
        let variable = self.model.sockets[socket].variable;
        let word = self.model.one(&[1, 1, 1, 2]);
        self.add(
            "bind",
            actor,
            vec![vec![variable], vec![word, 0, family, 0]],
        );
        let backlog = self.model.one(&[5, 128, 128, 1]);
        self.add("listen", actor, vec![vec![variable], vec![backlog]]);
        self.add("getsockname", actor, vec![vec![variable], vec![0]]);
        self.model.sockets[socket].stage = Stage::Listening;
        socket
    }

    pub fn connect(&mut self, actor: usize, socket: usize, to: Argument) {
        let variable = self.model.sockets[socket].variable;
        let listener = (to[0] == 0 || to[0] == 8)
            .then(|| self.model.place(to[1]))
            .flatten();
        self.add("connect", actor, vec![vec![variable], to]);
        if self.model.sockets[socket].stage != Stage::Fresh {
            return;
        }
        if let Some(listener) =
            listener.filter(|place| self.model.sockets[*place].stage == Stage::Listening)
        {
            self.model.sockets[listener].waiting += 1;
            self.model.sockets[listener].peer = Some(socket);
            self.model.sockets[socket].stage = Stage::Connected;
        } else {
            self.model.sockets[socket].stage = Stage::Connecting;
        }
    }

    pub fn accept(&mut self, actor: usize, listener: usize) {
        let variable = self.model.sockets[listener].variable;
        let room = self.model.one(&[0, 0, 1]);
        let flags = self
            .model
            .one(&[0, 0, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC]);
        let (made, nonblocking) = if self.model.percent(50) {
            (
                self.add("accept", actor, vec![vec![variable], vec![room]]),
                false,
            )
        } else {
            let arguments = vec![vec![variable], vec![room], vec![flags.into()]];
            (
                self.add("accept4", actor, arguments),
                flags == libc::SOCK_NONBLOCK,
            )
        };
        let waiting = self.model.sockets[listener].waiting > 0;
        let peer = self.model.sockets[listener].peer.filter(|_| waiting);
        let owners = self.model.bit(actor);
        let place = self.model.sockets.len();
        self.model.sockets.push(Socket {
            variable: made,
            stage: if waiting {
                Stage::Connected
            } else {
                Stage::Closed
            },
            family: self.model.sockets[listener].family,
            nonblocking,
            owners,
            peer,
            waiting: 0,
        });
        if let Some(peer) = peer {
            self.model.sockets[peer].peer = Some(place);
        }
        self.model.received(listener, 1);
    }

    /// Adds a step of any kind.
    fn any(&mut self) {
        if self.model.percent(4) {
            return self.wait_and_wake();
        }
        let total: usize = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut place = self.model.random.below(total);
        let chosen = WEIGHTS.iter().find(|(_, weight)| {
            let found = place < *weight;
            place = place.wrapping_sub(*weight);
            found
        });
        let Some(form) = chosen.and_then(|(name, _)| form::find(name)) else {
            return;
        };
        let actor = self.likely_actor();
        if form.library {
            self.call(form, actor)
        } else {
            self.act(form.name, actor)
        }
    }

    /// An actor that has descriptors to make calls on.
    pub(super) fn likely_actor(&mut self) -> usize {
        let mut actor = self.model.actor();
        for _ in 0..6 {
            let bit = self.model.bit(actor);
            if self
                .model
                .sockets
                .iter()
                .any(|socket| socket.owners & bit != 0)
            {
                break;
            }
            actor = self.model.actor();
        }
        actor
    }

    fn call(&mut self, form: &'static Form, actor: usize) {
        if form.name.starts_with("epoll_")
            && !form.name.starts_with("epoll_create")
            && !self.model.percent(3)
        {
            self.set(actor);
        }
        match form.name {
            "sendfile" | "splice" if self.model.percent(60) => self.source(form, actor),
            "socketpair" if self.model.percent(60) => {
                let number = self.add(
                    "socketpair",
                    actor,
                    vec![vec![1], vec![1], vec![0], vec![0]],
                );
                let bit = self.model.bit(actor);
                self.model
                    .others
                    .extend([(number, bit), (number + SECOND, bit)]);
            }
            "socket" if self.model.percent(70) => {
                let family = self.model.one(&[4, 6]);
                let flags = self.model.one(&[0, libc::SOCK_NONBLOCK]);
                self.socket(actor, family, flags);
            }
            "listen" if self.model.percent(25) => {
                let family = self.model.one(&[4, 6]);
                self.listener(actor, family);
            }
            "connect" if self.model.percent(80) => {
                let socket = match self
                    .model
                    .socket(actor, |socket| socket.stage == Stage::Fresh)
                {
                    Some(socket) => socket,
                    None => self.socket(actor, 4, 0),
                };
                let listeners: Vec<i64> = self
                    .model
                    .sockets
                    .iter()
                    .filter(|other| other.stage == Stage::Listening)
                    .map(|other| other.variable)
                    .collect();
                let target = if listeners.is_empty() {
                    0
                } else {
                    self.model.one(&listeners)
                };
                let family = self.model.sockets[socket].family;
                let word = self.model.one(&[0, 0, 0, 0, 0, 0, 7, 8, 11, 6]);
                self.connect(actor, socket, vec![word, target, family, 0]);
            }
            "accept" | "accept4" if self.model.percent(85) => {
                let fits = |socket: &Socket| {
                    socket.stage == Stage::Listening && (socket.nonblocking || socket.waiting > 0)
                };
                if let Some(listener) = self.model.socket(actor, fits) {
                    let socket = &self.model.sockets[listener];
                    let waits = socket.stage == Stage::Listening
                        && socket.waiting == 0
                        && !socket.nonblocking;
                    if !waits || self.model.percent(15) {
                        self.accept(actor, listener);
                    }
                }
            }
            _ => {
                let mut draw = Draw {
                    model: &mut self.model,
                    form,
                    actor,
                };
                if let Some(arguments) = draw.arguments() {
                    let number = self.add(form.name, actor, arguments);
                    self.follow(form, actor, number);
                }
            }
        }
    }

    /// Updates the model with what a step made or ended.
    fn follow(&mut self, form: &Form, actor: usize, number: i64) {
        let Some(step) = self.steps.last() else {
            return;
        };
        let target = step
            .arguments
            .first()
            .and_then(|argument| argument.first())
            .copied()
            .unwrap_or(0);
        let bit = self.model.bit(actor);
        match form.name {
            "epoll_create" | "epoll_create1" => self.model.sets.push((number, bit)),
            // An event that is reported once must not be reported again.
            "epoll_wait" | "epoll_pwait" if self.model.percent(30) => {
                let again = step.arguments.clone();
                self.send_some_bytes();
                self.add(form.name, actor, again);
            }
            "shutdown" if self.model.percent(30) => {
                let bits = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
                let events = self.model.one(&[bits, libc::POLLOUT, 0]);
                self.add("poll", actor, vec![vec![target, events.into()], vec![0]]);
            }
            "setsockopt" if self.model.percent(50) => {
                let choice = self.steps.last().map(|step| step.arguments[1].clone());
                self.add(
                    "getsockopt",
                    actor,
                    vec![vec![target], choice.unwrap_or_default(), vec![0]],
                );
            }
            "socketpair" | "pipe2" => self
                .model
                .others
                .extend([(number, bit), (number + SECOND, bit)]),
            "dup" | "fcntl" | "dup2" | "dup3" => {
                let is_copy =
                    form.name != "fcntl" || step.arguments[1][0] == i64::from(libc::F_DUPFD);
                if let Some(mut copy) = self
                    .model
                    .place(target)
                    .map(|place| self.model.sockets[place].clone())
                    && is_copy
                {
                    copy.variable = number;
                    self.model.sockets.push(copy);
                }
            }
            "close" => {
                if let Some(place) = self.model.place(target)
                    && !self.model.percent(10)
                {
                    self.model.sockets[place].owners &= !bit;
                }
            }
            "listen" => {
                if let Some(place) = self.model.place(target) {
                    self.model.sockets[place].stage = Stage::Listening;
                    self.add("getsockname", actor, vec![vec![target], vec![0]]);
                }
            }
            // A process that receives a passed socket has it as the second variable.
            "recvmsg" => self.model.others.push((number + SECOND, bit)),
            _ => {}
        }
        self.read_again(actor, target);
    }

    pub(super) fn add_actor_action(&mut self, name: &str, actor: usize, arguments: &[Argument]) {
        self.add(name, actor, arguments.to_vec());
        let process = self.model.actors[actor].process;
        let other = self.model.actors.len();
        match name {
            "fork" => {
                let (old, new) = (1_u32 << process, 1_u32 << other);
                let owners = self
                    .model
                    .sockets
                    .iter_mut()
                    .map(|socket| &mut socket.owners);
                let rest = self
                    .model
                    .sets
                    .iter_mut()
                    .chain(&mut self.model.others)
                    .map(|(_, owners)| owners);
                for owners in owners.chain(rest).filter(|owners| **owners & old != 0) {
                    *owners |= new;
                }
                self.model.actors.push(Actor {
                    process: other,
                    is_thread: false,
                    alive: true,
                });
            }
            "thread" => self.model.actors.push(Actor {
                process,
                is_thread: true,
                alive: true,
            }),
            _ => {}
        }
    }

    /// Adds an action that an actor does itself.
    fn act(&mut self, name: &'static str, actor: usize) {
        let other = self.model.random.below(self.model.actors.len());
        let room = self.model.actors.len() < MOST_ACTORS.min(5);
        let process = self.model.actors[actor].process;
        let shared = self
            .model
            .actors
            .iter()
            .filter(|one| one.process == process && one.alive)
            .count()
            > 1;
        let number = |value: usize| i64::try_from(value).unwrap_or(0);
        match name {
            "fork" | "thread" if room => {
                self.add_actor_action(name, actor, &[vec![number(self.model.actors.len())]])
            }
            "exec" if !shared => {
                self.add(name, actor, Vec::new());
            }
            "exit" if !shared && self.model.actors.len() > 1 && self.model.percent(50) => {
                let code = self.model.one(&[0, 7]);
                self.add(name, actor, vec![vec![code]]);
                self.model.actors[actor].alive = false;
            }
            "end"
                if self.model.actors[other].process != process
                    && !self.model.actors[other].is_thread =>
            {
                self.add(name, actor, vec![vec![number(other)]]);
                let ended = self.model.actors[other].process;
                self.model
                    .actors
                    .iter_mut()
                    .filter(|one| one.process == ended)
                    .for_each(|one| one.alive = false);
            }
            "kill" => {
                let signal = self.model.one(&[libc::SIGUSR1, libc::SIGUSR1, libc::SIGIO]);
                self.add(name, actor, vec![vec![number(other)], vec![signal.into()]]);
            }
            "reap" => {
                self.add(name, actor, vec![vec![number(other)]]);
            }
            "action" => {
                let signal = self
                    .model
                    .one(&[libc::SIGPIPE, libc::SIGPIPE, libc::SIGUSR1]);
                let what = self.model.one(&[1, 1, 2, 3, 0, 4, 5]);
                self.add(name, actor, vec![vec![signal.into()], vec![what]]);
            }
            "numbers" => {
                self.add(name, actor, Vec::new());
            }
            "file" => {
                let size = self.model.one(&[0, 100, 10_000]);
                let made = self.add(name, actor, vec![vec![size]]);
                let bit = self.model.bit(actor);
                self.model.others.push((made, bit));
            }
            _ => {}
        }
    }
}
