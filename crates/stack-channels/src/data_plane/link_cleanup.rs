//! Links of which connections were closed: tokens that may have gone with them, and memory that goes back.

use super::shared::Letter;
use super::worker::ChannelWorker;
use netchannel_service::link::LinkEnd;

/// When a link is looked at of which connections were closed, in nanoseconds; later each time, and so often.
const TIDY: u64 = 500_000_000;
const MOST_LOOKS: u32 = 6;

impl ChannelWorker {
    /// An anchor of a link was let go. The token that was to wake a worker for all its sockets of that link may have gone with it:
    /// a program writes it to the socket that had news first.
    pub(super) fn look_at_link(&mut self, link: &LinkEnd) {
        let number = link.number();
        let key = self.keys.get(&number).copied();
        if let Some(key) = key {
            self.cells.wake_link(key);
        }
        if link.has_marks_for_others(key.and_then(|key| self.cells.cell(key))) {
            self.tell_others(|| Letter::Look(number));
        }
        if !self.untidy.iter().any(|(_, known, _)| *known == number) {
            self.untidy.push((self.now + TIDY, number, 0));
        }
    }

    /// Programs close their ends in their own time, and tell nobody: memory that their connections took goes back a while later.
    pub(super) fn tidy(&mut self) {
        let now = self.now;
        let Self {
            untidy,
            keys,
            cells,
            ..
        } = self;
        untidy.retain_mut(|(at, number, looks)| {
            if *at > now {
                return true;
            }
            let key = keys.get(number);
            let Some(link) = key.and_then(|key| cells.link(*key)) else {
                return false;
            };
            link.settle_slots();
            *looks += 1;
            *at = now + (TIDY << *looks);
            link.has_unsettled_slots() && *looks < MOST_LOOKS
        });
    }
}
