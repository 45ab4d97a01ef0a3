//! Names of a worker's own descriptors in its set: the kind, and a number of that kind.

/// What an own descriptor of the worker is: the highest bits of its name.
pub const KIND_SHIFT: u32 = 29;
/// A session with the CoreEngine of a tenant.
pub const SESSION: u32 = 1;
/// A published port.
pub const DOOR: u32 = 2;
/// A socket of a connection.
pub const CONNECTION: u32 = 3;
/// An end of who asks name servers.
pub const ASKER: u32 = 4;
/// Names of a kind.
pub const MOST_NAMES: u32 = (1 << KIND_SHIFT) - 1;

/// The name of an own descriptor of that kind.
pub const fn name_of(kind: u32, number: u32) -> u32 {
    kind << KIND_SHIFT | number
}

/// The name of a door.
pub const fn door_name(number: u32) -> u32 {
    name_of(DOOR, number)
}

/// The name of an end of an asker.
pub const fn asker_name(number: u32) -> u32 {
    name_of(ASKER, number)
}
