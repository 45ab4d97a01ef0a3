//! Differences that are known. Those that are kept name the line of section 8 of SPECIFICATION.md that says so; those that are
//! open are mistakes that were found and not mended yet: each goes from here with its mending.

use std::sync::atomic::{AtomicBool, Ordering};

use super::difference::Difference;
use super::program::{Program, Step};

/// Whether what is open is told like anything new.
pub static OPEN_TOO: AtomicBool = AtomicBool::new(false);

/// Whether acknowledgements may be put off, so that what Nagle's algorithm holds back over kernel TCP comes later.
pub static PUT_OFF: AtomicBool = AtomicBool::new(false);

/// Whether what is judged goes through daemons: between two hosts, or by the relay.
pub static THROUGH_DAEMONS: AtomicBool = AtomicBool::new(false);

/// What a known difference means for the rest of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Only this step says something else.
    Step,
    /// What comes after it may be anything.
    Rest,
}

/// One known difference. What is empty is no condition.
pub struct Rule {
    /// The line of section 8, or what is wrong and is to be mended.
    pub line: &'static str,
    pub then: Then,
    /// The calls that show it.
    calls: &'static [&'static str],
    /// A word of the step.
    here: &'static str,
    /// A word of a step before it, or of itself; several of one step, with `*`, or of several steps, with `&`.
    before: &'static str,
    /// How the answer over kernel TCP begins, and the other one.
    kernel: &'static str,
    other: &'static str,
}

const SENDING: &[&str] = &[
    "send", "sendto", "write", "writev", "sendmsg", "sendmmsg", "pwritev2", "sendfile", "splice",
];
const RECEIVING: &[&str] = &[
    "recv", "recvfrom", "read", "readv", "recvmsg", "recvmmsg", "preadv2", "splice",
];

const SETS: &[&str] = &["epoll_wait", "epoll_pwait", "epoll_pwait2"];
/// What sees how much waits, or how much more there is room for.
const BUFFERED: &[&str] = &[
    "send",
    "sendto",
    "write",
    "writev",
    "sendmsg",
    "sendmmsg",
    "pwritev2",
    "sendfile",
    "splice",
    "recv",
    "recvfrom",
    "read",
    "readv",
    "recvmsg",
    "recvmmsg",
    "preadv2",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "ioctl",
    "fill",
    "drain",
];
const MAKING: &[&str] = &[
    "socket",
    "accept",
    "accept4",
    "dup",
    "fcntl",
    "epoll_create",
    "epoll_create1",
    "file",
];
const LOOKS: &[&str] = &["poll", "ppoll", "select", "pselect"];

const fn rule(
    line: &'static str,
    then: Then,
    calls: &'static [&'static str],
    words: [&'static str; 4],
) -> Rule {
    let [here, before, kernel, other] = words;
    Rule {
        line,
        then,
        calls,
        here,
        before,
        kernel,
        other,
    }
}

use Then::{Rest, Step as Once};

