//! What the other side says. Each frame is checked against what was said before.

use crate::flow::{Flow, Sink};
use crate::frame::{Datagram, Families, HEADER, Kind, Open, SERVER_WORDS, Welcome, address};
use crate::layout::Side;
use crate::ring::Frame;
use crate::tunnel::{Event, Tunnel};
use crate::violation::Violation;
use netchannel_abi::message::{MOST_QUESTION, NAMES_PORT};
use netchannel_shm::{Room, Span, run::transfer};

/// The largest errno of Linux.
const MOST_ERRNO: u32 = 4095;
/// Credit beyond this is none.
const MOST_CREDIT: u64 = 1 << 30;

impl<S: Sink> Tunnel<S> {
    /// Takes a frame. Returns how many bytes of the ring it was.
    ///
    /// # Errors
    /// What the other side did.
    pub(crate) fn take(&mut self, frame: Frame) -> Result<usize, Violation> {
        let header = frame.header;
        let whole = HEADER + header.length.next_multiple_of(HEADER);
        match header.kind {
            Kind::Pad => {}
            Kind::Welcome => self.on_welcome(frame.payload)?,
            Kind::Open => self.on_open(header.id, header.argument, frame.payload)?,
            Kind::Listen => self.on_listen(header.id, header.argument)?,
            Kind::Ping => self.owes_pong = true,
            Kind::Pong => {}
            Kind::Datagram => self.on_datagram(header.id, frame.payload)?,
            Kind::Forget => {
                if self.side() == Side::Guest {
                    return Err(Violation("a host that asks"));
                }
                self.events.push_back(Event::Forget(header.id));
            }
            Kind::Accept => {
                let flow = self.flow(header.id)?;
                if !flow.is_own || flow.is_made || flow.got_close.is_some() {
                    return Err(Violation("a connection that was accepted twice"));
                }
                flow.is_made = true;
                flow.credit = credit(0, header.argument)?;
                if let Some(sink) = &mut flow.sink {
                    sink.accepted();
                }
            }
            Kind::Data => self.on_data(header.id, frame.payload)?,
            Kind::Credit => {
                let flow = self.flow(header.id)?;
                flow.credit = credit(flow.credit, header.argument)?;
            }
            Kind::Fin => {
                let flow = self.flow(header.id)?;
                if flow.got_fin || flow.got_close.is_some() {
                    return Err(Violation("a stream that ended twice"));
                }
                flow.got_fin = true;
            }
            Kind::Close => {
                let flow = self.flow(header.id)?;
                if flow.got_close.is_some() || header.argument > MOST_ERRNO {
                    return Err(Violation("a connection that ended twice"));
                }
                // Where it was never there, that is no good order.
                let unmade = flow.is_own && !flow.is_made && header.argument == 0;
                let errno = if unmade { 111 } else { header.argument };
                flow.got_close = Some(errno);
            }
        }
        if let Some(serial) = self.by_id.get(&header.id).copied()
            && !matches!(
                header.kind,
                Kind::Listen | Kind::Pad | Kind::Datagram | Kind::Forget
            )
        {
            self.queue(serial);
        }
        Ok(whole)
    }

    fn flow(&mut self, id: u64) -> Result<&mut Flow<S>, Violation> {
        let serial = self.by_id.get(&id);
        let flow = serial.and_then(|serial| self.flows.get_mut(serial));
        flow.ok_or(Violation("a connection that there is not"))
    }

    fn on_welcome(&mut self, payload: Span) -> Result<(), Violation> {
        if self.side() == Side::Host {
            return Err(Violation("a guest that welcomes its host"));
        }
        let welcome = Welcome::from_words(&self.consumer.words(payload)?)?;
        self.most_own = welcome.most;
        self.is_ready = true;
        self.events.push_back(Event::Welcome(welcome));
        Ok(())
    }

    fn on_listen(&mut self, port: u64, families: u32) -> Result<(), Violation> {
        let port = u16::try_from(port).ok().filter(|port| *port != 0);
        let port = port.ok_or(Violation("a port that is none"))?;
        if self.side() == Side::Guest {
            return Err(Violation("a host that listens"));
        }
        let families = Families::from_argument(families)?;
        self.events.push_back(Event::Listen(port, families));
        Ok(())
    }

    fn on_datagram(&mut self, asker: u64, payload: Span) -> Result<(), Violation> {
        let server = address(self.consumer.words(payload)?)?;
        let bytes = Span {
            offset: payload.offset + 8 * SERVER_WORDS,
            length: payload.length - 8 * SERVER_WORDS,
        };
        let is_long = self.side() == Side::Host && bytes.length > MOST_QUESTION;
        if server.port != NAMES_PORT || is_long {
            return Err(Violation("a datagram that is no question"));
        }
        let run = self.region.run(bytes);
        let run = run.ok_or(Violation("a frame beyond the region"))?;
        let mut copy = vec![0; bytes.length];
        transfer(&[run], &[Room::from(copy.as_mut_slice())]);
        self.events.push_back(Event::Datagram(Datagram {
            asker,
            server,
            bytes: copy,
        }));
        Ok(())
    }

    fn on_open(&mut self, id: u64, argument: u32, payload: Span) -> Result<(), Violation> {
        if id & 1 != self.other_parity() || self.by_id.contains_key(&id) {
            return Err(Violation("a connection of a number that is not free"));
        }
        if self.peer_open >= self.most_peer {
            return Err(Violation("more connections than were permitted"));
        }
        let open = Open::from_words(self.consumer.words(payload)?)?;
        let grant = self.grant();
        let mut flow = Flow::new(id, false, grant, None);
        flow.credit = credit(0, argument)?;
        self.peer_open += 1;
        let serial = self.insert(flow);
        self.events.push_back(Event::Open(serial, open));
        Ok(())
    }

    fn on_data(&mut self, id: u64, payload: Span) -> Result<(), Violation> {
        let length = payload.length as u64;
        let region = std::sync::Arc::clone(&self.region);
        let flow = self.flow(id)?;
        if flow.got_fin || flow.got_close.is_some() || !flow.is_made {
            return Err(Violation("bytes before or behind a stream"));
        }
        let left = flow.window.checked_sub(length);
        flow.window = left.ok_or(Violation("more bytes than were permitted"))?;
        let Some(sink) = &mut flow.sink else {
            // Nobody reads them any more, which the other side was told.
            return Ok(());
        };
        let mut rest = payload;
        if flow.inbox.is_empty() && flow.failed.is_none() {
            let run = region.run(payload);
            let run = run.ok_or(Violation("a frame beyond the region"))?;
            match sink.put(&[run]) {
                Ok(count) => {
                    let count = count.min(payload.length);
                    flow.taken += count as u64;
                    rest.offset += count;
                    rest.length -= count;
                }
                Err(errno) => {
                    flow.failed = Some(errno);
                    return Ok(());
                }
            }
        }
        if rest.length > 0 {
            let mut kept = vec![0; rest.length];
            let run = region.run(rest);
            let run = run.ok_or(Violation("a frame beyond the region"))?;
            transfer(&[run], &[Room::from(kept.as_mut_slice())]);
            flow.inbox.extend(kept);
        }
        Ok(())
    }
}

fn credit(before: u64, more: u32) -> Result<u64, Violation> {
    let credit = before + u64::from(more);
    if credit > MOST_CREDIT {
        return Err(Violation("more credit than there can be"));
    }
    Ok(credit)
}
