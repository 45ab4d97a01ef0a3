//! Known differences. Rules of kept differences name the line of section 8 of SPECIFICATION.md. Rules of open
//! differences are known mistakes: each rule is removed when its mistake is fixed.

use std::sync::atomic::{AtomicBool, Ordering};

use super::difference::Difference;
use super::order;
use super::program::{Program, Step};

/// Whether open differences are reported like new ones.
pub static OPEN_TOO: AtomicBool = AtomicBool::new(false);

/// Whether acknowledgements may be delayed, so that bytes that Nagle's algorithm holds back over kernel TCP arrive
/// later.
pub static PUT_OFF: AtomicBool = AtomicBool::new(false);

/// Whether the transport under test goes through daemons: between two hosts, or through the relay.
pub static THROUGH_DAEMONS: AtomicBool = AtomicBool::new(false);

/// How a known difference affects the rest of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only this step differs.
    Step,
    /// All later steps may differ.
    Rest,
}

/// One known difference. An empty condition always holds.
pub struct Rule {
    /// The line of section 8, or the mistake that is to be fixed.
    pub line: &'static str,
    pub scope: Scope,
    /// The calls that show the difference.
    calls: &'static [&'static str],
    /// A word of the step.
    word: &'static str,
    /// A word of an earlier step, or of the step itself. Words of one step are joined with `*`, words of several steps
    /// with `&`.
    before: &'static str,
    /// How the text over kernel TCP begins, and how the other text begins.
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
/// Calls whose results depend on how many bytes are buffered, or on how many more there is room for.
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

/// What announces a silent client, or one whose bytes are held back, before its time.
const ANNOUNCED: &str = "TCP_DEFER_ACCEPT&exec|TCP_DEFER_ACCEPT&fork|TCP_DEFER_ACCEPT&FIOASYNC|\
    TCP_DEFER_ACCEPT&sendmsg*{1,1,0|\
    TCP_DEFER_ACCEPT&MSG_MORE|TCP_DEFER_ACCEPT&SPLICE_F_MORE|TCP_DEFER_ACCEPT&TCP_CORK";
/// What held back bytes meet that are more than a half of the window.
const HELD_IN_SMALL_WINDOW: &str = "setsockopt*TCP_WINDOW_CLAMP&MSG_MORE|\
    setsockopt*TCP_WINDOW_CLAMP&SPLICE_F_MORE|setsockopt*TCP_WINDOW_CLAMP&TCP_CORK";
/// Arguments of a receive of no byte.
const NO_BYTE: &str = "good, 0,|bad, 0,|readonly, 0,|edge, 0,|null, 0,|{5,|, 5)";
/// What may have ended a process without a close.
const ENDED: &str = "exec|exit| end(|, default)";
/// The same, or closed many numbers at once.
const ENDED_OR_CLOSED: &str = "close_range|exec|exit| end(|, default)";

const fn rule(
    line: &'static str,
    scope: Scope,
    calls: &'static [&'static str],
    words: [&'static str; 4],
) -> Rule {
    let [word, before, kernel, other] = words;
    Rule {
        line,
        scope,
        calls,
        word,
        before,
        kernel,
        other,
    }
}

use Scope::{Rest, Step as Once};