/// Kept, by section 8 (and 2.5: a call that meets a bad address may have moved what lies before it).
#[rustfmt::skip]
pub const KEPT: &[Rule] = &[
    rule("2.5", Rest, RECEIVING, ["", "", "-1 EFAULT", ""]),
    rule("2.5", Rest, SENDING, ["", "", "-1 EFAULT", ""]),
    rule("2.5", Rest, RECEIVING, ["edge", "", "", ""]),
    rule("8.1", Rest, &["connect"], ["", "listen", "waited", "0"]),
    rule("8.9", Rest, &["close", "dup2", "dup3"], ["", "setsockopt*SO_LINGER", "", ""]),
    rule("8.8", Once, &["getsockopt"], ["TCP_INFO", "", "", ""]),
    rule("8.8", Once, &["getsockopt"], ["TCP_MAXSEG", "", "", ""]),
    rule("8.8", Once, &["getsockopt"], ["IP_MTU", "SO_DONTROUTE|IP_TOS|SO_MARK", "-1 ENOTCONN", "0"]),
    rule("8.8", Once, &["getsockopt"], ["TCP_WINDOW_CLAMP", "", "0", "0"]),
    rule("8.9", Once, &["getsockopt"], ["SO_SNDBUF", "", "0", "0"]),
    rule("8.9", Once, &["getsockopt"], ["SO_RCVBUF", "", "0", "0"]),
    rule("8.9", Rest, BUFFERED, ["", "setsockopt*SO_RCVBUF|setsockopt*SO_SNDBUF", "", ""]),
    rule("8.9", Rest, SENDING, ["", "{7,|, 7)|20000|40000|100000|400000", "n", "waited|-1 EAGAIN"]),
    rule("8.9", Once, LOOKS, ["", "{7,|, 7)|20000|40000|100000|400000", "n", ""]),
    rule("8.9", Once, SETS, ["", "{7,|, 7)|20000|40000|100000|400000", "n", ""]),
    rule("8.9", Rest, SENDING, ["", "SHUT_RDWR&100000|SHUT_RDWR&400000", "-1 EPIPE", "n"]),
    rule("8.9", Rest, &["bind"], ["", "SHUT_RDWR&100000|SHUT_RDWR&400000", "-1 EINVAL", "0"]),
    rule("8.9", Rest, RECEIVING, ["", "SHUT_RDWR&100000|SHUT_RDWR&400000", "n|0|-1 EAGAIN", "-1 EPIPE"]),
    // An urgent byte, or an end, that TCP's window keeps back is not there yet.
    rule("8.9", Once, RECEIVING, ["MSG_OOB", "100000|400000", "-1 EAGAIN|-1 EINVAL", "n"]),
    rule("8.9", Rest, SENDING, ["", "100000|400000", "-1 ECONNRESET", "-1 EPIPE"]),
    // TCP gives as much at once as the receiver's buffer holds.
    rule("8.9", Rest, RECEIVING, ["100000|400000|, -1,", "100000|400000", "n|waited interrupted n", "n|waited interrupted n"]),
    // Some of a large send is on its way before TCP learns that the other end reads no more.
    rule("8.10", Rest, &[], ["", "IP_MINTTL", "", ""]),
    rule("8.10", Once, SETS, ["", "EPOLLET", "0", "n"]),
    rule("8.10", Once, LOOKS, ["", "EPOLLET", "0", "n"]),
    // The acknowledgement of its end wakes who watches a socket.
    rule("8.10", Once, SETS, ["", "EPOLLET&shutdown", "n", "0|waited"]),
    rule("8.10", Once, &["getsockopt"], ["TCP_QUICKACK", "", "0", "0"]),
    // What is there at once is read at once, into whatever place.
    rule("8.10", Rest, RECEIVING, ["readonly|bad|null|edge", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "-1 EAGAIN|waited", "-1 EFAULT"]),
    // Of several bytes that are held back, or by both, some come a little later.
    rule("8.10", Rest, LOOKS, ["", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "waited", "waited"]),
    rule("8.10", Rest, RECEIVING, ["", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "waited", "n"]),
    // Whatever the peer sends lets go what is not corked.
    rule("8.10", Rest, SETS, ["", "MSG_MORE|SPLICE_F_MORE", "waited|0", "n"]),
    rule("8.10", Rest, SETS, ["", "MSG_MORE|SPLICE_F_MORE", "n", "n"]),
    rule("8.10", Once, RECEIVING, ["good, 0,", "MSG_MORE|SPLICE_F_MORE", "-1 EAGAIN|waited", "0|waited interrupted"]),
    rule("8.10", Rest, SENDING, ["", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "-1 ECONNRESET", "n|-1 EPIPE"]),
    rule("8.10", Rest, LOOKS, ["", "MSG_MORE|SPLICE_F_MORE", "n|waited n", "n"]),
    rule("8.10", Rest, &["getpeername"], ["", "SHUT_RD&MSG_MORE|SHUT_RD&SPLICE_F_MORE|SHUT_RD&TCP_CORK", "-1 ENOTCONN", ""]),
    rule("8.10", Rest, &["getpeername"], ["", "SHUT_RD&MSG_MORE", "0", "-1 ENOTCONN"]),
    // A port of a connection that is over, or in TIME_WAIT.
    rule("8.11", Once, &["bind"], ["", "exit|close|exec", "-1 EADDRINUSE", "0"]),
    rule("8.13", Once, &["getsockopt", "setsockopt", "bind"], ["", "setrlimit", "", "-1 EMFILE"]),
    rule("8.13", Once, &["connect"], ["unspec", "setrlimit", "0", "-1 EMFILE"]),
    // The end of a process is seen a moment later.
    rule("8.18", Once, SETS, ["", "close_range|exec|exit|end(", "n", "n|0"]),
    rule("8.18", Once, LOOKS, ["", "close_range|exec|exit|end(", "n", "n|0"]),
    rule("8.18", Rest, RECEIVING, ["", "close_range|exec|exit|end(", "0|-1 ECONNRESET", "-1 EAGAIN"]),
    rule("8.18", Rest, SENDING, ["", "close_range|exec|exit|end(", "-1 EPIPE|-1 ECONNRESET", "n|0|-1 ECONNRESET"]),
    rule("8.18", Rest, RECEIVING, ["", "close_range|exec|exit|end(", "0", "-1 ECONNRESET"]),
    rule("8.18", Rest, RECEIVING, ["MSG_OOB", "exec|exit", "n", "-1 ENOTCONN"]),
    rule("8.18", Rest, SENDING, ["", "MSG_MORE&exec", "n", "-1 EPIPE"]),
    rule("8.18", Once, &["ioctl"], ["FIONREAD", "SPLICE_F_MORE&exec|MSG_MORE&exec", "0 int", "0 int"]),
    // TCP begins at some other sequence, which counts as sent.
    rule("8.27", Once, &["ioctl"], ["TIOCOUTQ", "unspec", "0 int", "0 int"]),
    rule("8.27", Rest, &["connect", "listen"], ["", "unspec&fork|unspec&exec", "0|-1 EINPROGRESS|waited", ""]),
    rule("8.9", Once, &["ioctl"], ["TIOCOUTQ|SIOCOUTQNSD", "", "0 int", "0 int=0"]),
    // To the kernel it is the packets that have times, some moments after the first socket of the whole system has asked for them.
    rule("8.8", Once, &["recvmsg"], ["", "setsockopt*SO_TIMESTAMP", "n|0 flags", "n|0 flags"]),
    // What is set of a listener holds for who waits already.
    rule("8.35", Rest, RECEIVING, ["MSG_PEEK", "setsockopt*SO_PEEK_OFF&accept&fork|setsockopt*SO_PEEK_OFF&accept&exec", "n", "n|-1 EAGAIN|waited"]),
    rule("8.32", Once, &["numbers"], ["", "setrlimit|thread", "open", "open"]),
    // The library's own take numbers that lie within a limit which was lowered before.
    rule("8.32", Rest, MAKING, ["", "setrlimit&exec|setrlimit&fork", "n", "n"]),
    rule("8.33", Rest, SETS, ["", "fork&close", "n", "0|waited"]),
    rule("8.9", Once, &["ioctl"], ["TIOCOUTQ|SIOCOUTQNSD", "{7,|, 7)|20000|40000|100000|400000", "0 int", "0 int"]),
];

