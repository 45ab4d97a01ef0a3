//! Views of the regions of programs and of the links between them. All of it was written by programs, which may lie: it
//! is copied once, clamped, and never used as an index unchecked. It is read, not mapped: a hole stays a hole, and a
//! missing page raises no signal.
//!
//! An answer can be long, so it is found in turns. Between two turns programs, links and listeners come and go: only
//! numbers and [`std::rc::Weak`] regions are kept.
//!
//! ```text
//!  regions: which regions --> region: its entries, page by page --> entry: one socket
//!           each answer: sockets (`ss`), programs (`status`), counts (metrics)
//! ```

mod counts;
mod entry;
mod links;
mod programs;
mod regions;
mod sockets;

pub use counts::{Counted, Counts};
pub use links::Memory;
pub use programs::Programs;
pub use sockets::{FULL, Sockets};

use netchannel_engine::CoreEngine;
use netchannel_service::stack::Stack;

/// The state of this host, for views.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// The programs, links and listeners.
    pub core: &'a CoreEngine,
    /// The stack modules.
    pub stacks: &'a [Box<dyn Stack>],
}
