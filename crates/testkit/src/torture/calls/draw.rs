//! Draws the arguments of one call: mostly arguments that fit the model, and now and then odd or bad ones.

use super::form::{Form, Kind, LIMIT_VALUES};
use super::memory::ALL_SHAPES;
use super::model::{Model, Socket, Stage};
use super::program::{Argument, literal};
use super::words::{self, OPTIONS, Shape, Words};

/// The arguments of one call of one actor.
pub struct Draw<'a> {
    pub model: &'a mut Model,
    pub form: &'static Form,
    pub actor: usize,
}

const SIZES: [i64; 14] = [
    1, 5, 10, 10, 100, 100, 1000, 1000, 4096, 8192, 20_000, 40_000, 0, 60,
];
/// `F_SETSIG`, which the libc crate does not name.
const SET_SIGNAL: i32 = 10;
const GREAT: [i64; 3] = [100_000, 400_000, -1];
const INTS: [i64; 12] = [
    0,
    1,
    1,
    1,
    2,
    100,
    4096,
    65_536,
    -1,
    2_147_483_647,
    20,
    1000,
];

impl Draw<'_> {
    /// All arguments, or `None` if the call would test nothing.
    pub fn arguments(&mut self) -> Option<Vec<Argument>> {
        let target = self.target();
        let mut arguments: Vec<Argument> = Vec::new();
        for (place, kind) in self.form.arguments.iter().enumerate() {
            let first = place == 0 && *kind == Kind::Fd;
            let argument = if first {
                vec![target]
            } else {
                self.argument(*kind, target, &arguments)
            };
            arguments.push(argument);
        }
        if self.would_wait(target) && !self.make_patient(&mut arguments) {
            return None;
        }
        self.follow(target, &arguments);
        Some(arguments)
    }

    /// The descriptor that the call works on.
    fn target(&mut self) -> i64 {
        let name = self.form.name;
        if self.model.percent(4) {
            return self.model.anything(self.actor);
        }
        let wanted: fn(&Socket) -> bool = match name {
            "recv" | "recvfrom" | "read" | "readv" | "recvmsg" | "recvmmsg" | "preadv2" => {
                |socket| socket.stage == Stage::Connected && socket.waiting > 0
            }
            "bind" | "listen" => |socket| socket.stage == Stage::Fresh,
            "accept" | "accept4" => |socket| socket.stage == Stage::Listening,
            "setsockopt" | "getsockopt" | "getsockname" | "fcntl" | "ioctl" | "dup" | "dup2"
            | "dup3" | "close" => |_| true,
            _ => |socket| socket.stage == Stage::Connected,
        };
        if name.starts_with("epoll_") {
            let bit = self.model.bit(self.actor);
            let sets: Vec<i64> = self
                .model
                .sets
                .iter()
                .filter(|(_, owners)| owners & bit != 0)
                .map(|(set, _)| *set)
                .collect();
            return if sets.is_empty() {
                self.model.anything(self.actor)
            } else {
                self.model.one(&sets)
            };
        }
        match self.model.socket(self.actor, wanted) {
            Some(place) => self.model.sockets[place].variable,
            None => self.model.anything(self.actor),
        }
    }

    fn socket(&mut self) -> i64 {
        let place = self
            .model
            .socket(self.actor, |socket| socket.stage != Stage::Closed);
        let chosen = place.map(|place| self.model.sockets[place].variable);
        chosen.unwrap_or_else(|| self.model.anything(self.actor))
    }

    fn bits(&mut self, words: Words, usual: &[i64]) -> i64 {
        let mut value = if usual.is_empty() {
            0
        } else {
            self.model.one(usual)
        };
        if self.model.percent(15) {
            value |= words[self.model.random.below(words.len())].1;
        }
        if self.model.percent(1) {
            value |= 1 << self.model.random.below(31);
        }
        value
    }

    fn word(&mut self, words: Words) -> i64 {
        words[self.model.random.below(words.len())].1
    }

    fn argument(&mut self, kind: Kind, target: i64, before: &[Argument]) -> Argument {
        let odd = self.model.percent(4);
        match kind {
            Kind::Fd => vec![self.second(target)],
            Kind::One(words) => vec![if odd { 77 } else { self.word(words) }],
            Kind::Flags(words) => vec![self.flags(words)],
            Kind::Number(values) => vec![self.model.one(values)],
            Kind::Size => {
                let great = self.model.percent(2);
                vec![if great {
                    self.model.one(&GREAT)
                } else {
                    self.model.one(&SIZES)
                }]
            }
            Kind::In | Kind::Out => vec![if odd {
                self.model.one(&[1, 2, 3, 4])
            } else {
                0
            }],
            Kind::VectorIn | Kind::VectorOut => {
                let usual = self.model.random.below(ALL_SHAPES - 6);
                let any = self.model.random.below(ALL_SHAPES);
                vec![i64::try_from(if odd { any } else { usual }).unwrap_or(0)]
            }
            Kind::MessageIn | Kind::MessageOut => self.message(odd),
            Kind::MessagesIn | Kind::MessagesOut => {
                let count = self.model.one(&[1, 2, 3, 4, 0]);
                let size = self.model.one(&[1, 10, 100, 1000]);
                vec![
                    if odd && self.model.percent(20) {
                        -1
                    } else {
                        count
                    },
                    size,
                    i64::from(odd),
                ]
            }
            Kind::To => self.to(odd, target),
            Kind::From => vec![if odd {
                self.word(words::ROOMS)
            } else {
                self.model.one(&[0, 0, 1])
            }],
            Kind::Answer => vec![if odd { self.word(words::ROOMS) } else { 0 }],
            Kind::Choice => {
                vec![i64::try_from(self.model.random.below(OPTIONS.len())).unwrap_or(0)]
            }
            Kind::Value => self.value(odd, before),
            Kind::Polls => self.polls(),
            Kind::Sets => self.sets(odd),
            Kind::Timeval | Kind::Timespec => vec![self.time()],
            Kind::Milliseconds => vec![self.model.one(&[0, 0, 0, 0, 0, 0, 10, 10, -1])],
            Kind::Event => {
                let usual = [
                    libc::EPOLLIN,
                    libc::EPOLLIN | libc::EPOLLOUT,
                    libc::EPOLLIN | libc::EPOLLET,
                    libc::EPOLLIN | libc::EPOLLRDHUP,
                ];
                let usual = usual.map(i64::from);
                let events = self.bits(words::EPOLL_EVENTS, &usual);
                let data = before
                    .get(2)
                    .and_then(|argument| argument.first())
                    .copied()
                    .unwrap_or(0);
                vec![
                    events & 0xffff_ffff,
                    data,
                    if odd { self.model.one(&[1, 2]) } else { 0 },
                ]
            }
            Kind::Events => {
                let most = self.model.one(&[16, 16, 16, 16, 1, 2]);
                vec![
                    if odd { self.model.one(&[0, -1]) } else { most },
                    if odd { self.model.one(&[0, 1, 2]) } else { 0 },
                ]
            }
            Kind::Mask | Kind::MaskPair => vec![self.model.one(&[0, 0, 1, 2])],
            Kind::Request => {
                let request = self.word(words::IOCTL);
                let value = self.model.one(&[0, 1, 1]);
                vec![
                    request,
                    value,
                    if odd { self.model.one(&[1, 2]) } else { 0 },
                ]
            }
            Kind::Command => self.command(),
            Kind::Pair => vec![if odd { 2 } else { 0 }],
            Kind::Offset => {
                let word = self.model.one(&[0, 0, 0, 0, 1, 2]);
                vec![word, self.model.one(&[0, 50])]
            }
            Kind::Actor => {
                vec![i64::try_from(self.model.random.below(self.model.actors.len())).unwrap_or(0)]
            }
            Kind::Limit => {
                let value = self.model.random.below(LIMIT_VALUES.len());
                vec![
                    i64::try_from(value).unwrap_or(0),
                    self.model.one(&[0, 0, 1]),
                ]
            }
        }
    }

    /// A further descriptor.
    fn second(&mut self, target: i64) -> i64 {
        let number = self.model.random.between(3, 20);
        let number = literal(i64::try_from(number).unwrap_or(3));
        match self.form.name {
            "dup2" | "dup3" => {
                self.model
                    .one(&[number, number, number, target, literal(-1), literal(2000)])
            }
            "close_range" => self.model.one(&[number, literal(4_294_967_295)]),
            "sendfile" | "splice" => self.model.anything(self.actor),
            _ => self.socket(),
        }
    }

    fn flags(&mut self, words: Words) -> i64 {
        let quiet = i64::from(libc::MSG_DONTWAIT);
        let urgent = i64::from(libc::MSG_OOB);
        if words == words::RECEIVE_FLAGS {
            let usual = [
                quiet,
                quiet,
                quiet,
                0,
                quiet | i64::from(libc::MSG_PEEK),
                i64::from(libc::MSG_WAITALL),
                i64::from(libc::MSG_WAITALL | libc::MSG_PEEK),
                urgent,
                urgent | i64::from(libc::MSG_PEEK),
            ];
            return self.bits(words, &usual);
        }
        if words == words::SEND_FLAGS {
            let usual = [
                0,
                0,
                quiet,
                quiet,
                i64::from(libc::MSG_NOSIGNAL),
                i64::from(libc::MSG_NOSIGNAL),
                urgent,
            ];
            return self.bits(words, &usual);
        }
        if words == words::TYPES {
            let usual = [libc::SOCK_STREAM, libc::SOCK_STREAM, libc::SOCK_DGRAM].map(i64::from);
            return self.bits(words, &usual);
        }
        self.bits(words, &[0])
    }

    fn message(&mut self, odd: bool) -> Argument {
        let shape = self
            .model
            .random
            .below(if odd { ALL_SHAPES } else { ALL_SHAPES - 6 });
        let control = if odd {
            self.model.one(&[2, 3, 4])
        } else {
            self.model.one(&[0, 0, 0, 0, 1])
        };
        let name = if odd {
            self.model.one(&[0, 1, 2, 3])
        } else {
            self.model.one(&[0, 0, 0, 1])
        };
        let passed = self.model.anything(self.actor);
        vec![i64::try_from(shape).unwrap_or(0), control, name, passed]
    }

    fn to(&mut self, odd: bool, target: i64) -> Argument {
        let family = self
            .model
            .place(target)
            .map_or(4, |place| self.model.sockets[place].family);
        let word = match self.form.name {
            "sendto" => self.model.one(&[3, 3, 3, 3, 3, 3, 0, 1, 4]),
            "bind" => self.model.one(&[1, 1, 2, 9, 10, 11, 5]),
            _ => self.word(words::ADDRESSES),
        };
        let known: Vec<i64> = self
            .model
            .sockets
            .iter()
            .map(|socket| socket.variable)
            .collect();
        let of = if known.is_empty() {
            0
        } else {
            self.model.one(&known)
        };
        let length = if odd { self.word(words::LENGTHS) } else { 0 };
        let family = if odd { self.model.one(&[4, 6]) } else { family };
        vec![word, of, family, length]
    }

    fn value(&mut self, odd: bool, before: &[Argument]) -> Argument {
        let index = before
            .get(1)
            .and_then(|argument| argument.first())
            .copied()
            .unwrap_or(0);
        let shape = usize::try_from(index)
            .ok()
            .and_then(|index| OPTIONS.get(index))
            .map_or(Shape::Int, |option| option.shape);
        let int = self.model.one(&INTS);
        let length = if odd {
            self.model.one(&[0, 1, 2, 3, 5, 6, 102])
        } else {
            0
        };
        match shape {
            _ if odd && self.model.percent(30) => vec![self.model.one(&[3, 4]), int, 0, length],
            Shape::Linger => vec![
                1,
                self.model.one(&[0, 1, 1]),
                self.model.one(&[0, 0, 0, 1, -1]),
                length,
            ],
            Shape::Time => vec![
                2,
                0,
                self.model.one(&[0, 10_000, 10_000, 2_000_000, -1]),
                length,
            ],
            Shape::Text => vec![5, 0, 0, length],
            Shape::Int | Shape::Opaque => vec![0, int, 0, length],
        }
    }

    fn polls(&mut self) -> Argument {
        let count = self.model.one(&[0, 1, 1, 1, 2, 2, 3]);
        let mut argument = Vec::new();
        for _ in 0..count {
            let fd = if self.model.percent(90) {
                self.socket()
            } else {
                self.model.anything(self.actor)
            };
            let usual = [
                libc::POLLIN,
                libc::POLLOUT,
                libc::POLLIN | libc::POLLOUT,
                libc::POLLIN | libc::POLLRDHUP,
                0,
            ];
            let usual = usual.map(i64::from);
            let events = self.bits(words::POLL_EVENTS, &usual) & 0x7fff;
            argument.extend([fd, events]);
        }
        argument
    }

    fn sets(&mut self, odd: bool) -> Argument {
        let more = if odd {
            self.model.one(&[1, -1, 5, 2000, -5000])
        } else {
            0
        };
        let mut argument = vec![more];
        for _ in 0..self.model.one(&[1, 1, 2, 3]) {
            let which = self.model.one(&[1, 2, 3, 7, 4]);
            let fd = if self.model.percent(93) {
                self.socket()
            } else {
                self.model.anything(self.actor)
            };
            argument.extend([which, fd]);
        }
        argument
    }

    /// A time. Times that the C library itself reads are valid.
    fn time(&mut self) -> i64 {
        let usual = self.model.one(&[1, 1, 1, 1, 2, 2, 0]);
        if self.model.percent(4) {
            self.model.one(&[3, 5])
        } else {
            usual
        }
    }

    fn command(&mut self) -> Argument {
        let command = self.word(words::FCNTL);
        let bits = [
            libc::O_NONBLOCK,
            libc::O_NONBLOCK,
            0,
            libc::O_APPEND,
            libc::O_NONBLOCK | libc::O_RDWR,
            libc::O_ASYNC,
        ];
        let argument = match i32::try_from(command).unwrap_or(0) {
            libc::F_SETFL => self.model.one(&bits).into(),
            libc::F_SETFD => self.model.one(&[0, 1, 1, 3]),
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => self.model.one(&[0, 10, 50, -1, 5000]),
            SET_SIGNAL => self.model.one(&[0, libc::SIGUSR1.into(), 100]),
            libc::F_GETLK => -1,
            _ => 0,
        };
        vec![command, argument]
    }

    /// Whether the call would wait for an event that no known step causes. Such calls are rare.
    fn would_wait(&mut self, target: i64) -> bool {
        let receives = matches!(
            self.form.name,
            "recv"
                | "recvfrom"
                | "read"
                | "readv"
                | "recvmsg"
                | "recvmmsg"
                | "preadv2"
                | "splice"
                | "sendfile"
        );
        let waits = self.model.place(target).is_some_and(|place| {
            let socket = &self.model.sockets[place];
            !socket.nonblocking && socket.waiting == 0
        });
        receives && waits && !self.model.percent(12)
    }

    /// Adds the flag that keeps a call from waiting, if there is one.
    fn make_patient(&mut self, arguments: &mut [Argument]) -> bool {
        let flags = self
            .form
            .arguments
            .iter()
            .position(|kind| *kind == Kind::Flags(words::RECEIVE_FLAGS));
        let flags = flags.and_then(|place| arguments.get_mut(place));
        flags.is_some_and(|flags| {
            flags[0] |= i64::from(libc::MSG_DONTWAIT);
            true
        })
    }

    fn follow(&mut self, target: i64, arguments: &[Argument]) {
        let Some(place) = self.model.place(target) else {
            return;
        };
        let size = self
            .form
            .arguments
            .iter()
            .position(|kind| *kind == Kind::Size)
            .and_then(|place| arguments.get(place));
        let size = size
            .and_then(|size| usize::try_from(size[0]).ok())
            .unwrap_or(30);
        match self.form.name {
            "send" | "sendto" | "write" | "writev" | "sendmsg" | "sendmmsg" | "pwritev2" => {
                self.model.sent(place, size)
            }
            "recv" | "recvfrom" | "read" | "readv" | "recvmsg" | "recvmmsg" | "preadv2"
                if !self.form.peeks(arguments) =>
            {
                self.model.received(place, size)
            }
            "fcntl" if arguments[1][0] == i64::from(libc::F_SETFL) => {
                self.model.sockets[place].nonblocking =
                    arguments[1][1] & i64::from(libc::O_NONBLOCK) != 0;
            }
            "shutdown" => {
                if let Some(peer) = self.model.sockets[place].peer {
                    self.model.sockets[peer].waiting += 1;
                }
            }
            _ => {}
        }
    }
}
