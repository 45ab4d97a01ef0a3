//! Samples of the processor, from the kernel: events opened on processors or threads, read from their rings, in order of time.
//!
//! All that is unsafe is in [`kernel`].

mod kernel;
mod record;
mod sampler;

pub use record::{Map, Record, Sample, What};
pub use sampler::{Sampler, Target};
