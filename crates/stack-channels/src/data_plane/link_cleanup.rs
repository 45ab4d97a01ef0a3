//! Links whose connections were closed: tokens that may have been lost, and memory to be released.

use super::shared::WorkerMessage;
use super::worker::ChannelWorker;
use netchannel_service::link::LinkEnd;

/// When a link is first examined after its connections were closed, in nanoseconds. The interval doubles each time, and
/// the number of times is limited.
const TIDY: u64 = 500_000_000;
const MOST_LOOKS: u32 = 6;

impl ChannelWorker {
    /// An anchor of a link was closed. The token that was to wake a worker for all its sockets of that link may be lost
    /// with it: a program writes the token to the socket that has news first.
    pub(super) fn examine_link(&mut self, link: &LinkEnd) {
        let number = link.number();
        let key = self.keys.get(&number).copied();
        if let Some(key) = key {
            self.cells.wake_link(key);
        }
        if link.has_marks_for_others(key.and_then(|key| self.cells.cell(key))) {
            self.send_to_others(|| WorkerMessage::LookAtLink(number));
        }
        if !self
            .unsettled_links
            .iter()
            .any(|(_, known, _)| *known == number)
        {
            self.unsettled_links.push((self.now + TIDY, number, 0));
        }
    }

    /// Releases the memory of closed connections some time later: programs close their ends without a notification.
    pub(super) fn settle_links(&mut self) {
        let now = self.now;
        let Self {
            unsettled_links,
            keys,
            cells,
            ..
        } = self;
        unsettled_links.retain_mut(|(at, number, looks)| {
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
