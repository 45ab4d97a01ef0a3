//! `poll` and `select` over descriptors of which some are virtual.
//!
//! Virtual ones are looked at in shared memory; to sleep, their anchors (and for listeners the
//! descriptors on which virtual connections announce themselves) take part in one kernel `poll`.

mod entries;

use core::sync::atomic::{AtomicUsize, Ordering};

use libc::{POLLIN, pollfd};
use netchannel_abi::link::{side_flags, waiter as bits};

use crate::connection::{carried, noted};
use crate::epoll::{Asleep, EpollSet};
use crate::lane::Lane;
use crate::socket::{self, Socket, status};
use crate::table::{self, Kind};
use crate::{bell, cancel, clock, epoll, listener, sys, wait};

use entries::UNUSED;
pub use entries::{ASKED, COUNTS, Counting, Entries, MANY};

/// Whether the descriptor is virtual, a listener, or a set.
pub fn concerns(fd: i32) -> bool {
    matches!(
        table::get(fd).kind(),
        Kind::Virtual | Kind::Listener | Kind::Epoll
    )
}

#[derive(Clone, Copy)]
enum Watch {
    /// The kernel's answer is the answer.
    Kernel,
    /// A virtual socket.
    Lane(Lane),
    /// A listener: the kernel's answer, or a virtual connection that waits. Whether an accept takes what is found.
    Listener(Socket, bool),
    /// An epoll set.
    Set(&'static EpollSet),
}

fn watch(fd: i32, accepts: bool) -> Watch {
    if let Some(set) = epoll::of(fd) {
        return Watch::Set(set);
    }
    let Some(socket) = socket::of(fd) else {
        return Watch::Kernel;
    };
    match socket.word.kind() {
        Kind::Virtual => Lane::of(socket, fd).map_or(Watch::Kernel, Watch::Lane),
        Kind::Listener => Watch::Listener(socket, accepts),
        _ => Watch::Kernel,
    }
}

/// What poll reports of a virtual socket.
fn virtual_events(lane: &Lane, wanted: i16) -> i16 {
    let mask = epoll::readiness(lane).to_ne_bytes();
    // The poll and epoll bits are the same below 0x4000.
    let mask = i16::from_ne_bytes([mask[0], mask[1]]);
    mask & (wanted | libc::POLLHUP | libc::POLLERR)
}

fn user_events(watch: &Watch, wanted: i16) -> i16 {
    let any = match watch {
        Watch::Kernel => false,
        Watch::Lane(lane) => return virtual_events(lane, wanted),
        Watch::Listener(socket, accepts) => {
            let listener = socket.listener();
            listener.is_some_and(|listener| match accepts {
                true => listener.has_for_accept(),
                false => listener.has_pending(),
            })
        }
        Watch::Set(set) => set.has_events(),
    };
    if any {
        (POLLIN | libc::POLLRDNORM) & wanted
    } else {
        0
    }
}

/// So many descriptors take little room on the stack.
const FEW: usize = 4;
const MORE: usize = FEW + 1;

/// The lists of a call with many descriptors.
struct Lists {
    set: Vec<pollfd>,
    watches: Vec<Watch>,
    kernel: Vec<pollfd>,
}

/// `ppoll`; `timeout` in nanoseconds, negative for ever. Fills `revents` and counts them.
///
/// # Errors
/// As `ppoll`.
pub fn poll(
    entries: &mut Entries,
    timeout: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    cancel::point();
    let manner = Manner {
        loops: true,
        counting: entries.counting,
    };
    match entries.count {
        0..=FEW => poll_few::<FEW>(entries, timeout, mask, manner),
        MORE..=MANY => poll_few::<MANY>(entries, timeout, mask, manner),
        length => {
            let lists = Box::into_raw(Box::new(Lists {
                set: core::mem::take(&mut entries.many),
                watches: vec![Watch::Kernel; length],
                kernel: vec![UNUSED; length],
            }));
            // SAFETY: freed below, or when the thread is cancelled and never comes back.
            let made = unsafe { &mut *lists };
            let Lists {
                set,
                watches,
                kernel,
            } = made;
            let mut call = Call {
                slept: false,
                set,
                watches,
                kernel,
                lists,
                manner,
            };
            let polled = call.run(timeout, mask);
            // SAFETY: made above, and nobody uses it any more.
            entries.many = unsafe { Box::from_raw(lists) }.set;
            polled
        }
    }
}

/// As [`poll`], for an `accept` that waits: whatever the numbers name afterwards, it goes on with
/// what they named at first, and nobody is promised that the caller looks again soon.
///
/// # Errors
/// As `ppoll`.
pub fn wait_for_connection(
    set: &mut [pollfd],
    timeout: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    let manner = Manner {
        loops: false,
        counting: Counting::Poll,
    };
    poll_few::<FEW>(set, timeout, mask, manner)
}

/// What a call is.
#[derive(Clone, Copy)]
struct Manner {
    /// The program's own poll, which it calls again soon; not an accept that waits.
    loops: bool,
    counting: Counting,
}

/// How long to sleep before another look at what the kernel can not be asked about, in nanoseconds.
const IDLE: i64 = 10_000_000;

/// One call and what it works on.
struct Call<'a> {
    /// It has slept: what is closed by now was open when it began.
    slept: bool,
    set: &'a mut [pollfd],
    watches: &'a mut [Watch],
    kernel: &'a mut [pollfd],
    /// Freed when the thread is cancelled; null where nothing is to be freed.
    lists: *mut Lists,
    manner: Manner,
}

