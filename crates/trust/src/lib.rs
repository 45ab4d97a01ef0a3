//! Whose daemon may be used: one's own, or root's. The library, the commands and the daemon itself ask here, and nowhere else.
//!
//! Never: sends a byte, changes a file, or believes an environment. The system calls are raw, so that the library may use this within
//! any program.
//!
//! ```text
//!  path --place::socket: every folder and link on the way, and the socket, belong to us or root; nobody else may write them--> connect
//!       --peer::judge: who listens at the other end is us or root--> the first message
//! ```
//!
//! The first check holds what the second cannot see: a stranger who may change the way leads to another daemon of ours. The second
//! needs no path: it holds whatever happened in between.

mod calls;
mod distrust;
mod owner;
pub mod peer;
pub mod place;

pub use distrust::Distrust;
pub use owner::{Owners, Standing, in_user_namespace};
