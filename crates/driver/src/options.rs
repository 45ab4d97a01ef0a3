//! What can be asked of a transport.

use std::net::IpAddr;
use std::time::Duration;

/// How a channel is to use its transport. What is none is left to the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Algorithm of congestion control, as the kernel calls it; none: what the transport prefers.
    pub congestion_control: Option<String>,
    /// Bytes that the transport takes before they are sent and acknowledged.
    pub send_buffer: Option<u32>,
    /// Bytes that it keeps before they are dequeued.
    pub receive_buffer: Option<u32>,
    /// So many bytes may wait unsent before the descriptor is not writable any more: what waits in the
    /// transport, the scheduler cannot order.
    pub unsent_low_water: Option<u32>,
    /// Queue of the network device, 0 to 6.
    pub priority: Option<u8>,
    /// Differentiated services code point in the packets, 0 to 63.
    pub dscp: Option<u8>,
    /// A channel whose bytes are not acknowledged for so long is lost; also one that is being made, and
    /// one that is idle and whose other host does not answer.
    pub unanswered: Option<Duration>,
    /// Address of this host that a channel is dialled from: the other host knows its peers by it.
    pub from: Option<IpAddr>,
}
