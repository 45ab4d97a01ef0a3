//! Delay of packets: what comes in at a host's device waits in a queue of the kernel (NFQUEUE) until its time has come.
//!
//! The kernel keeps the packets and reports each one. A thread of this process releases them, up to a number. Rules and
//! queue belong to the host's namespace and end with it, however this process ends.
//!
//! ```text
//!   veth0 --> rule: "queue" --> the kernel's list of packets --> TCP, UDP
//!                                     | "here is 17"   ^ "up to 17"
//!                                     v                |
//!                              a thread of this process: (17, when it is due)
//! ```

use crate::device::DEVICE;
use crate::netlink::{Filter, Message, Received, attribute, nested, text};
use crate::processors::Processors;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Numbers of linux/netfilter/nfnetlink.h and nf_tables.h.
const FILTER: u16 = 10;
const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
const NEW_TABLE: u16 = FILTER << 8;
const DELETE_TABLE: u16 = FILTER << 8 | 2;
const NEW_CHAIN: u16 = FILTER << 8 | 3;
const NEW_RULE: u16 = FILTER << 8 | 6;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
const LOCAL_IN: u32 = 1;
const BYPASS: u16 = 1;
/// Constants of linux/netfilter/nfnetlink_queue.h.
const PACKET: u16 = 3 << 8;
const CONFIGURE: u16 = 3 << 8 | 2;
const VERDICTS: u16 = 3 << 8 | 3;
const BIND: u8 = 1;
const METADATA: u8 = 1;
const FAIL_OPEN: u32 = 1;
const WHOLE_SEGMENTS: u32 = 4;
const ACCEPT: u32 = 1;
/// Of linux/netlink.h: packets without room cause no error.
const NO_ENOBUFS: libc::c_int = 5;

const TABLE: &str = "delay";
const CHAIN: &str = "in";
/// The number of packets that may wait.
const ROOM: u32 = 1 << 20;
/// The size of the buffer for the kernel's reports.
const TOLD: libc::c_int = 64 << 20;

/// Packets are delayed as long as this value lives.
#[derive(Debug)]
pub struct Delay {
    rules: Filter,
    /// Closed to end the thread, which then reads the end of the other one.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Delays the packets that come in at the calling thread's host by this time, on these processors.
pub fn delay(time: Duration, processors: Processors) -> io::Result<Delay> {
    let queue = queue()?;
    let rules = Filter::open()?;
    // As most kernels have it, or as iptables had it.
    install(&rules, queue_expression).or_else(|first| {
        let second = install(&rules, queue_target);
        second.map_err(|_| first)
    })?;
    let (stopped, stop) = std::io::pipe()?;
    let thread = Builder::new().name("delay".to_owned()).spawn(move || {
        // The thread must run when a packet is due. Where it can not get priority, packets are a little later.
        let _ = processors.keep();
        raise_priority();
        let _ = carry(&queue, time, &stopped.into());
    })?;
    Ok(Delay {
        rules,
        stop: Some(stop.into()),
        thread: Some(thread),
    })
}

impl Delay {
    /// Whether packets are still delayed. If not, the thread has failed.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        // The queue ends first, while it is empty: some kernels complain about packets whose rules were removed.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Rules that remain after an error end with the namespace.
        for family in families() {
            let deletion = in_table(DELETE_TABLE, 0, family).text(1, TABLE);
            let _ = batch(&self.rules, [deletion]);
        }
    }
}

/// A queue that reports packets without their bytes, and takes segments whole.
fn queue() -> io::Result<Filter> {
    let queue = Filter::open()?;
    let bind = [BIND, 0, 0, 0];
    let parameters = [0, 0, 0, 0, METADATA];
    let flags = (FAIL_OPEN | WHOLE_SEGMENTS).to_be_bytes();
    let message = Message::asked(CONFIGURE, 0, 0, 0)
        .with(1, &bind)
        .with(2, &parameters)
        .with(3, &ROOM.to_be_bytes())
        .with(4, &flags)
        .with(5, &flags);
    queue.send([message])?;
    queue.answers(1)?;
    // Where one option is refused, more packets may pass too early.
    let _ = queue.set(libc::SOL_NETLINK, NO_ENOBUFS, 1);
    let _ = queue.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, TOLD)
        || queue.set(libc::SOL_SOCKET, libc::SO_RCVBUF, TOLD);
    Ok(queue)
}

/// The families of this kernel.
fn families() -> impl Iterator<Item = i32> {
    let has_v6 = Path::new("/proc/net/if_inet6").exists();
    [libc::AF_INET]
        .into_iter()
        .chain(has_v6.then_some(libc::AF_INET6))
}

fn in_table(kind: u16, flags: u16, family: i32) -> Message {
    Message::asked(kind, flags, u8::try_from(family).unwrap_or(0), 0)
}

/// Executes all messages, or none.
fn batch<const COUNT: usize>(filter: &Filter, messages: [Message; COUNT]) -> io::Result<()> {
    let begin = Message::new(BEGIN, 0, 0, FILTER);
    let end = Message::new(END, 0, 0, FILTER);
    filter.send([begin].into_iter().chain(messages).chain([end]))?;
    filter.answers(COUNT)
}