/// The same, where acknowledgements may be put off.
#[rustfmt::skip]
const LATE: &[Rule] = &[
    // What Nagle's algorithm held back meets a socket that reads no more.
    rule("8.10", Rest, SENDING, ["", "SHUT_RDWR|SHUT_RD", "-1 ECONNRESET", "-1 EPIPE"]),
    // A delayed acknowledgement ends the one wait of who has room for nothing.
    rule("8.10", Once, RECEIVING, ["good, 0,", "shutdown", "0", "waited"]),
    rule("8.10", Rest, SENDING, ["", "SHUT_RD", "0", "-1 EPIPE"]),
    rule("8.10", Rest, &["shutdown"], ["", "SHUT_RD", "-1 ENOTCONN", "0"]),
];

/// The same, through daemons: what is on its way needs some time.
#[rustfmt::skip]
const THROUGH: &[Rule] = &[
    rule("8.9", Once, &["ioctl"], ["TIOCOUTQ|SIOCOUTQNSD", "", "0 int", "0 int"]),
    rule("who waits takes what is there first of a send", Rest, RECEIVING, ["", "", "waited n", "waited n"]),
    rule("a reset is not known before it has come", Rest, &["sendmmsg"], ["", "", "n", "n"]),
];

/// Open: what is wrong. The first finding of each is named in docs/torture-calls.md.
#[rustfmt::skip]
pub const OPEN: &[Rule] = &[
];

