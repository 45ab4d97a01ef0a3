//! The lines of work whose speed is compared, and how they are shown.

use serde::Serialize;

/// One line of work whose speed is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Throughput of one connection.
    Stream,
    /// The same, from outside into a tenant.
    StreamIn,
    /// Small writes of one thread.
    #[serde(rename = "messages-64")]
    Messages64,
    /// Writes of 4 KiB of one thread.
    #[serde(rename = "messages-4k")]
    Messages4k,
    /// The same, without segmentation offload.
    #[serde(rename = "messages-4k-packets")]
    Messages4kPackets,
    /// Latency one way.
    Pingpong,
    /// The same of 4 KiB.
    #[serde(rename = "pingpong-4k")]
    Pingpong4k,
    /// A program that wants latency beside those that want throughput.
    #[serde(rename = "isolation-1")]
    Isolation1,
    /// As many of the one as of the other.
    #[serde(rename = "isolation-8")]
    Isolation8,
    /// Connection set-up.
    Connections,
    /// Connection set-up: a parent has the listener too.
    FamilyParent,
    /// Connection set-up: a child alone has the listener.
    FamilyChild,
    /// Connection set-up: eight processes accept.
    FamilyEight,
    /// Throughput of eight connections, between two tenants.
    Meet,
    /// The same within one.
    MeetDirectly,
    /// Redis, SET of 4 KiB.
    RedisSet,
    /// Redis, GET of 4 KiB.
    RedisGet,
    /// nginx, one connection for many requests.
    HttpKeepAlive,
    /// nginx, one connection for each request.
    HttpClose,
    /// A look at a pipe.
    CallsPoll,
    /// A read of a device.
    CallsRead,
    /// A write to a device.
    CallsWrite,
    /// A device opened and closed.
    CallsOpen,
    /// A program started and waited for.
    CallsStart,
    /// A child forked that ends at once.
    CallsFork,
    /// A shell that runs some programs.
    CallsShell,
    /// Writes of 4 KiB of one thread over one channel.
    #[serde(rename = "channels-1")]
    Channels1,
    /// Over two.
    #[serde(rename = "channels-2")]
    Channels2,
    /// Over four.
    #[serde(rename = "channels-4")]
    Channels4,
    /// Over eight.
    #[serde(rename = "channels-8")]
    Channels8,
}

