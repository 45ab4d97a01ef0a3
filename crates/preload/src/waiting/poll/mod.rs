//! `poll` and `select` over descriptors some of which are virtual.
//!
//! Virtual ones are looked at in shared memory. To sleep, the call polls their anchors in the kernel, and for listeners
//! the descriptors on which virtual connections are announced.

mod asleep;
mod entries;
mod watches;

use libc::{POLLIN, pollfd};

use crate::descriptors::table::{self, Kind};
use crate::ground::{cancel, clock, sys};
use crate::sockets::listener::{Listener, wake_ups};
use crate::sockets::socket::Socket;
use crate::waiting::holds::release;
use crate::waiting::signals::BlockedSignals;
use crate::waiting::wait::Peers;
use crate::waiting::{epoll, housekeeping, replacement, signals, wait};

use asleep::{arm, disarm, serve, wake_descriptors};
use entries::UNUSED;
pub use entries::{ASKED, COUNTS, Entries, EventFilter, MANY};
use watches::{Watch, resolve, user_events};

/// Whether the descriptor is virtual, a listener, or a set.
pub fn concerns_library(fd: i32) -> bool {
    matches!(
        table::get(fd).kind(),
        Kind::Virtual | Kind::Listener | Kind::Epoll | Kind::Deferred
    )
}

/// The most descriptors whose lists are kept on the stack.
const FEW: usize = 4;
const MORE: usize = FEW + 1;

/// The lists of a call with many descriptors.
struct Lists {
    set: Vec<pollfd>,
    watches: Vec<Watch>,
    kernel: Vec<pollfd>,
}

/// `ppoll`; `timeout` in nanoseconds, negative is forever. Fills `revents` and counts them.
///
/// # Errors
/// As `ppoll`.
pub fn poll(
    entries: &mut Entries,
    timeout: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    cancel::point();
    let options = CallOptions {
        loops: true,
        filter: entries.filter,
    };
    match entries.count {
        0..=FEW => poll_few::<FEW>(entries, timeout, mask, options),
        MORE..=MANY => poll_few::<MANY>(entries, timeout, mask, options),
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
                options,
                kept: Vec::new(),
            };
            let polled = call.run(timeout, mask);
            drop(call);
            // SAFETY: made above, and not used any more.
            entries.many = unsafe { Box::from_raw(lists) }.set;
            polled
        }
    }
}

/// As [`poll`], for a blocking `accept`: whatever the numbers name later, it continues with the listener that they
/// named first. Nothing follows about when the caller looks again.
///
/// # Errors
/// As `ppoll`.
pub fn wait_for_connection(
    set: &mut [pollfd],
    timeout: i64,
    mask: *const libc::sigset_t,
) -> Result<usize, i32> {
    let options = CallOptions {
        loops: wake_ups::accepts_alone(),
        filter: EventFilter::Poll,
    };
    poll_few::<FEW>(set, timeout, mask, options)
}

/// The kind of a call.
#[derive(Clone, Copy)]
struct CallOptions {
    /// The program's own poll, which it repeats soon; not a blocking accept.
    loops: bool,
    filter: EventFilter,
}

/// Nanoseconds to sleep before another look where the kernel can not be polled.
const IDLE: i64 = 10_000_000;

/// One call and its lists.
struct Call<'a> {
    /// It has slept: a descriptor that is closed by now was open when the call began.
    slept: bool,
    set: &'a mut [pollfd],
    watches: &'a mut [Watch],
    kernel: &'a mut [pollfd],
    /// Freed when the thread is cancelled; null where nothing is to be freed.
    lists: *mut Lists,
    options: CallOptions,
    /// Sockets whose numbers were given to other files during the sleep: held until the call returns.
    kept: Vec<Socket>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.kept.iter().for_each(release);
    }
}

fn poll_few<const MOST: usize>(
    set: &mut [pollfd],
    timeout: i64,
    mask: *const libc::sigset_t,
    options: CallOptions,
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
        options,
        kept: Vec::new(),
    };
    call.run(timeout, mask)
}

/// The answer of a call. Where nothing is ready, a signal that only the mask kept pending ends it.
fn answer(count: usize, mask: *const libc::sigset_t) -> Result<usize, i32> {
    if count == 0 && !mask.is_null() {
        sys::poll(&mut [], 0, mask)?;
    }
    Ok(count)
}