fn poll_few<const MOST: usize>(
    set: &mut [pollfd],
    timeout: i64,
    mask: *const libc::sigset_t,
    manner: Manner,
) -> Result<usize, i32> {
    let mut watches = [Watch::Kernel; MOST];
    let mut kernel = [UNUSED; MOST];
    let length = set.len();
    let mut call = Call {
        slept: false,
        set,
        watches: &mut watches[..length],
        kernel: &mut kernel[..length],
        lists: core::ptr::null_mut(),
        manner,
    };
    call.run(timeout, mask)
}

/// The answer of a call. Where it is that nothing is ready, a signal that only the mask kept away ends it.
fn told(count: usize, mask: *const libc::sigset_t) -> Result<usize, i32> {
    if count == 0 && !mask.is_null() {
        sys::poll(&mut [], 0, mask)?;
    }
    Ok(count)
}

impl Call<'_> {
    fn run(&mut self, timeout: i64, mask: *const libc::sigset_t) -> Result<usize, i32> {
        self.watch_all();
        let mut start = 0;
        loop {
            let mut count = self.look()?;
            if carried::carry() && self.manner.loops {
                self.watch_all();
                count = self.look()?;
            }
            let first = timeout >= 0 && start == 0;
            if (count > 0 || first) && self.take_offers() {
                count = self.look()?;
            }
            if count > 0 || timeout == 0 {
                return told(count, mask);
            }
            if start == 0 && timeout > 0 {
                start = clock::nanoseconds();
            }
            if wait::spin(|| self.any()) {
                continue;
            }
            let left = epoll::remaining(timeout, start);
            if left == 0 {
                self.take_offers();
                return told(self.look()?, mask);
            }
            self.sleep(left, mask)?;
            self.slept = true;
            while REPLACING.load(Ordering::Acquire) > 0 {
                sys::yield_now();
            }
            // Another thread may have put other files under the numbers meanwhile; an accept goes on
            // with the listener it began with.
            if self.manner.loops {
                self.watch_all();
            }
        }
    }

    /// Whether the library has something to tell.
    fn any(&self) -> bool {
        let mut all = self.set.iter().zip(self.watches.iter());
        all.any(|(entry, watch)| self.told(watch, entry.events) != 0)
    }

    /// For how long what has come may be held back, of which nobody tells.
    fn held_for(&self) -> Option<i64> {
        let times = self.watches.iter().filter_map(|watch| match watch {
            Watch::Lane(lane) => lane.held_for(),
            Watch::Set(set) => set.held_for(),
            _ => None,
        });
        times.min()
    }

    fn told(&self, watch: &Watch, asked: i16) -> i16 {
        self.manner.counting.of(user_events(watch, asked), asked)
    }

    /// Who does not sleep hears here of the first connection of another program. Whether any came.
    fn take_offers(&self) -> bool {
        let all = self.watches.iter().zip(self.set.iter());
        let listeners = all.filter_map(|(watch, entry)| match watch {
            Watch::Listener(socket, false) if entry.revents == 0 => socket.listener(),
            _ => None,
        });
        let mut any = false;
        for listener in listeners {
            any |= listener.has_offers() && listener.take_offers();
        }
        any
    }

    /// Finds out what the numbers name.
    fn watch_all(&mut self) {
        for (place, entry) in self.watches.iter_mut().zip(self.set.iter()) {
            *place = watch(entry.fd, !self.manner.loops);
        }
    }

    /// What is ready now.
    fn look(&mut self) -> Result<usize, i32> {
        let counting = self.manner.counting;
        let mut ask = false;
        // A program that never sleeps must learn of peers that were killed too.
        let stale = peers_are_stale();
        for ((entry, watch), copy) in self
            .set
            .iter_mut()
            .zip(self.watches.iter())
            .zip(self.kernel.iter_mut())
        {
            if let Watch::Set(set) = watch {
                // What the kernel then says of it is about its own members.
                set.drain();
            }
            entry.revents = counting.of(user_events(watch, entry.events), entry.events);
            *copy = UNUSED;
            let lane = matches!(watch, Watch::Lane(_));
            if entry.fd >= 0 && (!lane || stale) {
                copy.fd = entry.fd;
                copy.events = if lane { 0 } else { entry.events };
                ask = true;
            }
        }
        if ask {
            sys::poll(self.kernel, 0, core::ptr::null())?;
        }
        let mut count = 0;
        for ((entry, watch), seen) in self
            .set
            .iter_mut()
            .zip(self.watches.iter())
            .zip(self.kernel.iter())
        {
            match watch {
                Watch::Lane(lane) if seen.revents != 0 => {
                    lane.peer_ended();
                    let shown = user_events(watch, entry.events);
                    entry.revents = counting.of(shown, entry.events);
                }
                Watch::Lane(lane) if entry.revents != 0 => lane.note_told(),
                Watch::Lane(_) => {}
                Watch::Listener(socket, _) if seen.revents != 0 => {
                    if let Some(listener) = socket.listener() {
                        listener.kernel_tells();
                    }
                    entry.revents |= counting.of(seen.revents, entry.events);
                }
                _ => entry.revents |= counting.of(seen.revents, entry.events),
            }
            if self.slept && counting == Counting::Select && entry.revents & libc::POLLNVAL != 0 {
                // To a select that has waited it is ready for everything.
                entry.revents = entry.events;
            }
            count += usize::from(entry.revents != 0);
        }
        Ok(count)
    }

    /// Sleeps once in the kernel, on everything that may bring news.
    fn sleep(&mut self, mut left: i64, mask: *const libc::sigset_t) -> Result<(), i32> {
        let mut asleep = arm(self.set, self.watches);
        // Before the last look: a time that comes after it ends the sleep, one that came before is seen.
        if let Some(held) = self.held_for() {
            left = if left < 0 { held } else { left.min(held) };
        }
        if self.any() || noted::are_due() {
            disarm(self.watches, &mut asleep, self.manner.loops);
            return Ok(());
        }
        let (set, watches, lists) = (&*self.set, &*self.watches, self.lists);
        let Manner { loops, counting } = self.manner;
        for ((copy, entry), watch) in self.kernel.iter_mut().zip(set).zip(watches) {
            // What shows and does not count the kernel would tell again and again.
            let idle = copy.revents & !counting.of(copy.revents, entry.events) != 0;
            *copy = *entry;
            if idle {
                copy.fd = -1;
                left = if left < 0 { IDLE } else { left.min(IDLE) };
            }
            if let Watch::Lane(lane) = watch {
                copy.events = POLLIN;
                if let Some(pause) = lane.pause() {
                    // The kernel would tell its end again and again.
                    copy.fd = -1;
                    left = if left < 0 { pause } else { left.min(pause) };
                }
            }
        }
        // Listeners need more descriptors than the program named.
        let extra = wake_descriptors(set, watches);
        let mut longer = Vec::new();
        if !extra.is_empty() {
            longer.extend_from_slice(self.kernel);
            longer.extend(extra.iter().map(|fd| pollfd {
                fd: *fd,
                events: POLLIN,
                revents: 0,
            }));
        }
        drop(extra);
        let heap = &raw mut longer;
        // SAFETY: `longer` lives as long as this function runs.
        let kernel = match unsafe { &mut *heap } {
            longer if longer.is_empty() => &mut *self.kernel,
            longer => &mut longer[..],
        };
        let began = clock::now();
        let undo = || {
            disarm(watches, &mut asleep, loops);
            // SAFETY: the thread was cancelled in its sleep and never uses them again.
            unsafe {
                core::ptr::drop_in_place(heap);
                if !lists.is_null() {
                    drop(Box::from_raw(lists));
                }
            }
        };
        let slept = cancel::guarded(undo, || wait::sleep_in_poll(kernel, left, mask));
        wait::learn(began);
        disarm(watches, &mut asleep, loops);
        serve(watches, kernel);
        slept.map(|_| ())
    }
}

