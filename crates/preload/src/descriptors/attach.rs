//! The attachment to the daemon: made when first needed, asked rarely. The library works without it when no daemon
//! serves.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::{LAYOUT_HASH, VERSION, directory, program};
use netchannel_shm::{Access, Outside, Region, ShmError};
use netchannel_trust::{Distrust, Ownership, peer, place};

pub mod arrival;
mod changes;
mod daemon_path;
mod without_daemon;
pub use changes::{
    AttachmentObserver, OBSERVER, daemon_is_gone, is_daemon_gone, note_new_daemon, register_later,
};
pub use daemon_path::{remember_socket_path, remembered_socket_path};
pub use without_daemon::attach_without_daemon;

use daemon_path::socket_path;

use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{confinement, credentials, limits};
use crate::ground::lock::Lock;
use crate::ground::{clock, complaint, mappings, process, sys};

/// The region and the directory that the daemon gave to this program.
pub struct Attachment {
    /// The daemon's number for the region, 0 while no daemon knows it.
    number: AtomicU64,
    /// The program's own region, whichever daemon made it.
    pub region: &'static Region,
    /// Entries of the region.
    pub entries: usize,
    /// The listeners of all programs.
    pub directory: Region,
    /// Device and inode of the directory: another daemon has another one.
    pub daemon: (u64, u64),
}

impl Attachment {
    /// The daemon's number for the region, 0 while no daemon knows it.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }
}

/// Alone in its line of the cache: what is written beside it is written often.
#[repr(align(64))]
struct Installed(AtomicPtr<Attachment>);

// Programs without sockets ask for it, too, when they end and when they fork.
#[unsafe(link_section = ".data.netchannel_start")]
static ATTACHMENT: Installed = Installed(AtomicPtr::new(core::ptr::null_mut()));
static CONTROL: AtomicI32 = AtomicI32::new(-1);
/// The control socket of the parent, in a child that has none of its own. Nothing is sent on it. As long as it is open
/// the daemon takes the parent for alive, and so keeps what the child has inherited.
static PARENT_CONTROL: AtomicI32 = AtomicI32::new(-1);
/// The memfd of the region, for a daemon that did not make it.
static MEMORY: AtomicI32 = AtomicI32::new(-1);
/// Whether this process has sent Attach on its control socket.
static ATTACHED: AtomicBool = AtomicBool::new(false);
/// Whether the daemon knows this process as a child of an attached one: enough to send Unlisten.
static ADOPTED: AtomicBool = AtomicBool::new(false);
static SEQUENCE: AtomicU32 = AtomicU32::new(1);
/// An answer whose waiter had given up lies in the control socket.
static UNREAD_ANSWER: AtomicBool = AtomicBool::new(false);
static RETRY_AT: AtomicU64 = AtomicU64::new(0);
#[unsafe(link_section = ".data.netchannel_start")]
static CONTROL_LOCK: Lock<()> = Lock::new(());
/// Duplicates a descriptor to the range of the library's own numbers, even beyond the program's limit.
///
/// # Errors
/// Those of `fcntl`.
pub fn duplicate(fd: i32) -> Result<i32, i32> {
    limits::for_library(|| sys::duplicate(fd, limits::first_library_number(), true))
}

/// Moves a descriptor of the library out of the program's range and marks it as internal.
pub fn make_internal(fd: i32) -> i32 {
    let kept = match duplicate(fd) {
        Ok(moved) => {
            sys::close(fd);
            moved
        }
        Err(_) => fd,
    };
    table::set(kept, Word::new(Kind::Internal, 0, 0));
    kept
}

/// Closes a descriptor of the library.
pub fn close_internal(fd: i32) {
    if fd >= 0 {
        table::set(fd, Word::FOREIGN);
        sys::close(fd);
    }
}

/// The attachment, if there is one.
#[inline]
pub fn current() -> Option<&'static Attachment> {
    // SAFETY: set once from a leaked box, never freed.
    unsafe { ATTACHMENT.0.load(Ordering::Acquire).as_ref() }
}