impl Call<'_> {
    fn run(&mut self, timeout: i64, mask: *const libc::sigset_t) -> Result<usize, i32> {
        self.watch_all();
        if !self.options.loops && timeout < 0 {
            return self.wait_once(mask);
        }
        let mut start = 0;
        let mut held = None;
        loop {
            let mut count = self.poll_now()?;
            let closed = count > 0 && !self.kept.is_empty();
            if (housekeeping::carry() || closed) && self.options.loops {
                self.watch_again();
                count = self.poll_now()?;
            }
            let first = timeout >= 0 && start == 0;
            if (count > 0 || first) && self.take_offers() {
                count = self.poll_now()?;
            }
            if count > 0 || timeout == 0 {
                return answer(count, mask);
            }
            if start == 0 && timeout > 0 {
                start = clock::nanoseconds();
            }
            if self.may_spin() && wait::spin_beside(Peers::Near, || self.has_events()) {
                continue;
            }
            let left = clock::remaining(timeout, start);
            if left == 0 {
                self.take_offers();
                return answer(self.poll_now()?, mask);
            }
            let ended = self.sleep(left, BlockedSignals::mask_for(held.as_ref(), mask))?;
            // A signal between two sleeps would end neither.
            if ended && self.options.loops {
                held = held.or_else(BlockedSignals::of_handlers);
            }
            self.slept = true;
            replacement::wait();
            // Another thread may have given the numbers to other files meanwhile; an accept continues with its first
            // listener.
            if self.options.loops {
                self.watch_again();
            }
        }
    }

    /// Waits for an accept, which has just looked, and looks again whatever has ended the wait.
    fn wait_once(&mut self, mask: *const libc::sigset_t) -> Result<usize, i32> {
        if !(self.may_spin() && wait::spin_beside(Peers::Near, || self.has_events())) {
            self.sleep(-1, mask)?;
            replacement::wait();
        }
        self.set
            .iter_mut()
            .take(1)
            .for_each(|listener| listener.revents = POLLIN);
        Ok(1)
    }

    /// Whether a spin may pay: anything is watched that a look at memory can find ready. The queues of a listener are the
    /// kernel's.
    fn may_spin(&self) -> bool {
        self.watches.iter().any(|watch| match watch {
            Watch::Listener(socket, _) => !socket.listener().is_some_and(Listener::has_queues),
            Watch::Lane(_) | Watch::Set(_) => true,
            Watch::Kernel | Watch::Deferred => false,
        })
    }

    /// Whether memory says that a virtual descriptor is ready. The kernel tells a sleeper at once of what is in the queues
    /// of a listener.
    fn has_events(&self) -> bool {
        let mut all = self.set.iter().zip(self.watches.iter());
        all.any(|(entry, watch)| match watch {
            Watch::Listener(socket, _) => {
                let asked = entry.events & (POLLIN | libc::POLLRDNORM) != 0;
                asked && socket.listener().is_some_and(Listener::has_announced)
            }
            _ => self.reported_events(watch, entry.events) != 0,
        })
    }

    /// Nanoseconds until the next hold of bytes expires, or for which the call may sleep on a set: no token comes then.
    fn hold_remaining(&self) -> Option<i64> {
        let all = self.set.iter().zip(self.watches.iter());
        let times = all.filter_map(|(entry, watch)| match watch {
            Watch::Lane(lane) => lane.next_look(),
            Watch::Set(set) => {
                let (news, most) = set.longest();
                let asked = entry.events & (POLLIN | libc::POLLRDNORM) != 0;
                Some(if news && asked { 0 } else { most }).filter(|most| *most < i64::MAX)
            }
            _ => None,
        });
        times.min()
    }

    fn reported_events(&self, watch: &Watch, asked: i16) -> i16 {
        self.options.filter.of(user_events(watch, asked), asked)
    }

    /// Takes offers of the daemon: a call that does not sleep finds the first connection of another program here.
    /// Whether any came.
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

    /// Resolves what the numbers name.
    fn watch_all(&mut self) {
        for (place, entry) in self.watches.iter_mut().zip(self.set.iter()) {
            *place = resolve(entry.fd, !self.options.loops);
        }
    }

    /// As [`Self::watch_all`], but a listener that was closed meanwhile is watched until it has an event: the kernel's
    /// poll does not notice either that its number names another file.
    #[inline(never)]
    fn watch_again(&mut self) {
        for (place, entry) in self.watches.iter_mut().zip(self.set.iter()) {
            let number = place.kernel_number(entry.fd);
            if number == entry.fd
                || user_events(place, entry.events) != 0
                || epoll::is_readable(number)
            {
                *place = resolve(entry.fd, !self.options.loops);
            }
        }
    }

    /// The descriptors that are ready now.
    fn poll_now(&mut self) -> Result<usize, i32> {
        let filter = self.options.filter;
        let mut ask = false;
        // A program that never sleeps must notice killed peers, too.
        let stale = peers_are_stale();
        for watch in self.watches.iter() {
            if let Watch::Set(set) = watch {
                // So the kernel's answer on the set is about its own members. Connections that this takes from the
                // daemon go to the listeners, which are asked after it.
                set.drain();
            }
        }
        for ((entry, watch), copy) in self
            .set
            .iter_mut()
            .zip(self.watches.iter())
            .zip(self.kernel.iter_mut())
        {
            entry.revents = filter.of(user_events(watch, entry.events), entry.events);
            *copy = UNUSED;
            let lane = matches!(watch, Watch::Lane(_));
            if entry.fd >= 0 && (!lane || stale) {
                copy.fd = watch.kernel_number(entry.fd);
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
                    entry.revents = filter.of(shown, entry.events);
                }
                Watch::Lane(lane) if entry.revents != 0 => lane.note_reported(),
                Watch::Lane(_) => {}
                Watch::Listener(socket, _) if seen.revents != 0 => {
                    if let Some(listener) = socket.listener() {
                        listener.note_kernel_report();
                    }
                    entry.revents |= filter.of(seen.revents, entry.events);
                }
                _ => entry.revents |= filter.of(seen.revents, entry.events),
            }
            if self.slept && filter == EventFilter::Select && entry.revents & libc::POLLNVAL != 0 {
                // After a sleep a closed descriptor is ready for everything in `select`.
                entry.revents = entry.events;
            }
            count += usize::from(entry.revents != 0);
        }
        Ok(count)
    }

    /// Sleeps once in the kernel, on all descriptors that may bring news. True when the kernel had none in the whole time.
    fn sleep(&mut self, time: i64, mask: *const libc::sigset_t) -> Result<bool, i32> {
        let mut left = time;
        let mut asleep = arm(self.set, self.watches);
        // Before the last look: a hold that expires after it bounds the sleep, and an expired one is seen by it.
        if let Some(held) = self.hold_remaining() {
            left = if left < 0 { held } else { left.min(held) };
        }
        if self.has_events() || housekeeping::are_due() {
            disarm(
                self.watches,
                &mut asleep,
                self.options.loops,
                &mut self.kept,
            );
            return Ok(false);
        }
        let (set, watches, lists) = (&*self.set, &*self.watches, self.lists);
        let CallOptions { loops, filter } = self.options;
        for ((copy, entry), watch) in self.kernel.iter_mut().zip(set).zip(watches) {
            // The kernel would return at once, again and again, for events that do not count.
            let idle = copy.revents & !filter.of(copy.revents, entry.events) != 0;
            *copy = *entry;
            copy.fd = watch.kernel_number(entry.fd);
            if idle {
                copy.fd = -1;
                left = if left < 0 { IDLE } else { left.min(IDLE) };
            }
            if let Watch::Lane(lane) = watch {
                copy.events = POLLIN;
                if let Some(pause) = lane.poll_interval() {
                    // The kernel would return at once, again and again, for the hang-up.
                    copy.fd = -1;
                    left = if left < 0 { pause } else { left.min(pause) };
                }
            }
        }
        // Listeners need more descriptors than the program named.
        let extra = wake_descriptors(set, watches);
        let mut longer = Vec::new();
        if !extra.is_empty() || !asleep.deferred.is_empty() {
            longer.extend_from_slice(self.kernel);
            let news = extra.iter().map(|fd| (*fd, POLLIN));
            // Their end, which always counts.
            let replaced = asleep.deferred.iter().map(|fd| (*fd, 0));
            longer.extend(news.chain(replaced).map(|(fd, events)| pollfd {
                fd,
                events,
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
            last.iter().for_each(release);
            // SAFETY: the thread was cancelled in its sleep and never uses them again.
            unsafe {
                core::mem::take(&mut *kept).iter().for_each(release);
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
        if loops && left == time {
            follow_numbers(self.watches, self.set, kernel);
        }
        slept.map(|count| count == 0)
    }
}

/// After a sleep that a signal or the end of its time has ended: the kernel has looked by number once more. What it has
/// found under the number of a listener that another thread has closed is reported.
fn follow_numbers(watches: &mut [Watch], set: &[pollfd], kernel: &[pollfd]) {
    let mut own = kernel.iter().skip(watches.len());
    if own.any(|entry| entry.revents != 0) {
        // The library has woken the call, which continues with the listener.
        return;
    }
    for ((watch, entry), seen) in watches.iter_mut().zip(set).zip(kernel) {
        let number = watch.kernel_number(entry.fd);
        if seen.revents != 0 && seen.fd == entry.fd && number != entry.fd {
            *watch = resolve(entry.fd, false);
        }
    }
}

/// Whether the calling thread has not asked the kernel for hang-ups of its peers for a while.
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
