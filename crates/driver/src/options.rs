//! The options of a transport.

use std::net::IpAddr;
use std::time::Duration;

/// How a channel uses its transport. `None` leaves a setting to the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The kernel's name of the congestion control algorithm; `None`: the transport's preference.
    pub congestion_control: Option<String>,
    /// Bytes that the transport takes before they are sent and acknowledged.
    pub send_buffer: Option<u32>,
    /// Bytes that the transport keeps before they are dequeued.
    pub receive_buffer: Option<u32>,
    /// When this many bytes wait unsent, the descriptor is not writable any more: the scheduler can not order bytes
    /// that wait in the transport.
    pub unsent_low_water: Option<u32>,
    /// Queue of the network device, 0 to 6.
    pub priority: Option<u8>,
    /// The differentiated services code point of the packets, 0 to 63.
    pub dscp: Option<u8>,
    /// A channel is lost when its bytes are not acknowledged for this long. This includes a channel that is being made,
    /// and an idle one whose other host does not answer.
    pub unanswered: Option<Duration>,
    /// The address of this host from which a channel is dialled: the other host knows its peers by it.
    pub from: Option<IpAddr>,
}
