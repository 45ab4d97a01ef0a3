//! Calls that wait: sleeps, signals, `poll`, event loops. Never: making or ending a connection; what a waiting thread does beside is
//! registered ([`chores`]).

pub mod chores;
pub mod epoll;
pub mod poll;
pub mod signals;
pub mod wait;
