//! Programs' own resolvers, whose questions go to the host as datagrams, and their answers back.

use crate::askers::FIRST_ASKER;
use crate::worker::GuestWorker;
use netchannel_guest::Datagram;
use netchannel_service::questions::{self, ROOM};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::OwnedFd;

/// Datagrams of one end before the worker looks for other news.
const MOST_AT_ONCE: usize = 16;

impl GuestWorker {
    /// A program asks. Where the host is not there, or there are too many, its end is closed: it hears that nobody answers.
    pub(crate) fn add_asker(&mut self, end: OwnedFd) {
        if !self.tunnel.is_ready() {
            return;
        }
        let Some(number) = self.askers.add(end) else {
            return;
        };
        let end = self.askers.get(number);
        let watched = end.map(|end| self.cells.watch_own(end, FIRST_ASKER + number));
        if !matches!(watched, Some(Ok(()))) {
            self.askers.remove(number);
        }
    }

    /// Something came at an end.
    pub(crate) fn on_questions(&mut self, number: u32) {
        let mut room = [0; ROOM + 1];
        for _ in 0..MOST_AT_ONCE {
            let Some(end) = self.askers.get(number) else {
                return;
            };
            match rustix::net::recv(end, &mut room, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => return,
                // Nobody has the program's end any more.
                Ok((0, _)) | Err(_) => {
                    self.askers.remove(number);
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
        if let Some(end) = number.and_then(|number| self.askers.get(number)) {
            questions::answer(end, &datagram.server, &datagram.bytes);
        }
    }
}
