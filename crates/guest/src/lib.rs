//! What passes between a virtual machine and its host over one region of memory that both have: connections, as frames in two rings.
//!
//! Never: believes a word that the other side wrote, keeps memory by what it says, knows a socket or a lane, waits.
//!
//! ```text
//!  Sink (lane, socket) --take--> Tunnel: credit --> Producer ==ring==> Consumer --> Tunnel --put--> Sink
//!                                   Link: who is there, since when, who sleeps
//! ```
#![forbid(unsafe_code)]

pub mod flow;
pub mod frame;
pub mod layout;
pub mod link;
pub mod ring;
pub mod tunnel;
pub mod violation;

mod inbound;
mod speaking;
mod turn;

pub use flow::{Sink, Taken};
pub use frame::{Datagram, Families, Open, Welcome};
pub use layout::{LEAST_SIZE, Side};
pub use tunnel::{Event, Tunnel};
pub use violation::Violation;