/// Differences kept by section 8 (and 2.5: a call with a bad address may have moved the bytes before it).
#[rustfmt::skip]
pub const KEPT: &[Rule] = &[
    rule("2.5", Rest, RECEIVING, ["", "", "-1 EFAULT", ""]),
    rule("2.5", Rest, RECEIVING, ["", "", "waited -1 EFAULT", "waited n"]),
    // Part by part, of which the second is none.
    rule("2.5", Rest, RECEIVING, ["{10,|{11,", "MSG_WAITALL", "waited n", "waited n"]),
    rule("2.5", Rest, SENDING, ["", "", "-1 EFAULT", ""]),
    rule("2.5", Rest, RECEIVING, ["edge", "", "", ""]),
    // It has passed over an urgent byte.
    rule("2.5", Once, RECEIVING, ["MSG_OOB", "MSG_OOB&readonly|MSG_OOB&bad|MSG_OOB&null|MSG_OOB&edge", "1", "-1 EINVAL"]),
    // The bytes before a bad address have been sent to who waits for them.
    rule("2.5", Rest, RECEIVING, ["", "send*readonly|send*edge|write*readonly|write*edge", "waited", "waited n|waited interrupted n"]),
    rule("2.5", Rest, SETS, ["", "send*readonly|send*edge|write*readonly|write*edge", "waited", "waited n"]),
    rule("2.5", Rest, LOOKS, ["", "send*readonly|send*edge|write*readonly|write*edge", "waited", "waited n"]),
    rule("8.1", Rest, &["connect"], ["", "listen", "waited", "0"]),
    rule("8.1", Rest, SENDING, ["", "listen(*, 1)&SOCK_NONBLOCK|listen(*, 0)&SOCK_NONBLOCK", "-1 EAGAIN", "n"]),
    // A silent client whose process forks, executes or has it signalled is announced at once.
    rule("8.3", Rest, LOOKS, ["", ANNOUNCED, "0|waited", "n|waited n"]),
    rule("8.3", Rest, RECEIVING, ["", "TCP_DEFER_ACCEPT&sendmsg*{1,1,0", "n", "-1 EAGAIN|waited"]),
    rule("8.3", Rest, SETS, ["", ANNOUNCED, "0|waited", "n|waited n"]),
    rule("8.3", Rest, &["accept", "accept4"], ["", ANNOUNCED, "-1 EAGAIN|waited", "n|waited n"]),
    // Silent clients beyond the backlog let nobody be accepted.
    rule("8.3", Rest, LOOKS, ["", "TCP_DEFER_ACCEPT&listen(*, 1)|TCP_DEFER_ACCEPT&listen(*, 0)", "n|waited n", "0|waited interrupted"]),
    rule("8.3", Rest, SETS, ["", "TCP_DEFER_ACCEPT&listen(*, 1)|TCP_DEFER_ACCEPT&listen(*, 0)", "n|waited n", "0|waited interrupted"]),
    rule("8.3", Rest, &["accept", "accept4"], ["", "TCP_DEFER_ACCEPT&listen(*, 1)|TCP_DEFER_ACCEPT&listen(*, 0)", "n|waited n", "-1 EAGAIN|waited interrupted"]),
    // An acknowledgement ends the only wait for no bytes: TCP answers a silent client again.
    rule("8.3", Once, RECEIVING, [NO_BYTE, "TCP_DEFER_ACCEPT", "0|waited interrupted 0", "waited interrupted -1 EINTR"]),
    // A client that was announced for its signal is reset with its listener.
    rule("8.3", Rest, RECEIVING, ["", "TCP_DEFER_ACCEPT&F_SETSIG|TCP_DEFER_ACCEPT&F_SETOWN", "-1 EAGAIN|waited", "-1 ECONNRESET"]),
    // The first bytes put another file under the number.
    rule("8.3", Once, SETS, ["", "TCP_DEFER_ACCEPT&epoll_ctl*EPOLLOUT*EPOLLET", "n|0|waited", "n|waited n"]),
    // Of a one-shot member nobody is told whose process has closed it: so another one is.
    rule("8.33", Rest, SETS, ["", "EPOLLONESHOT&fork&close", "0|waited", "n"]),
    rule("8.9", Rest, &["close", "dup2", "dup3"], ["", "setsockopt*SO_LINGER", "", ""]),
    rule("8.8", Once, &["getsockopt"], ["TCP_INFO", "", "", ""]),
    rule("8.8", Once, &["getsockopt"], ["TCP_MAXSEG", "", "", ""]),
    rule("8.8", Once, &["getsockopt"], ["IP_MTU", "SO_DONTROUTE|IP_TOS|IPV6_TCLASS|SO_MARK", "-1 ENOTCONN", "0"]),
    // An IPv6 socket keeps its way over a bind.
    rule("8.8", Once, &["getsockopt"], ["IP_MTU", "bind", "0", "-1 ENOTCONN"]),
    rule("8.8", Once, &["getsockopt"], ["TCP_WINDOW_CLAMP", "", "0", "0"]),
    rule("8.8", Once, &["getsockopt"], ["IP_MULTICAST_TTL", "accept&unspec", "0", "0"]),
    rule("8.9", Once, &["getsockopt"], ["SO_SNDBUF", "", "0", "0"]),
    rule("8.9", Once, &["getsockopt"], ["SO_RCVBUF", "", "0", "0"]),
    rule("8.9", Rest, BUFFERED, ["", "setsockopt*SO_RCVBUF|setsockopt*SO_SNDBUF", "", ""]),
    // Of a small window TCP sends a half at once, though it is to be held back.
    rule("8.9", Rest, RECEIVING, ["", HELD_IN_SMALL_WINDOW, "n", "-1 EAGAIN|waited"]),
    rule("8.9", Once, RECEIVING, [NO_BYTE, HELD_IN_SMALL_WINDOW, "0", "-1 EAGAIN|waited"]),
    rule("8.9", Once, &["ioctl"], ["FIONREAD", HELD_IN_SMALL_WINDOW, "0 int", "0 int=0"]),
    rule("8.9", Rest, SENDING, ["", "{7,|, 7)|20000|40000|100000|400000", "n", "waited|-1 EAGAIN"]),
    rule("8.9", Once, LOOKS, ["", "{7,|, 7)|20000|40000|100000|400000", "n", ""]),
    rule("8.9", Once, SETS, ["", "{7,|, 7)|20000|40000|100000|400000", "n", ""]),
    // Bytes that TCP's window holds back are no edge.
    rule("8.9", Rest, SETS, ["", "EPOLLET&send*100000|EPOLLET&send*400000", "0|waited interrupted -1 EINTR", "n"]),
    rule("8.9", Once, &["ioctl"], ["FIONREAD", "{7,|, 7)|100000|400000", "0 int", "0 int"]),
    // A reset that lies outside of a window, or behind one that is full, is not heard of.
    rule("8.9", Rest, &["getpeername"], ["", "setsockopt*SO_RCVBUF&SHUT_RD|100000&SHUT_RD|400000&SHUT_RD", "0|-1 EFAULT", "-1 ENOTCONN"]),
    // Nor has an end behind it arrived.
    rule("8.9", Rest, &["getpeername"], ["", "setsockopt*SO_RCVBUF&SHUT_WR", "0|-1 EFAULT", "-1 ENOTCONN"]),
    rule("8.9", Rest, &["shutdown"], ["", "setsockopt*SO_RCVBUF|100000&SHUT_WR|400000&SHUT_WR|100000&SHUT_RDWR|400000&SHUT_RDWR", "0", "-1 ENOTCONN"]),
    rule("8.9", Rest, SENDING, ["", "SHUT_RDWR&100000|SHUT_RDWR&400000", "-1 EPIPE", "n|-1 ECONNRESET"]),
    rule("8.9", Rest, &["bind"], ["", "SHUT_RDWR&100000|SHUT_RDWR&400000", "-1 EINVAL", "0"]),
    // What a window holds back, its end with it, meets no closed or shut socket yet.
    rule("8.9", Rest, SENDING, ["", "SHUT_RDWR&100000|SHUT_RDWR&400000|SHUT_RD&SHUT_WR&100000|SHUT_RD&SHUT_WR&400000", "n", "-1 EPIPE"]),
    rule("8.9", Rest, &["bind"], ["", "setsockopt*SO_RCVBUF&SHUT_WR|setsockopt*SO_RCVBUF&SHUT_RDWR", "-1 EINVAL", "0"]),
    rule("8.9", Rest, RECEIVING, ["", "SHUT_RDWR&100000|SHUT_RDWR&400000", "n|0|-1 EAGAIN", "-1 EPIPE"]),
    // An urgent byte, or an end, that TCP's window holds back has not arrived yet.
    rule("8.9", Once, RECEIVING, ["MSG_OOB", "100000|400000", "-1 EAGAIN|-1 EINVAL", "n|0"]),
    rule("8.9", Once, RECEIVING, ["MSG_OOB", "send*MSG_OOB&{7,|send*MSG_OOB&20000|send*MSG_OOB&40000", "n", "n"]),
    rule("8.9", Rest, LOOKS, ["", "send*-1, MSG_OOB", "0|waited interrupted", "n|waited"]),
    rule("8.9", Rest, SENDING, ["", "100000|400000|good, -1,", "-1 ECONNRESET", "-1 EPIPE"]),
    // TCP returns as many bytes at once as the receiver's buffer holds.
    rule("8.9", Rest, RECEIVING, ["100000|400000|, -1,", "100000|400000", "n|waited interrupted n", "n|waited interrupted n"]),
    // TCP tells of an urgent byte when its window lets go of those before it.
    rule("8.9", Rest, RECEIVING, ["", "send*MSG_OOB&send*100000|send*MSG_OOB&send*400000", "n", "n"]),
    // Part of a large send is in transit before TCP learns that the other end no longer reads.
    rule("8.10", Rest, &[], ["", "IP_MINTTL", "", ""]),
    rule("8.10", Rest, &[], ["", "SO_MAX_PACING_RATE", "n", "n"]),
    rule("8.10", Rest, &[], ["", "setsockopt*TCP_LINGER2, {int,-&close", "", ""]),
    // A one-shot member has told of bytes that TCP holds back.
    rule("8.10", Rest, SETS, ["", "EPOLLONESHOT&MSG_MORE|EPOLLONESHOT&SPLICE_F_MORE", "0", "n"]),
    rule("8.10", Once, SETS, ["", "EPOLLET", "0", "n"]),
    rule("8.10", Once, LOOKS, ["", "EPOLLET", "0", "n"]),
    // The acknowledgement of a socket's FIN wakes the process that watches the socket.
    rule("8.10", Once, SETS, ["", "EPOLLET&shutdown", "n", "0|waited"]),
    rule("8.10", Once, &["getsockopt"], ["TCP_QUICKACK", "", "0", "0"]),
    // Bytes that are there at once are read at once, into whatever buffer.
    rule("8.10", Rest, RECEIVING, ["readonly|bad|null|edge", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "-1 EAGAIN|waited|0", "-1 EFAULT"]),
    // Of bytes that are held back at several places, or at both ends, some arrive a little later.
    rule("8.10", Rest, LOOKS, ["", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "waited", "waited"]),
    rule("8.10", Rest, RECEIVING, ["", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "waited", "n|-1 EINVAL beyond"]),
    // Any packet of the peer releases bytes that are not corked.
    rule("8.10", Rest, SETS, ["", "MSG_MORE|SPLICE_F_MORE", "waited|0", "n|waited n"]),
    rule("8.10", Rest, SETS, ["", "MSG_MORE|SPLICE_F_MORE", "n", "n"]),
    rule("8.10", Rest, &["recvmmsg"], ["", "MSG_MORE|SPLICE_F_MORE", "n", "n"]),
    rule("8.10", Once, RECEIVING, ["good, 0,|bad, 0,|readonly, 0,|edge, 0,|null, 0,|{5,", "MSG_MORE|SPLICE_F_MORE", "-1 EAGAIN|waited", "0|waited interrupted"]),
    rule("8.10", Rest, &["shutdown"], ["", "SHUT_RDWR&MSG_MORE|SHUT_RDWR&SPLICE_F_MORE", "-1 ENOTCONN", "0"]),
    rule("8.10", Rest, SENDING, ["", "MSG_MORE|SPLICE_F_MORE|TCP_CORK", "-1 ECONNRESET", "n|-1 EPIPE|dies with d"]),
    // Those that leave with the peer's end, and not with its bytes before, meet a socket that no longer reads.
    rule("8.10", Rest, SENDING, ["", "SHUT_RDWR&MSG_MORE|SHUT_RDWR&SPLICE_F_MORE", "-1 EPIPE", "n|0|-1 EINVAL"]),
    // Those that meet a closed socket end the connection.
    rule("8.10", Rest, &["bind"], ["", "SHUT_RDWR&MSG_MORE|SHUT_RDWR&SPLICE_F_MORE", "0", "-1 EINVAL"]),
    rule("8.10", Rest, LOOKS, ["", "MSG_MORE|SPLICE_F_MORE", "n|waited n|waited interrupted n", "n"]),
    // They have arrived at who closes without reading them.
    rule("8.10", Rest, SENDING, ["", "MSG_MORE&close|SPLICE_F_MORE&close|MSG_MORE&dup|SPLICE_F_MORE&dup", "-1 EPIPE", "-1 ECONNRESET"]),
    rule("8.10", Rest, RECEIVING, ["", "MSG_MORE&close|SPLICE_F_MORE&close|MSG_MORE&dup|SPLICE_F_MORE&dup", "-1 EPIPE|0", "-1 ECONNRESET"]),
    rule("8.10", Rest, &["getpeername"], ["", "SHUT_RD&MSG_MORE|SHUT_RD&SPLICE_F_MORE|SHUT_RD&TCP_CORK", "-1 ENOTCONN", ""]),
    rule("8.10", Rest, &["getpeername"], ["", "SHUT_RD&MSG_MORE", "0", "-1 ENOTCONN"]),
    // They are there before a reset with which TCP would lose them.
    rule("8.10", Rest, RECEIVING, ["", "MSG_MORE|SPLICE_F_MORE", "-1 ECONNRESET", "n|0"]),
    // A port of a connection that is closed, or in TIME_WAIT.
    rule("8.11", Rest, &["bind"], ["", "exit|close|dup2|dup3|exec|SHUT_WR&SHUT_RDWR", "-1 EADDRINUSE", "0"]),
    // A port of a listener that is gone, whose connections another process has.
    rule("8.11", Rest, &["bind"], ["", "accept&unspec&fork|accept&shutdown&fork", "-1 EADDRINUSE", "0"]),
    // A name that it would have given is missing afterwards.
    rule("8.13", Rest, &["bind"], ["", "setrlimit", "0", "-1 EMFILE"]),
    rule("8.13", Once, &["getsockopt", "setsockopt", "bind"], ["", "setrlimit", "", "-1 EMFILE"]),
    // Options are taken unasked.
    rule("8.13", Rest, &["setsockopt"], ["", "setrlimit*NOFILE", "-1 E|-1 errno", "0"]),
    // The connection stays.
    rule("8.13", Rest, &["connect"], ["unspec", "setrlimit", "0", "-1 EMFILE"]),
    // The end of a process is noticed a moment later.
    rule("8.18", Once, &["setsockopt"], ["IPV6_V6ONLY", "end(", "0", "-1 EINVAL"]),
    rule("8.18", Once, SETS, ["", ENDED_OR_CLOSED, "n", "n|0"]),
    rule("8.18", Once, LOOKS, ["", ENDED_OR_CLOSED, "n", "n|0"]),
    rule("8.18", Rest, RECEIVING, ["", ENDED_OR_CLOSED, "0|-1 ECONNRESET", "-1 EAGAIN"]),
    rule("8.18", Rest, SENDING, ["", ENDED_OR_CLOSED, "-1 EPIPE|-1 ECONNRESET", "n|0|-1 ECONNRESET|-1 EFAULT"]),
    rule("8.18", Rest, &["shutdown", "getpeername"], ["", ENDED, "-1 ENOTCONN", "0|-1 EFAULT"]),
    rule("8.18", Rest, &["bind"], ["", ENDED, "0", "-1 EINVAL"]),
    rule("8.18", Rest, &["connect"], ["", ENDED, "-1 EPIPE", "-1 ECONNRESET"]),
    // A broken pipe with its signal.
    rule("8.18", Rest, SENDING, ["", ENDED, "dies with d|dies with 0", "n|0|-1 ECONNRESET|-1 EFAULT"]),
    rule("8.18", Rest, &["sendmmsg"], ["", ENDED_OR_CLOSED, "n", "n"]),
    rule("8.18", Once, &["getsockopt"], ["SO_ERROR", ENDED, "0", "0"]),
    rule("8.18", Once, &["setsockopt"], ["IPV6_ADDRFORM", ENDED, "-1 ENOTCONN", "-1 EADDRNOTAVAIL"]),
    rule("8.18", Rest, RECEIVING, ["", ENDED_OR_CLOSED, "0", "-1 ECONNRESET"]),
    rule("8.18", Rest, RECEIVING, ["MSG_OOB", "exec|exit", "n", "-1 ENOTCONN"]),
    rule("8.18", Rest, RECEIVING, ["MSG_OOB", "exec|exit", "-1 ENOTCONN", "n"]),
    rule("8.18", Rest, &["recvmmsg"], ["", ENDED_OR_CLOSED, "n|-1 EPIPE|-1 ECONNRESET", "-1 EAGAIN|n"]),
    rule("8.18", Rest, RECEIVING, ["", ENDED, "-1 EPIPE", "-1 ECONNRESET"]),
    // Who sleeps for no byte is told of a reset by the next call.
    rule("8.18", Rest, RECEIVING, ["{5,", ENDED, "-1 ECONNRESET", "0"]),
    // Who has shut its side finds the end of the bytes until the reset is known.
    rule("8.18", Rest, RECEIVING, ["", "shutdown*SHUT_RD&exec|shutdown*SHUT_RD&exit(|shutdown*SHUT_RD& end(", "-1 ECONNRESET", "0"]),
    // No message is looked for.
    rule("8.18", Rest, &["recvmmsg"], ["{0,", ENDED, "-1 ECONNRESET", "0"]),
    // What was held back before the end is noticed meets it.
    rule("8.18", Rest, SENDING, ["", "MSG_MORE&exec|MSG_MORE&exit(|SPLICE_F_MORE&exec|SPLICE_F_MORE&exit(", "n", "-1 EPIPE"]),
    rule("8.18", Once, &["ioctl"], ["FIONREAD", "SPLICE_F_MORE&exec|MSG_MORE&exec", "0 int", "0 int"]),
    // TCP begins at another sequence number, which counts as sent.
    rule("8.27", Once, &["ioctl"], ["TIOCOUTQ", "unspec", "0 int", "0 int"]),
    rule("8.27", Rest, SETS, ["", "SOCK_NONBLOCK&connect&TCP_NOTSENT_LOWAT", "n", "n"]),
    // The connect that failed is another process's.
    rule("8.27", Rest, &["connect", "listen"], ["", "connect&fork|connect&exec", "0|-1 EINPROGRESS", "-1 EINVAL|-1 ECONNABORTED"]),
    rule("8.27", Rest, &["bind", "connect", "listen"], ["", "unspec&fork|unspec&exec", "0|-1 EINPROGRESS|-1 ECONNREFUSED|-1 errno 101|waited", ""]),
    // The former port may be in use over TCP.
    rule("8.27", Rest, &["bind"], ["", "unspec&fork|unspec&exec", "-1 EADDRINUSE", "-1 EINVAL"]),
    rule("8.27", Once, &["getsockname"], ["", "unspec&exec", "0", "0"]),
    rule("8.27", Once, &["getsockname"], ["", "connect&exec", "0 name=0.0.0.0:p|0 name=[::]:p", "0 name=0.0.0.0:0/|0 name=[::]:0/"]),
    // A read into a bad buffer has gone beyond the urgent byte.
    rule("8.10", Rest, RECEIVING, ["MSG_OOB", "send*MSG_OOB&readonly|send*MSG_OOB&bad", "n|-1 ENOTCONN|0|-1 EAGAIN", "-1 EINVAL"]),
    // It is no longer there.
    rule("8.10", Rest, LOOKS, ["", "MSG_OOB&read*bad|MSG_OOB&recv*bad|MSG_OOB&readv*, 15)|MSG_OOB&recvmsg*{15", "n", "n|0|waited"]),
    rule("8.10", Rest, SETS, ["", "MSG_OOB&read*bad|MSG_OOB&recv*bad|MSG_OOB&readv*, 15)|MSG_OOB&recvmsg*{15", "n", "n|0|waited"]),
    rule("8.9", Once, &["ioctl"], ["TIOCOUTQ|SIOCOUTQNSD", "", "0 int", "0 int=0"]),
    // An option of a listener that only the kernel can heed.
    rule("8.13", Rest, LOOKS, ["", "SO_ZEROCOPY&MSG_ZEROCOPY", "n", "waited|n|0"]),
    rule("8.13", Rest, SETS, ["", "SO_ZEROCOPY&MSG_ZEROCOPY", "n", "waited|n|0"]),
    // In the kernel the packets carry the timestamps, some moments after the first socket of the whole system has asked
    // for them.
    rule("8.8", Once, &["recvmsg"], ["", "setsockopt*SO_TIMESTAMP", "n|0 flags|waited n", "n|0 flags|waited n"]),
    // Options of a listener also hold for connections that already wait.
    rule("8.35", Rest, RECEIVING, ["MSG_PEEK", "setsockopt*SO_PEEK_OFF&accept&fork|setsockopt*SO_PEEK_OFF&accept&exec", "n", "n|-1 EAGAIN|waited"]),
    rule("8.32", Once, &["numbers"], ["", "setrlimit|thread", "open", "open"]),
    // The library's own descriptors occupy numbers within a limit that was lowered before.
    rule("8.32", Rest, MAKING, ["", "setrlimit&exec|setrlimit&fork", "n", "n"]),
    rule("8.32", Rest, &["recvmsg"], ["", "setrlimit*NOFILE&sendmsg*{1,1,0", "n", "n"]),
    // What is received is not taken up, and no queue of relatives can be made.
    rule("8.32", Rest, &["getsockname"], ["", "setrlimit*NOFILE&sendmsg*{1,1,0", "0 name", "0 name=family1"]),
    rule("8.32", Rest, LOOKS, ["", "setrlimit*NOFILE&fork&close(", "0", "n"]),
    rule("8.32", Rest, RECEIVING, ["", "setrlimit*NOFILE&sendmsg*{1,1,0", "-1 ECONNRESET|waited -1 ECONNRESET", "0|waited 0"]),
    rule("8.32", Rest, &["pipe2"], ["", "setrlimit&exec|setrlimit&fork", "0 pair", "0 pair"]),
    rule("8.32", Rest, &["exec"], ["", "setrlimit", "another", "dies"]),
    // No number is left for what the library needs.
    rule("8.32", Rest, SENDING, ["", "setrlimit*NOFILE&exec", "n", "-1 EPIPE"]),
    rule("8.32", Rest, MAKING, ["", "setrlimit*NOFILE&sendmsg*{1,1,0", "n", "-1 EMFILE"]),
    // The plain bytes of a connection that the image has not taken up are those of a local socket.
    rule("8.32", Rest, SENDING, ["MSG_OOB", "setrlimit*NOFILE&exec", "0", "-1 EOPNOTSUPP"]),
    // A number that is not open is the library's.
    rule("8.32", Rest, &[], ["", "setrlimit*NOFILE&exec", "-1 EBADF", "-1 ENOTSOCK|-1 EPIPE"]),
    rule("8.32", Rest, RECEIVING, ["", "setrlimit*NOFILE&exec", "n|waited n", "-1 ECONNRESET|-1 EAGAIN|waited interrupted -1"]),
    rule("8.32", Rest, &["epoll_ctl"], ["", "setrlimit*NOFILE&fork", "0", "-1 EMFILE"]),
    rule("8.32", Rest, &["shutdown", "getpeername"], ["", "setrlimit*NOFILE&sendmsg*{1,1,0&close", "0|-1 EFAULT", "-1 ENOTCONN"]),
    rule("8.32", Rest, SENDING, ["", "setrlimit*NOFILE&sendmsg*{1,1,0", "-1 EPIPE", "-1 EISCONN|n"]),
    rule("8.32", Rest, SENDING, ["", "setrlimit*NOFILE&unspec", "-1 ECONNRESET", "-1 EPIPE"]),
    rule("8.33", Rest, SETS, ["", "fork&close", "n", "0|waited"]),
    // A member that only a relative has is told by a later look.
    rule("8.33", Rest, SETS, ["", "fork&close", "2 ", "1 "]),
    rule("8.33", Rest, SETS, ["", "EPOLLET&listen&fork|EPOLLET&listen&exec(", "0|waited", "n"]),
    // The set was closed meanwhile by another thread.
    rule("8.33", Rest, SETS, ["", "thread&close(|thread&dup2|thread&dup3", "waited n", "waited interrupted -1 EINTR"]),
    // A member was closed meanwhile by another thread, while a call waits for it.
    rule("8.33", Rest, SETS, ["", "thread&poll&close|thread&select&close", "n", "0|waited"]),
    // An edge-triggered set keeps the connections of which it has told.
    rule("8.33", Rest, &["accept", "accept4"], ["", "epoll_ctl*EPOLLET&sendmsg*{1,1,0", "n|waited n", "-1 EAGAIN|waited interrupted -1|waited n"]),
    rule("8.33", Rest, LOOKS, ["", "listen&epoll_ctl*EPOLLET&sendmsg*{1,1,0&recvmsg", "n", "n|0|waited"]),
    // Nobody received the listener: that is seen a moment later.
    rule("8.17", Rest, RECEIVING, ["", "listen&sendmsg*{1,1,0&close(", "-1 ECONNRESET", "-1 EAGAIN"]),
    // Nobody has accepted it: the kernel makes it anew, and has it as another member.
    rule("8.17", Once, SETS, ["", "EPOLLONESHOT&end(", "0|waited", "1 "]),
    // A listener that is a member under two numbers.
    rule("8.33", Rest, SETS, ["", "listen&EPOLLET&sendmsg*{1,1,0&recvmsg", "2 ", "1 "]),
    // A set that was sent in a message.
    rule("8.33", Rest, LOOKS, ["{w|,w", "epoll_create&sendmsg*{1,1,0", "n", "0|waited"]),
    rule("8.33", Rest, SETS, ["(w", "epoll_create&sendmsg*{1,1,0", "n", "0|waited"]),
    // A member that was passed on and closed comes back under its number.
    rule("8.33", Rest, &["epoll_ctl"], ["", "sendmsg*{1,1,0&close", "0", "-1 ENOENT"]),
    // It is none while it is in the message.
    rule("8.33", Rest, LOOKS, ["", "epoll_ctl&sendmsg*{1,1,0&close", "n", "0|waited"]),
    rule("8.33", Rest, &["epoll_ctl"], ["", "sendmsg*{1,1,0&close", "-1 EEXIST", "0"]),
    // A thread has a table of descriptors of its own (CLOSE_RANGE_UNSHARE).
    rule("8.36", Rest, &[], ["", "thread&close_range*2)", "", ""]),
    // The file of a listener is marked, which a process that knows of no listener does not expect.
    rule("8.23", Rest, &["sendfile"], ["", "sendmsg*{1,1,0&listen", "-1 EPIPE", "-1 EINVAL"]),
    rule("8.23", Rest, &["accept", "accept4"], ["", "sendmsg*{1,1,0&shutdown&listen", "waited", "-1 EAGAIN"]),
    // Of two clients that wait the one whose link is new is accepted last.
    rule("8.23", Rest, RECEIVING, ["", "listen&exec&accept", "waited interrupted -1", "waited n"]),
    rule("8.9", Once, &["ioctl"], ["TIOCOUTQ|SIOCOUTQNSD", "{7,|, 7)|, 7,|20000|40000|100000|400000", "0 int", "0 int"]),
];

