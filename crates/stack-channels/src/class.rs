//! Conversions between the classes of the scheduler and of the wire.

use netchannel_scheduler::Class;

/// The class of the scheduler.
#[must_use]
pub const fn from_wire(class: netchannel_wire::Class) -> Class {
    match class {
        netchannel_wire::Class::Latency => Class::Latency,
        netchannel_wire::Class::Throughput => Class::Throughput,
    }
}

/// The class of the wire.
#[must_use]
pub const fn to_wire(class: Class) -> netchannel_wire::Class {
    match class {
        Class::Latency => netchannel_wire::Class::Latency,
        Class::Throughput => netchannel_wire::Class::Throughput,
    }
}
