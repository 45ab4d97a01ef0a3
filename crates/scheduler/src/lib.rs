//! NetScheduler: the channel of a segment, the next socket and its share, the number of channels, the cores of their
//! workers, and the threads that copy (NetChannel, SIGCOMM '22, section 3.3; caps as in NetKernel, ATC '20, section
//! 7.3).
//!
//! Never: does I/O, reads a clock (time comes in as nanoseconds of any monotonic clock), or allocates in a
//! decision. The same inputs give the same decisions.
//!
//! ```text
//!  hints, traffic --> classify, Observer --> class of a socket
//!                                               |
//!  sockets with bytes and window --> OrderPolicy: who, how much --> ChannelPolicy: where --> segment
//!                                    (caps: TokenBucket)                |
//!  worker utilisation, congestion --> ScalePolicy: add, retire ---------+--> PlacementPolicy: core
//!  large send or recv --> CopyPolicy: here, or which copy worker
//!  "round-robin stay=6" --> Registry --> a policy of one of the five kinds
//! ```
//!
//! [`NetScheduler`] joins an order and a channel policy for one worker.
#![forbid(unsafe_code)]

pub mod channel;
pub mod classify;
pub mod copy;
mod list;
pub mod netscheduler;
pub mod observe;
pub mod order;
pub mod placement;
pub mod rate;
pub mod registry;
pub mod scale;
pub mod time;
mod unit;
pub mod view;

pub use channel::{ChannelPolicy, Choice};
pub use classify::{Hints, Source, classify};
pub use copy::{CopyChoice, CopyPolicy};
pub use netscheduler::{NetScheduler, Segment, Step};
pub use observe::Observer;
pub use order::{Fair, FairParameters, Grant, Next, OrderPolicy, Room, Shares};
pub use placement::{Placed, PlacementPolicy};
pub use rate::{Rate, TokenBucket};
pub use registry::{Kind, Registry, Setting, Settings};
pub use scale::{Action, ScaleDecision, ScalePolicy};
pub use view::{
    ChannelId, ChannelView, Class, CoreId, Phase, SocketId, SocketView, TenantId, TenantView,
    WorkerId, WorkerView,
};

/// Compiles and runs the examples of the page for operators and researchers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/scheduling.md")]
struct Documentation;
