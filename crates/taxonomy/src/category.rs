//! The categories, and the sides of a connection.

use serde::{Deserialize, Serialize};

/// The activity of a processor. The first eight are those of the study "Understanding Host Network Stack Overheads".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Category {
    /// Bytes between the program and the stack.
    Copy,
    /// Packets and connections; between NetChannel's hosts, frames and virtual sockets.
    TcpIp,
    /// Devices, queues, NAPI, GRO and GSO.
    Netdevice,
    /// Socket buffers built, split, joined and released.
    Skb,
    /// Memory given and taken.
    Memory,
    /// Locks, and waiting for them.
    Locks,
    /// Threads chosen, switched and woken.
    Scheduling,
    /// All else of the kernel.
    Other,
    /// NetChannel: the face of a socket.
    Socket,
    /// NetChannel: rings, queues, slots.
    Ring,
    /// NetChannel: waking the other side, the kernel's part of it too.
    WakeUp,
    /// NetChannel: looking for news before sleep, and going to sleep.
    Waiting,
    /// The program's own code: none of the stack.
    Program,
    /// No function of the chain is in the taxonomy.
    Unclassified,
    /// The processor had nothing to do: not one of the busy samples.
    Idle,
}

impl Category {
    /// All that a busy sample can be, in the order of tables.
    pub const BUSY: [Self; 14] = [
        Self::Copy,
        Self::TcpIp,
        Self::Netdevice,
        Self::Skb,
        Self::Memory,
        Self::Locks,
        Self::Scheduling,
        Self::Other,
        Self::Socket,
        Self::Ring,
        Self::WakeUp,
        Self::Waiting,
        Self::Program,
        Self::Unclassified,
    ];

    /// Its name in the taxonomy, in options and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::TcpIp => "tcp-ip",
            Self::Netdevice => "netdevice",
            Self::Skb => "skb",
            Self::Memory => "memory",
            Self::Locks => "locks",
            Self::Scheduling => "scheduling",
            Self::Other => "other",
            Self::Socket => "socket",
            Self::Ring => "ring",
            Self::WakeUp => "wake-up",
            Self::Waiting => "waiting",
            Self::Program => "program",
            Self::Unclassified => "unclassified",
            Self::Idle => "idle",
        }
    }

    /// The category of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::BUSY.into_iter().chain([Self::Idle]);
        all.find(|category| category.name() == name)
    }

    /// Its index in [`Category::BUSY`]; `None` for idle.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        Self::BUSY.iter().position(|category| *category == self)
    }

    /// Whether it is of a network stack, the kernel's or NetChannel's, or of the kernel in general.
    #[must_use]
    pub fn is_of_the_stack(self) -> bool {
        !matches!(self, Self::Program | Self::Unclassified | Self::Idle)
    }
}

/// The end of a connection to which a sample belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The sender of the data.
    Sender,
    /// The receiver.
    Receiver,
    /// Unknown: never spread over the two.
    Shared,
}

impl Side {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Sender, Self::Receiver, Self::Shared];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Shared => "shared",
        }
    }
}
