//! Builds the arguments of a call from a step's arguments, and remembers where its output values will be.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "arguments of calls are words, whatever C takes them for"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::{with_exposed_provenance as pointer, with_exposed_provenance_mut as pointer_mut};
use std::sync::atomic::Ordering;

use super::board::Board;
use super::form::{Kind, LIMIT_VALUES};
use super::memory::{Buffer, Memory, at, first, vector};
use super::network::{Addresses, Network};
use super::program::{Argument, Step, literal_of};
use super::words::{OPTIONS, Shape};

/// The location of an output value of a call.
pub enum Answer {
    /// Bytes in several parts, true where they are received.
    Bytes(Vec<Buffer>),
    /// An address and its length.
    Name(usize, usize),
    /// The value of an option, and its length.
    Option(usize, usize, Shape),
    Message(usize, Vec<Buffer>),
    Messages(usize, Vec<Buffer>),
    Polls(usize, usize),
    Sets([usize; 3], Vec<i32>),
    Events(usize),
    Integer(usize),
    Pair(usize),
    Offset(usize),
    Limit(usize),
}

/// A call that is ready to be made.
#[derive(Default)]
pub struct Prepared {
    pub words: Vec<usize>,
    pub answers: Vec<Answer>,
    /// How many bytes the call passes.
    pub given: Option<usize>,
}

/// Builds the arguments of a call.
pub struct Maker<'a> {
    pub board: Board,
    pub actor: usize,
    pub memory: &'a mut Memory,
}

const CONTROL: usize = 256;
/// The port of an address that nothing has named. Programs beside this one may listen there.
const UNNAMED: u16 = 2;
/// A port at which nobody listens.
const CLOSED: u16 = 1;

