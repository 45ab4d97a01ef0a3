//! The connection to the daemon: made when first needed, asked seldom, and done without when it is
//! not there.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::{LAYOUT_HASH, VERSION, directory, program};
use netchannel_shm::{Access, Outside, Region, ShmError};
use netchannel_trust::{Distrust, Standing, peer, place};

mod alone;
mod changes;
pub use alone::alone;
pub use changes::{DEPENDANTS, Dependants, another_serves, daemon_is_gone, is_gone};

use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{confinement, limits};
use crate::ground::lock::Lock;
use crate::ground::{clock, complaint, mappings, process, sys};

/// What the daemon gave this program.
pub struct Attachment {
    /// The daemon's number for the region, 0 while no daemon knows it.
    number: AtomicU64,
    /// The program's own region, whichever daemon made it.
    pub region: &'static Region,
    /// Entries it has.
    pub entries: usize,
    /// The listeners of all programs.
    pub directory: Region,
    /// Device and inode of that: another daemon has another.
    pub daemon: (u64, u64),
}

impl Attachment {
    /// The daemon's number for the region, 0 while no daemon knows it.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }
}

static ATTACHMENT: AtomicPtr<Attachment> = AtomicPtr::new(core::ptr::null_mut());
static CONTROL: AtomicI32 = AtomicI32::new(-1);
/// In a child that has no control socket of its own: that of its parent. Nothing is said on it. As long as it is open the daemon takes the
/// parent for alive, and with it what the child has from it.
static PARENTS: AtomicI32 = AtomicI32::new(-1);
/// The memfd of the region, for a daemon that did not make it.
static MEMORY: AtomicI32 = AtomicI32::new(-1);
/// Whether the process itself has said Attach on its control socket.
static ATTACHED: AtomicBool = AtomicBool::new(false);
/// Whether the daemon knows the process as a child of one that was attached: enough to let listeners go.
static ADOPTED: AtomicBool = AtomicBool::new(false);
static SEQUENCE: AtomicU32 = AtomicU32::new(1);
/// An answer that nobody waited for lies in the control socket.
static UNREAD: AtomicBool = AtomicBool::new(false);
static RETRY_AT: AtomicU64 = AtomicU64::new(0);
static TALK: Lock<()> = Lock::new(());
/// Where the daemon serves, as the environment said at the start: programs clear theirs.
#[unsafe(link_section = ".data.netchannel_start")]
static PLACE: OnceLock<CString> = OnceLock::new();

/// The daemon serves there, as the environment said at the start.
pub fn remember_place(place: CString) {
    let _ = PLACE.set(place);
}

/// What was remembered.
pub fn remembered_place() -> Option<&'static [u8]> {
    PLACE.get().map(|place| place.to_bytes())
}
/// Duplicates a descriptor to where the library's own are, even beyond what the program may have.
///
/// # Errors
/// Those of `fcntl`.
pub fn duplicate(fd: i32) -> Result<i32, i32> {
    limits::make(|| sys::duplicate(fd, limits::high(), true))
}

/// Moves a descriptor of the library out of the program's way and marks it.
pub fn keep(fd: i32) -> i32 {
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
pub fn drop_kept(fd: i32) {
    if fd >= 0 {
        table::set(fd, Word::FOREIGN);
        sys::close(fd);
    }
}

/// The attachment, when there is one.
#[inline]
pub fn current() -> Option<&'static Attachment> {
    // SAFETY: set once from a leaked box, never freed.
    unsafe { ATTACHMENT.load(Ordering::Acquire).as_ref() }
}

/// The attachment, made now if need be. `None` where no daemon serves.
pub fn ensure() -> Option<&'static Attachment> {
    if let Some(attachment) = current() {
        return Some(attachment);
    }
    if process::is_vfork_child() {
        return None;
    }
    let _guard = TALK.lock()?;
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

/// Where the daemon serves, as the environment said at the start: programs clear theirs.
fn socket_path() -> Option<&'static [u8]> {
    remembered_place().or_else(|| {
        // SAFETY: getenv returns null or a C string that lives on.
        unsafe {
            let value = libc::getenv(c"NETCHANNEL_SOCKET".as_ptr());
            (!value.is_null()).then(|| core::ffi::CStr::from_ptr(value).to_bytes())
        }
    })
}