/// More kept differences, where acknowledgements may be delayed.
#[rustfmt::skip]
const LATE: &[Rule] = &[
    // Bytes that Nagle's algorithm held back arrive at a socket that no longer reads.
    rule("8.10", Rest, SENDING, ["", "SHUT_RDWR|SHUT_RD", "-1 ECONNRESET", "-1 EPIPE"]),
    // A delayed acknowledgement ends the only wait of a receive with a buffer of length zero.
    rule("8.10", Once, RECEIVING, ["good, 0,", "shutdown", "0", "waited"]),
    rule("8.10", Rest, SENDING, ["", "SHUT_RD", "0", "-1 EPIPE"]),
    rule("8.10", Rest, &["shutdown"], ["", "SHUT_RD", "-1 ENOTCONN", "0"]),
];

/// More kept differences through daemons, where transit takes some time.
#[rustfmt::skip]
const THROUGH: &[Rule] = &[
    rule("8.9", Once, &["ioctl"], ["TIOCOUTQ|SIOCOUTQNSD", "", "0 int", "0 int"]),
    rule("who waits takes what is there first of a send", Rest, RECEIVING, ["", "", "waited n", "waited n"]),
    // TCP tells of an urgent byte before those that its window holds back in front of it.
    rule("8.9", Once, RECEIVING, ["MSG_OOB", "100000|400000", "-1 EAGAIN", "-1 EINVAL"]),
    rule("a reset is not known before it has come", Rest, &["sendmmsg"], ["", "", "n", "n"]),
];

