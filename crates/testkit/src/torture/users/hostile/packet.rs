//! The attach protocol without the library: any message, with any descriptors.

use std::ffi::CString;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::{LAYOUT_HASH, VERSION};

/// The kernel's limit of descriptors in one message.
pub const MOST: usize = 253;

/// A message and the descriptors that came with it.
pub type Answer = (Message, Vec<OwnedFd>);

/// The descriptor that a system call returned.
pub fn owned(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: a new descriptor without another owner.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A pair of local sockets.
pub fn pair(kind: libc::c_int) -> Option<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    let made = unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            kind | libc::SOCK_CLOEXEC,
            0,
            ends.as_mut_ptr(),
        )
    };
    (made == 0)
        .then(|| owned(ends[0]).zip(owned(ends[1])))
        .flatten()
}

/// Connects to a local socket.
pub fn dial(path: &Path, kind: libc::c_int) -> Option<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a sockaddr_un of zeroes is valid.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
    for (to, from) in address.sun_path.iter_mut().zip(path.as_bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: takes integers.
    let socket = owned(unsafe { libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0) })?;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).ok()?;
    // SAFETY: the address is a local of that length.
    let connected =
        unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
    (connected == 0).then_some(socket)
}

/// A buffer for the descriptors of one message, aligned as the kernel requires it.
type Control = [u64; 160];

/// Sends bytes with descriptors, and never waits. Returns the errno if the kernel refuses.
pub fn send(socket: RawFd, bytes: &[u8], descriptors: &[RawFd]) -> Result<(), i32> {
    let mut control: Control = [0; 160];
    let mut vector = netchannel_testkit::sys::entry(bytes);
    // SAFETY: a msghdr of zeroes is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    let descriptors = &descriptors[..descriptors.len().min(MOST)];
    if !descriptors.is_empty() {
        let length = u32::try_from(size_of_val(descriptors)).unwrap_or(0);
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: computes a size.
        let space = unsafe { libc::CMSG_SPACE(length) };
        message.msg_controllen = usize::try_from(space)
            .unwrap_or(0)
            .min(size_of::<Control>());
        // SAFETY: the control buffer has room for one header and these descriptors.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = usize::try_from(libc::CMSG_LEN(length)).unwrap_or(0);
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (index, descriptor) in descriptors.iter().enumerate() {
                data.add(index).write_unaligned(*descriptor);
            }
        }
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: all that the message points at lives in this function or at the caller's.
    let sent = unsafe { libc::sendmsg(socket, &raw const message, flags) };
    if sent < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    Ok(())
}

/// Whether input arrives within `milliseconds`.
pub fn is_readable_within(socket: RawFd, milliseconds: i32) -> bool {
    let mut one = libc::pollfd {
        fd: socket,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut one, 1, milliseconds) > 0 }
}

/// The next message within `milliseconds`. `None` if none arrives, or the other side has closed.
pub fn receive(socket: RawFd, milliseconds: i32) -> Option<Answer> {
    if !is_readable_within(socket, milliseconds) {
        return None;
    }
    let mut bytes = [0_u8; MESSAGE_BYTES + 1];
    let mut control: Control = [0; 160];
    let mut vector = netchannel_testkit::sys::entry_mut(&mut bytes);
    // SAFETY: a msghdr of zeroes is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: all that the message points at is a local.
    let length = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled the control buffer in; each header says how long it is.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while length >= 0 && !header.is_null() {
            if (*header).cmsg_type == libc::SCM_RIGHTS {
                let head = usize::try_from(libc::CMSG_LEN(0)).unwrap_or(0);
                let count = (*header).cmsg_len.saturating_sub(head) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..count {
                    descriptors.extend(owned(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
    Some((Message::from_bytes(bytes.get(..length)?)?, descriptors))
}

/// One attach socket.
pub struct Attach {
    /// The socket.
    pub socket: OwnedFd,
    sequence: u32,
}

impl Attach {
    /// Connects to the daemon.
    pub fn dial(path: &Path) -> Option<Self> {
        Some(Self::over(dial(path, libc::SOCK_SEQPACKET)?))
    }

    /// Uses an existing socket.
    pub fn over(socket: OwnedFd) -> Self {
        Self {
            socket,
            sequence: 0,
        }
    }

    /// Sends a request and does not read the answer.
    pub fn send_request(
        &mut self,
        operation: u32,
        words: [u64; 14],
        descriptors: &[RawFd],
    ) -> bool {
        self.sequence += 1;
        let message = Message {
            operation,
            status: 0,
            sequence: self.sequence,
            words,
        };
        send(self.socket.as_raw_fd(), &message.to_bytes(), descriptors).is_ok()
    }

    /// Sends a request, and waits a second for the answer.
    pub fn ask(
        &mut self,
        operation: Operation,
        words: &[u64],
        descriptors: &[RawFd],
    ) -> Option<Answer> {
        self.ask_within(1000, operation, words, descriptors)
    }

    /// As [`Self::ask`], with a time-out for the answer.
    pub fn ask_within(
        &mut self,
        milliseconds: i32,
        operation: Operation,
        words: &[u64],
        descriptors: &[RawFd],
    ) -> Option<Answer> {
        let mut all = [0; 14];
        all[..words.len()].copy_from_slice(words);
        if !self.send_request(operation as u32, all, descriptors) {
            return None;
        }
        loop {
            let answer = receive(self.socket.as_raw_fd(), milliseconds)?;
            if answer.0.sequence == self.sequence {
                return Some(answer);
            }
        }
    }

    /// Sends a request, and returns the answer if its status is 0.
    pub fn want(&mut self, operation: Operation, words: &[u64], sent: &[RawFd]) -> Option<Answer> {
        self.ask(operation, words, sent)
            .filter(|(answer, _)| answer.status == 0)
    }

    /// Sends a valid Attach.
    pub fn attach(&mut self) -> Option<Answer> {
        let name = u64::from_le_bytes(*b"hostile\0");
        let process = u64::from(std::process::id());
        let words = [u64::from(VERSION), LAYOUT_HASH, process, name];
        self.want(Operation::Attach, &words, &[])
    }
}
