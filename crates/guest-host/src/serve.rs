//! The loop: one thread, one epoll set.

use crate::address::to_call;
use crate::asking::{Askers, MOST_SOCKETS};
use crate::bell::{Bells, Heard};
use crate::listeners::{Listeners, Place};
use crate::sink::{SocketSink, number};
use netchannel_abi::address::INET;
use netchannel_guest::{Event, Families, Open, Tunnel, Welcome};
use netchannel_ring::patience::Patience;
use netchannel_shm::Region;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, connect, setsockopt, socket, sockopt};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names of descriptors in the epoll set. Listeners, those who ask, and connections come behind.
const STOP: u64 = 0;
const MACHINES: u64 = 1;
const BELL: u64 = 2;
const FIRST_LISTENER: u64 = 16;
const FIRST_ASKER: u64 = FIRST_LISTENER + (2 << 16);
const FIRST_CONNECTION: u64 = FIRST_ASKER + MOST_SOCKETS as u64;
/// Clients taken at a port before others have their turn.
const MOST_ACCEPTED: usize = 64;
/// Answers taken of one that asks before others have their turn.
const MOST_ANSWERS: usize = 16;
/// Without a descriptor, or with as many connections as may be, clients wait for so long.
const REST: Duration = Duration::from_millis(50);
/// Events that are taken at a time.
const EVENTS: usize = 256;
/// Without a doorbell the region is looked at again after a while, which grows between these.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(10);
/// The same, while the other side is not there.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The host's end of a guest.
#[derive(Debug)]
pub struct Host {
    tunnel: Tunnel<SocketSink>,
    bells: Option<Bells>,
    /// Watched only.
    _stop: UnixStream,
    listeners: Listeners,
    askers: Askers,
    /// Clients wait until then.
    rests_until: Option<Instant>,
    epoll: Epoll,
    patience: Patience<1000>,
    epoch: Instant,
    look_after: Duration,
    told_version: bool,
}

