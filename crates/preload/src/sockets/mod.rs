//! The state that processes share about sockets: entries, links, lanes, listeners with their queues, options. A lane
//! moves bytes and never waits.

pub mod ancillary;
pub mod class;
pub mod ended_processes;
pub mod exclusion;
pub mod foreign;
pub mod lane;
pub mod link;
pub mod listener;
pub mod options;
pub mod owner_table;
pub mod placeholder;
pub mod rings;
pub mod signal_owner;
pub mod socket;
