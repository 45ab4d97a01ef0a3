//! Why a socket is not virtual.

/// The reason codes that `netchannel ss` shows and the counters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Reason {
    /// It is virtual, or not decided yet.
    None = 0,
    /// No daemon answered.
    NoDaemon = 1,
    /// No program with the library listens at the destination.
    NoListener = 2,
    /// The destination is neither on this host nor on a known one.
    Remote = 3,
    /// The listener's queue of connections is full.
    BacklogFull = 4,
    /// A quota of memory, slots or descriptors is used up.
    Quota = 5,
    /// An option was set that only the kernel provides.
    Option = 6,
    /// An ordinary TCP client connected to a listener.
    PlainClient = 7,
    /// The program used the socket in a way that only the kernel provides.
    Unsupported = 8,
    /// The link to the other program failed.
    LinkFailed = 9,
    /// The program region has no free entry.
    NoEntry = 10,
    /// No ephemeral port is left.
    NoPort = 11,
    /// The destination is on another known host, and no channel to it is up.
    PeerDown = 12,
    /// The process became another user's, and left its relatives' memory: another process copies for it.
    UserChanged = 13,
    /// The process has a ring of `io_uring`, whose operations bypass the library.
    IoUring = 14,
    /// The process may not make the system calls that the library needs: it has set a filter, or a limit of no
    /// descriptors.
    Confined = 15,
    /// Other processes have the socket, too: a connect of one of them connects it for all.
    Shared = 16,
}

impl Reason {
    /// Every reason, in the order of their codes.
    pub const ALL: [Self; 17] = [
        Self::None,
        Self::NoDaemon,
        Self::NoListener,
        Self::Remote,
        Self::BacklogFull,
        Self::Quota,
        Self::Option,
        Self::PlainClient,
        Self::Unsupported,
        Self::LinkFailed,
        Self::NoEntry,
        Self::NoPort,
        Self::PeerDown,
        Self::UserChanged,
        Self::IoUring,
        Self::Confined,
        Self::Shared,
    ];

    /// The code as shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::NoDaemon => "no-daemon",
            Self::NoListener => "no-listener",
            Self::Remote => "remote",
            Self::BacklogFull => "backlog-full",
            Self::Quota => "quota",
            Self::Option => "option",
            Self::PlainClient => "plain-client",
            Self::Unsupported => "unsupported",
            Self::LinkFailed => "link-failed",
            Self::NoEntry => "no-entry",
            Self::NoPort => "no-port",
            Self::PeerDown => "peer-down",
            Self::UserChanged => "user-changed",
            Self::IoUring => "io-uring",
            Self::Confined => "confined",
            Self::Shared => "shared",
        }
    }

    /// Reads a word; unknown words are `None`.
    #[must_use]
    pub fn from_word(word: u32) -> Self {
        Self::ALL
            .into_iter()
            .find(|reason| *reason as u32 == word)
            .unwrap_or(Self::None)
    }
}
