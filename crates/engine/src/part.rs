//! What the daemon's loop asks of the parts that have to do with other hosts.

use netchannel_configuration::Configuration;
use netchannel_control::hosts::Hosts;
use netchannel_control::types::Socket;
use std::sync::Arc;

/// A part of the daemon that has to do with other hosts. Its methods are called by the daemon's thread, when a command asks, metrics are
/// fetched, or the configuration changes: never on the way of a byte.
pub trait Part {
    /// Adds what it knows to entries that it finds or makes ([`Hosts::peer_mut`] and its like), in any order with other parts. Peers
    /// are there already, with what the configuration says. It must not wait for anybody.
    fn show(&self, hosts: &mut Hosts);

    /// Tells of those sockets whose other end is on another host how they are served.
    fn show_sockets(&self, sockets: &mut [Socket]);

    /// How many connections with other hosts there are.
    fn connections(&self) -> u64;

    /// Another configuration holds from now on; what did not change goes on as it is. Returns a sentence for each thing that can not be
    /// done as it says, such as an address that is in use.
    fn configure(&mut self, configuration: &Arc<Configuration>) -> Vec<String>;
}
