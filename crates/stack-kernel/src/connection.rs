//! A connection: a lane, a socket of the kernel's, and the bytes between them.

use crate::caps::{Cap, Caps};
use crate::served::TenantNumber;
use crate::socket_options::SocketOptions;
use crate::urgent::Urgent;
use netchannel_abi::link::side_flags;
use netchannel_service::cells::Key;
use netchannel_service::lane::Lane;
use netchannel_service::returned::Returned;
use netchannel_service::routing::Destination;
use netchannel_service::timers::nanoseconds;
use netchannel_shm::run::{gather_write, gather_write_urgent};
use netchannel_stack_process::counters::{Counter, Counters};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, sockopt};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of one direction that are moved before other connections have their turn.
const BUDGET: u64 = 512 << 10;
/// Bytes for which room is wanted before the socket is read.
const READ: u64 = 64 << 10;

/// How far a connection has come.
#[derive(Debug)]
pub enum State {
    /// From the network, on its way to a program.
    Arriving(Destination),
    /// The same, while CoreEngine offers it.
    Offered(Destination, Lane, Key),
    /// From a program, until the other host has answered.
    Connecting(Lane),
    /// Both ends are there.
    Open(Lane),
    /// Within a change.
    Changing,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Tells it from others of its number.
    pub stamp: u64,
    /// Whose it is.
    pub tenant: TenantNumber,
    /// How far it has come.
    pub state: State,
    /// Where it goes, if it came from the network and a program has it.
    pub arrived: Option<Destination>,
    /// Bytes from the network that come before those of the socket.
    returned: Returned,
    /// The kernel's end.
    pub socket: OwnedFd,
    /// The program's end: link and slot.
    pub place: Option<(Key, u32)>,
    /// Whether it waits for its turn.
    pub queued: bool,
    /// What is known of the socket since its last event.
    pub readiness: Readiness,
    /// The program's end of stream was told to the kernel.
    pub sent_end: bool,
    /// Nothing more is read from the kernel: its end of stream was told to the program, or the program reads nothing more.
    pub received_end: bool,
    /// The kernel knows that the program neither sends nor reads any more.
    deaf: bool,
    /// Urgent bytes from the network.
    pub urgent: Urgent,
    /// What the program has asked of the socket.
    options: SocketOptions,
}

/// What is known of a socket. Events are told once each, so that it is kept until a call says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readiness {
    /// Something may be read.
    pub readable: bool,
    /// The other host has ended its stream, or there is an error: a read that brings less than it has room for is not the last.
    pub ended: bool,
    /// The kernel takes nothing now.
    pub blocked: bool,
    /// The same, and nobody has looked whether there is an error.
    pub unexamined: bool,
    /// Something was written.
    pub has_written: bool,
    /// Small writes go at once.
    pub undelayed: bool,
    /// The lane knows how much fills a packet.
    pub packets_known: bool,
}

/// What a turn has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing can be moved before something happens.
    Idle,
    /// There is more to move, and others come first.
    More,
    /// A cap, or the program, holds bytes back until then, in nanoseconds of the worker's clock.
    Later(u64),
    /// It ended in good order.
    Finished,
    /// It was reset, for this reason.
    Reset(Errno),
}

/// What one direction has come to.
enum Moved {
    /// All there was.
    All,
    /// The other side takes no more now.
    Blocked,
    More,
    Later(u64),
}

/// What a turn works with besides the connection.
pub struct Shared<'a> {
    /// The tenant's caps.
    pub caps: &'a mut Caps,
    /// The tenant's counters.
    pub counters: &'a Counters,
    /// Nanoseconds of the worker's clock.
    pub now: u64,
    /// Whether the tenant's programs choose their congestion control.
    pub may_choose: bool,
}

impl Connection {
    /// A connection of that state.
    pub fn new(stamp: u64, tenant: TenantNumber, state: State, socket: OwnedFd) -> Self {
        let urgent = match state {
            State::Arriving(_) => Urgent::inline(),
            _ => Urgent::default(),
        };
        Self {
            stamp,
            tenant,
            state,
            arrived: None,
            returned: Returned::default(),
            socket,
            place: None,
            queued: false,
            readiness: Readiness::default(),
            sent_end: false,
            received_end: false,
            deaf: false,
            urgent,
            options: SocketOptions::default(),
        }
    }

    /// Where the program to which it was announced over `lane` was killed before it accepted it: it is on its way again,
    /// with all that came from the network.
    #[inline]
    pub fn wait_anew(&mut self, lane: &Lane) -> bool {
        if !lane.is_left_unaccepted() {
            return false;
        }
        let (Some(wanted), Some(sent)) = (self.arrived, lane.sent_bytes(&self.returned)) else {
            return false;
        };
        self.returned = sent;
        let since = Instant::now();
        self.state = State::Arriving(Destination { since, ..wanted });
        // The end of the stream is read again, and the next program asks for options of its own.
        self.received_end = false;
        self.readiness.readable = true;
        self.options = SocketOptions::default();
        true
    }

