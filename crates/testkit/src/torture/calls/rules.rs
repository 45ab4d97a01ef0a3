//! Differences that are known. Those that are kept name the line of section 8 of SPECIFICATION.md that says so; those that are
//! open are mistakes that were found and not mended yet: each goes from here with its mending.

use super::compare::Difference;
use super::program::{Program, Step};

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
    /// A word of a step before it, or of itself.
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
const WAITING: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
];

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
pub const KEPT: &[Rule] = &[
    rule("2.5", Rest, RECEIVING, ["", "", "-1 EFAULT", ""]),
    rule("2.5", Rest, SENDING, ["", "", "-1 EFAULT", ""]),
    rule("8.2", Rest, &[], ["", "MSG_OOB", "", ""]),
    rule("8.2", Rest, &["sockatmark"], ["", "", "", ""]),
    rule("8.2", Rest, &["ioctl"], ["SIOCATMARK", "", "", ""]),
    rule("8.3", Rest, &[], ["", "TCP_DEFER_ACCEPT", "", ""]),
    rule(
        "8.6",
        Rest,
        &["close", "dup2", "dup3"],
        ["", "SO_LINGER", "", ""],
    ),
    rule("8.8", Once, &["getsockopt"], ["TCP_INFO", "", "", ""]),
    rule("8.8", Once, &["getsockopt"], ["TCP_MAXSEG", "", "", ""]),
    rule("8.9", Once, &["getsockopt"], ["SO_SNDBUF", "", "0", "0"]),
    rule("8.9", Once, &["getsockopt"], ["SO_RCVBUF", "", "0", "0"]),
    rule("8.9", Rest, &[], ["", "SO_RCVBUF", "", ""]),
    rule("8.9", Rest, &[], ["", "SO_SNDBUF", "", ""]),
    rule("8.10", Rest, &[], ["", "MSG_MORE", "", ""]),
    rule("8.10", Rest, &[], ["", "TCP_CORK", "", ""]),
    rule("8.10", Rest, &[], ["", "SPLICE_F_MORE", "", ""]),
];

