//! The results of a call as text. Numbers that the system chooses are marked.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::with_exposed_provenance as pointer;
use std::sync::atomic::Ordering;

use netchannel_testkit::sys::Errno;

use super::board::Board;
use super::memory::{Buffer, UNTOUCHED, digest};
use super::network::Network;
use super::prepare::{Answer, Prepared, left};
use super::program::{SECOND, Step};
use super::words::Shape;

/// A call that has returned, whose results are to be read.
pub struct ReturnedCall<'a> {
    pub board: Board,
    pub actor: usize,
    pub step: &'a Step,
    pub result: isize,
}

/// The text of a result.
pub fn result_text(result: isize, errno: i32) -> String {
    if result == -1 {
        format!("-1 {:?}", Errno(errno))
    } else {
        result.to_string()
    }
}

impl ReturnedCall<'_> {
    /// All output values, each with a space before it.
    pub fn answers(&self, prepared: &Prepared) -> String {
        let mut text = String::new();
        let size = usize::try_from(self.result).unwrap_or(0);
        if let Some(given) = prepared.given {
            // The size is so much larger than what is ever in transit that it may fit or not.
            if size > 0 && size < given && self.step.form.name != "sendmmsg" {
                text.push_str(" part");
            }
        }
        for answer in &prepared.answers {
            self.answer(answer, size, &mut text);
        }
        text
    }

    fn answer(&self, answer: &Answer, size: usize, text: &mut String) {
        match answer {
            Answer::Bytes(parts) => bytes(parts, size, text),
            Answer::Name(at, length) => self.name(*at, left(*length), text),
            Answer::Option(at, length, shape) => {
                option(*at, left(*length), *shape, self.result, text)
            }
            Answer::Message(at, parts) => self.message(left(*at), parts, size, text),
            Answer::Messages(at, parts) => messages(*at, parts, size, text),
            Answer::Polls(at, count) if self.result >= 0 => {
                let entries = (0..*count).map(|index| left::<libc::pollfd>(at + 8 * index).revents);
                let entries = entries.map(|bits| format!("{bits:x}"));
                let _ = write!(text, " revents={}", entries.collect::<Vec<_>>().join(","));
            }
            Answer::Sets(sets, all) if self.result >= 0 => {
                for (name, set) in ["r", "w", "x"].iter().zip(sets) {
                    let bit = |fd: &&i32| {
                        left::<u8>(set + usize::try_from(**fd / 8).unwrap_or(0)) >> (**fd % 8) & 1
                            == 1
                    };
                    let mut members: Vec<_> = all.iter().filter(bit).collect();
                    members.dedup();
                    if !members.is_empty() {
                        let _ = write!(text, " {name}={members:?}");
                    }
                }
            }
            Answer::Events(at) if self.result > 0 => {
                let events =
                    (0..size.min(64)).map(|index| left::<libc::epoll_event>(at + 12 * index));
                // The order of events is not promised.
                let mut events: Vec<_> = events.map(|event| (event.u64, event.events)).collect();
                events.sort_unstable();
                let words: Vec<_> = events
                    .iter()
                    .map(|(data, bits)| format!("{data}:{bits:x}"))
                    .collect();
                let _ = write!(text, " events={}", words.join(","));
            }
            Answer::Integer(at) if self.result >= 0 => {
                let _ = write!(text, " int={}", self.actor_of_process(left(*at)));
            }
            Answer::Pair(at) if self.result == 0 => {
                let [one, other] = left::<[i32; 2]>(*at);
                let number = self.step.number;
                self.keep(number, one);
                self.keep(number + SECOND, other);
                let _ = write!(text, " pair={one},{other}");
            }
            Answer::Offset(at) => {
                let _ = write!(text, " offset={}", left::<i64>(*at));
            }
            Answer::Limit(at) if self.result == 0 => {
                let [soft, hard] = left::<[u64; 2]>(*at);
                let _ = write!(text, " limit={soft}/{hard}");
            }
            _ => {}
        }
    }

    /// A process id, shown as the actor with this process.
    pub fn actor_of_process(&self, number: i32) -> String {
        let mark = |sign: &str, wanted: i32| {
            let actor = (0..super::program::MOST_ACTORS).find(|actor| {
                self.board
                    .thread_of(*actor)
                    .is_some_and(|(process, _)| process == wanted)
            });
            actor.map(|actor| format!("{sign}process({actor})"))
        };
        let known = if number > 1 {
            mark("", number)
        } else {
            mark("-", number.saturating_neg())
        };
        known.unwrap_or_else(|| number.to_string())
    }

    /// Stores a descriptor in a variable.
    pub fn keep(&self, number: i64, descriptor: i32) {
        if let Ok(variable) = usize::try_from(number) {
            self.board
                .variable(self.actor, variable)
                .store(descriptor, Ordering::Relaxed);
        }
    }

    fn name(&self, at: usize, length: i32, text: &mut String) {
        let _ = write!(text, " name={}/{length}", address(at));
        // The address to which other actors connect. Not stored if the call's buffer had no room for it.
        let is_reported = self.result == 0 && length >= 16 && left::<u16>(at) != 0;
        if self.step.form.name == "getsockname" && is_reported {
            let variable = self
                .step
                .arguments
                .first()
                .and_then(|argument| argument.first());
            let variable = variable
                .and_then(|value| usize::try_from(*value).ok())
                .unwrap_or(0);
            if variable < 1000 {
                let to = self.board.address(variable);
                let length = length.unsigned_abs().min(28);
                // SAFETY: room for both.
                unsafe {
                    to.cast::<u32>().write_unaligned(length);
                    to.add(4)
                        .copy_from_nonoverlapping(pointer(at), length as usize);
                    reachable(to.add(4));
                }
            }
        }
    }

    fn message(&self, message: libc::msghdr, parts: &[Buffer], size: usize, text: &mut String) {
        bytes(parts, size, text);
        if self.result < 0 {
            return;
        }
        let _ = write!(
            text,
            " flags={:x} name={}",
            message.msg_flags, message.msg_namelen
        );
        let (mut at, end) = (
            message.msg_control.addr(),
            message.msg_control.addr() + message.msg_controllen,
        );
        let _ = write!(text, " control={}", message.msg_controllen);
        while at != 0 && at + 16 <= end {
            let length: usize = left(at);
            let [level, kind] = left::<[i32; 2]>(at + 8);
            let _ = write!(text, " [{level}:{kind}:{length}]");
            if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS && length >= 20 {
                let descriptor: i32 = left(at + 16);
                let _ = write!(text, "={descriptor}");
                self.keep(self.step.number + SECOND, descriptor);
            }
            if length < 16 {
                break;
            }
            at += (length + 7) & !7;
        }
    }
}

