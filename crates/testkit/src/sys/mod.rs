//! One thin function per C library call: the call, its result as a `Result`, nothing else.
//!
//! The functions go through the dynamic symbols of the C library, so that a preloaded library interposes them exactly
//! as it would for a C program. The functions in `number` go through `syscall` on purpose.

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