impl Maker<'_> {
    /// The descriptor in a variable, or a literal number.
    pub fn descriptor(&self, value: i64) -> i32 {
        // The highest literal stands for -1.
        literal_of(value).map_or_else(
            || {
                let variable = usize::try_from(value).unwrap_or(0);
                self.board
                    .variable(self.actor, variable)
                    .load(Ordering::Relaxed)
            },
            |number| number as i32,
        )
    }

    /// Builds all of a step's arguments.
    pub fn call(&mut self, step: &Step) -> Prepared {
        let mut made = Prepared::default();
        let pairs: Vec<_> = step.form.arguments.iter().zip(&step.arguments).collect();
        for (place, (kind, argument)) in pairs.iter().enumerate() {
            let next = pairs.get(place + 1).map(|(_, argument)| first(argument));
            self.argument(step, **kind, argument, next, &mut made);
        }
        made
    }

    fn argument(
        &mut self,
        step: &Step,
        kind: Kind,
        argument: &Argument,
        next: Option<i64>,
        made: &mut Prepared,
    ) {
        let value = first(argument);
        let push = |made: &mut Prepared, word: usize| made.words.push(word);
        match kind {
            Kind::Fd => push(made, self.descriptor(value) as usize),
            Kind::One(_) | Kind::Flags(_) | Kind::Number(_) | Kind::Milliseconds | Kind::Actor => {
                push(made, value as usize)
            }
            Kind::Size => push(made, usize::try_from(value).unwrap_or(usize::MAX)),
            Kind::In => {
                let buffer = self
                    .memory
                    .buffer(value, next.unwrap_or(0), Some((step.number, 0)));
                made.given = Some(buffer.size);
                push(made, buffer.at);
            }
            Kind::Out => {
                let buffer = self.memory.buffer(value, next.unwrap_or(0), None);
                push(made, buffer.at);
                made.answers.push(Answer::Bytes(vec![buffer]));
            }
            Kind::VectorIn | Kind::VectorOut => {
                let content = (kind == Kind::VectorIn).then_some(step.number);
                let (at, count, parts) = vector(self.memory, value, content);
                made.words.extend([at, count]);
                self.parts(content.is_some(), parts, made);
            }
            Kind::MessageIn | Kind::MessageOut => {
                self.message(step, kind == Kind::MessageIn, argument, made)
            }
            Kind::MessagesIn | Kind::MessagesOut => {
                self.messages(step, kind == Kind::MessagesIn, argument, made)
            }
            Kind::To => {
                let (at, length) = self.address(argument);
                made.words.extend([at, length]);
            }
            Kind::From => self.room(value, Answer::Name, 128, made),
            Kind::Choice => {
                let option = &OPTIONS[usize::try_from(value).unwrap_or(0) % OPTIONS.len()];
                made.words
                    .extend([option.level as usize, option.number as usize]);
            }
            Kind::Value => self.value(argument, made),
            Kind::Answer => self.answer(step, value, made),
            Kind::Polls => self.polls(argument, made),
            Kind::Sets => self.sets(argument, made),
            Kind::Timeval => push_time(self, value, 1_000_000, made),
            Kind::Timespec => push_time(self, value, 1_000_000_000, made),
            Kind::Event => {
                let event = libc::epoll_event {
                    events: value as u32,
                    u64: at(argument, 1).cast_unsigned(),
                };
                let at = match at(argument, 2) {
                    1 => 0,
                    2 => self.memory.bad(),
                    _ => self.memory.put(event),
                };
                push(made, at);
            }
            Kind::Events => {
                let room = self.memory.room(64 * size_of::<libc::epoll_event>());
                let at = match at(argument, 1) {
                    1 => 0,
                    2 => self.memory.bad(),
                    _ => room,
                };
                made.words.extend([at, value as usize]);
                made.answers.push(Answer::Events(room));
            }
            Kind::Mask => {
                let at = self.mask(value);
                push(made, at);
                if step.by_number {
                    push(made, 8);
                }
            }
            Kind::MaskPair => {
                let at = self.mask(value);
                let at = if step.by_number {
                    self.memory.put([at, 8_usize])
                } else {
                    at
                };
                push(made, at);
            }
            Kind::Request => {
                let room = self.memory.put(at(argument, 1) as i32);
                let at = match at(argument, 2) {
                    1 => 0,
                    2 => self.memory.bad(),
                    _ => room,
                };
                made.words.extend([value as usize, at]);
                made.answers.push(Answer::Integer(room));
            }
            Kind::Command => made
                .words
                .extend([value as usize, at(argument, 1) as usize]),
            Kind::Pair => {
                let room = self.memory.put([-1_i32, -1]);
                push(made, if value == 2 { self.memory.bad() } else { room });
                made.answers.push(Answer::Pair(room));
            }
            Kind::Offset => match value {
                0 => push(made, 0),
                2 => push(made, self.memory.bad()),
                _ => {
                    let room = self.memory.put(at(argument, 1));
                    push(made, room);
                    made.answers.push(Answer::Offset(room));
                }
            },
            Kind::Limit => {
                let count = LIMIT_VALUES[usize::try_from(value).unwrap_or(0) % LIMIT_VALUES.len()];
                let hard = if at(argument, 1) == 0 { 4096 } else { count };
                let room = self.memory.put([count, hard]);
                push(made, room);
            }
        }
    }

    fn parts(&mut self, given: bool, parts: Vec<Buffer>, made: &mut Prepared) {
        if given {
            made.given = Some(
                parts
                    .iter()
                    .map(|part| part.size)
                    .fold(0, usize::saturating_add),
            );
        } else {
            made.answers.push(Answer::Bytes(parts));
        }
    }

    fn mask(&mut self, value: i64) -> usize {
        match value {
            0 => 0,
            4 => self.memory.bad(),
            _ => {
                let signals = if value == 2 {
                    1_u64 << (libc::SIGUSR1 - 1)
                } else {
                    0
                };
                let mut words = [0_u64; 16];
                words[0] = signals;
                self.memory.put(words)
            }
        }
    }

    /// A buffer of a size for a name or a value, by its word.
    fn room(
        &mut self,
        word: i64,
        answer: impl Fn(usize, usize) -> Answer,
        size: usize,
        made: &mut Prepared,
    ) {
        let room = self.memory.room(size.max(64));
        let claimed = match word {
            3 => 4,
            4 => -1,
            5 => 0,
            6 => 7,
            7 => i32::MAX,
            _ => i32::try_from(size).unwrap_or(0),
        };
        let length = self.memory.put(claimed);
        match word {
            1 => made.words.extend([0, 0]),
            2 => made.words.extend([self.memory.bad(), length]),
            _ => made.words.extend([room, length]),
        }
        made.answers.push(answer(room, length));
    }

    fn answer(&mut self, step: &Step, word: i64, made: &mut Prepared) {
        if step.form.name == "getrlimit" {
            let room = self.memory.room(16);
            made.words.push(room);
            return made.answers.push(Answer::Limit(room));
        }
        let index = usize::try_from(step.arguments.get(1).map_or(0, first)).unwrap_or(0);
        let shape = OPTIONS[index % OPTIONS.len()].shape;
        let size = match shape {
            Shape::Int => 4,
            Shape::Linger => 8,
            Shape::Time | Shape::Text => 16,
            Shape::Opaque => 256,
        };
        self.room(
            word,
            |at, length| Answer::Option(at, length, shape),
            size,
            made,
        );
    }

    fn value(&mut self, argument: &Argument, made: &mut Prepared) {
        let (a, b) = (at(argument, 1), at(argument, 2));
        let (place, size) = match first(argument) {
            1 => (self.memory.put([a as i32, b as i32]), 8),
            2 => (self.memory.put([a, b]), 16),
            3 => (0, 4),
            4 => (self.memory.bad(), 4),
            5 => (self.memory.put(*b"reno\0\0\0\0\0\0\0\0\0\0\0\0"), 4),
            _ => (self.memory.put(a as i32), 4),
        };
        let length = match at(argument, 3) {
            0 => size,
            odd => odd - 2,
        };
        made.words.extend([place, length as usize]);
    }

    /// An address by its word, and the length that the call gets.
    fn address(&mut self, argument: &Argument) -> (usize, usize) {
        let six = at(argument, 2) == 6;
        let known = self
            .board
            .address(usize::try_from(at(argument, 1)).unwrap_or(0) % 1000);
        // SAFETY: 4 bytes of length, then the address.
        let of = unsafe {
            let length = known.cast::<u32>().read_unaligned() as usize;
            let mut bytes = [0_u8; 124];
            known.add(4).copy_to_nonoverlapping(bytes.as_mut_ptr(), 124);
            (length > 0).then_some((bytes, length.min(124)))
        };
        let port = of.map_or(UNNAMED, |(bytes, _)| {
            u16::from_be_bytes([bytes[2], bytes[3]])
        });
        let network = Network::get();
        let at_host = |host: Addresses, port: u16| {
            if six {
                six_of(host.v6, port)
            } else {
                four(host.v4, port)
            }
        };
        let its_host = of.map_or(network.own, |(bytes, _)| network.host_of(host(&bytes)));
        let (bytes, length) = match first(argument) {
            0 => of.unwrap_or_else(|| at_host(network.own, UNNAMED)),
            1 => at_host(network.own, 0),
            2 if six => six_of(Ipv6Addr::UNSPECIFIED, 0),
            2 => four(Ipv4Addr::UNSPECIFIED, 0),
            5 => ([1; 124], 110),
            6 => ([0; 124], 16),
            8 => six_of(its_host.v4.to_ipv6_mapped(), port),
            9 => four(network.own.second, 0),
            10 => four(Ipv4Addr::new(192, 0, 2, 1), 0),
            11 => at_host(its_host, port),
            _ => at_host(network.other, CLOSED),
        };
        let room = self.memory.room(128);
        // SAFETY: room for 128 bytes.
        unsafe { pointer_mut::<u8>(room).copy_from_nonoverlapping(bytes.as_ptr(), 124) };
        let place = match first(argument) {
            3 => 0,
            4 => self.memory.bad(),
            _ => room,
        };
        let claimed = match at(argument, 3) {
            1 => -1_i64,
            2 => 4,
            3 => 129,
            4 => 0,
            5 => 128,
            _ if place == 0 => 0,
            _ => length as i64,
        };
        (place, claimed as usize)
    }

    fn message(&mut self, step: &Step, given: bool, argument: &Argument, made: &mut Prepared) {
        let (vectors, count, parts) =
            vector(self.memory, first(argument), given.then_some(step.number));
        // SAFETY: a message of zeroes is a valid one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pointer_mut(vectors);
        message.msg_iovlen = count;
        let (name, length) = match (at(argument, 2), given) {
            (0, _) => (0, 0),
            (1, false) => (self.memory.room(128), 128),
            (1, true) => self.address(&vec![1, 0, 4]),
            (2, _) => (self.memory.bad(), 16),
            _ => (self.memory.room(128), usize::MAX),
        };
        message.msg_name = pointer_mut(name);
        message.msg_namelen = length as u32;
        let control = self.memory.room(CONTROL);
        let (place, length) = match (at(argument, 1), given) {
            (0, _) => (0, 0),
            (1, true) => {
                let fd = self.descriptor(at(argument, 3));
                // SAFETY: room for a header of 16 bytes and a number.
                unsafe {
                    pointer_mut::<usize>(control).write(20);
                    pointer_mut::<[i32; 2]>(control + 8)
                        .write([libc::SOL_SOCKET, libc::SCM_RIGHTS]);
                    pointer_mut::<i32>(control + 16).write(fd);
                }
                (control, 24)
            }
            (1, false) => (control, CONTROL),
            (2, _) => (self.memory.bad(), 24),
            (3, false) => (control, 4),
            _ => {
                // SAFETY: room for a header: one that says that it is longer than it is.
                unsafe { pointer_mut::<usize>(control).write(4) };
                (control, 24)
            }
        };
        message.msg_control = pointer_mut(place);
        message.msg_controllen = length;
        message.msg_flags = 0x40;
        let at = self.memory.put(message);
        made.words.push(at);
        if given {
            self.parts(true, parts, made);
        } else {
            made.answers.push(Answer::Message(at, parts));
        }
    }

    fn messages(&mut self, step: &Step, given: bool, argument: &Argument, made: &mut Prepared) {
        let (count, size) = (first(argument), at(argument, 1));
        let room = self.memory.room(64 * 8);
        let mut parts = Vec::new();
        for index in 0..usize::try_from(count).unwrap_or(0).min(8) {
            let place = if at(argument, 2) == 1 && index == 1 {
                2
            } else {
                0
            };
            let offset = index * usize::try_from(size).unwrap_or(0);
            let part = self
                .memory
                .buffer(place, size, given.then_some((step.number, offset)));
            let entry = self.memory.put([part.at, part.size]);
            // SAFETY: room for eight messages; zeroes are valid.
            unsafe {
                let mut message: libc::mmsghdr = std::mem::zeroed();
                message.msg_hdr.msg_iov = pointer_mut(entry);
                message.msg_hdr.msg_iovlen = 1;
                pointer_mut::<libc::mmsghdr>(room).add(index).write(message);
            }
            parts.push(part);
        }
        made.words.extend([room, count as usize]);
        made.answers.push(Answer::Messages(
            room,
            if given { Vec::new() } else { parts },
        ));
    }

    fn polls(&mut self, argument: &Argument, made: &mut Prepared) {
        let entries: Vec<_> = argument
            .chunks(2)
            .map(|pair| libc::pollfd {
                fd: self.descriptor(pair[0]),
                events: pair.get(1).copied().unwrap_or(0) as i16,
                revents: 0x55,
            })
            .collect();
        let at = self.memory.room(8 * entries.len().max(1));
        for (index, entry) in entries.iter().enumerate() {
            // SAFETY: room for all of them.
            unsafe { pointer_mut::<libc::pollfd>(at).add(index).write(*entry) };
        }
        made.words.extend([at, entries.len()]);
        made.answers.push(Answer::Polls(at, entries.len()));
    }

    /// `select` sets from pairs of sets (bits: read, write, exceptions) and a descriptor. The first number is added to
    /// the count.
    fn sets(&mut self, argument: &Argument, made: &mut Prepared) {
        let sets = [0; 3].map(|_: i32| self.memory.room(128));
        let mut most = 0;
        let mut used = 0;
        let mut all = Vec::new();
        for pair in argument.get(1..).unwrap_or_default().chunks(2) {
            let (&[which, _] | &[which]) = pair else {
                continue;
            };
            let fd = pair.get(1).map_or(-1, |value| self.descriptor(*value));
            if !(0..1000).contains(&fd) {
                continue;
            }
            most = most.max(fd + 1);
            all.push(fd);
            used |= which;
            for (index, set) in sets.iter().enumerate() {
                if which >> index & 1 == 1 {
                    let byte = set + usize::try_from(fd / 8).unwrap_or(0);
                    // SAFETY: within the 128 bytes.
                    unsafe { *pointer_mut::<u8>(byte) |= 1 << (fd % 8) };
                }
            }
        }
        made.words
            .push((i64::from(most) + first(argument)) as usize);
        for (index, set) in sets.iter().enumerate() {
            made.words
                .push(if used >> index & 1 == 1 { *set } else { 0 });
        }
        made.answers.push(Answer::Sets(sets, all));
    }
}

