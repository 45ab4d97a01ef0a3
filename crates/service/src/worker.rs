//! A worker: a thread of a stack module. Its passes take everything there is, within a budget, and then it sleeps.
//!
//! ```text
//!  pass:  look --news--> letters, lanes, links --> what comes elsewhere --> timers --> full backlogs --> work
//!  sleep: only if a pass left nothing, and nothing came: spin where that pays, then in the kernel
//! ```

use crate::cells::{Cells, Key, News};
use crate::jobs::Opened;
use crate::leading::Leads;
use crate::mailbox::Mailbox;
use crate::signal_stack::AlternateStack;
use crate::timers::Timers;
use rustix::io::Errno;
use std::thread::JoinHandle;
use std::time::Instant;

/// Name of the inbox among a worker's own descriptors; others come behind it.
pub const INBOX: u32 = 0;

/// A worker of a stack module. Where it needs more than one kind of news, of letters, or of times, the provided methods say what is done
/// where there is nothing of the kind.
pub trait Worker: Leads {
    /// What it is told by other threads.
    type Letter;

    /// Its links, and its letters, which are watched under [`INBOX`].
    fn cells_and_inbox(&mut self) -> (&mut Cells, &Mailbox<Self::Letter>);

    /// Room for letters that are being read.
    fn letters(&mut self) -> &mut Vec<Self::Letter>;

    /// When its connections want to be looked at.
    fn timers(&mut self) -> &mut Timers;

    /// Nanoseconds since its clock began: the time of the pass, or the present one.
    fn now(&self) -> u64;

    /// When it is to be woken at the latest.
    fn deadline(&self) -> Option<Instant>;

    /// Whether it was told to end.
    fn has_ended(&self) -> bool;

    /// A letter came.
    fn on_letter(&mut self, letter: Self::Letter);

    /// A program published something in a slot, or made room.
    fn on_ready(&mut self, key: Key, slot: u32);

    /// A token came on the anchor of a slot, or its `end`. False where no lane of this worker has that slot.
    fn on_lane_token(&mut self, key: Key, slot: u32, end: bool) -> bool;

    /// A program made a connection.
    fn on_opened(&mut self, key: Key, opened: Opened);

    /// The time of a connection has come.
    fn on_timer(&mut self, number: u32);

    /// Does what is to be done, within a budget.
    fn work(&mut self);

    /// Whether the last pass has left something to do; said once.
    fn takes_rest(&mut self) -> bool;

    /// The first pass is about to begin.
    fn begin(&mut self) {}

    /// A pass begins.
    fn on_pass(&mut self) {}

    /// The news of this pass are known: whether there are `any`. They are not looked at yet.
    fn on_news_known(&mut self, _any: bool) {}

    /// Something came on a descriptor of the worker's own.
    fn on_own(&mut self, _name: u32) {}

    /// Takes what comes from elsewhere than programs.
    fn take_in(&mut self) {}

    /// A pass has ended.
    fn on_pass_end(&mut self) {}

    /// A token may have been for another worker of the stack.
    fn on_token_of_others(&mut self, _key: Key) {}

    /// It was told to end, and does so.
    fn end(&mut self) {}

    /// Sleeps until there is something.
    fn sleep(&mut self, news: &mut Vec<News>) {
        let until = self.deadline();
        let (cells, inbox) = self.cells_and_inbox();
        let spins = cells.is_awake();
        let arm = || {
            inbox.sleep();
            inbox.has_any()
        };
        cells.sleep_beside(news, until, spins, || inbox.has_any(), arm);
        inbox.wake();
    }

    /// Reads all letters.
    fn read_letters(&mut self) {
        let mut letters = std::mem::take(self.letters());
        self.cells_and_inbox().1.take(&mut letters);
        for letter in letters.drain(..) {
            self.on_letter(letter);
        }
        *self.letters() = letters;
    }

    /// Something is to be looked at.
    fn on_news(&mut self, news: News) {
        match news {
            News::Own(INBOX) => {
                self.cells_and_inbox().1.hear();
                self.read_letters();
            }
            News::Own(name) => self.on_own(name),
            News::Ready(key, slot) => self.on_ready(key, slot),
            News::Token(key, slot, end) => self.on_token(key, slot, end),
            News::Opened(key, opened) => self.on_opened(key, opened),
            News::Ended(key) => self.on_ended(key),
        }
    }

    /// A token came on the anchor of a slot, or its `end`.
    fn on_token(&mut self, key: Key, slot: u32, end: bool) {
        self.on_token_of_others(key);
        let has_lane = self.on_lane_token(key, slot, end);
        if let (false, true, Some(link)) = (has_lane, end, self.cells().link(key)) {
            // The anchor of a lane that was closed lies in the pool again.
            link.drop_anchor(slot);
        }
    }
}

/// Works until it is told to end.
pub fn run<W: Worker>(mut worker: W) {
    let mut news = Vec::new();
    worker.begin();
    while !worker.has_ended() {
        worker.on_pass();
        let rest = worker.takes_rest();
        worker.cells_mut().look(&mut news);
        if news.is_empty() && !rest && !worker.cells_and_inbox().1.has_any() {
            worker.sleep(&mut news);
        }
        worker.on_news_known(!news.is_empty());
        worker.read_letters();
        for one in news.drain(..) {
            worker.on_news(one);
        }
        worker.take_in();
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
