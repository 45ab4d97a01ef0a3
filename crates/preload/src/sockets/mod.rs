//! What processes share of sockets: entries, links, lanes, listeners with their queues, options. A lane moves bytes and never waits.

pub mod beside;
pub mod class;
pub mod ended;
pub mod exclusion;
pub mod foreign;
pub mod holders;
pub mod lane;
pub mod link;
pub mod listener;
pub mod options;
pub mod owner;
pub mod rings;
pub mod socket;
