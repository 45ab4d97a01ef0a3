//! The two rings. Own indices are private; the other side's are loaded once, checked, and the copy used.

use crate::frame::{Datagram, HEADER, Header, Kind, MOST_PAYLOAD, SERVER_WORDS};
use crate::layout::{Ring, Side, ring, word};
use crate::violation::Violation;
use netchannel_shm::run::transfer;
use netchannel_shm::{Region, Run, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Less room than this at the ring's end is not worth a frame of bytes.
const SMALL: usize = 512;

/// A word of the region.
pub(crate) fn at(region: &Region, offset: usize) -> Result<&AtomicU64, Violation> {
    let word = region.at(offset);
    word.ok_or(Violation("a word beyond the region"))
}

/// The writer's end of a ring.
#[derive(Debug)]
pub struct Producer {
    region: Arc<Region>,
    ring: Ring,
    own: usize,
    peer: usize,
    /// What was written, and how much of it is shown.
    tail: u64,
    shown: u64,
    /// What the other side has read, as far as is known.
    head: u64,
}

impl Producer {
    /// The ring that a side writes. `None` where the region is too small.
    #[must_use]
    pub fn new(region: &Arc<Region>, side: Side) -> Option<Self> {
        Some(Self {
            ring: ring(region.size(), side)?,
            region: Arc::clone(region),
            own: side.page(),
            peer: side.other().page(),
            tail: 0,
            shown: 0,
            head: 0,
        })
    }

    /// Begins anew.
    ///
    /// # Errors
    /// Never in a region that holds the ring.
    pub fn reset(&mut self) -> Result<(), Violation> {
        (self.tail, self.shown, self.head) = (0, 0, 0);
        // Relaxed: the session that is stored behind it releases it.
        at(&self.region, self.own + word::TAIL)?.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of the ring that are free.
    fn free(&mut self) -> Result<usize, Violation> {
        // Acquire: pairs with the release of the reader. What lies before it may be overwritten.
        let head = at(&self.region, self.peer + word::HEAD)?.load(Ordering::Acquire);
        if head < self.head || head > self.shown || !head.is_multiple_of(HEADER as u64) {
            return Err(Violation("an index of its reading that is none"));
        }
        self.head = head;
        let used = usize::try_from(self.tail - head).unwrap_or(usize::MAX);
        Ok(self.ring.size.saturating_sub(used))
    }

    /// Whether the other side has read more than was known until now.
    ///
    /// # Errors
    /// What the other side did.
    pub fn look_for_room(&mut self) -> Result<bool, Violation> {
        let before = self.head;
        self.free()?;
        Ok(self.head != before)
    }

    /// The same, without noting it.
    #[must_use]
    pub fn has_more_room(&self) -> bool {
        let head = at(&self.region, self.peer + word::HEAD);
        // Relaxed: what is done about it loads it again.
        head.is_ok_and(|head| head.load(Ordering::Relaxed) != self.head)
    }

    fn place(&self) -> usize {
        let size = self.ring.size as u64;
        usize::try_from(self.tail % size).unwrap_or(0)
    }

    fn write(&mut self, header: Header, words: &[u64]) -> Result<(), Violation> {
        let begin = self.ring.offset + self.place();
        let all = header.to_words().into_iter().chain(words.iter().copied());
        for (number, one) in all.enumerate() {
            // Relaxed: the tail releases it.
            at(&self.region, begin + 8 * number)?.store(one, Ordering::Relaxed);
        }
        self.tail += (HEADER + header.length.next_multiple_of(HEADER)) as u64;
        Ok(())
    }

    /// Fills the ring up to its end, so that what follows is in one piece.
    fn pad(&mut self) -> Result<(), Violation> {
        let length = self.ring.size - self.place() - HEADER;
        let header = Header {
            kind: Kind::Pad,
            id: 0,
            length,
            argument: 0,
        };
        self.write(header, &[])
    }

    /// Writes a frame whose payload are these words: an even number. False where there is no room.
    ///
    /// # Errors
    /// What the other side did.
    pub fn control(
        &mut self,
        kind: Kind,
        id: u64,
        argument: u32,
        words: &[u64],
    ) -> Result<bool, Violation> {
        let length = 8 * words.len();
        if !self.fits(HEADER + length)? {
            return Ok(false);
        }
        let header = Header {
            kind,
            id,
            length,
            argument,
        };
        self.write(header, words)?;
        Ok(true)
    }

    /// Whether there is room for so much in one piece: from here on, then.
    fn fits(&mut self, wanted: usize) -> Result<bool, Violation> {
        let free = self.free()?;
        let to_end = self.ring.size - self.place();
        let pads = to_end < wanted;
        if free < wanted + if pads { to_end } else { 0 } {
            return Ok(false);
        }
        if pads {
            self.pad()?;
        }
        Ok(true)
    }

    /// Writes a datagram. False where there is no room.
    ///
    /// # Errors
    /// What the other side did.
    pub fn datagram(&mut self, datagram: &Datagram) -> Result<bool, Violation> {
        let length = 8 * SERVER_WORDS + datagram.bytes.len();
        let wanted = HEADER + length.next_multiple_of(HEADER);
        if length > MOST_PAYLOAD || !self.fits(wanted)? {
            return Ok(false);
        }
        let span = Span {
            offset: self.ring.offset + self.place() + HEADER + 8 * SERVER_WORDS,
            length: datagram.bytes.len(),
        };
        let room = self.region.room(span);
        let room = room.ok_or(Violation("a frame beyond the region"))?;
        transfer(&[Run::from(datagram.bytes.as_slice())], &[room]);
        let header = Header {
            kind: Kind::Datagram,
            id: datagram.asker,
            length,
            argument: 0,
        };
        self.write(header, &datagram.server.to_words())?;
        Ok(true)
    }

    /// Where up to `most` bytes of a frame would lie, in one piece; [`Self::commit`] makes it one. `None` where there is no room.
    ///
    /// # Errors
    /// What the other side did.
    pub fn room(&mut self, most: usize) -> Result<Option<Span>, Violation> {
        let mut free = self.free()?;
        let mut to_end = self.ring.size - self.place();
        if to_end < HEADER + SMALL && free >= to_end + HEADER + SMALL {
            self.pad()?;
            free -= to_end;
            to_end = self.ring.size;
        }
        let room = free.min(to_end).saturating_sub(HEADER);
        let length = room.min(most).min(MOST_PAYLOAD);
        let offset = self.ring.offset + self.place() + HEADER;
        Ok((length > 0).then_some(Span { offset, length }))
    }

    /// The first `length` bytes of the [`Self::room`] are the payload of a frame now.
    ///
    /// # Errors
    /// Never for a room that there was.
    pub fn commit(&mut self, id: u64, length: usize) -> Result<(), Violation> {
        let header = Header {
            kind: Kind::Data,
            id,
            length,
            argument: 0,
        };
        self.write(header, &[])
    }

    /// Shows what was written. Returns whether there was anything.
    ///
    /// # Errors
    /// Never in a region that holds the ring.
    pub fn show(&mut self) -> Result<bool, Violation> {
        if self.shown == self.tail {
            return Ok(false);
        }
        self.shown = self.tail;
        // Release: pairs with the acquire of the reader, who then sees the frames before it.
        at(&self.region, self.own + word::TAIL)?.store(self.tail, Ordering::Release);
        Ok(true)
    }
}

/// The reader's end of a ring.
#[derive(Debug)]
pub struct Consumer {
    region: Arc<Region>,
    ring: Ring,
    own: usize,
    peer: usize,
    /// What was read, and how much of it was given back.
    head: u64,
    given_back: u64,
    /// What was written, as far as is known.
    tail: u64,
}

/// A frame of the other side. Its payload may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header, which was copied.
    pub header: Header,
    /// Where the payload is.
    pub payload: Span,
}

impl Consumer {
    /// The ring that the other side of `side` writes. `None` where the region is too small.
    #[must_use]
    pub fn new(region: &Arc<Region>, side: Side) -> Option<Self> {
        Some(Self {
            ring: ring(region.size(), side.other())?,
            region: Arc::clone(region),
            own: side.page(),
            peer: side.other().page(),
            head: 0,
            given_back: 0,
            tail: 0,
        })
    }

    /// Begins anew.
    ///
    /// # Errors
    /// Never in a region that holds the ring.
    pub fn reset(&mut self) -> Result<(), Violation> {
        (self.head, self.given_back, self.tail) = (0, 0, 0);
        // Relaxed: the session that is stored behind it releases it.
        at(&self.region, self.own + word::HEAD)?.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there may be a frame.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let tail = at(&self.region, self.peer + word::TAIL);
        // Relaxed: what is done about it loads it again.
        tail.is_ok_and(|tail| tail.load(Ordering::Relaxed) != self.head)
    }

    /// The next frame. It stays until [`Self::give_back`].
    ///
    /// # Errors
    /// What the other side did.
    pub fn read(&mut self) -> Result<Option<Frame>, Violation> {
        if self.head == self.tail {
            // Acquire: pairs with the release of the writer.
            let tail = at(&self.region, self.peer + word::TAIL)?.load(Ordering::Acquire);
            let size = self.ring.size as u64;
            if tail < self.head || tail - self.given_back > size || !tail.is_multiple_of(16) {
                return Err(Violation("an index of its writing that is none"));
            }
            self.tail = tail;
            if tail == self.head {
                return Ok(None);
            }
        }
        let size = self.ring.size as u64;
        let place = usize::try_from(self.head % size).unwrap_or(0);
        let begin = self.ring.offset + place;
        let load = |offset| at(&self.region, offset).map(|word| word.load(Ordering::Relaxed));
        let header = Header::from_words([load(begin)?, load(begin + 8)?])?;
        let whole = HEADER + header.length.next_multiple_of(HEADER);
        let written = usize::try_from(self.tail - self.head).unwrap_or(0);
        if whole > written || whole > self.ring.size - place {
            return Err(Violation("a frame that is longer than its ring"));
        }
        self.head += whole as u64;
        Ok(Some(Frame {
            header,
            payload: Span {
                offset: begin + HEADER,
                length: header.length,
            },
        }))
    }

    /// The words of a payload, copied.
    ///
    /// # Errors
    /// Never for a payload of that many words.
    pub fn words<const COUNT: usize>(&self, payload: Span) -> Result<[u64; COUNT], Violation> {
        let mut words = [0; COUNT];
        for (number, one) in words.iter_mut().enumerate() {
            *one = at(&self.region, payload.offset + 8 * number)?.load(Ordering::Relaxed);
        }
        Ok(words)
    }

    /// Gives back the room of all frames that were read. Returns whether there were any.
    ///
    /// # Errors
    /// Never in a region that holds the ring.
    pub fn give_back(&mut self) -> Result<bool, Violation> {
        if self.given_back == self.head {
            return Ok(false);
        }
        self.given_back = self.head;
        // Release: pairs with the acquire of the writer. The frames before it may be overwritten.
        at(&self.region, self.own + word::HEAD)?.store(self.head, Ordering::Release);
        Ok(true)
    }
}
