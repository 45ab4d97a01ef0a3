//! Readiness for one worker: its cell in every link, the job queues of links towards it, and anchors and channels in
//! one epoll set. A worker sleeps without missing an event and without wasting processor time.
//!
//! ```text
//!  look:   awake links: cell bits, job queue          (memory only)
//!          now and then: the kernel                   (one call)
//!  sleep:  arm the awake links -> look again -> spin -> epoll_wait
//!          a token, doorbell or hang-up makes its link awake again
//! ```
//!
//! A link that brought no news since the last sleep stays armed. It costs nothing, however many such links there are.
//! The first news of its program cost that program one token.

use super::anchor::Anchor;
use super::jobs::Opened;
use super::link::LinkEnd;
use super::timers::nanoseconds;
use netchannel_abi::link::{QUEUE_CAPACITY, Role};
use netchannel_ring::cell;
use netchannel_ring::patience::Patience;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events taken from the kernel with one call.
const MOST_EVENTS: usize = 256;
/// Nanoseconds.
const MICROSECOND: u64 = 1000;
/// How often the kernel is asked while there is work.
const KERNEL_POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Doorbells that may lie unread in a channel. More than twice as many fit.
const MOST_UNREAD: u32 = 64;
/// Batches of messages that are read in search of the end of a channel.
const MOST_READS: u32 = 8;
/// A link that brought no news for this many sleeps stays armed until it brings some.
const MOST_IDLE_SLEEPS: u32 = 16;
/// New connections of one link that are taken before other links have their turn.
const MOST_JOBS: usize = 64;
/// The link channel, in the place of a slot number.
const CHANNEL: u32 = u32::MAX;

/// A link of this worker. The key of a removed link is not used again before the next [`Cells::look`].
pub type Key = u32;

/// An event for a worker.
#[derive(Debug)]
pub enum News {
    /// The program published bytes in a slot, or made room.
    Ready(Key, u32),
    /// A token on the anchor of a slot, or, where true, its hang-up.
    Token(Key, u32, bool),
    /// A program has made a connection.
    Opened(Key, Opened),
    /// No new connection comes over a link any more: the program has ended, or broke the rules.
    Ended(Key),
    /// An event on a descriptor of the worker's own, by its name.
    Own(u32),
    /// The same, and the other end of it has shut its side, or there is an error.
    OwnEnd(u32),
    /// An urgent byte can be read from a socket of the worker's own. Another event of the same socket follows.
    OwnUrgent(u32),
}

#[derive(Debug)]
struct Watched {
    end: Arc<LinkEnd>,
    cell: usize,
    awake: bool,
    /// This worker takes the new connections of the link, and reads its channel.
    takes_new: bool,
    /// Sleeps since the link last brought news.
    idle_sleeps: Cell<u32>,
    /// An upper limit of the doorbells that lie in the channel: one for each time that one was requested since the last
    /// read.
    unread: u32,
}

impl Watched {
    #[inline]
    fn takes_jobs(&self) -> bool {
        self.takes_new && self.end.role() == Role::Server && self.end.is_alive()
    }

    #[inline]
    fn has_news(&self) -> bool {
        let cell = self.end.cell(self.end.role(), self.cell);
        cell.is_some_and(|shared| cell::any_marked(&shared.summary))
            || self.takes_jobs() && self.end.has_jobs()
    }
}

/// The links of one worker.
#[derive(Debug)]
pub struct Cells {
    epoll: Arc<OwnedFd>,
    links: Vec<Option<Watched>>,
    unused: Vec<Key>,
    /// Keys removed since the last look: events of these links may still be pending in the kernel.
    retired: Vec<Key>,
    awake: Vec<Key>,
    /// Whether spinning includes descriptors of the worker's own.
    spins_on_sockets: bool,
    patience: Patience<MICROSECOND>,
    epoch: Instant,
    kernel_polled: Instant,
}