/// The attachment, made now if need be. `None` where no daemon serves.
pub fn ensure() -> Option<&'static Attachment> {
    if let Some(attachment) = current() {
        return Some(attachment);
    }
    if process::is_vfork_child() {
        return None;
    }
    changes::register_now();
    let _guard = CONTROL_LOCK.lock()?;
    if confinement::began_confined() {
        return None;
    }
    if current().is_none() && clock::now() >= RETRY_AT.load(Ordering::Relaxed) && !connect() {
        RETRY_AT.store(
            clock::now().saturating_add(clock::SECOND),
            Ordering::Relaxed,
        );
    }
    current()
}

/// Connects to the daemon, if it is the user's own or root's.
fn connect_to_daemon() -> Option<i32> {
    let path = socket_path()?;
    let place = complaint::unless_distrusted(path, judge_path(path))?;
    // SAFETY: all zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    if path.is_empty() || path.len() >= address.sun_path.len() {
        return None;
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let fd = limits::for_library(|| sys::socket(libc::AF_UNIX, kind, 0)).ok()?;
    let length = size_of::<libc::sockaddr_un>();
    // SAFETY: the address is a local of that length.
    let connected = unsafe {
        sys::raw(
            libc::SYS_connect,
            [sys::int(fd), (&raw const address).addr(), length, 0, 0, 0],
        )
    };
    let judged = connected.is_ok().then(|| peer::judge(fd, place));
    if judged
        .and_then(|judged| complaint::unless_distrusted(path, judged))
        .is_none()
    {
        sys::close(fd);
        return None;
    }
    Some(make_internal(fd))
}

fn judge_path(path: &[u8]) -> Result<Ownership, Distrust> {
    let judge = || place::socket(Path::new(OsStr::from_bytes(path)));
    match judge() {
        Err(Distrust::Unreachable(_, libc::EMFILE)) => limits::with_room(judge),
        judged => judged,
    }
}

/// Requests in a row that no daemon has answered.
static UNANSWERED: AtomicU32 = AtomicU32::new(0);
/// How long the daemon may take to answer before the program goes on without it.
const DAEMON_TIMEOUT: i64 = 2_000_000_000;
/// The same where going on without the daemon would lose a connection whose descriptor was received.
const CONNECTION_TIMEOUT: i64 = 20_000_000_000;

/// How long an answer is waited for, in nanoseconds. The death of a daemon is noticed at once.
const fn timeout_of(operation: Operation) -> i64 {
    match operation {
        Operation::Lookup => CONNECTION_TIMEOUT,
        _ => DAEMON_TIMEOUT,
    }
}

fn exchange(
    fd: i32,
    operation: Operation,
    words: [u64; 14],
    send: &[i32],
    received: &mut [i32; sys::MOST],
) -> Result<(Message, usize), i32> {
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let request = Message::new(operation, sequence, words);
    sys::send_message(fd, &request.to_bytes(), send, 0)?;
    loop {
        let mut ready = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        match sys::poll(&mut ready, timeout_of(operation), core::ptr::null()) {
            Ok(0) => return Err(libc::ETIMEDOUT),
            Ok(_) => {}
            Err(libc::EINTR) => continue,
            Err(error) => return Err(error),
        }
        let mut bytes = [0; MESSAGE_BYTES];
        let (length, count) = limits::receive_message(fd, &mut bytes, received)?;
        let answer = bytes
            .get(..length)
            .and_then(Message::from_bytes)
            .ok_or(libc::EPROTO)?;
        if answer.sequence == sequence {
            UNREAD_ANSWER.store(false, Ordering::Relaxed);
            return Ok((answer, count));
        }
        received.iter().take(count).for_each(|fd| sys::close(*fd));
    }
}

fn attach_words() -> [u64; 14] {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let word = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&name[at..at + 8]);
        u64::from_le_bytes(eight)
    };
    let mut words = [0; 14];
    words[0] = u64::from(VERSION);
    words[1] = LAYOUT_HASH;
    words[2] = u64::from(process::number());
    words[3] = word(0);
    words[4] = word(8);
    words
}

/// Maps a daemon's directory, and returns its identity.
fn map_directory(memory: i32) -> Result<(Region, (u64, u64)), ShmError> {
    let sent = Outside::admit(memory, directory::SIZE)?;
    Ok((sent.map(Access::ReadOnly)?, sent.identity()))
}