    /// Moves what can be moved.
    pub fn pump(&mut self, lane: &mut Lane, shared: &mut Shared<'_>) -> Turn {
        // Before the bytes: a program that has said FIN, or is gone, writes no more.
        let flags = lane.peer_flags();
        let gone = lane.has_hung_up() && flags & side_flags::CLOSED == 0;
        self.options.follow(lane, &self.socket, shared.may_choose);
        self.follow_urgent(flags);
        let holds = lane.hold_time_left().is_some();
        if holds && !std::mem::replace(&mut self.readiness.packets_known, true) {
            lane.set_packet_size(packet_payload(&self.socket));
        }
        let sent = match self.send(lane, &mut shared.caps.outgoing, shared.counters, shared.now) {
            Ok(sent) => sent,
            Err(errno) => {
                // What came before the reset is the program's to read.
                self.readiness.readable = true;
                let _ = self.receive(lane, &mut Cap::default(), shared.counters, shared.now);
                return Turn::Reset(errno);
            }
        };
        if flags & side_flags::RESET != 0 || gone && lane.ended_by_reset() {
            return Turn::Reset(Errno::CONNRESET);
        }
        if matches!(sent, Moved::All) {
            if flags & side_flags::CLOSED != 0 || gone {
                return Turn::Finished;
            }
            if let Err(errno) = self.shut(flags) {
                return Turn::Reset(errno);
            }
        } else if flags & side_flags::CLOSED != 0 || gone {
            // Nobody reads any more; what was written before is sent all the same.
            return turn_of(&[sent]);
        }
        let received =
            match self.receive(lane, &mut shared.caps.incoming, shared.counters, shared.now) {
                Ok(received) => received,
                Err(errno) => return Turn::Reset(errno),
            };
        if !holds {
            return turn_of(&[sent, received]);
        }
        let held = match lane.hold_time_left() {
            Some(left) => Moved::Later(shared.now.saturating_add(nanoseconds(left))),
            // What came from the other host has let it go.
            None => Moved::More,
        };
        turn_of(&[sent, received, held])
    }

