//! Calls that wait: sleeps, signals, `poll`, event loops. Never: making or ending a connection; what a waiting thread does beside is
//! registered ([`housekeeping`]).

pub mod epoll;
pub mod housekeeping;
pub mod poll;
pub mod signals;
pub mod wait;
