//! Which daemons may be used: the user's own, and root's. The library, the commands and the daemon itself check this
//! here only.
//!
//! Never: sends a byte, changes a file, or trusts the environment. The system calls are raw, so that the library may
//! use this crate within any program.
//!
//! ```text
//!  path --place::socket: every folder and link on the way, and the socket, belong to us or root; nobody else may write them--> connect
//!       --peer::judge: who listens at the other end is us or root--> the first message
//! ```
//!
//! The first check covers what the second can not see: a stranger who may change the path could lead to another daemon
//! of the user. The second check needs no path: it holds whatever happened in between.

mod calls;
mod distrust;
mod owner;
pub mod peer;
pub mod place;

pub use distrust::Distrust;
pub use owner::{Owners, Ownership, in_user_namespace};
