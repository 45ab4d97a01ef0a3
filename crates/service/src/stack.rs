//! A stack module, as CoreEngine and the daemon's loop know it: what is at the other end of the lanes that the infrastructure serves.
//!
//! ```text
//!  CoreEngine --Command--> StackHandle ---> threads of the module (service::worker)
//!       ^                                        |
//!       +------Ask------ Stack <--doorbells------+       on the daemon's thread: never waits, never on the way of a byte
//! ```

use crate::core_engine::{Command, Engine, ListenerNews};
use netchannel_abi::address::Address;
use netchannel_configuration::Configuration;
use netchannel_control::hosts::Hosts;
use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// How far one has looked: a peer's start, and a place among its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Number of the start.
    pub start: u32,
    /// First place that was not looked at.
    pub place: u32,
}

/// A connection with a program of another host.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The link of its socket here.
    pub link: u64,
    /// The slot in that link.
    pub slot: u32,
    /// The other host's name.
    pub host: Arc<str>,
    /// As which class it is served.
    pub class: &'static str,
    /// What decided that.
    pub source: &'static str,
    /// The channels that it took lately, as they are shown.
    pub channels: String,
}

/// The end of a stack module that CoreEngine tells things.
pub trait StackHandle: Debug {
    /// Takes a command, and does not wait until it is done.
    fn tell(&self, command: Command);

    /// Descriptors that the module holds besides a few for each link.
    fn descriptors(&self) -> usize;
}

/// A stack module. Dropped, it ends with all its connections.
pub trait Stack: Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Where CoreEngine tells it things.
    fn handle(&self) -> Rc<dyn StackHandle>;

    /// Whether connections between programs of this host go through it.
    fn leads_all(&self) -> bool {
        false
    }

    /// Descriptors that are readable when it has something to do.
    fn doorbells(&self) -> Vec<BorrowedFd<'_>>;

    /// One of its [`Self::doorbells`] rings.
    fn on_doorbell(&mut self, which: usize, engine: &mut dyn Engine, now: Instant);

    /// Does what is due. Costs nothing where nothing happened: it is called in every pass of the daemon's loop.
    fn tend(&mut self, _engine: &mut dyn Engine, _now: Instant) {}

    /// When there is something to do at the latest.
    fn deadline(&self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Something happened to a listener of this host.
    fn on_listener(&mut self, _news: ListenerNews) {}

    /// The addresses of this host besides loopback.
    fn on_addresses(&mut self, _addresses: &[Address]) {}

    /// Adds what it knows to entries that it finds or makes ([`Hosts::peer_mut`] and its like), in any order with other modules. Peers
    /// are there already, with what the configuration says. It must not wait for anybody.
    fn show(&self, _hosts: &mut Hosts) {}

    /// Tells of connections whose other end is on another host how they are served: about `most` of them from `from` on, and where
    /// others may follow. It begins with the default cursor.
    fn elsewhere(&self, _from: Cursor, _most: usize) -> (Vec<Elsewhere>, Option<Cursor>) {
        (Vec::new(), None)
    }

    /// How many connections with other hosts there are.
    fn connections(&self) -> u64 {
        0
    }

    /// Another configuration holds from now on; what did not change goes on as it is. Returns a sentence for each thing that can not be
    /// done as it says, such as an address that is in use.
    fn configure(&mut self, _configuration: &Arc<Configuration>) -> Vec<String> {
        Vec::new()
    }
}
