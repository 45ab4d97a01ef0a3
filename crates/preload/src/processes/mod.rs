//! Forks, execs, passing, other users, pumps: what becomes of sockets when processes begin, change and end.

pub mod baggage;
pub mod confining;
pub mod departure;
pub mod fork;
pub mod handover;
pub mod image;
pub mod lent;
pub mod program;
pub mod pump;
pub mod receiver;
pub mod relocate;
pub mod rights;
pub mod travel;
pub mod users;
pub mod withdrawal;