/// Attaches; the caller holds `CONTROL_LOCK`.
fn connect() -> bool {
    // After an exec the control socket of the former image is still open, if the daemon lives.
    let inherited = CONTROL.swap(-1, Ordering::AcqRel);
    let dialled = if inherited >= 0 && !sys::has_hung_up(inherited) {
        Some(inherited)
    } else {
        close_internal(inherited);
        connect_to_daemon()
    };
    let Some(fd) = dialled else { return false };
    let mut received = [-1; sys::MOST];
    let answer = exchange(fd, Operation::Attach, attach_words(), &[], &mut received);
    let made = match answer {
        Ok((message, 2)) if message.status == 0 => {
            credentials::note_number_at_daemon(message.words[2]);
            let entries = usize::try_from(message.words[1]).unwrap_or(0).min(1 << 22);
            let region = Region::map(received[0], program::size(entries), Access::ReadWrite);
            let directory = map_directory(received[1]);
            sys::close(received[1]);
            match (region, directory) {
                (Ok(region), Ok((directory, daemon))) => {
                    MEMORY.store(make_internal(received[0]), Ordering::Release);
                    Some(Attachment {
                        number: AtomicU64::new(message.words[3]),
                        region: Box::leak(Box::new(region)),
                        entries,
                        directory,
                        daemon,
                    })
                }
                _ => {
                    sys::close(received[0]);
                    None
                }
            }
        }
        Ok((_, count)) => {
            received.iter().take(count).for_each(|fd| sys::close(*fd));
            None
        }
        Err(_) => None,
    };
    let Some(made) = made else {
        close_internal(fd);
        return false;
    };
    CONTROL.store(fd, Ordering::Release);
    ATTACHED.store(true, Ordering::Release);
    if !begin(made) {
        ATTACHED.store(false, Ordering::Release);
        close_internal(CONTROL.swap(-1, Ordering::AcqRel));
        return false;
    }
    true
}

/// Installs the region of this process.
fn begin(made: Attachment) -> bool {
    let observer = OBSERVER.get();
    if !observer.is_some_and(|all| all.prepare(made.entries)) {
        return false;
    }
    mappings::note(made.region);
    ATTACHMENT
        .0
        .store(Box::into_raw(Box::new(made)), Ordering::Release);
    observer.inspect(|all| all.begin());
    true
}

/// The header of the region.
pub fn header() -> Option<&'static program::Header> {
    current()?.region.at(0)
}

/// Sends a request to the daemon and waits for its answer. Received descriptors belong to the caller.
///
/// # Errors
/// The daemon's refusal, or the reason why it could not be asked.
pub fn request(
    operation: Operation,
    words: [u64; 14],
    send: &[i32],
    received: &mut [i32; sys::MOST],
) -> Result<(Message, usize), i32> {
    let _guard = CONTROL_LOCK.lock().ok_or(libc::EDEADLK)?;
    let fd = control_for(operation)?;
    let asked = exchange(fd, operation, words, send, received);
    let (answer, count) = asked.inspect_err(|error| {
        forget_control();
        // The daemon lives, and gives the ports of a program that has hung up to others.
        if matches!(*error, libc::ETIMEDOUT | libc::EPROTO) {
            OBSERVER.get().inspect(|all| all.forget());
        }
        back_off(*error);
    })?;
    UNANSWERED.store(0, Ordering::Relaxed);
    if answer.status != 0 {
        received.iter().take(count).for_each(|fd| sys::close(*fd));
        return Err(i32::try_from(answer.status).unwrap_or(libc::EPROTO));
    }
    Ok((answer, count))
}

/// Sends a request without waiting for its answer, which is skipped when the next answer is read.
pub fn notify_daemon(operation: Operation, words: [u64; 14]) {
    let sent_now = CONTROL_LOCK.lock().is_some_and(|_guard| {
        // At most one answer is left unread, so that the socket always has room for the next one.
        if UNREAD_ANSWER.load(Ordering::Relaxed) {
            return false;
        }
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let request = Message::new(operation, sequence, words);
        let sent = control_for(operation)
            .and_then(|fd| sys::send_message(fd, &request.to_bytes(), &[], libc::MSG_DONTWAIT));
        UNREAD_ANSWER.store(sent.is_ok(), Ordering::Relaxed);
        sent.is_ok()
    });
    if !sent_now {
        let mut none = [-1; sys::MOST];
        let _ = request(operation, words, &[], &mut none);
    }
}

