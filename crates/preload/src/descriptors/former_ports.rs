//! The owners of ports according to daemons that have ended. Their clients go on over links of that time, for a while
//! with ports that the next daemon gave to no process.

use core::sync::atomic::{AtomicU64, Ordering};

use netchannel_abi::address::Address;
use netchannel_abi::directory::{PORTS, PORTS_OFFSET, is_owned};

use crate::descriptors::attach::Attachment;
use crate::ground::clock;
use crate::ground::lock::Lock;

/// The ports of a daemon at its end.
struct Table {
    /// The ports that had an owner, sorted, with their words.
    ports: Vec<(u16, u64)>,
    kept: u64,
}

impl Table {
    fn is_owned(&self, user: u32, from: &Address) -> bool {
        let found = self
            .ports
            .binary_search_by_key(&from.port, |(port, _)| *port);
        let word = found.ok().and_then(|index| self.ports.get(index));
        word.is_some_and(|(_, word)| is_owned(*word, user, from))
    }

    /// Whether programs may not have noticed yet that the daemon has ended: they look once a second, and wait as long
    /// where they found none.
    fn is_recent(&self) -> bool {
        clock::now().wrapping_sub(self.kept) < 10 * clock::SECOND
    }
}

static TABLES: Lock<Vec<Table>> = Lock::new(Vec::new());
/// The number of former daemons that are kept.
const MOST: usize = 4;

/// Keeps the ports of a directory that is about to be given up.
pub fn keep(former: &Attachment) {
    let words: Option<&[AtomicU64]> = former.directory.slice(PORTS_OFFSET, PORTS);
    let words = words.unwrap_or_default().iter().zip(0..=u16::MAX);
    let words_by_port = words.map(|(word, port)| (port, word.load(Ordering::Acquire)));
    let table = Table {
        ports: words_by_port.filter(|(_, word)| *word != 0).collect(),
        kept: clock::now(),
    };
    if let Some(mut tables) = TABLES.lock() {
        if tables.len() >= MOST {
            tables.remove(0);
        }
        tables.push(table);
    }
}

/// Whether a former daemon published that a program of the user with this word may come from that port. For a port that
/// is `another`'s by now, only a daemon that ended just now counts.
pub fn were_owned(user: u32, from: &Address, another: bool) -> bool {
    let owned = |table: &Table| table.is_owned(user, from) && (!another || table.is_recent());
    TABLES.lock().is_some_and(|tables| tables.iter().any(owned))
}

/// In a forked child, where a thread that held the lock does not exist.
pub fn reset_in_child() {
    TABLES.reset();
}
