//! Calls that wait: sleeps, signals, `poll`, event loops. Never: making or ending a connection. Other work of a waiting
//! thread is registered ([`housekeeping`]).

pub mod epoll;
pub mod exclusive_sleep;
pub mod holds;
pub mod housekeeping;
pub mod poll;
pub mod replacement;
pub mod signals;
pub mod wait;
