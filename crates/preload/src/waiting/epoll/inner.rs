//! The events of the inner set: tokens, doorbells, offers, wake-ups.

use core::sync::atomic::Ordering;

use super::sleep::is_without_tokens;
use super::{EpollSet, NUMBER, inner_data, own_data};
use crate::ground::sys;
use crate::sockets::listener::Watcher;
use crate::sockets::socket;

impl EpollSet {
    /// Takes the events of the inner set and queues the members concerned. Whether there was any event.
    pub(super) fn take_inner(&'static self) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let inner = self.inner.load(Ordering::Acquire);
        let Ok(count) = sys::epoll_take(inner, &mut events) else {
            return false;
        };
        for event in events.iter().take(count) {
            let (kind, number) = (event.u64 >> 32, (event.u64 & 0xffff_ffff) as u32);
            match kind {
                inner_data::ITEM => self.take_token(number),
                inner_data::CHANNEL => self.take_channel(number.cast_signed()),
                _ => self.drain_wake_descriptor(),
            }
        }
        if count > 0 {
            self.arm_in_place_of_sleepers();
        }
        count > 0
    }

    fn drain_wake_descriptor(&self) {
        let mut eight = [0; 8];
        let fd = sys::int(self.wake_descriptor.load(Ordering::Acquire));
        let pointer = eight.as_mut_ptr().addr();
        // SAFETY: the kernel writes `eight`.
        let _ = unsafe { sys::raw(libc::SYS_read, [fd, pointer, 8, 0, 0, 0]) };
        if self.wakes_all.swap(false, Ordering::Relaxed) {
            self.wake_all();
        }
    }

    /// Wakes all sleepers, one after the other: each does something before it sleeps again.
    pub(super) fn wake_all(&self) {
        // Pairs with `announce_sleep`, as `wake` does.
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wakes_all.store(true, Ordering::Relaxed);
            self.wake();
        }
    }

    fn take_token(&'static self, number: u32) {
        let index = number as usize;
        let Some(mut state) = self.state.lock() else {
            return;
        };
        if self.end_lingering(&mut state, number, None) {
            return;
        }
        let known = state.board.is_none() || self.refresh(&mut state, number);
        let item = state.items.get(index).copied();
        let Some(item) = item.filter(|item| known && item.alive) else {
            return self.note_stranger(&mut state, number);
        };
        drop(state);
        let Some(lane) = item.lane() else { return };
        // Not under the lock: this notifies other sets that have the socket as a member.
        lane.take_tokens(Some(self.index));
        let Some(mut state) = self.state.lock() else {
            return;
        };
        let Some(item) = state.items.get_mut(index) else {
            return;
        };
        if !item.alive || item.word != lane.socket.word {
            return;
        }
        let stuck = is_without_tokens(&lane);
        if item.registered && stuck {
            // The anchor stays readable from now on: the entry's status says all.
            let inner = self.inner.load(Ordering::Acquire);
            let _ = sys::epoll_control(inner, libc::EPOLL_CTL_DEL, item.current_fd, 0, 0);
            item.registered = false;
        }
        if item.cell.is_none() || stuck {
            state.watched.insert(number);
        }
        state.ready.push(number);
    }

    fn take_channel(&self, fd: i32) {
        let (mut offers, mut link, mut is_queue) = (None, None, false);
        let mut is_asked = false;
        if let Some(state) = self.state.lock() {
            link = state
                .links
                .iter()
                .copied()
                .find(|link| link.channel() == fd);
            let listeners = state
                .listeners
                .as_slice()
                .iter()
                .filter_map(|number| state.items.get(*number as usize))
                .filter_map(|item| Some((item, socket::of_word(item.word)?.listener()?)));
            for (item, listener) in listeners {
                if listener.channel() == fd {
                    offers = Some(listener);
                    is_asked |= item.asks_for_connections();
                }
                is_queue |= listener.queues().contains(&fd);
            }
            is_asked |= state.board.is_some();
        }
        if let Some(listener) = offers {
            if is_asked || !listener.may_have_others() {
                listener.take_offers();
            } else {
                // They are for other holders, until the program asks again.
                self.remove_channel(fd);
            }
        } else if let Some(link) = link {
            link.read_channel();
            if !link.is_alive()
                && let Some(mut state) = self.state.lock()
            {
                state.links.retain(|known| !core::ptr::eq(*known, link));
            }
        } else if !is_queue {
            // A channel of the process that made it, which has not looked yet. A queue tells of each connection once.
            self.reported_stranger.store(true, Ordering::Relaxed);
        }
        self.jobs.store(true, Ordering::Release);
    }

    /// Handles the kernel's events with data words of the library, which lie behind the first `have` events of `out`.
    /// Returns how many events are left for the program.
    pub(super) fn filter_own(
        &'static self,
        out: &mut [libc::epoll_event],
        have: usize,
        count: usize,
    ) -> usize {
        let own = own_data();
        let seen = out.get(have..have + count).unwrap_or(&[]);
        if seen.iter().all(|event| event.u64 & !NUMBER != own) {
            return count;
        }
        let mut kept = have;
        for index in have..have + count {
            let event = out[index];
            if event.u64 & !NUMBER != own {
                out[kept] = event;
                kept += 1;
                continue;
            }
            let number = event.u64 & NUMBER;
            if number == NUMBER {
                if self.detached_inner().is_some() {
                    self.drain_wake_descriptor();
                }
                self.take_inner();
                continue;
            }
            let Some(shown) = self.translate(number as u32, event) else {
                continue;
            };
            // A member that is ready by both paths is reported once.
            let reported = out
                .iter()
                .take(have)
                .any(|other| { other.u64 } == { shown.u64 });
            if !reported {
                out[kept] = shown;
                kept += 1;
            }
        }
        kept - have
    }
}
