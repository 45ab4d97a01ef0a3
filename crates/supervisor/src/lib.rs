//! TCP for programs that the library can not enter (static, Go, musl), by a supervisor of their system calls: `netchannel run
//! --static=plain`.
//!
//! A filter holds back the few calls that make and name connections, and the supervisor answers them. To the program a
//! connection is one end of an `AF_UNIX` stream pair; its bytes are the kernel's business and meet no filter. The supervisor is
//! itself an ordinary program of sockets with the library in it: for each socket of the program it has an ordinary TCP socket,
//! which the library makes virtual, and moves bytes between the two. So tenants, listeners, reach, caps, counters and fallback
//! hold as for any program, and the daemon knows nothing of it.
//!
//! Never: follows an address of the program, believes a length, waits for anybody but the kernel, knows NetChannel.
//!
//! ```text
//!  program (static) --socket, connect, accept--> filter --> supervisor
//!     end ========== AF_UNIX pair ========== ours --pump-- TCP socket ==lane== whoever it is connected to
//! ```

mod calls;
mod datagrams;
mod filter;
mod keeper;
mod names;
mod namespace;
mod notify;
mod options;
mod processes;
mod pump;
mod questions;
mod runner;
mod serving;
mod sockets;
mod system;
mod threads;

pub use runner::{End, Options, exit_code, run};

/// Where a container has the files of `netchannel-supervisor`, which is linked for this place.
pub const CONTAINER_FOLDER: &str = env!("NETCHANNEL_CONTAINER_FOLDER");
