//! The near end of a far call.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};

use super::address::{to_bind, to_connect};
use super::wire::{Answer, Call, Request};
use super::{FAR, not_between, note_crossing, other, own};
use crate::answer::{Descriptor, Errno, Outcome, RawAddress};

/// The highest number of far descriptors.
const MOST: usize = 4096;

/// The process that owns each far descriptor. A forked child of the owner has a copy of which the far process knows
/// nothing.
static OWNERS: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

thread_local! {
    /// The connection to the far process, and the process that made it. A child makes its own.
    static CHANNEL: RefCell<Option<(UnixStream, libc::pid_t)>> = const { RefCell::new(None) };
}

fn exchange(request: &Request) -> Outcome<Answer> {
    let answer = CHANNEL.with_borrow_mut(|channel| {
        let process = own::process();
        if channel.as_ref().is_none_or(|(_, owner)| *owner != process) {
            let socket = &other()?.socket;
            *channel = Some((UnixStream::connect(socket).ok()?, process));
        }
        let (stream, _) = channel.as_mut()?;
        request.write(stream).ok()?;
        Answer::read(stream).ok()
    });
    let answer = answer.expect("the process on the other host answers");
    if answer.result < 0 {
        let errno = i32::try_from(-answer.result).expect("an errno");
        return Err(Errno(errno));
    }
    Ok(answer)
}

/// Takes a descriptor that the far process has opened.
fn take(answer: &Answer) -> Descriptor {
    let number = usize::try_from(answer.result).expect("a descriptor");
    let Some(owner) = OWNERS.get(number) else {
        not_between("more descriptors than far ones can be");
    };
    owner.store(own::process(), Ordering::Relaxed);
    FAR + Descriptor::try_from(number).expect("a small number")
}

/// A far TCP socket.
pub fn socket(domain: libc::c_int) -> Outcome<Descriptor> {
    let request = Request {
        call: Call::Socket,
        descriptor: 0,
        numbers: [i64::from(domain), i64::from(libc::SOCK_STREAM), 0],
        bytes: Vec::new(),
    };
    exchange(&request).map(|answer| take(&answer))
}

/// A far descriptor.
#[derive(Clone, Copy)]
pub struct FarDescriptor {
    number: Descriptor,
}

impl FarDescriptor {
    pub(crate) fn of(descriptor: Descriptor) -> Self {
        Self {
            number: descriptor - FAR,
        }
    }

    fn owner(self) -> libc::pid_t {
        let number = usize::try_from(self.number).unwrap_or(MOST);
        OWNERS
            .get(number)
            .map_or(0, |owner| owner.load(Ordering::Relaxed))
    }

    fn call(self, call: Call, numbers: [i64; 3], bytes: &[u8]) -> Outcome<Answer> {
        if self.owner() != own::process() {
            not_between("a descriptor of the other host is shared over fork");
        }
        exchange(&Request {
            call,
            descriptor: self.number,
            numbers,
            bytes: bytes.to_vec(),
        })
    }

    fn unit(self, call: Call, number: libc::c_int) -> Outcome<()> {
        self.call(call, [i64::from(number), 0, 0], &[]).map(drop)
    }

    fn opened(self, call: Call, number: libc::c_int) -> Outcome<Descriptor> {
        let answer = self.call(call, [i64::from(number), 0, 0], &[])?;
        Ok(take(&answer))
    }

    fn size(self, call: Call, bytes: &[u8], flags: libc::c_int) -> Outcome<usize> {
        let answer = self.call(call, [i64::from(flags), 0, 0], bytes);
        if answer == Err(Errno(libc::EPIPE)) && flags & libc::MSG_NOSIGNAL == 0 {
            // The far process sends without SIGPIPE, so the signal is raised here.
            own::signal(libc::SIGPIPE);
        }
        Ok(usize::try_from(answer?.result).expect("a size"))
    }

    pub(crate) fn close(self) -> Outcome<()> {
        if self.owner() != own::process() {
            // The descriptor is a copy from fork. The far process has only the original.
            return Ok(());
        }
        self.unit(Call::Close, 0)
    }

    pub(crate) fn dup(self) -> Outcome<Descriptor> {
        self.opened(Call::Dup, 0)
    }

    pub(crate) fn fcntl(self, command: libc::c_int, value: libc::c_int) -> Outcome<libc::c_int> {
        let known = [libc::F_GETFL, libc::F_SETFL, libc::F_GETFD, libc::F_SETFD];
        if !known.contains(&command) {
            not_between("fcntl with another command");
        }
        let numbers = [i64::from(command), i64::from(value), 0];
        let answer = self.call(Call::Control, numbers, &[])?;
        Ok(libc::c_int::try_from(answer.result).expect("flags"))
    }

    pub(crate) fn ioctl_int(
        self,
        request: libc::c_ulong,
        value: libc::c_int,
    ) -> Outcome<libc::c_int> {
        let request = i64::try_from(request).expect("a small number");
        let answer = self.call(Call::IoctlInt, [request, i64::from(value), 0], &[])?;
        Ok(libc::c_int::try_from(answer.number).expect("an int"))
    }

