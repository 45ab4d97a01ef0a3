//! Classes, as the scheduler and the wire name them.

use netchannel_scheduler::Class;

/// A class, as the scheduler names it.
#[must_use]
pub const fn from_wire(class: netchannel_wire::Class) -> Class {
    match class {
        netchannel_wire::Class::Latency => Class::Latency,
        netchannel_wire::Class::Throughput => Class::Throughput,
    }
}

/// The same, as the wire does.
#[must_use]
pub const fn to_wire(class: Class) -> netchannel_wire::Class {
    match class {
        Class::Latency => netchannel_wire::Class::Latency,
        Class::Throughput => netchannel_wire::Class::Throughput,
    }
}