impl Cells {
    /// No links yet.
    ///
    /// # Errors
    /// The errno of `epoll_create1`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: Arc::new(epoll::create(CreateFlags::CLOEXEC)?),
            links: Vec::new(),
            unused: Vec::new(),
            retired: Vec::new(),
            awake: Vec::new(),
            spins_on_sockets: false,
            patience: Patience::new(0),
            epoch: Instant::now(),
            kernel_polled: Instant::now(),
        })
    }

    /// Watches a descriptor of the worker's own for reading, under a name below 2^32 - 1.
    ///
    /// # Errors
    /// The errno of `epoll_ctl`.
    pub fn watch_own(&self, descriptor: impl AsFd, name: u32) -> Result<(), Errno> {
        let data = EventData::new_u64(u64::from(name));
        epoll::add(&*self.epoll, descriptor, data, EventFlags::IN)
    }

    /// Watches a channel of the worker's own under a name. It is edge-triggered: every change, for reading and writing,
    /// is reported once.
    ///
    /// # Errors
    /// The errno of `epoll_ctl`.
    pub fn watch_edges(&self, descriptor: impl AsFd, name: u32) -> Result<(), Errno> {
        let data = EventData::new_u64(u64::from(name));
        let flags = EventFlags::IN | EventFlags::PRI | EventFlags::OUT | EventFlags::RDHUP;
        let flags = flags | EventFlags::ET;
        epoll::add(&*self.epoll, descriptor, data, flags)
    }

    /// Looks at descriptors of the worker's own, too, while it spins: for a worker that waits for sockets as much as for programs.
    pub const fn spin_on_sockets(&mut self) {
        self.spins_on_sockets = true;
    }

    /// Stops watching a descriptor of the worker's own.
    pub fn forget_own(&self, descriptor: impl AsFd) {
        // It may not have been watched.
        let _ = epoll::delete(&*self.epoll, descriptor);
    }

    /// Adds a link. `None` when all its cells are in use or the kernel refuses.
    pub fn add_link(&mut self, end: Arc<LinkEnd>) -> Option<Key> {
        self.add(end, true)
    }

    /// Adds a link whose new connections and channel belong to another worker.
    pub fn add_shared_link(&mut self, end: Arc<LinkEnd>) -> Option<Key> {
        self.add(end, false)
    }

    fn add(&mut self, end: Arc<LinkEnd>, takes_new: bool) -> Option<Key> {
        let cell = end.reserve_cell()?;
        let key = match self.unused.pop() {
            Some(key) => key,
            None => {
                self.links.push(None);
                u32::try_from(self.links.len() - 1).ok()?
            }
        };
        if takes_new {
            let data = EventData::new_u64(word(key, CHANNEL));
            // Edge-triggered: a doorbell wakes without being read.
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&*self.epoll, end.channel(), data, flags).ok()?;
        }
        let watched = Watched {
            end,
            cell,
            awake: true,
            takes_new,
            idle_sleeps: Cell::new(0),
            unread: 0,
        };
        *self.links.get_mut(index(key))? = Some(watched);
        self.awake.push(key);
        Some(key)
    }

    /// Removes a link that no connection uses any more.
    pub fn remove_link(&mut self, key: Key) {
        if let Some(place) = self.links.get_mut(index(key))
            && place.take().is_some()
        {
            self.awake.retain(|one| *one != key);
            self.retired.push(key);
        }
    }

    /// Whether any link has brought news since the last sleep.
    #[must_use]
    #[inline]
    pub const fn is_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// A link.
    #[must_use]
    #[inline]
    pub fn link(&self, key: Key) -> Option<&Arc<LinkEnd>> {
        Some(&self.links.get(index(key))?.as_ref()?.end)
    }

    /// The cell to which connections of a link are attached.
    #[must_use]
    #[inline]
    pub fn cell(&self, key: Key) -> Option<usize> {
        Some(self.links.get(index(key))?.as_ref()?.cell)
    }

    /// Watches an anchor. This is done once: the anchor stays in the set while it is pooled.
    ///
    /// # Errors
    /// The errno of `epoll_ctl`.
    pub fn watch_anchor(&self, key: Key, slot: u32, anchor: &mut Anchor) -> Result<(), Errno> {
        anchor.watch(&self.epoll, EventData::new_u64(word(key, slot)))
    }

    /// Stops watching the channel of a link: its program has ended, or takes no more connections.
    pub fn unwatch_channel(&self, key: Key) {
        if let Some(end) = self.link(key) {
            // The channel may have been removed before.
            let _ = epoll::delete(&*self.epoll, end.channel());
        }
    }

    /// Collects all news without waiting.
    #[inline]
    pub fn look(&mut self, news: &mut Vec<News>) {
        self.unused.append(&mut self.retired);
        self.collect(news);
        if self.kernel_polled.elapsed() > KERNEL_POLL_INTERVAL {
            self.wait_for_kernel(news, Some(Duration::ZERO));
        }
    }

    /// Polls the kernel without waiting.
    pub fn poll_kernel(&mut self, news: &mut Vec<News>) {
        self.wait_for_kernel(news, Some(Duration::ZERO));
    }

    /// Sleeps until there is news, or until `until`. A short spin comes first where it pays.
    pub fn sleep(&mut self, news: &mut Vec<News>, until: Option<Instant>) {
        let spins = !self.awake.is_empty();
        self.sleep_with(news, until, spins, || false, || false);
    }

    /// As [`Self::sleep`], for a worker that also waits for other things. `look` is asked while the worker `spins`.
    /// `arm_others` is called once before the worker sleeps: what comes later then rings a descriptor of the worker's
    /// own. Both return whether there is something to do.
    pub fn sleep_with(
        &mut self,
        news: &mut Vec<News>,
        until: Option<Instant>,
        spins: bool,
        mut look: impl FnMut() -> bool,
        arm_others: impl FnOnce() -> bool,
    ) {
        let (links, awake) = (&self.links, &self.awake);
        let sockets = self.spins_on_sockets.then_some(&*self.epoll);
        let any = || {
            awake.iter().any(|key| has_news(links, *key))
                || look()
                || sockets.is_some_and(has_events)
        };
        let clock = || nanoseconds(self.epoch.elapsed());
        if spins
            && self
                .patience
                .spin_yielding(clock, std::thread::yield_now, any)
        {
            if self.spins_on_sockets {
                self.poll_kernel(news);
            }
            return self.collect(news);
        }
        let slept = std::mem::take(&mut self.awake);
        let mut found = false;
        for key in &slept {
            arm(&mut self.links, *key);
            found |= has_news(&self.links, *key);
        }
        if arm_others() || found {
            slept.into_iter().for_each(|key| self.stay_awake(key));
            return self.collect(news);
        }
        let start = Instant::now();
        let patience = until.map(|until| until.saturating_duration_since(start));
        self.wait_for_kernel(news, patience);
        let duration = self.kernel_polled.duration_since(start);
        self.patience.learn(nanoseconds(duration));
        slept.into_iter().for_each(|key| self.stay_awake(key));
        self.collect(news);
    }

    /// Whether a token on this link may have been for another worker. A program looks up the cell that it marks; the
    /// socket may move, or its slot may be used again, before the token arrives on the anchor.
    #[must_use]
    #[inline]
    pub fn has_marks_for_others(&self, key: Key) -> bool {
        let watched = self.links.get(index(key)).and_then(Option::as_ref);
        watched.is_some_and(|watched| watched.end.has_marks_for_others(Some(watched.cell)))
    }

    /// Looks at a link before the next sleep: a token for this worker reached another worker, or was lost with an
    /// anchor that was closed.
    #[inline]
    pub fn wake_link(&mut self, key: Key) {
        self.wake(key);
    }

    /// Keeps a link awake that brought news lately: more news is likely, and each would cost a token if the link were
    /// armed.
    fn stay_awake(&mut self, key: Key) {
        let watched = self.links.get(index(key)).and_then(Option::as_ref);
        if watched.is_some_and(|watched| {
            watched.idle_sleeps.get() < MOST_IDLE_SLEEPS || watched.has_news()
        }) {
            self.wake(key);
        }
    }

    fn wake(&mut self, key: Key) {
        if let Some(Some(watched)) = self.links.get_mut(index(key))
            && !watched.awake
        {
            watched.awake = true;
            self.awake.push(key);
            if let Some(shared) = watched.end.cell(watched.end.role(), watched.cell) {
                cell::wake(&shared.asleep);
            }
            if watched.takes_jobs() {
                watched.end.listen_no_more();
            }
        }
    }

    fn collect(&self, news: &mut Vec<News>) {
        for key in &self.awake {
            let Some(Some(watched)) = self.links.get(index(*key)) else {
                continue;
            };
            let end = &watched.end;
            if watched.takes_jobs() && end.has_jobs() {
                watched.idle_sleeps.set(0);
                take_jobs(*key, end, MOST_JOBS, news);
            }
            if let Some(shared) = end.cell(end.role(), watched.cell) {
                let slots = end.layout.slots;
                cell::take(&shared.summary, &shared.ready, |slot| {
                    watched.idle_sleeps.set(0);
                    if let (true, Ok(slot)) = (slot < slots, u32::try_from(slot)) {
                        news.push(News::Ready(*key, slot));
                    }
                });
            }
        }
    }

    fn wait_for_kernel(&mut self, news: &mut Vec<News>, patience: Option<Duration>) {
        let patience = patience.map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        });
        let mut events = [MaybeUninit::<Event>::uninit(); MOST_EVENTS];
        // No other error than EINTR is possible: the epoll set is valid.
        let events = epoll::wait(&*self.epoll, &mut events, patience.as_ref())
            .map_or(&[][..], |(events, _)| events);
        self.kernel_polled = Instant::now();
        for event in events {
            let (data, flags) = (event.data, event.flags);
            let end = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
            let end = flags.intersects(end);
            let [high, low] = halves(data.u64());
            let Some(key) = high.checked_sub(1) else {
                if flags.contains(EventFlags::PRI) {
                    news.push(News::OwnUrgent(low));
                }
                news.push(if end {
                    News::OwnEnd(low)
                } else {
                    News::Own(low)
                });
                continue;
            };
            self.wake(key);
            match low {
                CHANNEL if end => self.on_channel_end(key, news),
                CHANNEL => {}
                slot => {
                    if end && let Some(link) = self.link(key) {
                        // The hang-up is reported once, and the anchor is dropped now: a job taken from here on must
                        // not get an anchor whose hang-up was reported before. An anchor that a job has got already is
                        // handled by the news below, or by its lane.
                        link.drop_anchor(slot);
                    }
                    news.push(News::Token(key, slot, end));
                }
            }
        }
    }

    /// The program has closed its end of the channel. This is reported once: all messages that it sent before are read
    /// here.
    fn on_channel_end(&self, key: Key, news: &mut Vec<News>) {
        let Some(end) = self.link(key) else { return };
        for _ in 0..MOST_READS {
            if !end.read_channel() {
                break;
            }
        }
        // Connections announced before the end are still taken.
        if end.role() == Role::Server && end.is_alive() {
            take_jobs(key, end, QUEUE_CAPACITY, news);
        }
        news.push(News::Ended(key));
    }
}

