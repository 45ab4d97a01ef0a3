//! What the daemon's loop asks of the parts that have to do with other hosts.

use netchannel_configuration::Configuration;
use netchannel_control::hosts::Hosts;
use std::sync::Arc;

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

/// A part of the daemon that has to do with other hosts. Its methods are called by the daemon's thread, when a command asks, metrics are
/// fetched, or the configuration changes: never on the way of a byte.
pub trait Part {
    /// Adds what it knows to entries that it finds or makes ([`Hosts::peer_mut`] and its like), in any order with other parts. Peers
    /// are there already, with what the configuration says. It must not wait for anybody.
    fn show(&self, hosts: &mut Hosts);

    /// Tells of connections whose other end is on another host how they are served: about `most` of them from `from` on, and where
    /// others may follow. It begins with the default cursor.
    fn elsewhere(&self, from: Cursor, most: usize) -> (Vec<Elsewhere>, Option<Cursor>);

    /// How many connections with other hosts there are.
    fn connections(&self) -> u64;

    /// Another configuration holds from now on; what did not change goes on as it is. Returns a sentence for each thing that can not be
    /// done as it says, such as an address that is in use.
    fn configure(&mut self, configuration: &Arc<Configuration>) -> Vec<String>;
}
