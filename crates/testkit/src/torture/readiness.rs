//! Both ends without blocking: loops over poll or epoll, many connections per thread.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::support::{set_nonblocking, uninterrupted};
use netchannel_testkit::sys::{self, Descriptor};

use crate::flow::Flow;
use crate::script::{Role, Script};
use crate::{STOP, accept_script, open};

/// How a loop learns which sockets are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Poll,
    Level,
    Edge,
}

const LISTENER: u64 = u64::MAX;

/// A loop's connections and the set it waits on.
pub struct Loop {
    kind: Kind,
    set: Descriptor,
    flows: HashMap<u64, Flow>,
    next: u64,
}

impl Loop {
    pub fn new(kind: Kind) -> Self {
        let set = sys::epoll_create().expect("epoll_create");
        Self {
            kind,
            set,
            flows: HashMap::new(),
            next: 0,
        }
    }

    /// How many connections it has.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Its connections.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values()
    }

    fn events(&self, flow: &Flow) -> u32 {
        match self.kind {
            Kind::Edge => sys::IN | sys::OUT | sys::RDHUP | sys::ET,
            Kind::Poll | Kind::Level if flow.wants_to_send() => sys::IN | sys::OUT,
            Kind::Poll | Kind::Level => sys::IN,
        }
    }

    /// What its connections wait for.
    fn describe(&self) -> String {
        let all = self.flows.values().map(Flow::describe);
        all.collect::<Vec<_>>().join("; ")
    }

    /// Adds a connection.
    pub fn add(&mut self, flow: Flow) {
        set_nonblocking(flow.socket);
        let key = self.next;
        self.next += 1;
        if self.kind != Kind::Poll {
            let events = self.events(&flow);
            sys::epoll_control(self.set, libc::EPOLL_CTL_ADD, flow.socket, events, key)
                .expect("epoll_ctl");
        }
        self.flows.insert(key, flow);
    }

    /// Adds a listener to the set. [`LISTENER`] stands for it among the ready keys.
    fn listen(&mut self, listening: Descriptor) {
        set_nonblocking(listening);
        if self.kind != Kind::Poll {
            // Level-triggered in any case: several loops share the listener.
            sys::epoll_control(self.set, libc::EPOLL_CTL_ADD, listening, sys::IN, LISTENER)
                .expect("epoll_ctl");
        }
    }

    /// The keys that are ready within `timeout` milliseconds.
    fn ready(&self, listening: Option<Descriptor>, timeout: libc::c_int) -> Vec<u64> {
        if self.kind != Kind::Poll {
            let events =
                uninterrupted(|| sys::epoll_wait(self.set, 64, timeout)).expect("epoll_wait");
            return events.iter().map(|event| event.data).collect();
        }
        let mut keys = Vec::new();
        let mut entries = Vec::new();
        for (key, flow) in &self.flows {
            let events = if flow.wants_to_send() {
                libc::POLLIN | libc::POLLOUT
            } else {
                libc::POLLIN
            };
            keys.push(*key);
            entries.push(libc::pollfd {
                fd: flow.socket,
                events,
                revents: 0,
            });
        }
        if let Some(listening) = listening {
            keys.push(LISTENER);
            entries.push(libc::pollfd {
                fd: listening,
                events: libc::POLLIN,
                revents: 0,
            });
        }
        uninterrupted(|| sys::poll(&mut entries, timeout)).expect("poll");
        let ready = |(key, entry): (&u64, &libc::pollfd)| (entry.revents != 0).then_some(*key);
        keys.iter().zip(&entries).filter_map(ready).collect()
    }

    /// Waits once and advances the ready connections. False if none was ready in time.
    pub fn turn(&mut self, timeout: libc::c_int) -> bool {
        let ready = self.ready(None, timeout);
        ready.iter().for_each(|key| self.advance(*key));
        !ready.is_empty()
    }

    fn advance(&mut self, key: u64) {
        // An edge is reported once, so everything must be done that is possible.
        let calls = if self.kind == Kind::Edge {
            usize::MAX
        } else {
            4
        };
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let wanted = flow.wants_to_send();
        if flow.advance(calls) {
            self.flows.remove(&key);
            return;
        }
        if self.kind == Kind::Level && wanted && !flow.wants_to_send() {
            sys::epoll_control(self.set, libc::EPOLL_CTL_MOD, flow.socket, sys::IN, key)
                .expect("epoll_ctl");
        }
    }

    /// Closes all connections.
    pub fn close(self) {
        for flow in self.flows.values() {
            sys::close(flow.socket).expect("close");
        }
        sys::close(self.set).expect("close");
    }
}

/// Serves until a client sends the stop number.
pub fn serve(listening: Descriptor, seed: u64, kind: Kind, patience: Duration) {
    let patience = milliseconds(patience);
    let mut flows = Loop::new(kind);
    flows.listen(listening);
    let mut stopping = false;
    while !stopping || flows.len() > 0 {
        let listener = (!stopping).then_some(listening);
        let ready = flows.ready(listener, patience);
        assert!(
            !ready.is_empty() || flows.len() == 0,
            "{} connections stand still: {}",
            flows.len(),
            flows.describe()
        );
        for key in ready {
            if key != LISTENER {
                flows.advance(key);
            } else if let Ok(socket) = sys::accept(listening) {
                let Some(number) = accept_script(socket) else {
                    sys::close(socket).expect("close");
                    continue;
                };
                if number == STOP {
                    sys::close(socket).expect("close");
                    stopping = true;
                    if kind != Kind::Poll {
                        let remove = libc::EPOLL_CTL_DEL;
                        sys::epoll_control(flows.set, remove, listening, 0, 0).expect("epoll_ctl");
                    }
                    // The other keys are told once, where the loop waits for edges.
                    continue;
                }
                flows.add(Flow::new(socket, Script::of(seed, number), Role::Server));
            }
        }
    }
    flows.close();
}

fn milliseconds(time: Duration) -> libc::c_int {
    libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX)
}

/// The work of a client's loop.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The address to connect to.
    pub address: SocketAddr,
    /// The seed of the scripts.
    pub seed: u64,
    /// How many connections are open at the same time.
    pub connections: usize,
    pub kind: Kind,
    /// After this moment no more connections are opened.
    pub end: Instant,
    /// How long connections may make no progress.
    pub patience: Duration,
}

/// Keeps connections busy until the time is over.
pub fn drive(plan: Plan, numbers: &AtomicU64) {
    let Plan {
        address,
        seed,
        connections,
        kind,
        end,
        patience,
    } = plan;
    let mut flows = Loop::new(kind);
    loop {
        while flows.len() < connections && Instant::now() < end {
            let script = Script::of(seed, numbers.fetch_add(1, Ordering::Relaxed));
            flows.add(Flow::new(open(address, &script), script, Role::Client));
        }
        if flows.len() == 0 {
            break;
        }
        assert!(
            flows.turn(milliseconds(patience)),
            "{} connections stand still: {}",
            flows.len(),
            flows.describe()
        );
    }
    flows.close();
}