/// The control socket for an operation. The caller holds `CONTROL_LOCK`.
fn control_for(operation: Operation) -> Result<i32, i32> {
    let known = operation == Operation::Unlisten && ADOPTED.load(Ordering::Acquire);
    reach_daemon(!known)
}

/// A daemon that does not answer, because it is stopped or overloaded, is asked again later, with increasing pauses:
/// each request blocks its caller until the time-out.
fn back_off(error: i32) {
    if error == libc::ETIMEDOUT {
        let before = UNANSWERED.fetch_add(1, Ordering::Relaxed).min(4);
        let pause = clock::SECOND << before;
        RETRY_AT.store(clock::now().saturating_add(pause), Ordering::Relaxed);
    }
}

/// The control socket of a daemon that serves; with `wanted`, of a daemon that knows the program's region. The caller
/// holds `CONTROL_LOCK`.
fn reach_daemon(wanted: bool) -> Result<i32, i32> {
    let mut fd = CONTROL.load(Ordering::Acquire);
    if fd < 0 {
        if clock::now() < RETRY_AT.load(Ordering::Relaxed) {
            return Err(libc::ENOTCONN);
        }
        RETRY_AT.store(
            clock::now().saturating_add(clock::SECOND),
            Ordering::Relaxed,
        );
        fd = connect_to_daemon().ok_or(libc::ENOTCONN)?;
        CONTROL.store(fd, Ordering::Release);
        ATTACHED.store(false, Ordering::Release);
        ADOPTED.store(false, Ordering::Release);
    }
    if wanted && !ATTACHED.load(Ordering::Acquire) {
        attach_again(fd).inspect_err(|error| {
            forget_control();
            back_off(*error);
        })?;
        ATTACHED.store(true, Ordering::Release);
    }
    Ok(fd)
}

/// Attaches with the existing region: in a child to the daemon of its parent, or to the daemon that serves after
/// another one.
fn attach_again(fd: i32) -> Result<(), i32> {
    let own = current().ok_or(libc::ENOTCONN)?;
    let mut words = attach_words();
    words[5] = own.entries as u64;
    let memory = MEMORY.load(Ordering::Acquire);
    let mut received = [-1; sys::MOST];
    let (answer, count) = exchange(fd, Operation::Attach, words, &[memory], &mut received)?;
    let directory = match (answer.status, count) {
        (0, 1) => map_directory(received[0]),
        _ => Err(ShmError::NotSealed),
    };
    received.iter().take(count).for_each(|fd| sys::close(*fd));
    if answer.status != 0 {
        return Err(i32::try_from(answer.status).unwrap_or(libc::EPROTO));
    }
    let (directory, daemon) = directory.map_err(|_| libc::EPROTO)?;
    credentials::note_number_at_daemon(answer.words[2]);
    if answer.words[3] == own.number() {
        return Ok(());
    }
    // Before any thread sees the new directory: clients of the former daemon are judged by the former directory.
    if daemon != own.daemon {
        OBSERVER.get().inspect(|all| all.follow(own));
    }
    // Another daemon. A thread that still looks into the former directory finds zeros there.
    let renewed = Attachment {
        number: AtomicU64::new(answer.words[3]),
        directory,
        daemon,
        ..*own
    };
    ATTACHMENT
        .0
        .store(Box::into_raw(Box::new(renewed)), Ordering::Release);
    own.directory.vacate();
    OBSERVER.get().inspect(|all| all.forget());
    Ok(())
}

/// The memfd of the region, -1 where there is none.
pub fn memory() -> i32 {
    MEMORY.load(Ordering::Acquire)
}

/// Device and inode of the region's memory.
pub fn memory_identity() -> Option<(u64, u64)> {
    sys::file::identity(memory())
}

/// Called when the process becomes another user's: the next request attaches anew, with the process's present region.
/// `memory` is the memfd of a new region; `None` keeps the former one.
pub fn begin_anew(memory: Option<i32>) {
    let Some(_guard) = CONTROL_LOCK.lock() else {
        return;
    };
    if let Some(memory) = memory {
        close_internal(MEMORY.swap(memory, Ordering::AcqRel));
        current().inspect(|own| own.number.store(0, Ordering::Release));
    }
    for word in [&ATTACHED, &ADOPTED] {
        word.store(false, Ordering::Release);
    }
    // The parent belongs to the former user.
    close_internal(PARENT_CONTROL.swap(-1, Ordering::AcqRel));
    RETRY_AT.store(0, Ordering::Relaxed);
}

