//! The processes that use one set learn of each other. One that believes to be alone sleeps until a token comes. Where
//! others use the set, too, they may take tokens that are for it, or add members of which it has not heard: then each
//! bounds its sleeps.
//!
//! ```text
//!  enroll: on the board --> any others? --> prompt: one sleeper looks, finds others
//! ```

use core::sync::atomic::{AtomicI32, Ordering};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLONESHOT, EPOLLOUT};

use super::{EpollSet, State, flag, spares};
use crate::descriptors::attach;
use crate::ground::{process, sys};

/// An eventfd that is always ready to be written, -1 before it is needed.
static PROMPT: AtomicI32 = AtomicI32::new(-1);

impl EpollSet {
    /// Registers the process as a user of a shared set: the others then bound their sleeps.
    #[cold]
    pub(super) fn enroll(&self) {
        if self.enrolled.load(Ordering::Relaxed) || self.enrolled.swap(true, Ordering::Relaxed) {
            return;
        }
        let others = self.state.lock().is_some_and(|state| {
            if let Some(board) = &state.board {
                board.enroll(process::number());
            }
            self.has_others(&state)
        });
        if others {
            self.prompt();
        }
    }

    /// Whether another process uses the set, too.
    pub(super) fn has_others(&self, state: &State) -> bool {
        self.shared.load(Ordering::Relaxed)
            && state
                .board
                .as_ref()
                .is_some_and(|board| board.has_others(process::number()))
    }

    /// Lets one thread that sleeps in the set return, of whichever process. Its event is taken once: the process that
    /// takes it could not empty this one's eventfd.
    fn prompt(&self) {
        let Some(always_ready) = prompt_descriptor() else {
            return;
        };
        let events = flag(EPOLLOUT | EPOLLET | EPOLLONESHOT);
        let (set, data) = self.wake_place();
        let control = |operation| sys::epoll_control(set, operation, always_ready, events, data);
        if control(EPOLL_CTL_ADD) == Err(libc::EEXIST) {
            let _ = control(EPOLL_CTL_MOD);
        }
    }
}

fn prompt_descriptor() -> Option<i32> {
    let known = PROMPT.load(Ordering::Acquire);
    if known >= 0 {
        return Some(known);
    }
    let made = spares::counter().ok()?;
    let placed = PROMPT.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire);
    if let Err(other) = placed {
        attach::close_internal(made);
        return Some(other);
    }
    Some(made)
}

/// Notes that a descriptor of the library has a new number.
pub(super) fn relocate(from: i32, to: i32) {
    let _ = PROMPT.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}
