//! The virtual socket between hosts: one connection of a daemon with a remote daemon, as a state machine.
//!
//! It decides what is sent when, where arriving bytes belong, what the peer may still send, and when the connection
//! ends. It never does I/O, never reads a clock (time is an argument, in nanoseconds of any monotonic origin), never
//! sees a payload byte, and never panics because of a peer's frame. Memory is bounded: at most
//! [`MOST_IN_FLIGHT_RANGES`], [`MOST_RANGES`] and [`MOST_CLAIMS`] small entries.
//!
//! ```text
//!   program                        VirtualSocket                          channels
//!   on_written, shutdown_write --> retention: [acknowledged, next)    --> next_transmit -> sent(channel)
//!   acknowledged()             <-- what no channel can lose any more  <-- on_window, on_channel_lost(channel)
//!   on_read, on_capacity       --> window: filled, limit              --> next_transmit -> Window
//!   frontier(), at_end()       <-- placement: gaps, claims            <-- on_data -> placed, on_fin
//!   close, abort               --> Fin, Reset                         <-- on_reset
//! ```
//!
//! # States
//!
//! ```text
//!   active                                         passive
//!   Opening --- on_answer ---> Established <--- accept --- Deciding
//!      |                         |                            |
//!      | on_reset, fail,         | both directions ended      | refuse
//!      | connect_timeout         | or reset, violation,       |
//!      v                         v time-out                   v
//!   Closed(End) <----------------+----------------------------+
//! ```
//!
//! Each direction ends by itself (half-close):
//!
//! ```text
//!   transmit:  open --shutdown_write--> all sent, Fin due --sent--> Fin in flight --acknowledged--> ended
//!   receive:   open --on_fin--> end known --every byte before it placed--> ended, `fin` in Window
//! ```
//!
//! # Guarantees to a peer
//!
//! - **Retention.** A byte is the sender's until acknowledged. What was in flight on a channel that is lost is sent again, before new
//!   data.
//! - **Acknowledgement.** `filled` of [`Window`] is the sequence up to which all bytes are placed, `fin` says that the end has come too.
//!   Both are said again after every loss of a channel.
//! - **Forgetting.** A receiver remembers [`MOST_RANGES`] runs of bytes beyond the contiguous ones. Of more it forgets the furthest and
//!   says `again`; the sender then sends again what is not acknowledged.
//! - **Window.** `limit` never shrinks, nor may it be exceeded. All of a later Window is at least what an earlier one says, so
//!   Windows that overtake each other on different channels are recognised.
//! - **Asking.** Data or a Fin that is not new is answered by a Window, and so is a Window with `ask`, which is said when nothing was
//!   acknowledged or the window was closed for long, and to keep alive. No other Window is answered. From the third such probe on the
//!   oldest segment is sent again too, for what no flag has told.
//! - **Reset** is immediate and final. It is never answered by a Reset.
//!
//! # How it is driven
//!
//! All calls on one socket are made under one short lock, payload is moved outside of it:
//!
//! ```
//! use netchannel_vns::{ChannelId, Placement, Settings, Start, Transmit, VirtualSocket};
//!
//! let (now, channel) = (0, ChannelId(7));
//! let start = Start { transmit: 0, receive: 0, capacity: 65536 };
//! let mut a = VirtualSocket::active(Settings::default(), start, now);
//! let open = a.next_transmit(0, now).unwrap(); // as NCSYN to the peer
//! a.sent(&open, channel, now);
//!
//! let Transmit::Open { limit } = open else { unreachable!() };
//! let mut b = VirtualSocket::passive(Settings::default(), start, limit, now).unwrap();
//! b.accept(now);
//! let answer = b.next_transmit(0, now).unwrap();
//! b.sent(&answer, channel, now);
//!
//! let Transmit::Answer { limit } = answer else { unreachable!() };
//! a.on_answer(limit, now).unwrap();
//! a.on_written(1000, now).unwrap(); // the program's ring now holds 1000 bytes
//! let data = a.next_transmit(65536, now).unwrap();
//! assert_eq!(data, Transmit::Data { sequence: 0, length: 1000 });
//! a.sent(&data, channel, now);
//!
//! let Placement::Write { sequence, length, claim, .. } = b.on_data(0, 1000, now).unwrap() else { unreachable!() };
//! // ... outside the lock the worker writes the bytes where `sequence` says ...
//! b.placed(&claim, sequence, length, now);
//! b.finish(claim, now);
//! assert_eq!(b.frontier(), 1000); // to be published to the program
//!
//! let now = b.next_timeout().unwrap(); // what is little is acknowledged after a while
//! b.on_timeout(now);
//! let Some(Transmit::Window(window)) = b.next_transmit(0, now) else { unreachable!() };
//! a.on_window(window, now).unwrap();
//! assert_eq!(a.acknowledged(), 1000); // the program's ring may be reused
//! ```
//!
//! A worker that takes the bytes of [`Transmit::Data`] from the ring after it has released the lock, or lets the kernel
//! take them without a copy, must [`VirtualSocket::hold`] them: a copy on another channel may be acknowledged before.
//! In the same way a [`Claim`] keeps a place to write to. A socket with either is not finished, so its rings stay. The
//! loss of a channel is reported after its worker has stopped taking bytes. When the peer's daemon has restarted, all
//! sockets fail ([`VirtualSocket::fail`]) before any frame is sent on its new channels: the handles that they know name
//! other sockets now.
//!
//! [`HandleTable`] holds the sockets, detects stale handles, and keeps the [`FinalState`] of ended ones.
#![forbid(unsafe_code)]

mod channel;
mod claims;
mod clock;
mod final_state;
mod in_flight;
mod ranges;
mod receiver;
mod sender;
mod sequence;
mod settings;
mod socket;
mod table;
mod types;

pub use channel::ChannelId;
pub use claims::{Claim, Hold, MOST_CLAIMS};
pub use final_state::{Arrived, FinalState};
pub use in_flight::MOST_IN_FLIGHT_RANGES;
pub use netchannel_abi::handle::Handle;
pub use ranges::MOST_RANGES;
pub use sender::MOST_WINDOW;
pub use settings::{KeepAlive, Settings};
pub use socket::VirtualSocket;
pub use table::{Full, HandleTable, Lookup};
pub use types::{
    Changes, Counters, End, Fault, Linger, Placement, Reason, Start, State, TcpState, Transmit,
    Violation, Window,
};
