//! Sealed memfd regions, their mapping, and checked access to memory that a peer writes.
//!
//! Never: trusts an offset, or hands out a reference to bytes that a peer may write. Words are accessed as atomics
//! ([`Region::at`]), payload only by raw copies ([`Region::copy_in`]).
//!
//! ```text
//!  memfd --kind, seals, size checked: Outside--> Region --offset, alignment checked--> &Atomic...
//!                 |                  |---- offset, length checked ----> raw copy, large ones by several threads
//!                 |--read--> Snapshot --offset, alignment checked--> &Atomic... (to look, without a mapping)
//! ```

pub mod copy;
pub mod error;
pub mod kernel_socket;
pub mod outside;
pub mod region;
pub mod run;
pub mod shared;
pub mod snapshot;
pub mod split;
pub mod system;

pub use error::ShmError;
pub use outside::Outside;
pub use region::{Access, Region, Vacancy, mapped};
pub use run::{Room, Run, Span};
pub use shared::Shared;
pub use snapshot::Snapshot;