/// Connects to the daemon, if it is the user's own or root's.
fn dial() -> Option<i32> {
    let path = socket_path()?;
    let place = complaint::distrusted(path, judge_place(path))?;
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
    let fd = limits::make(|| sys::socket(libc::AF_UNIX, kind, 0)).ok()?;
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
        .and_then(|judged| complaint::distrusted(path, judged))
        .is_none()
    {
        sys::close(fd);
        return None;
    }
    Some(keep(fd))
}

fn judge_place(path: &[u8]) -> Result<Standing, Distrust> {
    let judge = || place::socket(Path::new(OsStr::from_bytes(path)));
    match judge() {
        Err(Distrust::Unreachable(_, libc::EMFILE)) => limits::with_room(judge),
        judged => judged,
    }
}

/// Requests in a row that no daemon has answered.
static UNANSWERED: AtomicU32 = AtomicU32::new(0);
/// The daemon is given this long to answer before programs go on without it,
const PATIENCE: i64 = 2_000_000_000;
/// and this long where going on without it would lose a connection, which came with a descriptor.
const PATIENCE_FOR_CONNECTION: i64 = 20_000_000_000;

/// How long an answer is waited for, in nanoseconds. The end of a daemon is seen at once.
const fn patience(operation: Operation) -> i64 {
    match operation {
        Operation::Lookup => PATIENCE_FOR_CONNECTION,
        _ => PATIENCE,
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
        match sys::poll(&mut ready, patience(operation), core::ptr::null()) {
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
            UNREAD.store(false, Ordering::Relaxed);
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

/// A daemon's directory, and which it is.
fn map_directory(memory: i32) -> Result<(Region, (u64, u64)), ShmError> {
    let sent = Outside::admit(memory, directory::SIZE)?;
    Ok((sent.map(Access::ReadOnly)?, sent.identity()))
}

/// Attaches; the caller holds `TALK`.
fn connect() -> bool {
    // After an exec the former image's is still there, if the daemon is.
    let inherited = CONTROL.swap(-1, Ordering::AcqRel);
    let dialled = if inherited >= 0 && !sys::has_hung_up(inherited) {
        Some(inherited)
    } else {
        drop_kept(inherited);
        dial()
    };
    let Some(fd) = dialled else { return false };
    let mut received = [-1; sys::MOST];
    let answer = exchange(fd, Operation::Attach, attach_words(), &[], &mut received);
    let made = match answer {
        Ok((message, 2)) if message.status == 0 => {
            let entries = usize::try_from(message.words[1]).unwrap_or(0).min(1 << 22);
            let region = Region::map(received[0], program::size(entries), Access::ReadWrite);
            let directory = map_directory(received[1]);
            sys::close(received[1]);
            match (region, directory) {
                (Ok(region), Ok((directory, daemon))) => {
                    MEMORY.store(keep(received[0]), Ordering::Release);
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
        drop_kept(fd);
        return false;
    };
    CONTROL.store(fd, Ordering::Release);
    ATTACHED.store(true, Ordering::Release);
    if !begin(made) {
        ATTACHED.store(false, Ordering::Release);
        drop_kept(CONTROL.swap(-1, Ordering::AcqRel));
        return false;
    }
    true
}

/// The process has a region from now on.
fn begin(made: Attachment) -> bool {
    let dependants = DEPENDANTS.get();
    if !dependants.is_some_and(|all| all.prepare(made.entries)) {
        return false;
    }
    mappings::note(made.region);
    ATTACHMENT.store(Box::into_raw(Box::new(made)), Ordering::Release);
    dependants.inspect(|all| all.begin());
    true
}

/// The header of the region.
pub fn header() -> Option<&'static program::Header> {
    current()?.region.at(0)
}

/// Asks the daemon. Descriptors that came are the caller's.
///
/// # Errors
/// The daemon's refusal, or why it could not be asked.
pub fn request(
    operation: Operation,
    words: [u64; 14],
    send: &[i32],
    received: &mut [i32; sys::MOST],
) -> Result<(Message, usize), i32> {
    let _guard = TALK.lock().ok_or(libc::EDEADLK)?;
    let fd = needed_control(operation)?;
    let asked = exchange(fd, operation, words, send, received);
    let (answer, count) = asked.inspect_err(|error| {
        forget_control();
        // It lives, and gives to others what it gave to who has hung up.
        if matches!(*error, libc::ETIMEDOUT | libc::EPROTO) {
            DEPENDANTS.get().inspect(|all| all.forget());
        }
        leave_alone(*error);
    })?;
    UNANSWERED.store(0, Ordering::Relaxed);
    if answer.status != 0 {
        received.iter().take(count).for_each(|fd| sys::close(*fd));
        return Err(i32::try_from(answer.status).unwrap_or(libc::EPROTO));
    }
    Ok((answer, count))
}

/// Tells the daemon, and does not wait for its answer: that is passed over when the next one is read.
pub fn tell(operation: Operation, words: [u64; 14]) {
    let said = TALK.lock().is_some_and(|_guard| {
        // One answer at most waits to be read, so that there is always room for the next.
        if UNREAD.load(Ordering::Relaxed) {
            return false;
        }
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let request = Message::new(operation, sequence, words);
        let sent = needed_control(operation)
            .and_then(|fd| sys::send_message(fd, &request.to_bytes(), &[], libc::MSG_DONTWAIT));
        UNREAD.store(sent.is_ok(), Ordering::Relaxed);
        sent.is_ok()
    });
    if !said {
        let mut none = [-1; sys::MOST];
        let _ = request(operation, words, &[], &mut none);
    }
}

/// The control socket for an operation. The caller holds `TALK`.
fn needed_control(operation: Operation) -> Result<i32, i32> {
    let known = operation == Operation::Unlisten && ADOPTED.load(Ordering::Acquire);
    reach(!known)
}

/// Who does not answer, stopped or out of breath, is asked again later, and later each time: whoever asks waits for so long.
fn leave_alone(error: i32) {
    if error == libc::ETIMEDOUT {
        let before = UNANSWERED.fetch_add(1, Ordering::Relaxed).min(4);
        let pause = clock::SECOND << before;
        RETRY_AT.store(clock::now().saturating_add(pause), Ordering::Relaxed);
    }
}

/// The control socket of a daemon that serves; one that knows the program's region, where that is
/// `wanted`. The caller holds `TALK`.
fn reach(wanted: bool) -> Result<i32, i32> {
    let mut fd = CONTROL.load(Ordering::Acquire);
    if fd < 0 {
        if clock::now() < RETRY_AT.load(Ordering::Relaxed) {
            return Err(libc::ENOTCONN);
        }
        RETRY_AT.store(
            clock::now().saturating_add(clock::SECOND),
            Ordering::Relaxed,
        );
        fd = dial().ok_or(libc::ENOTCONN)?;
        CONTROL.store(fd, Ordering::Release);
        ATTACHED.store(false, Ordering::Release);
        ADOPTED.store(false, Ordering::Release);
    }
    if wanted && !ATTACHED.load(Ordering::Acquire) {
        introduce(fd).inspect_err(|error| {
            forget_control();
            leave_alone(*error);
        })?;
        ATTACHED.store(true, Ordering::Release);
    }
    Ok(fd)
}

/// Attaches with the region that there is: in a child to the daemon of its parent, or to one that
/// serves after another.
fn introduce(fd: i32) -> Result<(), i32> {
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
    if answer.words[3] == own.number() {
        return Ok(());
    }
    // Before anybody sees the other directory: what clients of the former one name is judged by what it said.
    if daemon != own.daemon {
        DEPENDANTS.get().inspect(|all| all.follow(own));
    }
    // Another daemon. Who still looks into the former directory finds nothing there.
    let renewed = Attachment {
        number: AtomicU64::new(answer.words[3]),
        directory,
        daemon,
        ..*own
    };
    ATTACHMENT.store(Box::into_raw(Box::new(renewed)), Ordering::Release);
    own.directory.vacate();
    DEPENDANTS.get().inspect(|all| all.forget());
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

/// The process is another user's: the next request attaches anew, with the region that the process has now; `memory` is a new one's,
/// or the former stays.
pub fn begin_anew(memory: Option<i32>) {
    let Some(_guard) = TALK.lock() else { return };
    if let Some(memory) = memory {
        drop_kept(MEMORY.swap(memory, Ordering::AcqRel));
        current().inspect(|own| own.number.store(0, Ordering::Release));
    }
    for word in [&ATTACHED, &ADOPTED] {
        word.store(false, Ordering::Release);
    }
    // The former user's.
    drop_kept(PARENTS.swap(-1, Ordering::AcqRel));
    RETRY_AT.store(0, Ordering::Relaxed);
}

/// The next request looks for a daemon at once, however short ago none was found.
pub fn hasten() {
    RETRY_AT.store(0, Ordering::Relaxed);
}

/// Takes the control socket away, so that another one is made; -1 where there is none.
pub fn part() -> i32 {
    CONTROL.swap(-1, Ordering::AcqRel)
}

/// Uses a control socket again that was taken away, if there is no other now; else it is closed. Whether it is used.
pub fn rejoin(former: i32) -> bool {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    let used = former >= 0
        && CONTROL
            .compare_exchange(-1, former, order.0, order.1)
            .is_ok();
    if used {
        ATTACHED.store(false, Ordering::Release);
        RETRY_AT.store(0, Ordering::Relaxed);
    } else {
        drop_kept(former);
    }
    used
}

/// Whether a daemon serves that knows the program, looked for now if need be.
pub fn is_served() -> bool {
    TALK.lock().is_some_and(|_guard| reach(true).is_ok())
}

/// Whether the daemon lives that this process has talked to. Asks the kernel.
pub fn is_daemon_alive() -> bool {
    let fd = CONTROL.load(Ordering::Acquire);
    fd >= 0 && !sys::has_hung_up(fd)
}

/// Lets go of the control socket if the daemon has closed it.
pub fn forget_if_gone() {
    let Some(_guard) = TALK.lock() else { return };
    let parents = PARENTS.load(Ordering::Acquire);
    let fd = match CONTROL.load(Ordering::Acquire) {
        -1 => parents,
        own => own,
    };
    if fd < 0 || sys::has_hung_up(fd) {
        if fd == parents {
            drop_kept(PARENTS.swap(-1, Ordering::AcqRel));
        }
        forget_control();
    }
}

fn forget_control() {
    drop_kept(CONTROL.swap(-1, Ordering::AcqRel));
    UNREAD.store(false, Ordering::Relaxed);
    daemon_is_gone();
}

/// The control socket of this process, or -1.
pub fn control() -> i32 {
    CONTROL.load(Ordering::Acquire)
}

/// At start: the control socket of the image before an exec, under its cookie.
pub fn inherit_control(fd: i32, cookie: u64) {
    if sys::cookie(fd) == Ok(cookie)
        && sys::option(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_SEQPACKET)
        // The former image judged the place.
        && peer::judge(fd, Standing::Unmapped).is_ok()
    {
        CONTROL.store(keep(fd), Ordering::Release);
    }
}

/// In a forked child: who talked to the daemon meanwhile, be it for the first time, does not exist.
pub fn reset_in_child() {
    TALK.reset();
}

/// In a forked child: `adopted` is its own control socket, or -1 when it has none. Where it has no number to spare for one, it keeps its
/// parent's.
pub fn adopt_in_child(adopted: i32) {
    let mut former = CONTROL.swap(adopted, Ordering::AcqRel);
    if former >= 0 && adopted < 0 && limits::is_poor() {
        former = PARENTS.swap(former, Ordering::AcqRel);
    }
    drop_kept(former);
    ATTACHED.store(false, Ordering::Release);
    ADOPTED.store(adopted >= 0, Ordering::Release);
    UNREAD.store(false, Ordering::Relaxed);
}

/// A descriptor of the library has moved.
pub fn relocate(from: i32, to: i32) {
    // Nobody talks on it meanwhile.
    let _guard = TALK.lock();
    for word in [&CONTROL, &PARENTS, &MEMORY] {
        let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
}
