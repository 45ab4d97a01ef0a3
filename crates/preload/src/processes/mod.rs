//! Forks, execs, passed descriptors, other users, pumps: the sockets when processes begin, change and end.

pub mod exec_preparation;
pub mod filters;
pub mod fork;
pub mod image;
pub mod in_transit;
pub mod not_taken_up;
pub mod passing;
pub mod peer_libraries;
pub mod program;
pub mod pump;
pub mod pump_hand_over;
pub mod relocate;
pub mod rights;
pub mod users;
pub mod vfork;
pub mod withdrawal;