/// Open differences: known mistakes. docs/torture-calls.md names the first finding of each.
#[rustfmt::skip]
pub const OPEN: &[Rule] = &[
];

/// Effects that no program can rely on, or that the judge cannot make deterministic.
#[rustfmt::skip]
const UNSTEADY: &[Rule] = &[
    rule("the kernel shows an errno of its own", Rest, &[], ["", "", "-1 errno 512", ""]),
    rule("the kernel shows an errno of its own", Rest, LOOKS, ["", "recvmmsg", "n", ""]),
    rule("the kernel shows an errno of its own", Rest, LOOKS, ["", "recvmmsg", "waited interrupted -1 EINTR", "waited n"]),
    rule("the kernel shows an errno of its own", Rest, LOOKS, ["", "recvmmsg", "waited interrupted n", "waited interrupted -1 EINTR"]),
    rule("the kernel shows an errno of its own", Rest, SETS, ["", "recvmmsg", "n", "0|n|waited"]),
    rule("the kernel shows an errno of its own", Rest, SETS, ["", "recvmmsg", "waited interrupted -1 EINTR", "waited n"]),
    rule("the kernel shows an errno of its own", Rest, RECEIVING, ["", "recvmmsg", "waited interrupted -1 EINTR", "waited n|waited interrupted n"]),
    rule("the kernel shows an errno of its own", Rest, RECEIVING, ["MSG_WAITALL", "recvmmsg", "n", "waited interrupted n"]),
    // The first send of the peer failed with it.
    rule("the kernel shows an errno of its own", Rest, RECEIVING, ["", "recvmmsg&thread|recvmmsg&fork", "waited n", "waited n"]),
    // Of a file that it sends, TCP keeps the pages and not their content.
    rule("what is sent of a file is read when it is received", Rest, RECEIVING, ["", "sendfile& file(&write(|sendfile& file(&write#(|sendfile& file(&pwritev2(|sendfile& file(&writev(", "n", "n"]),
    // The kernel reads a set of 1024 bits beyond its end, as far as the table of descriptors has grown.
    rule("a set is shorter than is said", Rest, &["select", "pselect"], ["{2000", "", "0|n|-1 EBADF|waited", "0|n|-1 EBADF|waited"]),
    // The first part of a large send may wake a waiting reader: TCP promises no more.
    rule("who waits takes what is there first of a large send", Rest, RECEIVING, ["", "8192|20000|40000|100000|400000", "waited n", "waited n"]),
    rule("any wake-up ends a receive of no bytes", Once, RECEIVING, ["good, 0,", "TCP_NOTSENT_LOWAT&thread|TCP_NOTSENT_LOWAT&fork|SO_SNDBUF&thread|SO_SNDBUF&fork", "waited 0", "waited interrupted 0"]),
    rule("who peeks while another one reads is told some bytes twice", Once, RECEIVING, ["MSG_PEEK", "thread|fork", "waited", "waited interrupted|waited n"]),
    rule("which of several that receive gets which bytes is no promise", Rest, RECEIVING, ["MSG_WAITALL", "thread|fork", "waited n", "waited n|waited interrupted n"]),
    rule("which of several threads accepts is no promise", Rest, &["accept", "accept4"], ["", "thread", "waited n|waited interrupted -1 EINTR", "waited n|waited interrupted -1 EINTR"]),
    rule("what a number names that is closed meanwhile is no promise", Once, LOOKS, ["", "thread&close", "waited interrupted n", "waited interrupted|waited n"]),
    rule("which member is told first is no promise", Rest, SETS, ["{1,|{2,", "", "n|waited n", "n|waited n"]),
];

