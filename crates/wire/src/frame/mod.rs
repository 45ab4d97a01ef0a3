//! Frames other than DATA, as values.

mod decode;
mod encode;

use netchannel_abi::address::Address;
use netchannel_abi::handle::Handle;

pub(crate) use self::decode::decode;
pub use self::encode::{NoRoom, encode_addresses};
use crate::address::AddressList;
use crate::hello::{Hello, HelloAnswer, HelloProof};
use crate::kind::Kind;
use crate::reason::{Class, GoAwayReason, Refusal, ResetReason};

/// Requests a virtual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcSyn {
    /// The initiator's socket: frames to it carry this handle.
    pub handle: Handle,
    /// The connecting program's address.
    pub client: Address,
    /// The address to which it connects.
    pub server: Address,
    /// The initiator's first window: the responder may send up to this sequence.
    pub limit: u64,
    /// The listener's number in LISTEN, or 0 for any listener at `server`.
    pub listener: u32,
    /// The class of the socket, if its program has declared one.
    pub class: Option<Class>,
}

/// Grants a virtual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcSynAck {
    /// The initiator's socket.
    pub handle: Handle,
    /// The responder's socket: frames to it carry this handle.
    pub responder: Handle,
    /// The responder's first window: the initiator may send up to this sequence.
    pub limit: u64,
}

/// Refuses a virtual connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcRst {
    /// The initiator's socket.
    pub handle: Handle,
    /// The reason.
    pub reason: Refusal,
}

/// The acknowledgement and the window of the sender's ring for this socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The socket of the frame's receiver.
    pub handle: Handle,
    /// All bytes before this sequence have arrived; the receiver of the frame may release them.
    pub filled: u64,
    /// The receiver of the frame may send up to this sequence. Never less than `filled`.
    pub limit: u64,
    /// Whether the FIN has arrived too, and all bytes before it.
    pub fin: bool,
    /// Whether the receiver of the frame must send its own window, which does not ask.
    pub ask: bool,
    /// Whether bytes beyond `filled` had come and were forgotten: the receiver of the frame must send again all
    /// unacknowledged bytes.
    pub again: bool,
}

/// The stream of the frame's sender ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fin {
    /// The socket of the frame's receiver.
    pub handle: Handle,
    /// The sequence after the last byte.
    pub sequence: u64,
}

/// The byte before a sequence is urgent. Sent right before the DATA that contains it, on the same channel, so that the
/// two are lost together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgent {
    /// The socket of the frame's receiver.
    pub handle: Handle,
    /// The sequence after the urgent byte.
    pub sequence: u64,
    /// The first byte of the run up to there whose bytes were all sent as urgent, each by itself. It is the urgent byte
    /// itself where it is the only one.
    pub first: u64,
}

/// The connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rst {
    /// The socket of the frame's receiver.
    pub handle: Handle,
    /// The reason.
    pub reason: ResetReason,
}

/// A frame came for a handle that is no living socket of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSocket {
    /// The handle in that frame: the *sender's* of NO_SOCKET. Its receiver finds the socket by the handle of its peer.
    pub handle: Handle,
}

/// A listener exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Greater than the serial of every former announcement.
    pub serial: u64,
    /// The sender's number for it, never 0.
    pub listener: u32,
    /// Its address, which may be a wildcard.
    pub address: Address,
    /// An IPv6 listener that takes no IPv4.
    pub v6_only: bool,
}

/// A listener is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlisten {
    /// Greater than the serial of every former announcement.
    pub serial: u64,
    /// The listener.
    pub listener: u32,
}

/// All listeners were announced since `first`: listeners announced before are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenEnd {
    /// Greater than the serial of every former announcement.
    pub serial: u64,
    /// The serial of the first announcement of the list.
    pub first: u64,
}

/// All addresses of a host, which replace the former ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'a> {
    /// Greater than the serial of every former announcement.
    pub serial: u64,
    /// The addresses; ports are zero.
    pub list: AddressList<'a>,
}

/// A frame other than DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named and documented as in `Kind`")]
pub enum Frame<'a> {
    Hello(Hello),
    HelloAnswer(HelloAnswer),
    HelloProof(HelloProof),
    GoAway(GoAwayReason),
    /// The number has a meaning for its sender only.
    Ping(u64),
    /// The number of the PING.
    Pong(u64),
    NcSyn(NcSyn),
    NcSynAck(NcSynAck),
    NcRst(NcRst),
    Window(Window),
    Fin(Fin),
    Rst(Rst),
    NoSocket(NoSocket),
    Urgent(Urgent),
    Addresses(Addresses<'a>),
    Listen(Listen),
    Unlisten(Unlisten),
    ListenEnd(ListenEnd),
}

impl Frame<'_> {
    /// The kind of frame.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::HelloAnswer(_) => Kind::HelloAnswer,
            Self::HelloProof(_) => Kind::HelloProof,
            Self::GoAway(_) => Kind::GoAway,
            Self::Ping(_) => Kind::Ping,
            Self::Pong(_) => Kind::Pong,
            Self::NcSyn(_) => Kind::NcSyn,
            Self::NcSynAck(_) => Kind::NcSynAck,
            Self::NcRst(_) => Kind::NcRst,
            Self::Window(_) => Kind::Window,
            Self::Fin(_) => Kind::Fin,
            Self::Urgent(_) => Kind::Urgent,
            Self::Rst(_) => Kind::Rst,
            Self::NoSocket(_) => Kind::NoSocket,
            Self::Addresses(_) => Kind::Addresses,
            Self::Listen(_) => Kind::Listen,
            Self::Unlisten(_) => Kind::Unlisten,
            Self::ListenEnd(_) => Kind::ListenEnd,
        }
    }
}
