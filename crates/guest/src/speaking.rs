//! What a side says that belongs to no connection: who is there, where programs listen, questions to name servers.

use crate::flow::Sink;
use crate::frame::{Datagram, Families, Kind};
use crate::tunnel::Tunnel;
use crate::violation::Violation;

impl<S: Sink> Tunnel<S> {
    /// (guest) Programs listen at a port by these families from now on.
    pub fn listen(&mut self, port: u16, families: Families) {
        let before = if families == Families::NONE {
            self.listens.remove(&port)
        } else {
            self.listens.insert(port, families)
        };
        if before.unwrap_or_default() != families && self.link.is_up() {
            self.owes_listens.insert(port);
        }
    }

    /// Tells the other side a datagram. One that finds no room is lost.
    pub fn tell(&mut self, datagram: &Datagram) {
        if self.is_ready {
            // What the other side did, is found by the next look.
            let _ = self.producer.datagram(datagram);
        }
    }

    /// (guest) Nobody asks under this number any more.
    pub fn forget_asker(&mut self, number: u64) {
        if self.link.is_up() {
            self.owes_forgets.insert(number);
        }
    }

    /// Says what belongs to no connection. False where the ring is full.
    pub(crate) fn speak(&mut self) -> Result<bool, Violation> {
        let ring = &mut self.producer;
        if self.owes_welcome
            && let Some(welcome) = &self.welcome
        {
            if !ring.control(Kind::Welcome, 0, 0, &welcome.to_words())? {
                return Ok(false);
            }
            self.owes_welcome = false;
        }
        while let Some(port) = self.owes_listens.first().copied() {
            let families = self.listens.get(&port).copied().unwrap_or_default();
            if !ring.control(Kind::Listen, port.into(), families.to_argument(), &[])? {
                return Ok(false);
            }
            self.owes_listens.remove(&port);
        }
        while let Some(number) = self.owes_forgets.first().copied() {
            if !ring.control(Kind::Forget, number, 0, &[])? {
                return Ok(false);
            }
            self.owes_forgets.remove(&number);
        }
        for (owes, kind) in [
            (&mut self.owes_ping, Kind::Ping),
            (&mut self.owes_pong, Kind::Pong),
        ] {
            if *owes && !ring.control(kind, 0, 0, &[])? {
                return Ok(false);
            }
            *owes = false;
        }
        Ok(true)
    }

    pub(crate) fn has_to_speak(&self) -> bool {
        let lists = !self.owes_listens.is_empty() || !self.owes_forgets.is_empty();
        self.owes_welcome || lists || self.owes_ping || self.owes_pong
    }
}