/// Whether an epoll set has events to report.
fn has_events(epoll: &OwnedFd) -> bool {
    let mut looked = [PollFd::new(epoll, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut looked, Some(&now)), Ok(1..))
}

fn take_jobs(key: Key, end: &LinkEnd, most: usize, news: &mut Vec<News>) {
    if end
        .take_jobs(most, |opened| news.push(News::Opened(key, opened)))
        .is_err()
    {
        news.push(News::Ended(key));
    }
}

/// Asks the program to wake this worker.
fn arm(links: &mut [Option<Watched>], key: Key) {
    if let Some(Some(watched)) = links.get_mut(index(key)) {
        watched.awake = false;
        watched
            .idle_sleeps
            .set(watched.idle_sleeps.get().saturating_add(1));
        let end = &watched.end;
        if let Some(shared) = end.cell(end.role(), watched.cell) {
            cell::sleep(&shared.asleep);
        }
        if watched.takes_jobs() {
            end.listen_for_jobs();
            watched.unread += 1;
            if watched.unread > MOST_UNREAD {
                watched.unread = 0;
                // The kernel reports the end of the channel.
                let _ = end.read_channel();
            }
        }
    }
}

#[inline]
fn has_news(links: &[Option<Watched>], key: Key) -> bool {
    let watched = links.get(index(key)).and_then(Option::as_ref);
    watched.is_some_and(Watched::has_news)
}

const fn word(key: Key, slot: u32) -> u64 {
    (key as u64 + 1) << 32 | slot as u64
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
    [
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    ]
}

fn index(key: Key) -> usize {
    usize::try_from(key).unwrap_or(usize::MAX)
}