/// The rule that matches a difference.
pub fn find(program: &Program, difference: &Difference) -> Option<&'static Rule> {
    let step = program.steps.get(difference.place)?;
    let text = step.to_string();
    // The result of a call that waited was decided by later steps.
    let waited = difference.kernel.starts_with("waited") || difference.other.starts_with("waited");
    let end = if waited {
        program.steps.len()
    } else {
        difference.place + 1
    };
    let occurs = |word: &str| {
        let mut steps = program.steps[..end].iter();
        steps.any(|step: &Step| {
            let text = step.to_string();
            word.split('*').all(|part| text.contains(part))
        })
    };
    // Not for epoll sets, whose members may have been reported already.
    let looks = matches!(step.form.name, "poll" | "ppoll" | "select" | "pselect");
    let receives = RECEIVING.contains(&step.form.name) || looks;
    let bytes = receives && arrives_earlier(difference);
    let late = PUT_OFF.load(Ordering::Relaxed);
    let is_held = late
        || ["MSG_MORE", "SPLICE_F_MORE", "TCP_CORK"]
            .into_iter()
            .any(occurs);
    if is_held && (bytes || text.contains("FIONREAD") && more_is_there(difference)) {
        return Some(&NAGLE);
    }
    let place = if waited { end - 1 } else { difference.place };
    if order::is_mixed(program, place)
        || step.form.name.starts_with("accept") && only_the_name_differs(difference)
    {
        return Some(&ORDER);
    }
    let kills = program.steps.iter().filter(|step| step.form.name == "kill");
    if kills.count() > 1 && only_counts_of_signals_differ(difference) {
        return Some(&SIGNALS);
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
    // What is unsteady first: of those rules more concern all that comes after.
    let kept = UNSTEADY.iter().chain(KEPT).chain(open);
    let mut known = kept.chain(through).chain(late);
    known.find(|rule| {
        (rule.calls.is_empty() || rule.calls.contains(&step.form.name))
            && rule.word.split('|').any(|word| text.contains(word))
            && begins(&difference.kernel, rule.kernel)
            && begins(&difference.other, rule.other)
            && rule
                .before
                .split('|')
                .any(|words| words.split('&').all(occurs))
    })
}