/// What no program can count on, or the judge cannot hold steady.
#[rustfmt::skip]
const UNSTEADY: &[Rule] = &[
    rule("the kernel shows an errno of its own", Rest, &[], ["", "", "-1 errno 512", ""]),
    rule("the kernel shows an errno of its own", Rest, LOOKS, ["", "recvmmsg", "n", ""]),
    rule("the kernel shows an errno of its own", Rest, SETS, ["", "recvmmsg", "n", "0|n"]),
    rule("the kernel shows an errno of its own", Rest, RECEIVING, ["", "recvmmsg", "waited interrupted -1 EINTR", "waited n"]),
    // Of a file it sends TCP keeps the pages, not what is in them.
    rule("what is sent of a file is read when it is received", Rest, RECEIVING, ["", "sendfile&file(&write(", "n", "n"]),
    // A set of 1024 bits is looked at beyond its end, as far as the table of descriptors has grown.
    rule("a set is shorter than is said", Rest, &["select", "pselect"], ["{2000", "", "n|-1 EBADF|waited", "n|-1 EBADF|waited"]),
    // A reader that waits may be woken by the first part of a large send: TCP promises no more.
    rule("who waits takes what is there first of a large send", Rest, RECEIVING, ["", "8192|20000|40000|100000|400000", "waited n", "waited n"]),
    rule("who peeks while another one reads is told some bytes twice", Once, RECEIVING, ["MSG_PEEK", "thread|fork", "waited interrupted", "waited interrupted"]),
    rule("which member is told first is no promise", Rest, SETS, ["{1,|{2,", "", "n", "n"]),
];

/// The rule that knows a difference.
pub fn find(program: &Program, difference: &Difference) -> Option<&'static Rule> {
    let step = program.steps.get(difference.place)?;
    let text = step.to_string();
    // What a call that waited came to was decided by what came after it.
    let waited = difference.kernel.starts_with("waited") || difference.other.starts_with("waited");
    let end = if waited {
        program.steps.len()
    } else {
        difference.place + 1
    };
    let said = |word: &str| {
        let mut steps = program.steps[..end].iter();
        steps.any(|step: &Step| {
            let text = step.to_string();
            word.split('*').all(|part| text.contains(part))
        })
    };
    // Not for sets of epoll, whose members may have been told already.
    let looks = matches!(step.form.name, "poll" | "ppoll" | "select" | "pselect");
    let receives = RECEIVING.contains(&step.form.name) || looks;
    let bytes = receives && arrives_earlier(difference);
    let late = PUT_OFF.load(Ordering::Relaxed);
    let is_held = late
        || ["MSG_MORE", "SPLICE_F_MORE", "TCP_CORK"]
            .into_iter()
            .any(said);
    if is_held && (bytes || text.contains("FIONREAD") && more_is_there(difference)) {
        return Some(&NAGLE);
    }
    let open: &[Rule] = if OPEN_TOO.load(Ordering::Relaxed) {
        &[]
    } else {
        OPEN
    };
    let through: &[Rule] = if THROUGH_DAEMONS.load(Ordering::Relaxed) {
        THROUGH
    } else {
        &[]
    };
    let late: &[Rule] = if late { LATE } else { &[] };
    let kept = KEPT.iter().chain(UNSTEADY).chain(open);
    let mut known = kept.chain(through).chain(late);
    known.find(|rule| {
        (rule.calls.is_empty() || rule.calls.contains(&step.form.name))
            && rule.here.split('|').any(|word| text.contains(word))
            && begins(&difference.kernel, rule.kernel)
            && begins(&difference.other, rule.other)
            && rule
                .before
                .split('|')
                .any(|words| words.split('&').all(said))
    })
}

/// What Nagle's algorithm or a delayed acknowledgement holds back over TCP for some milliseconds is there at once.
pub const NAGLE: Rule = rule("8.10", Rest, &[], ["", "", "", ""]);

fn more_is_there(difference: &Difference) -> bool {
    let count = |text: &str| {
        text.split("int=")
            .nth(1)
            .and_then(|word| word.parse::<u64>().ok())
    };
    let (kernel, other) = (count(&difference.kernel), count(&difference.other));
    kernel
        .zip(other)
        .is_some_and(|(kernel, other)| other > kernel)
}

fn arrives_earlier(difference: &Difference) -> bool {
    let count = |text: &str| {
        let text = text.trim_start_matches("waited ");
        let text = text.trim_start_matches("interrupted ");
        match text.split(' ').next()? {
            "-1" if text.starts_with("-1 EAGAIN") || text.starts_with("-1 EINTR") => Some(0),
            word => word.parse::<u64>().ok(),
        }
    };
    let (kernel, other) = (count(&difference.kernel), count(&difference.other));
    kernel
        .zip(other)
        .is_some_and(|(kernel, other)| other > kernel)
}

/// How a text begins: by one of several words, `n` for a number that is not 0.
fn begins(text: &str, wanted: &str) -> bool {
    wanted.is_empty()
        || wanted.split('|').any(|word| match word {
            "n" => text.starts_with(|sign: char| sign.is_ascii_digit() && sign != '0'),
            "waited n" => text.starts_with("waited ") && !text.starts_with("waited i"),
            word => text.starts_with(word),
        })
}