    /// All that the program has written is sent: the kernel is told what it does no more.
    ///
    /// # Errors
    /// `CONNRESET` where bytes have come that nobody reads any more, as the kernel answers those that come from now on.
    fn shut(&mut self, flags: u32) -> Result<(), Errno> {
        if flags & side_flags::FIN == 0 {
            return Ok(());
        }
        // The calls fail where the other host has reset the connection, which the next read tells.
        if !std::mem::replace(&mut self.sent_end, true) {
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        if flags & side_flags::SHUT_READ != 0 && !std::mem::replace(&mut self.deaf, true) {
            // From now on what comes is answered with a reset. The kernel tells of an end that the other host has not sent.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
            let unread = !self.received_end && rustix::io::ioctl_fionread(&self.socket) != Ok(0);
            self.received_end = true;
            if unread {
                return Err(Errno::CONNRESET);
            }
        }
        Ok(())
    }

    /// Urgent bytes are read as the program reads them. Until it has accepted the connection that is not known, and
    /// they are read in line, where none is lost.
    #[inline]
    fn follow_urgent(&mut self, flags: u32) {
        if self.arrived.is_none() || flags & side_flags::ACCEPTED != 0 {
            self.urgent.follow(flags, &self.socket);
        }
    }

    fn send(
        &mut self,
        lane: &mut Lane,
        cap: &mut Cap,
        counters: &Counters,
        now: u64,
    ) -> Result<Moved, Errno> {
        let mut budget = BUDGET;
        while budget > 0 {
            let spans = lane.readable(lane.consumed(), budget).map_err(fault)?;
            let length = (spans[0].length + spans[1].length) as u64;
            if length == 0 {
                return Ok(Moved::All);
            }
            // Loaded behind the bytes: what answers them is read as the program had chosen before it sent them.
            self.follow_urgent(lane.peer_flags());
            if self.readiness.blocked {
                return Ok(Moved::Blocked);
            }
            let permitted = match cap.permit(length, now) {
                Ok(permitted) => permitted,
                Err(at) => return Ok(Moved::Later(at)),
            };
            // Looked at behind the bytes: it says which of them are urgent.
            let (apart, urgently) = crate::urgent::to_send(lane.urgent(), lane.consumed(), length);
            let permitted = permitted.min(apart);
            let spans = if permitted < length {
                lane.readable(lane.consumed(), permitted).map_err(fault)?
            } else {
                spans
            };
            if std::mem::replace(&mut self.readiness.has_written, true) {
                self.undelay();
            }
            let (socket, runs) = (self.socket.as_raw_fd(), lane.runs(spans));
            let written = if urgently {
                gather_write_urgent(socket, &runs)
            } else {
                gather_write(socket, &runs)
            };
            let sent = match written {
                Ok(sent) => sent as u64,
                Err(error) => match Errno::from_raw_os_error(error) {
                    Errno::AGAIN => {
                        self.readiness.blocked = true;
                        return Ok(Moved::Blocked);
                    }
                    Errno::INTR => continue,
                    errno => return Err(errno),
                },
            };
            cap.take(sent);
            counters.add(Counter::BytesOut, sent);
            lane.consume(lane.consumed() + sent).map_err(fault)?;
            budget = budget.saturating_sub(sent);
        }
        Ok(Moved::More)
    }

    /// A program's writes that are small lie in its ring together when they are sent, so that nothing is won by holding the next ones
    /// back. The first write is never held back, and connections of one write are many: it takes place before the second.
    fn undelay(&mut self) {
        if !std::mem::replace(&mut self.readiness.undelayed, true) {
            // It fails only for a socket that is none of TCP.
            let _ = sockopt::set_tcp_nodelay(&self.socket, true);
        }
    }

    fn receive(
        &mut self,
        lane: &mut Lane,
        cap: &mut Cap,
        counters: &Counters,
        now: u64,
    ) -> Result<Moved, Errno> {
        if !lane.send_again(&mut self.returned).map_err(fault)? {
            return Ok(Moved::Blocked);
        }
        let mut budget = BUDGET;
        while budget > 0 && self.readiness.readable && !self.received_end {
            let mut free = lane.limit().map_err(fault)? - lane.published();
            if free < READ && lane.grow(READ).map_err(fault)? {
                free = lane.limit().map_err(fault)? - lane.published();
            }
            if free == 0 {
                lane.request_space_news();
                free = lane.limit().map_err(fault)? - lane.published();
            }
            if free == 0 {
                self.urgent.announce(&self.socket, lane);
                return Ok(Moved::Blocked);
            }
            let permitted = match cap.permit(free.min(budget), now) {
                Ok(permitted) => permitted,
                Err(at) => return Ok(Moved::Later(at)),
            };
            let at = lane.published();
            let spans = lane.room(at, permitted).map_err(fault)?;
            let asked = (spans[0].length + spans[1].length) as u64;
            // A read ends at the urgent byte, whatever lies behind it.
            let ends_early = self.readiness.ended || self.urgent.is_ahead();
            let taken = self.urgent.read(&self.socket, &lane.rooms(spans), at);
            let (received, row) = match taken {
                Ok((0, _)) => {
                    self.received_end = true;
                    lane.set_flags(side_flags::FIN);
                    break;
                }
                Ok(taken) => taken,
                Err(error) => match Errno::from_raw_os_error(error) {
                    Errno::AGAIN => {
                        self.readiness.readable = false;
                        break;
                    }
                    Errno::INTR => continue,
                    errno => return Err(errno),
                },
            };
            cap.take(received);
            counters.add(Counter::BytesIn, received);
            lane.publish_with_mark(at + received, row).map_err(fault)?;
            budget = budget.saturating_sub(received);
            // All that there was: what comes from now on is told by another event.
            self.readiness.readable = received == asked || ends_early;
        }
        if self.readiness.readable && !self.received_end {
            return Ok(Moved::More);
        }
        self.examine()?;
        Ok(Moved::All)
    }

    /// Behind the end of the stream no read tells of an error.
    fn examine(&mut self) -> Result<(), Errno> {
        if self.received_end && std::mem::replace(&mut self.readiness.unexamined, false) {
            sockopt::socket_error(&self.socket)??;
        }
        Ok(())
    }
}

/// As much of a program's bytes as fills a packet, on a path of Ethernet's.
fn packet_payload(socket: &OwnedFd) -> u64 {
    payload_of(sockopt::socket_domain(socket) == Ok(AddressFamily::INET6))
}

/// The same, by the family.
pub const fn payload_of(is_v6: bool) -> u64 {
    if is_v6 { 1428 } else { 1448 }
}

/// What both directions have come to.
fn turn_of(moved: &[Moved]) -> Turn {
    if moved.iter().any(|one| matches!(one, Moved::More)) {
        return Turn::More;
    }
    let capped = moved.iter().filter_map(|one| match one {
        Moved::Later(at) => Some(*at),
        _ => None,
    });
    capped.min().map_or(Turn::Idle, Turn::Later)
}

/// A program that breaks the rules of its lane loses its connection.
fn fault<F>(_: F) -> Errno {
    Errno::CONNRESET
}

/// The end of the socket will be a reset.
pub fn make_reset(socket: &OwnedFd) {
    // It fails only for a socket that is none of TCP.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Whether a connect has succeeded; false while it is under way.
///
/// # Errors
/// Why it has failed.
pub fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    if rustix::net::getpeername(socket).is_ok() {
        return Ok(true);
    }
    sockopt::socket_error(socket)??;
    Ok(false)
}
