//! One thin function per C library call: the call, its result as a `Result`, nothing else.
//!
//! They go through the dynamic symbols of the C library, so a preloaded library is in the way
//! exactly as it would be for a C program; those in `number` through `syscall` on purpose.

mod descriptor;
mod limits;
mod message;
mod number;
mod process;
mod ready;
mod ring;
mod socket;
mod transfer;

pub use crate::answer::*;
pub use descriptor::*;
pub use limits::*;
pub use message::*;
pub use number::*;
pub use process::*;
pub use ready::*;
pub use ring::*;
pub use socket::*;
pub use transfer::*;
