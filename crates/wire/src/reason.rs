//! Codes that frames carry: classes, and why something was refused, reset or ended.

macro_rules! codes {
    ($(#[$meta:meta])* $type:ident: $word:ty {
        $($(#[$variant_meta:meta])* $variant:ident = $code:literal $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($word)]
        pub enum $type {
            $($(#[$variant_meta])* $variant = $code,)+
        }

        impl $type {
            /// Every one, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The one that a frame names.
            #[must_use]
            pub const fn from_code(code: $word) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The code in a frame.
            #[must_use]
            pub const fn code(self) -> $word {
                self as $word
            }

            /// In words, for messages and logs.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                formatter.write_str(self.text())
            }
        }
    };
}

codes! {
    /// Class of a channel, and of a virtual socket.
    Class: u8 {
        /// Latency: short messages that must not wait behind others.
        Latency = 1 "L",
        /// Throughput: everything else.
        Throughput = 2 "T",
    }
}

codes! {
    /// Why a virtual connection was refused: the reason of NCRST.
    Refusal: u32 {
        /// Nobody listens there: ECONNREFUSED.
        NoListener = 1 "no program listens there",
        /// The listener's queue is full; the initiator may try again.
        BacklogFull = 2 "the listener's queue of connections is full",
        /// The configuration of the peer does not allow it.
        NotAllowed = 3 "the peer's configuration does not allow it",
        /// A quota of the peer is used up.
        Quota = 4 "a quota of the peer is used up",
        /// The listener is there, but takes kernel TCP only.
        KernelOnly = 5 "the listener takes kernel TCP only",
        /// The peer's daemon ends.
        Ending = 6 "the peer's daemon ends",
    }
}

codes! {
    /// Why a virtual connection was reset: the reason of RST.
    ResetReason: u32 {
        /// The program closed with bytes unread, or asked for a reset.
        Aborted = 1 "the peer's program reset the connection",
        /// The program ended without closing.
        ProgramEnded = 2 "the peer's program ended",
        /// What this host sent breaks the contract.
        Violation = 3 "the peer found a frame of this socket that breaks the contract",
        /// The program broke the rules of shared memory.
        ProgramFault = 4 "the peer's program broke the rules of shared memory",
        /// The peer's daemon ends, or gives the connection up.
        Ending = 5 "the peer's daemon gave the connection up",
        /// Nothing was heard for too long.
        TimedOut = 6 "the peer waited too long",
    }
}

codes! {
    /// Why a channel ends, or never began: the reason of GOAWAY. Before the handshake is complete
    /// it is not authenticated: for messages only.
    GoAwayReason: u32 {
        /// The scheduler has no more use for the channel.
        Retired = 1 "the channel is not needed any more",
        /// The daemon ends.
        Ending = 2 "the daemon ends",
        /// The channel dialled by the other host is kept, see [`crate::HostId::keeps`].
        Collision = 3 "both hosts dialled this channel, and the other one is kept",
        /// The versions of the wire format differ.
        Version = 4 "the versions of the wire format differ",
        /// The proof was wrong.
        Authentication = 5 "the keys differ, or a handshake was replayed",
        /// No configuration names this peer.
        UnknownPeer = 6 "the configuration does not name this peer",
        /// A frame broke the contract.
        Violation = 7 "a frame broke the contract",
        /// A host dialled itself.
        Itself = 8 "a host dialled itself",
        /// More channels than the host takes.
        TooMany = 9 "the host takes no more channels",
        /// The handshake timed out.
        TimedOut = 10 "the handshake timed out",
    }
}