/// Lets the next request look for a daemon at once, even if none was found a moment ago.
pub fn retry_now() {
    RETRY_AT.store(0, Ordering::Relaxed);
}

/// Takes the control socket away, so that the next request connects anew; -1 where there is none.
pub fn detach_control() -> i32 {
    CONTROL.swap(-1, Ordering::AcqRel)
}

/// Restores a control socket that was taken away, unless there is another one by now; then it is closed. Returns
/// whether it is used.
pub fn restore_control(former: i32) -> bool {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    let used = former >= 0
        && CONTROL
            .compare_exchange(-1, former, order.0, order.1)
            .is_ok();
    if used {
        ATTACHED.store(false, Ordering::Release);
        RETRY_AT.store(0, Ordering::Relaxed);
    } else {
        close_internal(former);
    }
    used
}

/// Whether a daemon serves that knows the program; connects if need be.
pub fn is_daemon_serving() -> bool {
    CONTROL_LOCK
        .lock()
        .is_some_and(|_guard| reach_daemon(true).is_ok())
}

/// Whether the daemon that this process has talked to lives. Asks the kernel.
pub fn is_daemon_alive() -> bool {
    let fd = CONTROL.load(Ordering::Acquire);
    fd >= 0 && !sys::has_hung_up(fd)
}

/// Closes the control socket if the daemon has closed its end.
pub fn close_control_if_hung_up() {
    let Some(_guard) = CONTROL_LOCK.lock() else {
        return;
    };
    let parents = PARENT_CONTROL.load(Ordering::Acquire);
    let fd = match CONTROL.load(Ordering::Acquire) {
        -1 => parents,
        own => own,
    };
    if fd < 0 || sys::has_hung_up(fd) {
        if fd == parents {
            close_internal(PARENT_CONTROL.swap(-1, Ordering::AcqRel));
        }
        forget_control();
    }
}

fn forget_control() {
    close_internal(CONTROL.swap(-1, Ordering::AcqRel));
    UNREAD_ANSWER.store(false, Ordering::Relaxed);
    daemon_is_gone();
}

/// Whether this process is a forked child that has asked the daemon for nothing, and so is of its parent's user.
pub fn is_silent_child() -> bool {
    ADOPTED.load(Ordering::Acquire) && !ATTACHED.load(Ordering::Acquire)
}

/// The control socket of this process, or -1.
pub fn control() -> i32 {
    CONTROL.load(Ordering::Acquire)
}

/// At start: the control socket of the image before an exec, under its cookie.
pub fn inherit_control(fd: i32, cookie: u64) {
    if sys::cookie(fd) == Ok(cookie)
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_SEQPACKET)
        // The former image judged the path of the socket.
        && peer::judge(fd, Ownership::Unmapped).is_ok()
    {
        CONTROL.store(make_internal(fd), Ordering::Release);
    }
}

/// In a forked child, where a thread that held the lock does not exist.
pub fn reset_in_child() {
    CONTROL_LOCK.reset();
}

/// In a forked child: `adopted` is its own control socket, or -1 when it has none. A child without a number to spare
/// keeps its parent's.
pub fn adopt_in_child(adopted: i32) {
    let mut former = CONTROL.swap(adopted, Ordering::AcqRel);
    if former >= 0 && adopted < 0 && limits::are_scarce() {
        former = PARENT_CONTROL.swap(former, Ordering::AcqRel);
    }
    close_internal(former);
    ATTACHED.store(false, Ordering::Release);
    ADOPTED.store(adopted >= 0, Ordering::Release);
    UNREAD_ANSWER.store(false, Ordering::Relaxed);
}

/// Notes that a descriptor of the library has a new number.
pub fn relocate(from: i32, to: i32) {
    // No thread talks on it meanwhile.
    let _guard = CONTROL_LOCK.lock();
    for word in [&CONTROL, &PARENT_CONTROL, &MEMORY] {
        let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
    arrival::relocate(from, to);
}