    pub(crate) fn bind(self, address: SocketAddr) -> Outcome<()> {
        let raw = to_bind(address, true).to_string();
        self.call(Call::Bind, [0; 3], raw.as_bytes()).map(drop)
    }

    pub(crate) fn listen(self, backlog: libc::c_int) -> Outcome<()> {
        self.unit(Call::Listen, backlog)?;
        super::await_announcement();
        Ok(())
    }

    pub(crate) fn connect(self, raw: &RawAddress) -> Outcome<()> {
        let Some(address) = raw.decode() else {
            not_between("an address of another family");
        };
        let (target, crosses) = to_connect(address, true);
        let result = self
            .call(Call::Connect, [0; 3], target.to_string().as_bytes())
            .map(drop);
        if crosses && matches!(result, Ok(()) | Err(Errno(libc::EINPROGRESS))) {
            note_crossing();
        }
        result
    }

    pub(crate) fn accept(self) -> Outcome<Descriptor> {
        self.opened(Call::Accept, 0)
    }

    pub(crate) fn accept_from(self) -> Outcome<(Descriptor, SocketAddr)> {
        let answer = self.call(Call::AcceptFrom, [0; 3], &[])?;
        Ok((take(&answer), name(&answer)))
    }

    pub(crate) fn accept4(self, flags: libc::c_int) -> Outcome<Descriptor> {
        self.opened(Call::Accept4, flags)
    }

    pub(crate) fn shutdown(self, how: libc::c_int) -> Outcome<()> {
        self.unit(Call::Shutdown, how)
    }

    pub(crate) fn getsockname(self) -> Outcome<SocketAddr> {
        self.call(Call::OwnName, [0; 3], &[])
            .map(|answer| name(&answer))
    }

    pub(crate) fn getpeername(self) -> Outcome<SocketAddr> {
        self.call(Call::PeerName, [0; 3], &[])
            .map(|answer| name(&answer))
    }

    pub(crate) fn set_option(
        self,
        level: libc::c_int,
        name: libc::c_int,
        value: &[u8],
    ) -> Outcome<()> {
        let numbers = [i64::from(level), i64::from(name), 0];
        self.call(Call::SetOption, numbers, value).map(drop)
    }

    pub(crate) fn option(
        self,
        level: libc::c_int,
        name: libc::c_int,
        room: usize,
    ) -> Outcome<Vec<u8>> {
        let room = i64::try_from(room).expect("options are short");
        let numbers = [i64::from(level), i64::from(name), room];
        self.call(Call::Option, numbers, &[])
            .map(|answer| answer.bytes)
    }

    pub(crate) fn at_mark(self) -> Outcome<bool> {
        let answer = self.call(Call::AtMark, [0; 3], &[])?;
        Ok(answer.result != 0)
    }

    pub(crate) fn send(self, bytes: &[u8], flags: libc::c_int) -> Outcome<usize> {
        self.size(Call::Send, bytes, flags)
    }

    pub(crate) fn write(self, bytes: &[u8]) -> Outcome<usize> {
        self.size(Call::Write, bytes, 0)
    }

    /// Sends the parts as one buffer, which the far process writes as two. Only the sum counts.
    pub(crate) fn writev(self, parts: &[&[u8]]) -> Outcome<usize> {
        self.size(Call::WriteVector, &parts.concat(), 0)
    }

    pub(crate) fn sendto(
        self,
        bytes: &[u8],
        flags: libc::c_int,
        address: SocketAddr,
    ) -> Outcome<usize> {
        // A connected stream ignores the address, and an unconnected one has no connection: only the family matters.
        let v6 = i64::from(address.is_ipv6());
        let answer = self.call(Call::SendTo, [i64::from(flags), v6, 0], bytes)?;
        Ok(usize::try_from(answer.result).expect("a size"))
    }

    pub(crate) fn recv(self, bytes: &mut [u8], flags: libc::c_int) -> Outcome<usize> {
        self.receive(Call::Receive, bytes, flags)
    }

    pub(crate) fn read(self, bytes: &mut [u8]) -> Outcome<usize> {
        self.receive(Call::Read, bytes, 0)
    }

    fn receive(self, call: Call, bytes: &mut [u8], flags: libc::c_int) -> Outcome<usize> {
        let room = i64::try_from(bytes.len()).expect("a length");
        let answer = self.call(call, [i64::from(flags), room, 0], &[])?;
        bytes[..answer.bytes.len()].copy_from_slice(&answer.bytes);
        Ok(usize::try_from(answer.result).expect("a size"))
    }

    /// `poll` of this descriptor alone.
    pub(crate) fn poll(
        self,
        entry: &mut libc::pollfd,
        timeout: libc::c_int,
    ) -> Outcome<libc::c_int> {
        let numbers = [i64::from(entry.events), i64::from(timeout), 0];
        let answer = self.call(Call::Poll, numbers, &[])?;
        entry.revents = libc::c_short::try_from(answer.number).expect("events");
        Ok(libc::c_int::try_from(answer.result).expect("a count"))
    }
}

fn name(answer: &Answer) -> SocketAddr {
    let text = String::from_utf8_lossy(&answer.bytes);
    super::near_loopback(text.parse().expect("an address"))
}
