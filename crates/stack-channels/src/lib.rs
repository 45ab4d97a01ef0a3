//! The stack module `channels`: connections with programs of other hosts, over channels to those hosts' daemons.
//!
//! Never: decides a policy (that is `scheduler`), looks at a byte of a stream, trusts a word of a program or a frame of
//! a peer, or waits for either.
//!
//! ```text
//!  Configuration --> Peers: who is dialled, accepted, believed --Output--> DataPlane: workers, which move bytes
//!                      ^                                       <--Report--   |
//!     listeners, addresses                                                  asks
//!                      |                                                     v
//!                  CoreEngine (service::stack::Stack) <----------------------+     entries of the directory <-- Peers
//! ```
//!
//! `stack` joins the two halves, `state` is its data, and `scaling` decides how many channels there are.

pub mod announcement;
pub mod channel_instance;
mod class;
pub mod data_plane;
pub mod peers;
pub mod prefix;
mod published;
mod scaling;
mod settings;
mod shown;
mod stack;
mod state;

pub use peers::{PeersError, random_number};
pub use stack::ChannelsError;
pub use state::ChannelsStack;