/// Open: the call, what is wrong.
pub const OPEN: &[Rule] = &[
    rule(
        "open: a count of -1 ends the program",
        Rest,
        SENDING,
        ["-1", "", "-1 EFAULT", "dies"],
    ),
    rule(
        "open: a count of -1 is refused for reading",
        Rest,
        RECEIVING,
        ["-1", "", "-1 EFAULT", ""],
    ),
    rule(
        "open: a look without waiting passes over a listener's connections",
        Once,
        WAITING,
        ["", "listen", "n", ""],
    ),
    rule(
        "open: connect(AF_UNSPEC) dissolves a connection",
        Rest,
        &["connect"],
        ["unspec", "", "0", "-1 EISCONN"],
    ),
    rule(
        "open: MSG_FASTOPEN on a connection is refused",
        Rest,
        SENDING,
        ["MSG_FASTOPEN", "", "-1 EISCONN|-1 EFAULT", ""],
    ),
    rule(
        "open: TCP_FASTOPEN on a connection is refused",
        Rest,
        &["setsockopt"],
        ["TCP_FASTOPEN", "", "-1 EINVAL", "0"],
    ),
    rule(
        "open: IPV6_ADDRFORM",
        Rest,
        &["getsockopt", "setsockopt"],
        ["IPV6_ADDRFORM", "", "", ""],
    ),
    rule(
        "open: IP_MTU of a connection",
        Once,
        &["getsockopt"],
        ["IP_MTU,", "", "0", "-1"],
    ),
    rule(
        "open: TCP_WINDOW_CLAMP of a connection",
        Once,
        &["getsockopt"],
        ["TCP_WINDOW_CLAMP", "", "0", "0"],
    ),
    rule(
        "open: IP_MULTICAST_TTL of a connection",
        Once,
        &["getsockopt"],
        ["IP_MULTICAST_TTL", "", "0", "0"],
    ),
    rule(
        "open: IPV6_V6ONLY after bind to an address",
        Rest,
        &["getsockopt", "setsockopt"],
        ["IPV6_V6ONLY", "", "0|-1 EINVAL", "0"],
    ),
    rule(
        "open: SO_PEERNAME",
        Once,
        &["getsockopt"],
        ["SO_PEERNAME", "", "-1 EINVAL", "-1 ENOTCONN"],
    ),
    rule(
        "open: TIOCOUTQ counts what is unread",
        Once,
        &["ioctl"],
        ["TIOCOUTQ", "", "0", "0"],
    ),
    rule(
        "open: MSG_CMSG_CLOEXEC is shown",
        Once,
        &["recvmsg", "recvmmsg"],
        ["MSG_CMSG_CLOEXEC", "", "", ""],
    ),
    rule(
        "open: the errno of bind on a connection",
        Once,
        &["bind"],
        ["", "", "-1 EAFNOSUPPORT|-1 EADDRNOTAVAIL", "-1 EINVAL"],
    ),
    rule(
        "open: bind of a connection that was reset",
        Rest,
        &["bind"],
        ["", "", "0", "-1 EINVAL"],
    ),
    rule(
        "open: length after EFAULT of a name",
        Once,
        &["getpeername", "getsockname"],
        ["", "", "-1 EFAULT", "-1 EFAULT"],
    ),
    rule(
        "open: getpeername of a connection that was reset",
        Once,
        &["getpeername"],
        ["", "", "-1 ENOTCONN", ""],
    ),
    rule(
        "open: shutdown of a connection that was reset",
        Rest,
        &["shutdown"],
        ["", "", "-1 ENOTCONN", "0"],
    ),
    rule(
        "open: connect again after the end of a connection",
        Rest,
        &["connect"],
        ["", "", "-1", "0"],
    ),
    rule(
        "open: errnos of sendfile and splice",
        Rest,
        &["sendfile", "splice"],
        ["", "", "-1|0", "-1|0"],
    ),
    rule(
        "open: nothing sent after the end is no error",
        Rest,
        SENDING,
        ["", "", "0", "-1 EPIPE"],
    ),
    rule(
        "open: errnos after a reset",
        Rest,
        SENDING,
        [
            "",
            "",
            "-1 ECONNRESET|-1 EPIPE",
            "-1 EPIPE|-1 ECONNRESET|-1 EINVAL|0",
        ],
    ),
    rule(
        "open: a reset takes what was not read",
        Rest,
        RECEIVING,
        ["", "", "-1 ECONNRESET", "n|0"],
    ),
    rule(
        "open: a reset is no error to whoever waits",
        Rest,
        WAITING,
        ["", "shutdown", "n", "n"],
    ),
    rule(
        "open: recvmmsg at the end of a stream",
        Rest,
        &["recvmmsg"],
        ["", "", "n", "1 0"],
    ),
    rule(
        "open: a receive of nothing that is interrupted",
        Once,
        RECEIVING,
        [
            "",
            "",
            "waited interrupted 0",
            "waited interrupted -1 EINTR",
        ],
    ),
    rule(
        "open: select with numbers beyond what is open",
        Rest,
        &["select", "pselect"],
        ["2000", "", "n|0", "-1 EBADF"],
    ),
    rule(
        "open: limits of descriptors",
        Rest,
        &[],
        ["", "setrlimit", "", ""],
    ),
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
        steps.any(|step: &Step| step.to_string().contains(word))
    };
    KEPT.iter().chain(OPEN).find(|rule| {
        (rule.calls.is_empty() || rule.calls.contains(&step.form.name))
            && text.contains(rule.here)
            && begins(&difference.kernel, rule.kernel)
            && begins(&difference.other, rule.other)
            && (rule.before.is_empty() || said(rule.before))
    })
}

/// How a text begins: by one of several words, `n` for a number that is not 0.
fn begins(text: &str, wanted: &str) -> bool {
    wanted.is_empty()
        || wanted.split('|').any(|word| match word {
            "n" => text.starts_with(|sign: char| sign.is_ascii_digit() && sign != '0'),
            word => text.starts_with(word),
        })
}
