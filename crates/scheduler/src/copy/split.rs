//! Large calls in parts; small ones, and those of L sockets, never.

use super::{CopyChoice, CopyPolicy, CopyRequest, CopyWorkerView, Direction};
use crate::view::Class;

/// How a worker is chosen among the available ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The one with the fewest bytes; of equals, each in turn.
    LeastLoaded,
    /// Each in turn (paper, section 4).
    RoundRobin,
}

/// Parameters of [`Split`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyParameters {
    /// How a worker is chosen.
    pub pick: Pick,
    /// Most copy workers of a program.
    pub workers: u32,
    /// A worker with so much gets no further part: 640 KiB (paper, section 4).
    pub threshold: u64,
    /// Calls below this are copied by the caller.
    pub least: u64,
    /// The bytes that the caller always copies first: a worker is awake by then.
    pub local: u64,
    /// The size of a part.
    pub part: u64,
    /// A socket with so much in flight copies itself, when sending.
    pub in_flight_send: u64,
    /// The same for a receive.
    pub in_flight_receive: u64,
}

impl Default for CopyParameters {
    /// The figures of the published module; `workers` and `least` are ours.
    fn default() -> Self {
        Self {
            pick: Pick::LeastLoaded,
            workers: 3,
            threshold: 640 << 10,
            least: 256 << 10,
            local: 62_620,
            part: 62_620,
            in_flight_send: 751_440,
            in_flight_receive: 250_480,
        }
    }
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    parameters: CopyParameters,
    start: usize,
}

impl Split {
    /// A `part` of 0 is 1.
    #[must_use]
    pub fn new(parameters: CopyParameters) -> Self {
        let part = parameters.part.max(1);
        Self {
            parameters: CopyParameters { part, ..parameters },
            start: 0,
        }
    }

    fn worker(&self, request: &CopyRequest, workers: &[CopyWorkerView]) -> Option<usize> {
        let usable = |index: &usize| {
            let worker = &workers[*index];
            let callers_own = worker.core.is_some() && worker.core == request.core;
            worker.near && !callers_own && worker.queued < self.parameters.threshold
        };
        let start = if self.start < workers.len() {
            self.start
        } else {
            0
        };
        let mut turn = (start..workers.len()).chain(0..start).filter(usable);
        match self.parameters.pick {
            Pick::RoundRobin => turn.next(),
            Pick::LeastLoaded => turn.min_by_key(|index| workers[*index].queued),
        }
    }
}

impl CopyPolicy for Split {
    fn choose(
        &mut self,
        request: &CopyRequest,
        workers: &[CopyWorkerView],
        _now: u64,
    ) -> CopyChoice {
        let parameters = &self.parameters;
        let left = request.length.saturating_sub(request.assigned);
        if request.class == Class::Latency || request.length < parameters.least {
            return CopyChoice::Local(left);
        }
        if request.assigned < parameters.local {
            return CopyChoice::Local(left.min(parameters.local - request.assigned));
        }
        let part = left.min(parameters.part);
        let most = match request.direction {
            Direction::Send => parameters.in_flight_send,
            Direction::Receive => parameters.in_flight_receive,
        };
        if request.in_flight >= most || part == 0 {
            return CopyChoice::Local(part);
        }
        match self.worker(request, workers) {
            Some(index) => {
                self.start = index + 1;
                CopyChoice::Worker(index, part)
            }
            None => CopyChoice::Local(part),
        }
    }
}
