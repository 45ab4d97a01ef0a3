//! Kernel TCP on behalf of a tenant's programs, which have no network of their own: the stack module of NetKernel's experiments.
//! It makes their connections, takes those at the published ports, and moves the bytes between lanes and sockets.
//!
//! Where two tenants may meet, it leads their connections from lane to lane, and so it does to the module `channels` where a tenant's table
//! says so.
//!
//! Never: connects where the tenant's `reach` does not say so, exceeds a cap, trusts a word of a program, or waits for one.
//!
//! ```text
//!  program ==lane==> worker --reach?--> connect --> kernel TCP --> the host's network
//!  program <==lane== worker <--listener covers the port?-- accept <-- published port (Doors)
//!  program ==lane==> worker --Meeting: both tables name the other--> lane ==> program of the other tenant
//!  program ==lane==> worker --reach? destinations?--> lane ==> stack-channels ==> another host
//!  program <==lane== worker <--published, open?-- lane <== stack-channels <== another host
//!            Connection::pump: sendmsg and recvmsg on the rings themselves, within the caps (TokenBucket) of the tenant
//! ```
#![forbid(unsafe_code)]

mod askers;
mod bottleneck;
mod caps;
mod connection;
mod crossings;
mod dialing;
mod doors;
mod entering;
mod meeting;
mod meetings;
mod module;
mod name_service;
mod own_names;
mod places;
mod publishing;
mod routes;
mod schedule;
mod served;
mod sessions;
mod sharing;
mod socket_options;
mod table;
mod urgent;
mod worker;

pub use module::{BIND, KernelThread, run_process};