/// Whether the calling thread has not asked the kernel for the ends of its peers for a while.
fn peers_are_stale() -> bool {
    let now = clock::now();
    let stale = now.wrapping_sub(LAST_ASKED.get()) > 500 * clock::MICROSECOND;
    if stale {
        LAST_ASKED.set(now);
    }
    stale
}

thread_local! {
    static LAST_ASKED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Where virtual connections announce themselves to who asks for them: to others one that waits would be told again and again.
fn wake_descriptors(set: &[pollfd], watches: &[Watch]) -> Vec<i32> {
    let mut list = Vec::new();
    let asks = |entry: &pollfd| entry.events & (POLLIN | libc::POLLRDNORM) != 0;
    for (_, watch) in set.iter().zip(watches).filter(|(entry, _)| asks(entry)) {
        if let Watch::Listener(socket, _) = watch
            && let Some(listener) = socket.listener()
        {
            list.extend(listener.wake_descriptors());
            list.push(listener.bell.fd());
        }
    }
    list.retain(|fd| *fd >= 0);
    list.sort_unstable();
    list.dedup();
    list
}

fn arm(set: &[pollfd], watches: &[Watch]) -> Vec<Asleep> {
    let mut listeners = false;
    let mut asleep = Vec::new();
    for (entry, watch) in set.iter().zip(watches) {
        match watch {
            Watch::Lane(lane) => {
                let out = entry.events & (libc::POLLOUT | libc::POLLWRNORM) != 0;
                lane.lie_down_in_poll(if out {
                    bits::DATA | bits::SPACE
                } else {
                    bits::DATA
                });
            }
            Watch::Listener(socket, _) => {
                listeners = true;
                if let Some(listener) = socket.listener() {
                    listener.bell.listen();
                }
            }
            Watch::Set(set) => asleep.push(set.fall_asleep()),
            Watch::Kernel => {}
        }
    }
    if listeners {
        bell::lie_down();
    }
    asleep
}

fn disarm(watches: &[Watch], asleep: &mut Vec<Asleep>, loops: bool) {
    let mut listeners = false;
    for watch in watches {
        match watch {
            Watch::Lane(lane) => {
                lane.rise_in_poll(bits::DATA | bits::SPACE);
            }
            Watch::Listener(socket, _) => {
    for watch in watches {
        if let Watch::Set(set) = watch {
            list.extend(set.detached_inner());
        }
    }
                listeners = true;
                if let Some(listener) = socket.listener() {
                    listener.bell.leave();
                }
            }
            Watch::Set(_) | Watch::Kernel => {}
        }
    }
    core::mem::take(asleep).into_iter().for_each(Asleep::wake);
    if listeners {
        bell::rise(loops);
    }
}

/// Takes tokens, doorbells and offers after a sleep.
fn serve(watches: &[Watch], kernel: &[pollfd]) {
    for (watch, seen) in watches.iter().zip(kernel) {
        if let Watch::Lane(lane) = watch
            && seen.revents != 0
            && lane.socket.is(lane.fd)
        {
            lane.take_tokens(None);
        }
    }
    let mut rest = kernel.iter().skip(watches.len());
    if rest.any(|entry| entry.revents != 0) {
        listener::read_channels();
        for watch in watches {
            if let Watch::Listener(socket, _) = watch
                && let Some(listener) = socket.listener()
            {
                listener.bell.answer();
                listener.take_offers();
            }
        }
    }
}

/// Numbers that are being given other files while threads sleep on them in poll.
static REPLACING: AtomicUsize = AtomicUsize::new(0);

/// Who sleeps in poll is awake by then, unless it was killed.
const LONGEST_RISE: u64 = 50_000 * clock::MICROSECOND;

/// Before the program puts another file under `fd`: threads that sleep on it in poll are woken, and
/// wait for [`end_replacement`] before they look again by number. True when there were any.
///
/// Before, not after: the kernel too looks by number when it is woken, and would find a file that
/// has nothing to tell, and sleep on, no longer woken by either. So they must have left the kernel.
pub fn begin_replacement(fd: i32) -> bool {
    let Some(lane) = socket::of(fd).and_then(|socket| Lane::of(socket, fd)) else {
        return false;
    };
    if lane.socket.word.kind() != Kind::Virtual
        || lane.socket.entry.transmit.sleepers.load(Ordering::Acquire) == 0
    {
        return false;
    }
    REPLACING.fetch_add(1, Ordering::AcqRel);
    // Shut down, the anchor can not serve another connection.
    lane.own()
        .flags
        .fetch_or(side_flags::ANCHOR_SHUT, Ordering::AcqRel);
    lane.socket.mark(status::SHARED | status::ANCHOR_SHUT);
    // SAFETY: no pointers.
    let _ = unsafe {
        let how = sys::int(libc::SHUT_RDWR);
        sys::raw(libc::SYS_shutdown, [sys::int(fd), how, 0, 0, 0, 0])
    };
    // Acquire: pairs with the leave in `rise_in_poll`.
    let sleepers = &lane.socket.entry.transmit.sleepers;
    let until = clock::now().wrapping_add(LONGEST_RISE);
    while sleepers.load(Ordering::Acquire) > 0 && clock::now() < until {
        sys::yield_now();
    }
    true
}

/// The number names its new file.
pub fn end_replacement() {
    REPLACING.fetch_sub(1, Ordering::AcqRel);
}

/// In a forked child no other thread replaces anything.
pub fn reset_in_child() {
    REPLACING.store(0, Ordering::Relaxed);
}