fn push_time(maker: &mut Maker<'_>, word: i64, second: i64, made: &mut Prepared) {
    let at = match word {
        0 => 0,
        2 => maker.memory.put([0, second / 100]),
        3 => maker.memory.put([0, second * 2]),
        4 => maker.memory.bad(),
        5 => maker.memory.put([-1_i64, 0]),
        _ => maker.memory.put([0_i64, 0]),
    };
    made.words.push(at);
}

fn four(host: Ipv4Addr, port: u16) -> ([u8; 124], usize) {
    let mut bytes = [0; 124];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&host.octets());
    (bytes, 16)
}

fn six_of(host: Ipv6Addr, port: u16) -> ([u8; 124], usize) {
    let mut bytes = [0; 124];
    bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[8..24].copy_from_slice(&host.octets());
    (bytes, 28)
}

/// The host of an address.
fn host(bytes: &[u8; 124]) -> IpAddr {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    if family == libc::AF_INET6 {
        let host: [u8; 16] = bytes[8..24].try_into().unwrap_or_default();
        Ipv6Addr::from(host).to_canonical()
    } else {
        Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]).into()
    }
}

/// Reads a value that a call wrote to memory.
pub fn left<T: Copy>(at: usize) -> T {
    // SAFETY: callers name room of that type, which every pattern of bits fills.
    unsafe { pointer::<T>(at).read_unaligned() }
}
