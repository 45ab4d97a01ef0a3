//! Ephemeral ports of virtual connections, from blocks that the daemon reserves for this process.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;

use netchannel_abi::address::Address;
use netchannel_abi::message::Operation;

use crate::descriptors::{attach, names};
use crate::ground::lock::Lock;
use crate::ground::{process, sys};

struct Ports {
    free: VecDeque<u16>,
    /// First port and length of each block that the daemon gave.
    blocks: Vec<(u16, u16)>,
    process: u32,
}

static PORTS: Lock<Ports> = Lock::new(Ports {
    free: VecDeque::new(),
    blocks: Vec::new(),
    process: 0,
});

/// The ports no longer belong to this program.
static FORGOTTEN: AtomicBool = AtomicBool::new(false);

const BLOCK: u64 = 256;

impl Ports {
    fn clear(&mut self) {
        self.free.clear();
        self.blocks.clear();
    }

    fn has_block_of(&self, port: u16) -> bool {
        let holds = |&(first, count): &(u16, u16)| port.wrapping_sub(first) < count;
        self.blocks.iter().any(holds)
    }
}

/// A port that no other virtual connection of this host uses.
///
/// # Errors
/// The daemon's refusal, or why it could not be asked.
pub fn take() -> Result<u16, i32> {
    let mut ports = PORTS.lock().ok_or(libc::EDEADLK)?;
    // Acquire: pairs with the release in `forget`.
    if FORGOTTEN.swap(false, Ordering::Acquire) || ports.process != process::number() {
        ports.clear();
        ports.process = process::number();
    }
    if ports.free.is_empty() {
        let mut words = [0; 14];
        words[0] = BLOCK;
        let mut none = [-1; sys::MOST];
        let (answer, _) = attach::request(Operation::Ports, words, &[], &mut none)?;
        if FORGOTTEN.swap(false, Ordering::Acquire) {
            // Forgotten during the request: this block is from the present daemon.
            ports.clear();
        }
        let first = u16::try_from(answer.words[0]).map_err(|_| libc::EPROTO)?;
        let count = u16::try_from(answer.words[1].min(BLOCK)).map_err(|_| libc::EPROTO)?;
        ports.blocks.push((first, count));
        ports
            .free
            .extend((0..count).filter_map(|index| first.checked_add(index)));
    }
    for _ in 0..ports.free.len() {
        let port = ports.free.pop_front().ok_or(libc::ENOBUFS)?;
        // A server that starts again would find its port taken, and a connection to itself has two equal ends.
        if !attach::current().is_some_and(|own| names::has_listener_at(own, port)) {
            return Ok(port);
        }
        ports.free.push_back(port);
    }
    Err(libc::ENOBUFS)
}

/// Shows the daemon a kernel socket that the program has bound, so that this program may name its port.
///
/// # Errors
/// `EADDRNOTAVAIL` where another process has a connection from there to `peer`; else the daemon's refusal, or the
/// reason why it could not be asked.
pub fn claim(bound: i32, peer: &Address) -> Result<(), i32> {
    let mut words = [0; 14];
    words[1..4].copy_from_slice(&peer.to_words());
    words[5] = process::number().into();
    attach::request(Operation::Ports, words, &[bound], &mut [-1; sys::MOST]).map(drop)
}

/// Returns a port, if this process took it. Port 0 is none.
pub fn give(port: u16, process: u32) {
    if port != 0
        && let Some(mut ports) = PORTS.lock()
        && ports.process == process
        && process == process::number()
        && ports.has_block_of(port)
    {
        ports.free.push_back(port);
    }
}

/// Drops all ports: another daemon serves, or the same one takes this program for another. Only sets a flag: a thread
/// that asks for ports holds their lock while it talks to the daemon, and that talk may call this function.
pub fn forget() {
    FORGOTTEN.store(true, Ordering::Release);
}

/// In a forked child.
pub fn reset() {
    PORTS.reset();
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_daemon_that_can_not_be_asked_has_refused_nothing() {
        assert_eq!(super::take(), Err(libc::ENOTCONN), "not what a bound says");
    }
}
