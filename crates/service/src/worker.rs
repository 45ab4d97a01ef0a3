//! A worker: a thread of a stack module. Each pass handles all pending work within a budget, then the worker sleeps.
//!
//! ```text
//!  pass:  look --news--> messages, lanes, links --> what comes elsewhere --> timers --> full backlogs --> work
//!  sleep: only if a pass left nothing, and nothing came: spin where that pays, then in the kernel
//! ```

use crate::cells::{Cells, Key, News};
use crate::jobs::Opened;
use crate::mailbox::Mailbox;
use crate::routing::Router;
use crate::signal_stack::AlternateStack;
use crate::timers::Timers;
use rustix::io::Errno;
use std::thread::JoinHandle;
use std::time::Instant;

/// The name of the inbox among a worker's own descriptors. Others have higher names.
pub const INBOX: u32 = 0;

/// A worker of a stack module. The provided methods are for workers that have no news, messages or timers of that kind.
pub trait Worker: Router {
    /// The messages of other threads to this one.
    type Message;

    /// The links of the worker, and its messages, which are watched under [`INBOX`].
    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<Self::Message>);

    /// The buffer for messages that are being read.
    fn message_buffer(&mut self) -> &mut Vec<Self::Message>;

    /// The timers of its connections.
    fn timers(&mut self) -> &mut Timers;

    /// Nanoseconds since its clock began: the time of the pass, or the present time.
    fn now(&self) -> u64;

    /// The latest time of the next wake-up.
    fn deadline(&self) -> Option<Instant>;

    /// Whether the worker was told to end.
    fn has_ended(&self) -> bool;

    /// Handles a message.
    fn on_message(&mut self, message: Self::Message);

    /// A program published something in a slot, or made room.
    fn on_ready(&mut self, key: Key, slot: u32);

    /// A token came on the anchor of a slot, or its `end`. False where no lane of this worker has that slot.
    fn on_lane_token(&mut self, key: Key, slot: u32, end: bool) -> bool;

    /// A program made a connection.
    fn on_opened(&mut self, key: Key, opened: Opened);

    /// The timer of a connection is due.
    fn on_timer(&mut self, number: u32);

    /// Does the pending work, within a budget.
    fn work(&mut self);

    /// Whether the last pass has left work. Resets the answer.
    fn take_remaining_work(&mut self) -> bool;

    /// The first pass is about to begin.
    fn begin(&mut self) {}

    /// A pass begins.
    fn on_pass(&mut self) {}

    /// The news of this pass are collected, but not handled yet. `any` says whether there are any.
    fn on_news_known(&mut self, _any: bool) {}

    /// Something came on a descriptor of the worker's own.
    fn on_own(&mut self, _name: u32) {}

    /// The same, and the other end of it has shut its side, or there is an error.
    fn on_own_end(&mut self, name: u32) {
        self.on_own(name);
    }

    /// An urgent byte can be read from a socket of the worker's own.
    fn on_own_urgent(&mut self, _name: u32) {}

    /// Handles input from other sources than programs.
    fn poll_external(&mut self) {}

    /// A pass has ended.
    fn on_pass_end(&mut self) {}

    /// News of a link are about to be handled.
    fn on_link_news(&mut self, _key: Key) {}

    /// A token may have been for another worker of the stack.
    fn on_stray_token(&mut self, _key: Key) {}

    /// Called once when the worker ends.
    fn end(&mut self) {}

    /// Sleeps until there is work.
    fn sleep(&mut self, news: &mut Vec<News>) {
        let until = self.deadline();
        let (cells, inbox) = self.cells_and_inbox();
        let spins = cells.is_awake();
        let arm = || {
            inbox.sleep();
            inbox.has_any()
        };
        cells.sleep_with(news, until, spins, || inbox.has_any(), arm);
        inbox.wake();
    }

    /// Handles all messages.
    fn read_messages(&mut self) {
        let mut messages = std::mem::take(self.message_buffer());
        self.cells_and_inbox().1.take(&mut messages);
        for message in messages.drain(..) {
            self.on_message(message);
        }
        *self.message_buffer() = messages;
    }

    /// Handles an event.
    fn on_news(&mut self, news: News) {
        if let News::Ready(key, _)
        | News::Token(key, ..)
        | News::Opened(key, _)
        | News::Ended(key) = news
        {
            self.on_link_news(key);
        }
        match news {
            News::Own(INBOX) => {
                self.cells_and_inbox().1.reset_doorbell();
                self.read_messages();
            }
            News::Own(name) => self.on_own(name),
            News::OwnEnd(name) => self.on_own_end(name),
            News::OwnUrgent(name) => self.on_own_urgent(name),
            News::Ready(key, slot) => self.on_ready(key, slot),
            News::Token(key, slot, end) => self.on_token(key, slot, end),
            News::Opened(key, opened) => self.on_opened(key, opened),
            News::Ended(key) => self.on_ended(key),
        }
    }

    /// A token came on the anchor of a slot, or its `end`.
    fn on_token(&mut self, key: Key, slot: u32, end: bool) {
        self.on_stray_token(key);
        let has_lane = self.on_lane_token(key, slot, end);
        if let (false, true, Some(link)) = (has_lane, end, self.cells().link(key)) {
            // The anchor of a closed lane is in the pool again.
            link.drop_anchor(slot);
        }
    }
}

/// Runs a worker until it is told to end.
pub fn run<W: Worker>(mut worker: W) {
    let mut news = Vec::new();
    worker.begin();
    while !worker.has_ended() {
        worker.on_pass();
        let rest = worker.take_remaining_work();
        worker.cells_mut().look(&mut news);
        if news.is_empty() && !rest && !worker.cells_and_inbox().1.has_any() {
            worker.sleep(&mut news);
        }
        worker.on_news_known(!news.is_empty());
        worker.read_messages();
        for one in news.drain(..) {
            worker.on_news(one);
        }
        worker.poll_external();
        if worker.timers().next().is_some() {
            let now = worker.now();
            while let Some(number) = worker.timers().take(now) {
                worker.on_timer(number);
            }
        }
        worker.retry();
        worker.work();
        worker.on_pass_end();
    }
    worker.end();
}

/// Starts the thread of a worker.
///
/// # Errors
/// When none can be had.
pub fn spawn<W: Worker + Send + 'static>(name: String, worker: W) -> Result<JoinHandle<()>, Errno> {
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let _stack = AlternateStack::new();
        run(worker);
    });
    thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}
