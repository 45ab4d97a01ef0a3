//! `netchannel stack`: a stack as a process of its own, and the launcher that starts those of `[[stacks]]`.

mod launcher;
mod process;

pub use launcher::{launch, start_launcher};
pub use process::stack;
