//! Every layout that two NetChannel processes share: queue elements, handles, the link between two
//! programs, the region of one program, the directory of listeners, and the messages of the attach
//! protocol.
//!
//! Never: logic. A type here defines where a word lies, which side writes it and what it means; the code that uses it
//! is in `ring`, `shm`, `engine` and `preload`.
//!
//! ```text
//!  program A --- program region ---+                +--- program region --- program B
//!      |                           v                v                          |
//!      |                      CoreEngine ---- directory (read-only to all)     |
//!      +------------------------ link (slots, queues, rings) ------------------+
//! ```
//!
//! Access keys used below: (c) the client side of a link writes, (s) the server side writes, (o) the side that owns the
//! structure writes, (b) both write by read-modify-write, (i) immutable after the handshake, (d) only the daemon
//! writes. Words that the other process writes are untrusted: each is copied once, the copy is checked, and the copy is
//! used.
#![forbid(unsafe_code)]

pub mod address;
pub mod answer;
pub mod class;
pub mod copying;
pub mod directory;
pub mod handle;
pub mod link;
pub mod liveness;
pub mod message;
pub mod note;
pub mod nqe;
pub mod program;
pub mod queued;
pub mod reason;
pub mod supervision;
pub mod tenant;

/// Version of all layouts and of the attach protocol. Both ends must agree.
pub const VERSION: u32 = 11;

/// Hash over the sizes and offsets that two processes must agree on, compared at attach.
///
/// It is computed at compile time from the layouts themselves, so that a changed field changes it
/// even when [`VERSION`] was forgotten.
pub const LAYOUT_HASH: u64 = {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let words = [
        VERSION as u64,
        core::mem::size_of::<nqe::Nqe>() as u64,
        core::mem::size_of::<link::Slot>() as u64,
        core::mem::offset_of!(link::Slot, server) as u64,
        core::mem::offset_of!(link::Slot, meta) as u64,
        core::mem::offset_of!(link::Side, waiter) as u64,
        core::mem::offset_of!(link::Side, error) as u64,
        core::mem::offset_of!(link::Side, hints) as u64,
        core::mem::offset_of!(link::Side, urgent) as u64,
        core::mem::offset_of!(link::Side, passed) as u64,
        core::mem::offset_of!(link::Side, row) as u64,
        core::mem::offset_of!(link::Side, wanted_ring) as u64,
        core::mem::offset_of!(link::Side, held) as u64,
        core::mem::offset_of!(link::Side, liveness) as u64,
        core::mem::offset_of!(link::Side, asked) as u64,
        core::mem::offset_of!(link::Side, congestion) as u64,
        core::mem::size_of::<answer::Answer>() as u64,
        answer::OFFSET as u64,
        core::mem::size_of::<link::Cell>() as u64,
        core::mem::size_of::<link::Header>() as u64,
        core::mem::size_of::<program::SocketEntry>() as u64,
        core::mem::offset_of!(program::SocketEntry, hints) as u64,
        core::mem::offset_of!(program::SocketEntry, urgent_sent) as u64,
        core::mem::offset_of!(program::SocketEntry, urgent_row) as u64,
        core::mem::offset_of!(program::SocketEntry, caught_up) as u64,
        core::mem::offset_of!(program::SocketEntry, options) as u64,
        core::mem::size_of::<program::Header>() as u64,
        core::mem::offset_of!(program::Header, holders) as u64,
        core::mem::size_of::<program::Holder>() as u64,
        program::HOLDERS as u64,
        core::mem::size_of::<directory::Entry>() as u64,
        core::mem::size_of::<directory::Header>() as u64,
        core::mem::offset_of!(directory::Header, copying) as u64,
        directory::PORTS_OFFSET as u64,
        core::mem::size_of::<message::Message>() as u64,
        link::SMALL_RING as u64,
        link::CELLS as u64,
        link::QUEUE_CAPACITY as u64,
    ];
    let mut index = 0;
    while index < words.len() {
        hash = (hash ^ words[index]).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
};
