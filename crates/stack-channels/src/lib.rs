//! The stack module `channels`: connections with programs of other hosts, over channels to those hosts' daemons.
//!
//! Never: decides a policy (that is `scheduler`), looks at a byte of a stream, trusts a word of a program or a frame of a peer, or waits
//! for either.
//!
//! ```text
//!  Configuration --> Peers: who is dialled, accepted, believed --Output--> DataPlane: workers, which move bytes
//!                      ^                                       <--Report--   |
//!     listeners, addresses                                                  asks
//!                      |                                                     v
//!                  CoreEngine (service::stack::Stack) <----------------------+     entries of the directory <-- Peers
//! ```
//!
//! Who is told what: `stack` joins the two, `state` is what it knows, `scaling` decides how many channels there are.

pub mod announcement;
mod class;
pub mod data_plane;
pub mod line_id;
pub mod peers;
pub mod prefix;
mod scaling;
mod settings;
mod shown;
mod stack;
mod state;

pub use peers::{PeersError, chance};
pub use stack::ChannelsError;
pub use state::ChannelsStack;
