//! What a daemon keeps: its connections by handle, and what it has to say for those that are gone.

use std::collections::HashMap;

use netchannel_vns::{ChannelId, End, FinalState, Handle, HandleTable, VirtualSocket};

use crate::network::Frame;
use crate::program::{Program, byte};

pub const NO_HANDLE: Handle = Handle {
    index: u32::MAX,
    generation: 0,
};

#[derive(Debug)]
pub struct Connection {
    pub socket: VirtualSocket,
    pub program: Program,
    pub pair: usize,
    pub peer: Option<Handle>,
    /// The stream's first sequences.
    pub transmit_start: u64,
    pub receive_start: u64,
    /// When its timer runs out, as it was set last.
    pub timer: Option<u64>,
    /// Its program is about to look.
    pub will_look: bool,
    /// When nothing more was to be said, if it is kept for a while all the same.
    pub over_since: Option<u64>,
    pub saw_end: bool,
}

impl Connection {
    /// Bytes of the program's ring, which must be what the program wrote there.
    pub fn bytes(&self, sequence: u64, length: u32) -> Vec<u8> {
        let offset = sequence.wrapping_sub(self.transmit_start);
        let bytes = self.program.transmit.get(offset, length.into());
        for (offset, got) in (offset..).zip(&bytes) {
            let wrote = byte(self.program.writes, offset);
            assert_eq!(
                *got, wrote,
                "byte {offset} was given back while a worker needs it"
            );
        }
        bytes
    }
}

/// In place of a connection.
#[derive(Clone, Debug)]
pub struct Memory {
    pub final_state: FinalState,
    pub peer: Option<Handle>,
    pub last_on: Option<ChannelId>,
}

/// How a pair's connection ended at one host.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub end: Option<End>,
    pub read: u64,
    pub saw_end: bool,
    pub acknowledged: u64,
    pub written: u64,
    /// The program did not let it end in order, or a daemon began anew.
    pub disturbed: bool,
}

#[derive(Debug)]
pub struct Host {
    pub epoch: u64,
    pub peer_epoch: Option<u64>,
    pub table: HandleTable<Connection, Memory>,
    /// By the initiator's handle: the connection that its Open made.
    pub opened: HashMap<Handle, Handle>,
    /// Frames of no living connection that wait for a channel.
    pub outbox: Vec<(Option<Handle>, Frame)>,
    /// Something is to be sent and no channel had room.
    pub waits_for_room: bool,
}

impl Host {
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            peer_epoch: None,
            table: HandleTable::new(64, 10_000_000_000),
            opened: HashMap::new(),
            outbox: Vec::new(),
            waits_for_room: false,
        }
    }
}