impl Case {
    /// A short name for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Case::Stream => "stream",
            Case::StreamIn => "stream in",
            Case::Messages64 => "messages 64 B",
            Case::Messages4k => "messages 4 KiB",
            Case::Messages4kPackets => "messages 4 KiB, no TSO/GRO",
            Case::Pingpong => "pingpong",
            Case::Pingpong4k => "pingpong 4 KiB",
            Case::Isolation1 => "isolation, 1 L-app",
            Case::Isolation8 => "isolation, 8 L-apps",
            Case::Connections => "connections",
            Case::FamilyParent => "parent and child",
            Case::FamilyChild => "child alone",
            Case::FamilyEight => "8 server processes",
            Case::Meet => "two tenants",
            Case::MeetDirectly => "one tenant",
            Case::RedisSet => "redis set",
            Case::RedisGet => "redis get",
            Case::HttpKeepAlive => "http keep-alive",
            Case::HttpClose => "http close",
            Case::CallsPoll => "poll",
            Case::CallsRead => "read",
            Case::CallsWrite => "write",
            Case::CallsOpen => "open, close",
            Case::CallsStart => "start",
            Case::CallsFork => "fork",
            Case::CallsShell => "shell",
            Case::Channels1 => "1 channel",
            Case::Channels2 => "2 channels",
            Case::Channels4 => "4 channels",
            Case::Channels8 => "8 channels",
        }
    }

    /// What is done, for a reader who sees only the picture.
    pub fn title(self) -> &'static str {
        match self {
            Case::Stream => "One stream, 128 KiB calls",
            Case::StreamIn => "One stream into a published port, 128 KiB calls",
            Case::Messages64 => "64-byte messages, one thread",
            Case::Messages4k => "4 KiB messages, one thread",
            Case::Messages4kPackets => "4 KiB messages, one thread, TSO/GRO off",
            Case::Pingpong => "Ping-pong, 64 bytes",
            Case::Pingpong4k => "Ping-pong, 4 KiB",
            Case::Isolation1 => "1 L-app (ping-pong, 4 KiB) beside 8 T-apps (streams)",
            Case::Isolation8 => "8 L-apps (ping-pong, 4 KiB) beside 8 T-apps (streams)",
            Case::Connections => "Connect, 64 bytes each way, close (8 clients)",
            Case::FamilyParent => {
                "Connect, 64 bytes each way, close: 1 child accepts, its parent has the listener"
            }
            Case::FamilyChild => {
                "Connect, 64 bytes each way, close: 1 child alone has the listener"
            }
            Case::FamilyEight => "Connect, 64 bytes each way, close: 8 processes accept",
            Case::Meet => "8 streams between two tenants, through the stack with a cap",
            Case::MeetDirectly => "8 streams between programs of one tenant, directly",
            Case::RedisSet => "Redis SET, 4 KiB values, 50 connections",
            Case::RedisGet => "Redis GET, 4 KiB values, 50 connections",
            Case::HttpKeepAlive => "nginx, 1 KiB file, 50 connections, keep-alive",
            Case::HttpClose => "nginx, 1 KiB file, a connection per request",
            Case::CallsPoll => "No socket: poll of one pipe",
            Case::CallsRead => "No socket: read of /dev/null",
            Case::CallsWrite => "No socket: write to /dev/null",
            Case::CallsOpen => "No socket: /dev/null opened and closed",
            Case::CallsStart => "No socket: `true` started and waited for",
            Case::CallsFork => "No socket: a child forked that ends at once",
            Case::CallsShell => "No socket: a shell that runs 16 programs",
            Case::Channels1 => "4 KiB messages, TSO/GRO off, 1 channel",
            Case::Channels2 => "4 KiB messages, TSO/GRO off, 2 channels",
            Case::Channels4 => "4 KiB messages, TSO/GRO off, 4 channels",
            Case::Channels8 => "4 KiB messages, TSO/GRO off, 8 channels",
        }
    }

    /// The unit of the rate.
    pub fn unit(self) -> &'static str {
        match self {
            Case::Stream
            | Case::StreamIn
            | Case::Messages4k
            | Case::Messages4kPackets
            | Case::Isolation1
            | Case::Isolation8
            | Case::Meet
            | Case::MeetDirectly
            | Case::Channels1
            | Case::Channels2
            | Case::Channels4
            | Case::Channels8 => "Gbit/s",
            Case::Messages64 => "messages/s",
            Case::Pingpong | Case::Pingpong4k => "round trips/s",
            Case::Connections | Case::FamilyParent | Case::FamilyChild | Case::FamilyEight => {
                "connections/s"
            }
            Case::RedisSet | Case::RedisGet | Case::HttpKeepAlive | Case::HttpClose => "requests/s",
            Case::CallsPoll | Case::CallsRead | Case::CallsWrite => "calls/s",
            Case::CallsOpen => "pairs/s",
            Case::CallsStart => "programs/s",
            Case::CallsFork => "children/s",
            Case::CallsShell => "shells/s",
        }
    }

    /// Whether the rate is of bytes.
    pub fn is_throughput(self) -> bool {
        self.unit() == "Gbit/s"
    }

    /// What the latency is of.
    pub fn latency_of(self) -> Option<&'static str> {
        match self {
            Case::Pingpong | Case::Pingpong4k => Some("one way (round trip / 2)"),
            Case::Isolation1 | Case::Isolation8 => Some("the L-apps', one way"),
            Case::Connections | Case::FamilyParent | Case::FamilyChild | Case::FamilyEight => {
                Some("whole cycle")
            }
            Case::RedisSet | Case::RedisGet | Case::HttpKeepAlive | Case::HttpClose => {
                Some("request")
            }
            _ => None,
        }
    }

    /// Whether it is the tail of the latency that matters, and not its middle.
    pub fn is_about_the_tail(self) -> bool {
        matches!(self, Case::Isolation1 | Case::Isolation8)
    }

    /// What must be known to judge the figures.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Case::Connections | Case::FamilyParent | Case::FamilyChild | Case::FamilyEight => Some(
                "each client has a destination address of its own, so that TCP does not run out of \
                 ports in TIME_WAIT",
            ),
            Case::Isolation1 | Case::Isolation8 => {
                Some("Gbit/s and CPU/GB are the T-apps', the latency is the L-apps'")
            }
            Case::Meet => Some(
                "the cap is beyond what is reached; the daemon has the processors of both sides",
            ),
            Case::CallsPoll
            | Case::CallsRead
            | Case::CallsWrite
            | Case::CallsOpen
            | Case::CallsStart
            | Case::CallsFork
            | Case::CallsShell => Some("kernel TCP: without the library; NetChannel: with it"),
            _ => None,
        }
    }
}