impl Host {
    /// The end of a region, which is told `welcome`, and ends when something comes by `stop`. `None` where the region is too small.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new(
        region: Arc<Region>,
        bells: Option<Bells>,
        welcome: Welcome,
        stop: UnixStream,
    ) -> Result<Option<Self>, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let readable = |name| EpollEvent::new(EpollFlags::EPOLLIN, name);
        epoll.add(&stop, readable(STOP))?;
        if let Some(bells) = &bells {
            epoll.add(bells.listener(), readable(MACHINES))?;
        }
        let now = Instant::now();
        Ok(Tunnel::host(region, welcome, now).map(|tunnel| Self {
            tunnel,
            bells,
            _stop: stop,
            listeners: Listeners::default(),
            askers: Askers::default(),
            rests_until: None,
            epoll,
            patience: Patience::new(0),
            epoch: now,
            look_after: SHORTEST_LOOK,
            told_version: false,
        }))
    }

    /// Serves until it is told to end.
    ///
    /// # Errors
    /// When waiting for events fails.
    pub fn serve(mut self) -> Result<(), Errno> {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            if self.tunnel.has_news() {
                self.look_after = SHORTEST_LOOK;
            }
            self.pass();
            let count = self.wait(&mut events)?;
            let count = if count == 0 && !self.tunnel.has_work() {
                self.sleep(&mut events)?
            } else {
                self.look_after = SHORTEST_LOOK;
                count
            };
            for event in events.iter().take(count) {
                if event.data() == STOP {
                    self.end();
                    return Ok(());
                }
                self.on_ready(*event);
            }
        }
    }

    fn end(mut self) {
        self.tunnel.end();
        self.listeners.clear();
        if self.tunnel.flush()
            && let Some(bells) = &mut self.bells
        {
            bells.ring();
        }
    }

    fn pass(&mut self) {
        let now = Instant::now();
        self.tunnel.poll(now);
        self.take_events();
        self.tunnel.work(now);
        self.take_events();
        if self.tunnel.flush()
            && let Some(bells) = &mut self.bells
        {
            bells.ring();
        }
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
            for (place, listener) in self.listeners.all() {
                watch_listener(&self.epoll, place, listener);
            }
        }
        if !self.told_version && self.tunnel.is_of_another_version() {
            self.told_version = true;
            tracing::error!(
                "the guest's netchannel is of another version than the host's: install the same one"
            );
        }
    }

    /// What there is, without waiting.
    fn wait(&self, events: &mut [EpollEvent]) -> Result<usize, Errno> {
        match self.epoll.wait(events, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => Ok(0),
            other => other,
        }
    }

    fn sleep(&mut self, events: &mut [EpollEvent]) -> Result<usize, Errno> {
        let (tunnel, epoll, epoch) = (&mut self.tunnel, &self.epoll, self.epoch);
        let clock = || nanoseconds(epoch.elapsed());
        if tunnel.count() > 0 {
            let (mut count, mut looks) = (0, 0_u32);
            let ready = || {
                looks = looks.wrapping_add(1);
                // What comes by sockets is looked for, too, but costs more.
                if looks.is_multiple_of(8) {
                    count = epoll.wait(events, EpollTimeout::ZERO).unwrap_or(0);
                }
                count > 0 || tunnel.has_news()
            };
            if self
                .patience
                .spin_yielding(clock, std::thread::yield_now, ready)
            {
                return Ok(count);
            }
        }
        let start = Instant::now();
        if tunnel.fall_asleep() {
            tunnel.wake();
            return Ok(0);
        }
        let rings = self.bells.as_ref().is_some_and(Bells::works) && self.tunnel.is_rung_for();
        let look = if rings {
            None
        } else {
            start.checked_add(self.look_after)
        };
        let until = [look, self.rests_until, self.tunnel.deadline()];
        let until = until.into_iter().flatten().min();
        let timeout = until.map_or(EpollTimeout::NONE, |until| {
            // Not before it: a look too early would be in vain.
            let left = until.saturating_duration_since(start) + Duration::from_micros(999);
            EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
        });
        let slept = match self.epoll.wait(events, timeout) {
            Err(Errno::EINTR) => Ok(0),
            other => other,
        };
        self.tunnel.wake();
        self.patience.learn(nanoseconds(start.elapsed()));
        let longest = if self.tunnel.is_up() {
            LONGEST_LOOK
        } else {
            LONGEST_WAIT
        };
        self.look_after = (self.look_after * 2).min(longest);
        slept
    }

    fn on_ready(&mut self, event: EpollEvent) {
        match event.data() {
            MACHINES => self.on_machine(),
            BELL => {
                if let Some(bells) = &mut self.bells
                    && bells.hear() == Heard::End
                {
                    tracing::info!("the machine has ended");
                    self.tunnel.set_bell(false);
                    self.tunnel.lose();
                }
            }
            name @ FIRST_ASKER..FIRST_CONNECTION => self.on_answers(name - FIRST_ASKER),
            name @ FIRST_CONNECTION.. => self.on_socket(name - FIRST_CONNECTION, event.events()),
            name => {
                let place = name.saturating_sub(FIRST_LISTENER);
                let port = u16::try_from(place >> 1).unwrap_or(0);
                self.accept((port, place & 1 != 0));
            }
        }
    }

    fn on_machine(&mut self) {
        let Some(bells) = &mut self.bells else {
            return;
        };
        let had_one = bells.works();
        if let Some(stream) = bells.accept() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, BELL);
            if let Err(errno) = self.epoll.add(stream, event) {
                tracing::warn!("the machine's doorbell is not heard ({errno})");
            }
            tracing::info!("a machine is there");
            self.tunnel.set_bell(true);
            if had_one {
                // The former one has not been seen to end.
                self.tunnel.lose();
            }
        }
    }

    fn on_socket(&mut self, serial: u64, flags: EpollFlags) {
        let end =
            flags.intersects(EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        let is_made = self.tunnel.is_made(serial) || self.tunnel.is_own(serial);
        let Some(sink) = self.tunnel.sink(serial) else {
            return;
        };
        sink.on_event(end);
        if is_made {
            return self.tunnel.queue(serial);
        }
        match sink.is_connected() {
            Ok(true) => self.tunnel.accept(serial),
            Ok(false) => {}
            Err(errno) => self.tunnel.refuse(serial, errno),
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.tunnel.next_event() {
            match event {
                Event::Up => tracing::info!("the guest is there"),
                Event::Down => {
                    tracing::info!("the guest is gone; its connections were reset");
                    self.listeners.clear();
                    self.askers.clear();
                }
                Event::Violated(violation) => {
                    tracing::warn!("the guest broke the rules: {}", violation.0);
                }
                Event::Silent => tracing::warn!("the guest does not answer"),
                Event::Open(serial, open) => self.dial(serial, &open),
                Event::Listen(port, families) => self.listen(port, families),
                Event::Datagram(question) => {
                    self.askers.ask(&question, &self.epoll, FIRST_ASKER);
                }
                Event::Forget(number) => self.askers.forget(number),
                Event::Gone(_) | Event::Welcome(_) => {}
            }
        }
    }

    /// Name servers have answered.
    fn on_answers(&mut self, place: u64) {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        for _ in 0..MOST_ANSWERS {
            let Some(answer) = self.askers.answer(place) else {
                return;
            };
            self.tunnel.tell(&answer);
        }
    }

    /// A program of the guest connects.
    fn dial(&mut self, serial: u64, open: &Open) {
        match begin_connect(open) {
            Ok(socket) => {
                let watched = self.watch(serial, &socket);
                self.tunnel.attach(serial, SocketSink::new(socket));
                match watched {
                    // An event tells when the other host has answered, also where it has by now.
                    Ok(()) => {}
                    Err(errno) => self.tunnel.refuse(serial, number(errno)),
                }
            }
            Err(errno) => self.tunnel.refuse(serial, number(errno)),
        }
    }

    fn watch(&self, serial: u64, socket: impl AsFd) -> Result<(), Errno> {
        let flags = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        let event = EpollEvent::new(flags, FIRST_CONNECTION + serial);
        self.epoll.add(socket, event)
    }

    /// Programs of the guest listen, or do not any more.
    fn listen(&mut self, port: u16, families: Families) {
        let (new, failed) = self.listeners.set(port, families);
        if self.rests_until.is_none() {
            for (place, listener) in new {
                watch_listener(&self.epoll, place, listener);
            }
        }
        for errno in failed {
            tracing::warn!("the guest's port {port} is not served ({errno})");
        }
    }

    /// Clients come in.
    fn accept(&mut self, place: Place) {
        for _ in 0..MOST_ACCEPTED {
            if self.tunnel.is_full() {
                return self.rest();
            }
            let client = match self.listeners.accept(place) {
                Ok(Some(client)) => client,
                Ok(None) => return,
                Err(_) => return self.rest(),
            };
            let open = Open {
                to: client.to.unmapped(),
                from: client.from.unmapped(),
                dscp: 0,
            };
            let sink = SocketSink::new(client.socket);
            // Where the guest has just gone, the client finds its connection closed.
            let Some(serial) = self.tunnel.open(open, sink) else {
                return;
            };
            let sink = self.tunnel.peek(serial);
            if let Some(Err(errno)) = sink.map(|sink| self.watch(serial, sink)) {
                self.tunnel.refuse(serial, number(errno));
            }
        }
    }

    /// No client can be taken now: those that come wait.
    fn rest(&mut self) {
        if self.rests_until.is_none() {
            for (_, listener) in self.listeners.all() {
                // It may not have been watched.
                let _ = self.epoll.delete(listener);
            }
            self.rests_until = Instant::now().checked_add(REST);
        }
    }
}

fn watch_listener(epoll: &Epoll, (port, six): Place, listener: impl AsFd) {
    let name = FIRST_LISTENER + (u64::from(port) << 1 | u64::from(six));
    let event = EpollEvent::new(EpollFlags::EPOLLIN, name);
    if let Err(errno) = epoll.add(listener, event) {
        tracing::warn!("clients at the guest's port {port} are not heard of ({errno})");
    }
}

fn begin_connect(open: &Open) -> Result<OwnedFd, Errno> {
    let family = if open.to.family == INET {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None)?;
    if open.dscp != 0 {
        let octet = i32::from(open.dscp) << 2;
        // Of the two options, one fits the socket.
        let _ = setsockopt(&socket, sockopt::Ipv4Tos, &octet);
        let _ = setsockopt(&socket, sockopt::Ipv6TClass, &octet);
    }
    match connect(socket.as_raw_fd(), &to_call(&open.to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
