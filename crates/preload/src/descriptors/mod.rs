//! Descriptor numbers and what they name: the table, limits, reserved numbers, the attachment to the daemon, names and
//! ports. Never: what a connection is.

pub mod attach;
pub mod channel;
pub mod confinement;
pub mod copying;
pub mod credentials;
pub mod faults;
pub mod former_ports;
pub mod gateway;
pub mod limits;
pub mod names;
pub mod ports;
pub mod reserved_number;
pub mod table;
pub mod user;
