//! Shared parts of this workspace's test programs: system calls, sockets, processes, a runner.
//!
//! The programs (`conformance`, `torture`) are ordinary socket programs. They call the C library and nothing else, so
//! that a preloaded library sees what it would see under any program. A case is written against kernel TCP and then run
//! over another transport.
//!
//! Never: knowledge of how NetChannel works, or a case that expects other results than kernel TCP's.
//!
//! ```text
//!   conformance compare ──┬─ conformance run CASE                         kernel TCP
//!        (runner)         └─ netchannel run -- conformance run CASE       NetChannel
//!                                     │
//!   case ── support (pairs, children, deadlines) ── sys (one function per libc call) ── libc
//! ```

mod answer;
pub mod daemon;
pub mod differences;
pub mod far;
pub mod far_process;
pub mod left_out;
pub mod runner;
pub mod sandboxed;
pub mod support;
pub mod sys;
pub mod tenant_differences;
pub mod two_hosts;
pub mod unsteady;
