//! A program that is killed right after it connected: in whatever order the kernel tells of its end, and whenever a worker looks, no
//! connection stays that nobody holds. All orders are tried, on real links.

use super::*;
use crate::cells::{Cells, Key, News};
use std::time::Instant;

/// What a worker does between two things that happen to a program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nothing,
    Looks,
    Asks,
    Sleeps,
}

const STEPS: [Step; 4] = [Step::Nothing, Step::Looks, Step::Asks, Step::Sleeps];

/// What happens to the program.
#[derive(Clone, Copy, Debug)]
enum Event {
    Announces,
    /// The kernel closes the anchor of the connection.
    LosesAnchor,
    /// The kernel closes all that the link itself has.
    LosesLink,
}

/// A worker, as far as it takes connections and hears of ends.
struct Worker {
    link: Arc<LinkEnd>,
    cells: Cells,
    key: Key,
    lanes: Vec<Lane>,
}

impl Worker {
    fn new(link: &Arc<LinkEnd>) -> Self {
        let mut cells = Cells::new().unwrap();
        let key = cells.add_link(Arc::clone(link)).unwrap();
        Self {
            link: Arc::clone(link),
            cells,
            key,
            lanes: Vec::new(),
        }
    }

    fn act(&mut self, step: Step) {
        let mut news = Vec::new();
        match step {
            Step::Nothing => {}
            Step::Looks => self.cells.look(&mut news),
            Step::Asks => self.cells.poll_kernel(&mut news),
            Step::Sleeps => self.cells.sleep(&mut news, Some(Instant::now())),
        }
        for one in news {
            match one {
                News::Opened(key, opened) => {
                    let slot = opened.loan.handle.index;
                    let mut lane = Lane::accepted(&self.link, opened.loan);
                    let watched = self.cells.watch_anchor(key, slot, lane.anchor_mut());
                    assert_eq!(watched, Ok(()));
                    lane.attach_cell(self.cells.cell(key).unwrap());
                    self.lanes.push(lane);
                }
                News::Token(_, slot, end) => {
                    let of_slot = |lane: &&mut Lane| lane.handle().index == slot;
                    match self.lanes.iter_mut().find(of_slot) {
                        Some(lane) => lane.on_token(end),
                        None if end => self.link.drop_anchor(slot),
                        None => {}
                    }
                }
                News::Ended(_) => {
                    self.link.fail();
                    self.cells.unwatch_channel(self.key);
                }
                News::Ready(..) | News::Own(_) | News::OwnEnd(_) | News::OwnUrgent(_) => {}
            }
        }
    }
}

/// True where a connection is left that nobody holds and nobody knows to be over. `again`: its slot and anchor had a connection before.
fn stays(events: [Event; 3], steps: [Step; 4], again: bool) -> bool {
    let (client, server) = link();
    let mut worker = Worker::new(&server);
    if again {
        let former = dial(&client);
        worker.act(Step::Sleeps);
        let taken = worker.lanes.pop().unwrap();
        former.close(false);
        taken.close(false);
        // A slot whose anchor is in the worker's set is lent first.
        client.settle_slots();
    }
    let loan = client.lend().unwrap();
    let lane = Lane::lent(&client, loan).unwrap();
    let handle = lane.handle();
    let mut lane = Some(lane);
    let mut announced = false;
    let [first, rest @ ..] = steps;
    worker.act(first);
    for (event, step) in events.into_iter().zip(rest) {
        match event {
            Event::Announces => {
                announced = client.announce(handle, 3, (&HERE, &THERE), false);
            }
            Event::LosesAnchor => drop(lane.take()),
            Event::LosesLink => {
                client.fail();
            }
        }
        worker.act(step);
    }
    assert!(announced);
    for _ in 0..4 {
        worker.act(Step::Sleeps);
        worker.act(Step::Asks);
    }
    !worker.lanes.iter().all(Lane::has_hung_up)
}

#[test]
fn the_connection_of_a_program_that_was_killed_goes_in_every_order_of_events() {
    let orders = [
        [Event::Announces, Event::LosesAnchor, Event::LosesLink],
        [Event::Announces, Event::LosesLink, Event::LosesAnchor],
    ];
    let mut left = Vec::new();
    for again in [false, true] {
        for events in orders {
            for number in 0..STEPS.len().pow(4) {
                let steps = [0, 1, 2, 3].map(|place| STEPS[number >> (2 * place) & 3]);
                if stays(events, steps, again) {
                    left.push((again, events, steps));
                }
            }
        }
    }
    assert!(left.is_empty(), "{} stay, as {:?}", left.len(), left[0]);
}
