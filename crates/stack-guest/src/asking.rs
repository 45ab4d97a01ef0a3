//! Programs' own resolvers: the stack's end of the pair of each, whose questions go to the host as datagrams.

use crate::worker::GuestWorker;
use netchannel_guest::Datagram;
use netchannel_service::questions::{self, ROOM};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// As many as a tenant may have on the host.
const MOST: usize = 256;
/// Datagrams of one end before the worker looks for other news.
const MOST_AT_ONCE: usize = 16;
/// Names among the worker's own descriptors begin here.
pub const FIRST_ASKER: u32 = 16;

/// Those who ask, by number. A number is used again late, so that no answer finds another one.
#[derive(Debug, Default)]
pub struct Askers {
    ends: BTreeMap<u32, OwnedFd>,
    next: u32,
}

impl GuestWorker {
    /// A program asks. Where the host is not there, or there are too many, its end is closed: it hears that nobody answers.
    pub(crate) fn add_asker(&mut self, end: OwnedFd) {
        if !self.tunnel.is_ready() || self.askers.ends.len() >= MOST {
            return;
        }
        let number = loop {
            let number = self.askers.next;
            self.askers.next = (number + 1) % (u32::MAX - FIRST_ASKER);
            if !self.askers.ends.contains_key(&number) {
                break number;
            }
        };
        if self.cells.watch_own(&end, FIRST_ASKER + number).is_ok() {
            self.askers.ends.insert(number, end);
        }
    }

    /// Something came at an end.
    pub(crate) fn on_questions(&mut self, number: u32) {
        let mut room = [0; ROOM + 1];
        for _ in 0..MOST_AT_ONCE {
            let Some(end) = self.askers.ends.get(&number) else {
                return;
            };
            match rustix::net::recv(end, &mut room, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => return,
                // Nobody has the program's end any more.
                Ok((0, _)) | Err(_) => {
                    self.askers.ends.remove(&number);
                    return self.tunnel.forget_asker(number.into());
                }
                Ok((length, _)) => {
                    let packet = room.get(..length).and_then(questions::read);
                    if let Some((server, question)) = packet {
                        self.tunnel.tell(&Datagram {
                            asker: number.into(),
                            server,
                            bytes: question.to_vec(),
                        });
                    }
                }
            }
        }
    }

    /// A server has answered.
    pub(crate) fn on_answer(&self, datagram: &Datagram) {
        let number = u32::try_from(datagram.asker).ok();
        // Whoever asked may be gone.
        if let Some(end) = number.and_then(|number| self.askers.ends.get(&number)) {
            questions::answer(end, &datagram.server, &datagram.bytes);
        }
    }

    /// The host is gone: those who ask hear it.
    pub(crate) fn drop_askers(&mut self) {
        self.askers.ends.clear();
    }
}
