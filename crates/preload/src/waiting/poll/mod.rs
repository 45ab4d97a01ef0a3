//! `poll` and `select` over descriptors of which some are virtual.
//!
//! Virtual ones are looked at in shared memory; to sleep, their anchors (and for listeners the
//! descriptors on which virtual connections announce themselves) take part in one kernel `poll`.

mod entries;
mod keeping;
mod replacement;
mod watches;

use core::sync::atomic::Ordering;

use libc::{POLLIN, pollfd};
use netchannel_abi::link::waiter as bits;

use crate::descriptors::table::{self, Kind};
use crate::ground::{cancel, clock, sys};
use crate::sockets::listener;
use crate::sockets::listener::{sleeping, wake_ups};
use crate::sockets::socket::Socket;
use crate::waiting::epoll::Asleep;
use crate::waiting::{epoll, housekeeping, signals, wait};

use entries::UNUSED;
pub use entries::{ASKED, COUNTS, Counting, Entries, MANY};
use keeping::{keep, let_go};
pub use replacement::{begin_replacement, end_replacement, reset_in_child};
use watches::{Watch, user_events, watch};

/// Whether the descriptor is virtual, a listener, or a set.
pub fn concerns(fd: i32) -> bool {
    matches!(
        table::get(fd).kind(),
        Kind::Virtual | Kind::Listener | Kind::Epoll | Kind::Deferred
    )
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
                kept: Vec::new(),
            };
            let polled = call.run(timeout, mask);
            drop(call);
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
    /// Sockets whose numbers were given to other files while it slept: it keeps them until it returns.
    kept: Vec<Socket>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.kept.iter().for_each(let_go);
    }
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
        kept: Vec::new(),
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
            let closed = count > 0 && !self.kept.is_empty();
            if (housekeeping::carry() || closed) && self.manner.loops {
                self.watch_again();
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
            let left = clock::remaining(timeout, start);
            if left == 0 {
                self.take_offers();
                return told(self.look()?, mask);
            }
            self.sleep(left, mask)?;
            self.slept = true;
            replacement::wait();
            // Another thread may have put other files under the numbers meanwhile; an accept goes on
            // with the listener it began with.
            if self.manner.loops {
                self.watch_again();
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

    /// As [`Self::watch_all`], but a listener that was closed meanwhile is watched on until something comes: it is no news to the kernel's
    /// poll that its number is another's.
    #[inline(never)]
    fn watch_again(&mut self) {
        for (place, entry) in self.watches.iter_mut().zip(self.set.iter()) {
            let number = place.number(entry.fd);
            if number == entry.fd
                || user_events(place, entry.events) != 0
                || epoll::is_readable(number)
            {
                *place = watch(entry.fd, !self.manner.loops);
            }
        }
    }

    /// What is ready now.
    fn look(&mut self) -> Result<usize, i32> {
        let counting = self.manner.counting;
        let mut ask = false;
        // A program that never sleeps must learn of peers that were killed too.
        let stale = peers_are_stale();
        for watch in self.watches.iter() {
            if let Watch::Set(set) = watch {
                // What the kernel then says of it is about its own members. What it takes from the daemon the listeners have, which are
                // asked after it.
                set.drain();
            }
        }
        for ((entry, watch), copy) in self
            .set
            .iter_mut()
            .zip(self.watches.iter())
            .zip(self.kernel.iter_mut())
        {
            entry.revents = counting.of(user_events(watch, entry.events), entry.events);
            *copy = UNUSED;
            let lane = matches!(watch, Watch::Lane(_));
            if entry.fd >= 0 && (!lane || stale) {
                copy.fd = watch.number(entry.fd);
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
        if self.any() || housekeeping::are_due() {
            disarm(self.watches, &mut asleep, self.manner.loops, &mut self.kept);
            return Ok(());
        }
        let (set, watches, lists) = (&*self.set, &*self.watches, self.lists);
        let Manner { loops, counting } = self.manner;
        for ((copy, entry), watch) in self.kernel.iter_mut().zip(set).zip(watches) {
            // What shows and does not count the kernel would tell again and again.
            let idle = copy.revents & !counting.of(copy.revents, entry.events) != 0;
            *copy = *entry;
            copy.fd = watch.number(entry.fd);
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
        let kept = &raw mut self.kept;
        let undo = || {
            let mut last = Vec::new();
            disarm(watches, &mut asleep, loops, &mut last);
            last.iter().for_each(let_go);
            // SAFETY: the thread was cancelled in its sleep and never uses them again.
            unsafe {
                core::mem::take(&mut *kept).iter().for_each(let_go);
                core::ptr::drop_in_place(heap);
                if !lists.is_null() {
                    drop(Box::from_raw(lists));
                }
            }
        };
        let slept = cancel::guarded(undo, || signals::sleep_in_poll(kernel, left, mask));
        wait::learn(began);
        disarm(watches, &mut asleep, loops, &mut self.kept);
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
            list.push(listener.wake_ups.fd());
        }
    }
    for watch in watches {
        if let Watch::Set(set) = watch {
            list.extend(set.detached_inner());
        }
    }
    list.retain(|fd| *fd >= 0);
    list.sort_unstable();
    list.dedup();
    list
}

fn arm(set: &[pollfd], watches: &[Watch]) -> Vec<Asleep> {
    let (mut listeners, mut lanes) = (false, false);
    let mut asleep = Vec::new();
    for (entry, watch) in set.iter().zip(watches) {
        match watch {
            Watch::Lane(lane) => {
                lanes = true;
                keep(&lane.socket);
                let out = entry.events & (libc::POLLOUT | libc::POLLWRNORM) != 0;
                lane.lie_down_in_poll(if out {
                    bits::DATA | bits::SPACE
                } else {
                    bits::DATA
                });
            }
            Watch::Listener(socket, _) => {
                listeners = true;
                keep(socket);
                if let Some(listener) = socket.listener() {
                    listener.wake_ups.listen();
                }
            }
            Watch::Set(set) => asleep.push(set.fall_asleep()),
            Watch::Kernel => {}
        }
    }
    if listeners {
        if lanes {
            wake_ups::note_serving();
        }
        sleeping::lie_down();
    }
    asleep
}

fn disarm(watches: &[Watch], asleep: &mut Vec<Asleep>, loops: bool, kept: &mut Vec<Socket>) {
    let mut listeners = false;
    let replaced = replacement::is_under_way();
    for watch in watches {
        match watch {
            Watch::Lane(lane) => {
                if replaced {
                    // Before the count that the replacement waits for.
                    kept.push(lane.socket);
                }
                lane.rise_in_poll(bits::DATA | bits::SPACE);
                if !replaced {
                    let_go(&lane.socket);
                }
            }
            Watch::Listener(socket, _) => {
                listeners = true;
                if let Some(listener) = socket.listener() {
                    listener.wake_ups.leave();
                }
                if socket.local.orphan.load(Ordering::Acquire) > 0 {
                    // Until the call returns: a message of the daemon may have woken it, and no connection yet.
                    kept.push(*socket);
                } else {
                    let_go(socket);
                }
            }
            Watch::Set(_) | Watch::Kernel => {}
        }
    }
    core::mem::take(asleep).into_iter().for_each(Asleep::wake);
    if listeners {
        sleeping::rise(loops);
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
                listener.wake_ups.take_one();
                listener.take_offers();
            }
        }
    }
}