/// An address "any" is replaced by the listener's host, which other hosts can reach.
///
/// # Safety
/// `at` is room for an address.
unsafe fn reachable(at: *mut u8) {
    let own = Network::get().own;
    // SAFETY: as promised; 28 bytes.
    unsafe {
        let family = i32::from(at.cast::<u16>().read_unaligned());
        if family == libc::AF_INET && at.add(4).cast::<u32>().read_unaligned() == 0 {
            at.add(4).cast::<[u8; 4]>().write_unaligned(own.v4.octets());
        }
        if family == libc::AF_INET6 && at.add(8).cast::<u128>().read_unaligned() == 0 {
            at.add(8)
                .cast::<[u8; 16]>()
                .write_unaligned(own.v6.octets());
        }
    }
}

fn bytes(parts: &[Buffer], size: usize, text: &mut String) {
    let mut rest = size;
    let mut got: Vec<&[u8]> = Vec::new();
    let mut clean = true;
    for part in parts {
        let all = part.bytes();
        let (filled, untouched) = all.split_at(rest.min(all.len()));
        rest -= filled.len();
        got.push(filled);
        clean &= !part.writable || untouched.iter().all(|byte| *byte == UNTOUCHED);
    }
    if size > 0 {
        let _ = write!(text, " bytes={}", digest(&got));
    }
    if !clean {
        text.push_str(" beyond");
    }
}

fn option(at: usize, length: i32, shape: Shape, result: isize, text: &mut String) {
    let _ = write!(text, " length={length}");
    if result < 0 {
        return;
    }
    match (shape, length) {
        (Shape::Int, 4) => {
            let _ = write!(text, " value={}", left::<i32>(at));
        }
        (Shape::Int, 1..4) => {
            let _ = write!(text, " value={:?}", left::<[u8; 4]>(at));
        }
        (Shape::Linger, _) => {
            let _ = write!(text, " value={:?}", left::<[i32; 2]>(at));
        }
        (Shape::Time, _) => {
            let _ = write!(text, " value={:?}", left::<[i64; 2]>(at));
        }
        (Shape::Text, _) => {
            let name = left::<[u8; 16]>(at);
            let _ = write!(
                text,
                " value={}",
                String::from_utf8_lossy(&name).trim_end_matches('\0')
            );
        }
        _ => {}
    }
}

fn messages(at: usize, parts: &[Buffer], count: usize, text: &mut String) {
    for index in 0..count.min(8) {
        let entry: libc::mmsghdr = left(at + index * size_of::<libc::mmsghdr>());
        let _ = write!(text, " {}", entry.msg_len);
        if let Some(part) = parts.get(index) {
            bytes(&[*part], entry.msg_len as usize, text);
        }
    }
}

/// An address as text; the port is marked.
fn address(at: usize) -> String {
    let bytes: [u8; 28] = left(at);
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let port = if port == 0 {
        "0".to_owned()
    } else {
        format!("port({port})")
    };
    match family {
        libc::AF_INET => {
            let host = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            let rest = if bytes[8..16] == [0; 8] { "" } else { "!" };
            format!("{host}:{port}{rest}")
        }
        libc::AF_INET6 => {
            let host: [u8; 16] = bytes[8..24].try_into().unwrap_or_default();
            let (flow, scope) = (&bytes[4..8], &bytes[24..28]);
            let rest = if flow == [0; 4] && scope == [0; 4] {
                ""
            } else {
                "!"
            };
            format!("[{}]:{port}{rest}", Ipv6Addr::from(host))
        }
        other => format!("family{other}"),
    }
}
