//! The entries of the tables of [`super::Fair`], and the arithmetic of turns.

use crate::list::{Linked, Links, List};
use crate::rate::{Allowance, Rate};
use crate::view::{Class, TenantId, TenantView};

/// The rest of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// Bytes; below 0 a debt, less than a quantum.
    deficit: i64,
    begun: bool,
}

impl Turn {
    /// There is nothing more to send: credit is lost, debt stays.
    pub(super) fn end(&mut self) {
        self.deficit = self.deficit.min(0);
        self.begun = false;
    }
}

/// Begins a turn, if it has not begun.
pub(super) fn take_turn(turn: &mut Turn, quantum: i64) {
    if !turn.begun {
        turn.begun = true;
        // Then at most `quantum`, since no credit is kept from a turn that ended, and above 0, since a debt is below it.
        turn.deficit += quantum;
    }
}

/// Charges bytes. Returns whether the turn is over.
pub(super) fn spend(turn: &mut Turn, bytes: u32) -> bool {
    turn.deficit -= i64::from(bytes);
    let over = turn.deficit <= 0;
    turn.begun &= !over;
    over
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Socket {
    pub(super) attached: bool,
    /// The class with which it was attached; its group may be another one, see `class_priority`.
    pub(super) class: Class,
    pub(super) group: u32,
    pub(super) sendable: u64,
    pub(super) turn: Turn,
    links: Links,
}

impl Socket {
    /// A number without a socket.
    pub(super) fn absent() -> Self {
        Self {
            attached: false,
            ..Self::new(Class::Throughput, 0)
        }
    }

    pub(super) fn new(class: Class, group: u32) -> Self {
        Self {
            attached: true,
            class,
            group,
            sendable: 0,
            turn: Turn::default(),
            links: Links::default(),
        }
    }
}

impl Linked for Socket {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The sockets of a tenant in one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group {
    /// The sockets with bytes.
    pub(super) sockets: List,
    /// The number of active sockets.
    pub(super) active: u32,
    pub(super) turn: Turn,
    /// The tenant's caps do not allow what it wants before then.
    pub(super) waits_until: Option<u64>,
    links: Links,
}

impl Group {
    /// Its index in the table.
    pub(super) const fn of(tenant: u32, class: Class) -> u32 {
        match class {
            Class::Latency => tenant * 2,
            Class::Throughput => tenant * 2 + 1,
        }
    }

    pub(super) const fn tenant(group: u32) -> u32 {
        group / 2
    }

    pub(super) const fn class(group: u32) -> Class {
        match group % 2 {
            0 => Class::Latency,
            _ => Class::Throughput,
        }
    }
}

impl Linked for Group {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tenant {
    pub(super) known: bool,
    pub(super) weight: u16,
    pub(super) sockets: u32,
    pub(super) caps: (Option<Rate>, Option<Rate>),
    pub(super) allowance: Allowance,
}

impl Tenant {
    pub(super) fn view(&self, id: TenantId) -> TenantView {
        TenantView {
            id,
            weight: self.weight,
            bytes: self.caps.0,
            operations: self.caps.1,
        }
    }
}

/// The share that T is owed while L goes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// Percent.
    share: i64,
    quantum: i64,
    /// In hundredths of a byte.
    owed: i64,
}

impl Floor {
    pub(super) fn new(share: u8, quantum: u32) -> Self {
        Self {
            share: i64::from(share),
            quantum: i64::from(quantum) * 100,
            owed: 0,
        }
    }

    /// Whether T is owed a segment.
    pub(super) fn is_due(&self) -> bool {
        self.owed > 0
    }

    /// Of every byte, T is owed its share while it has bytes; nothing is saved up while it has none.
    pub(super) fn on_sent(&mut self, class: Class, bytes: u32, throughput_waits: bool) {
        if self.share == 0 {
            return;
        }
        if class == Class::Latency && !throughput_waits {
            self.owed = 0;
            return;
        }
        let bytes = i64::from(bytes);
        self.owed += bytes * self.share;
        if class == Class::Throughput {
            self.owed -= bytes * 100;
        }
        // A run of T alone is no debt to L beyond one segment; what T could not take is not owed beyond one.
        self.owed = self.owed.clamp(-self.quantum, self.quantum);
    }
}