/// Bytes that Nagle's algorithm or a delayed acknowledgement holds back over TCP for some milliseconds arrive at once.
pub const NAGLE: Rule = rule("8.10", Rest, &[], ["", "", "", ""]);

/// Of clients that wait, one may be accepted before another that came earlier.
pub const ORDER: Rule = rule("8.23", Rest, &[], ["", "", "", ""]);

/// A signal that is sent again before it was handled is handled once.
pub const SIGNALS: Rule = rule(
    "how often a signal that is sent twice is handled is no promise",
    Once,
    &[],
    ["", "", "", ""],
);

fn only_counts_of_signals_differ(difference: &Difference) -> bool {
    let without_counts = |text: &str| {
        let words = text.split(' ').map(|word| match word.split_once('*') {
            Some((name, _)) if name.starts_with("SIG") => name.to_owned(),
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>()
    };
    without_counts(&difference.kernel) == without_counts(&difference.other)
}

fn only_the_name_differs(difference: &Difference) -> bool {
    let parts = |text: &str| {
        let (result, name) = text
            .split_once(" name=[::1]:p")
            .or_else(|| text.split_once(" name=127.0.0.1:p"))?;
        Some((result.to_owned(), name.len()))
    };
    let (kernel, other) = (parts(&difference.kernel), parts(&difference.other));
    kernel.is_some() && kernel == other
}

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

/// Whether a text begins with one of several words, where `n` stands for a number that is not 0.
fn begins(text: &str, wanted: &str) -> bool {
    wanted.is_empty()
        || wanted.split('|').any(|word| match word {
            "n" => text.starts_with(|sign: char| sign.is_ascii_digit() && sign != '0'),
            "waited n" => text.starts_with("waited ") && !text.starts_with("waited i"),
            "waited interrupted n" => text
                .strip_prefix("waited interrupted ")
                .is_some_and(|rest| begins(rest, "n")),
            word => text.starts_with(word),
        })
}