/// Rules that put incoming packets of the device into the queue.
fn install(filter: &Filter, into_queue: fn(&mut Vec<u8>)) -> io::Result<()> {
    let device = device()?.to_ne_bytes();
    for family in families() {
        let table = in_table(NEW_TABLE, CREATE, family).text(1, TABLE);
        let chain = in_table(NEW_CHAIN, CREATE, family)
            .text(1, TABLE)
            .text(3, CHAIN)
            .nested(4, |hook| {
                attribute(hook, 1, |bytes| bytes.extend(LOCAL_IN.to_be_bytes()));
                attribute(hook, 2, |bytes| bytes.extend(0_u32.to_be_bytes()));
            })
            .text(7, "filter");
        let rule = in_table(NEW_RULE, CREATE | APPEND, family)
            .text(1, TABLE)
            .text(2, CHAIN)
            .nested(4, |rule| {
                // The number of the device into a register, ...
                expression(rule, "meta", |data| {
                    attribute(data, 1, |bytes| bytes.extend(1_u32.to_be_bytes()));
                    attribute(data, 2, |bytes| bytes.extend(4_u32.to_be_bytes()));
                });
                // ... which must be that of ours.
                expression(rule, "cmp", |data| {
                    attribute(data, 1, |bytes| bytes.extend(1_u32.to_be_bytes()));
                    attribute(data, 2, |bytes| bytes.extend(0_u32.to_be_bytes()));
                    nested(data, 3, |value| {
                        attribute(value, 1, |bytes| bytes.extend(device));
                    });
                });
                into_queue(rule);
            });
        batch(filter, [table, chain, rule])?;
    }
    Ok(())
}

fn expression(rule: &mut Vec<u8>, name: &str, data: impl FnOnce(&mut Vec<u8>)) {
    nested(rule, 1, |element| {
        text(element, 1, name);
        nested(element, 2, data);
    });
}

/// Queue 0 by the filter's own expression. Packets pass while no process reads the queue.
fn queue_expression(rule: &mut Vec<u8>) {
    expression(rule, "queue", |data| {
        for (kind, value) in [(1, 0_u16), (2, 1), (3, BYPASS)] {
            attribute(data, kind, |bytes| bytes.extend(value.to_be_bytes()));
        }
    });
}

/// The same by the target of iptables, in its third revision.
fn queue_target(rule: &mut Vec<u8>) {
    expression(rule, "target", |data| {
        text(data, 1, "NFQUEUE");
        attribute(data, 2, |bytes| bytes.extend(3_u32.to_be_bytes()));
        attribute(data, 3, |bytes| {
            for value in [0, 1, BYPASS, 0] {
                bytes.extend(value.to_ne_bytes());
            }
        });
    });
}

fn device() -> io::Result<u32> {
    let name = CString::new(DEVICE)?;
    // SAFETY: the name is terminated.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

fn raise_priority() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is live; the calling thread is meant.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
}

/// Lets each packet go on when its time has come, until the other end of `stopped` is closed.
fn carry(queue: &Filter, time: Duration, stopped: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut waiting: VecDeque<(Instant, [u8; 4])> = VecDeque::new();
    loop {
        let first = waiting.front().map(|(due, _)| *due);
        let (has_news, is_over) = wait(queue, stopped, first)?;
        if is_over {
            let last = waiting.back().map(|(_, number)| *number);
            return last.map_or(Ok(()), |number| accept(queue, number));
        }
        if has_news {
            let due = Instant::now() + time;
            let mut each = |received: &Received<'_>| {
                let head = received.get(1).and_then(|head| head.first_chunk().copied());
                if let (PACKET, Some(number)) = (received.kind, head) {
                    waiting.push_back((due, number));
                }
            };
            // Until none is left, or the next packet would get an older time than its own.
            let mut taken = 0;
            while taken < 64
                && queue
                    .receive(&mut buffer, libc::MSG_DONTWAIT, &mut each)
                    .is_ok()
            {
                taken += 1;
            }
        }
        let now = Instant::now();
        let mut last = None;
        while let Some((_, number)) = waiting.front().filter(|(due, _)| *due <= now) {
            last = Some(*number);
            waiting.pop_front();
        }
        if let Some(number) = last {
            accept(queue, number)?;
        }
    }
}

/// Lets all packets up to this one go on.
fn accept(queue: &Filter, number: [u8; 4]) -> io::Result<()> {
    let mut verdict = [0; 8];
    verdict[..4].copy_from_slice(&ACCEPT.to_be_bytes());
    verdict[4..].copy_from_slice(&number);
    queue.send([Message::new(VERDICTS, 0, 0, 0).with(2, &verdict)])
}

/// Waits for news of the queue, the end, or a moment.
fn wait(queue: &Filter, stopped: &OwnedFd, until: Option<Instant>) -> io::Result<(bool, bool)> {
    let mut both = [queue.as_raw_fd(), stopped.as_raw_fd()].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| libc::timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    let limit = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both descriptors are open, and all that is pointed to lives through the call.
    let found = unsafe { libc::ppoll(both.as_mut_ptr(), 2, limit, std::ptr::null()) };
    if found < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok((false, false));
    }
    Ok((both[0].revents != 0, both[1].revents != 0))
}
