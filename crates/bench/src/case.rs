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
    /// The same where they trust each other.
    MeetDirectly,
    /// The same of 8 KiB calls.
    Colocated,
    /// The same where they trust each other.
    ColocatedDirectly,
    /// Throughput where the kernel's congestion control is not the stack's.
    Congestion,
    /// The same of eight streams.
    #[serde(rename = "congestion-8")]
    Congestion8,
    /// Requests, one at a time.
    #[serde(rename = "latency-1")]
    Latency1,
    /// Requests, a thousand at a time.
    #[serde(rename = "latency-1000")]
    Latency1000,
    /// Eight streams of 1 Gbit/s together.
    #[serde(rename = "overhead-1-gbit")]
    Overhead1Gbit,
    /// Of 2 Gbit/s.
    #[serde(rename = "overhead-2-gbit")]
    Overhead2Gbit,
    /// Of 4 Gbit/s.
    #[serde(rename = "overhead-4-gbit")]
    Overhead4Gbit,
    /// Of 8 Gbit/s.
    #[serde(rename = "overhead-8-gbit")]
    Overhead8Gbit,
    /// 2,000 requests in a second.
    #[serde(rename = "overhead-2k")]
    Overhead2k,
    /// 4,000 of them.
    #[serde(rename = "overhead-4k")]
    Overhead4k,
    /// 8,000 of them.
    #[serde(rename = "overhead-8k")]
    Overhead8k,
    /// 12,000 of them.
    #[serde(rename = "overhead-12k")]
    Overhead12k,
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
            Case::MeetDirectly => "two tenants, directly",
            Case::Colocated => "two tenants, 8 KiB",
            Case::ColocatedDirectly => "two tenants, 8 KiB, directly",
            Case::Congestion => "BBR, 1 stream",
            Case::Congestion8 => "BBR, 8 streams",
            Case::Latency1 => "latency, 1",
            Case::Latency1000 => "latency, 1000",
            Case::Overhead1Gbit => "at 1 Gbit/s",
            Case::Overhead2Gbit => "at 2 Gbit/s",
            Case::Overhead4Gbit => "at 4 Gbit/s",
            Case::Overhead8Gbit => "at 8 Gbit/s",
            Case::Overhead2k => "at 2,000/s",
            Case::Overhead4k => "at 4,000/s",
            Case::Overhead8k => "at 8,000/s",
            Case::Overhead12k => "at 12,000/s",
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
            Case::MeetDirectly => "8 streams between two tenants that trust each other, directly",
            Case::Colocated => {
                "8 streams between two tenants, 8 KiB calls, through the stack with a cap"
            }
            Case::ColocatedDirectly => {
                "8 streams between two tenants that trust each other, 8 KiB calls, directly"
            }
            Case::Congestion => {
                "One stream where the kernel's default is BBR, and the stack's is not"
            }
            Case::Congestion8 => {
                "8 streams where the kernel's default is BBR, and the stack's is not"
            }
            Case::Latency1 => "Connect, 64 bytes each way, close: one at a time, into the tenant",
            Case::Latency1000 => {
                "Connect, 64 bytes each way, close: 1,000 at a time, into the tenant"
            }
            Case::Overhead1Gbit => "8 streams, 8 KiB calls, 1 Gbit/s together",
            Case::Overhead2Gbit => "8 streams, 8 KiB calls, 2 Gbit/s together",
            Case::Overhead4Gbit => "8 streams, 8 KiB calls, 4 Gbit/s together",
            Case::Overhead8Gbit => "8 streams, 8 KiB calls, 8 Gbit/s together",
            Case::Overhead2k => "2,000 short connections a second into the tenant",
            Case::Overhead4k => "4,000 short connections a second into the tenant",
            Case::Overhead8k => "8,000 short connections a second into the tenant",
            Case::Overhead12k => "12,000 short connections a second into the tenant",
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
            | Case::Colocated
            | Case::ColocatedDirectly
            | Case::Congestion
            | Case::Congestion8
            | Case::Overhead1Gbit
            | Case::Overhead2Gbit
            | Case::Overhead4Gbit
            | Case::Overhead8Gbit
            | Case::Channels1
            | Case::Channels2
            | Case::Channels4
            | Case::Channels8 => "Gbit/s",
            Case::Messages64 => "messages/s",
            Case::Pingpong | Case::Pingpong4k => "round trips/s",
            Case::Connections | Case::FamilyParent | Case::FamilyChild | Case::FamilyEight => {
                "connections/s"
            }
            Case::RedisSet
            | Case::RedisGet
            | Case::HttpKeepAlive
            | Case::HttpClose
            | Case::Latency1
            | Case::Latency1000
            | Case::Overhead2k
            | Case::Overhead4k
            | Case::Overhead8k
            | Case::Overhead12k => "requests/s",
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
            Case::RedisSet
            | Case::RedisGet
            | Case::HttpKeepAlive
            | Case::HttpClose
            | Case::Latency1
            | Case::Latency1000 => Some("request"),
            Case::Overhead2k | Case::Overhead4k | Case::Overhead8k | Case::Overhead12k => {
                Some("request, from when it was due")
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
            Case::Latency1 | Case::Latency1000 => {
                Some("the mean is what is under way at a time, divided by the rate")
            }
            Case::Meet | Case::Colocated => Some(
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
