//! Records of sockets that are being passed to other processes, which the sender keeps in addition to the daemon's
//! deposit: for receivers that find that the daemon has ended, or has never had one.
//!
//! ```text
//!  sender:    a record: cookie of the anchor, words of a Lookup, numbers of two memfds --> a file, open while the
//!             sender lives
//!  exec:      the file and the memfds are inherited, named in the environment; so for a program that is spawned
//!  receiver:  no deposit --> the file of its own exec, else of a process of its user, by /proc
//! ```
//!
//! The kernel decides who may open another process's descriptors. Only files of the same user are believed.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;

use netchannel_abi::program::State;
use netchannel_shm::{Outside, Region};

use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, limits};
use crate::ground::lock::Lock;
use crate::ground::sys;
use crate::sockets::foreign;
use crate::sockets::link::LinkEnd;
use crate::sockets::socket::Socket;

/// The first ten words are those of a Lookup answer, with the anchor's cookie first. Then the numbers of the memfds of
/// link and region, and the inodes of both.
pub type Record = [u64; 14];

const COOKIE: usize = 0;
const GENERATION: usize = 4;
const ENTRIES: usize = 7;
const SIZES: [usize; 2] = [8, 9];
const MEMORIES: [usize; 2] = [10, 11];
const INODES: [usize; 2] = [12, 13];

/// Records that are kept for messages and children: the oldest that the daemon has, too, is dropped for another one.
const MOST: usize = 256;
const NAME: &str = "/memfd:netchannel-travels (deleted)";

const fn bytes(records: usize) -> usize {
    records * size_of::<Record>()
}

/// A file of records.
struct RecordFile {
    region: Region,
    file: i32,
}

impl RecordFile {
    fn make(records: usize) -> Option<Self> {
        if limits::are_scarce() || !limits::allow_file(bytes(records)) {
            return None;
        }
        let create =
            || Region::create(c"netchannel-travels", bytes(records)).map_err(|_| libc::EMFILE);
        let (file, region) = limits::for_library(create).ok()?;
        let file = attach::make_internal(file);
        Some(Self { region, file })
    }

    /// No process reads a record before the message or the exec for which it was written.
    fn write(&self, place: usize, record: &Record) {
        let words = self.region.slice::<AtomicU64>(bytes(place), record.len());
        for (word, value) in words.into_iter().flatten().zip(record) {
            word.store(*value, Ordering::Relaxed);
        }
    }
}

/// A socket that is being passed; its link's memory is kept meanwhile.
struct SentSocket {
    socket: Socket,
    /// Whether a daemon has what the receiver needs, too.
    is_with_daemon: bool,
    link: &'static LinkEnd,
    record: Record,
}

impl SentSocket {
    fn is_over(&self) -> bool {
        let entry = self.socket.entry;
        let generation = u64::from(entry.generation.load(Ordering::Relaxed));
        entry.state.load(Ordering::Acquire) != State::Virtual as u32
            || generation != self.record[GENERATION]
            || entry.travels.load(Ordering::Acquire) == 0
    }
}

/// Sockets that were sent in messages and to children.
struct SentSockets {
    records_file: Option<RecordFile>,
    sockets: [Option<SentSocket>; MOST],
    next: usize,
}

static SENT: Lock<SentSockets> = Lock::new(SentSockets {
    records_file: None,
    sockets: [const { None }; MOST],
    next: 0,
});

/// The records that this image has inherited.
static INHERITED: Lock<Vec<Record>> = Lock::new(Vec::new());

impl SentSockets {
    fn drop_at(&mut self, place: usize) {
        if let Some(sent_socket) = self.sockets.get_mut(place).and_then(Option::take) {
            if let Some(records_file) = &self.records_file {
                records_file.write(place, &[0; 14]);
            }
            sent_socket.link.remove_user();
        }
    }

    /// A place for one record more: a free one, or in turn that of a record which a daemon has, too.
    fn place(&self) -> Option<usize> {
        let free = self.sockets.iter().position(Option::is_none);
        let in_turn = || (0..MOST).map(|distance| (self.next + distance) % MOST);
        let is_with_daemon = |place: &usize| {
            let sent_socket = self.sockets[*place].as_ref();
            sent_socket.is_some_and(|one| one.is_with_daemon)
        };
        free.or_else(|| in_turn().find(is_with_daemon))
    }

    fn drop_if(&mut self, goes: impl Fn(&SentSocket) -> bool) {
        for place in 0..MOST {
            if self.sockets[place].as_ref().is_some_and(&goes) {
                self.drop_at(place);
            }
        }
    }
}

/// The record of a socket over `link`; `words` are those of its Deposit.
pub fn record(socket: &Socket, link: &LinkEnd, words: [u64; 14]) -> Option<Record> {
    let (entries, region) = if socket.is_foreign() {
        foreign::memory(socket.entry)?
    } else {
        (attach::current()?.entries, attach::memory())
    };
    let mut record = words;
    record[ENTRIES] = entries as u64;
    record[SIZES[0]] = link.layout.slots as u64;
    record[SIZES[1]] = link.layout.arena as u64;
    for (place, fd) in [link.memory(), region].into_iter().enumerate() {
        record[MEMORIES[place]] = u64::try_from(fd).ok()?;
        record[INODES[place]] = inode(fd)?;
    }
    Some(record)
}

fn inode(fd: i32) -> Option<u64> {
    sys::file::identity(fd).map(|(_, inode)| inode)
}

/// Keeps the record of a socket that is sent in a message or to a child, until it has arrived. False where there is no
/// room for it.
pub fn keep(socket: Socket, link: &'static LinkEnd, record: Record, is_with_daemon: bool) -> bool {
    let Some(mut sent) = SENT.lock() else {
        return false;
    };
    sent.drop_if(SentSocket::is_over);
    if sent.records_file.is_none() {
        sent.records_file = RecordFile::make(MOST);
    }
    let Some(place) = sent.place() else {
        return false;
    };
    sent.next = place + 1;
    sent.drop_at(place);
    let Some(records_file) = &sent.records_file else {
        return false;
    };
    records_file.write(place, &record);
    link.add_user();
    sent.sockets[place] = Some(SentSocket {
        socket,
        is_with_daemon,
        link,
        record,
    });
    true
}

/// Drops the record: the passing has failed.
pub fn withdraw(cookie: u64) {
    if let Some(mut sent) = SENT.lock() {
        sent.drop_if(|sent_socket| sent_socket.record[COOKIE] == cookie);
    }
}

/// Drops all records: this process becomes another user's, with another region.
pub fn drop_all() {
    if let Some(mut sent) = SENT.lock() {
        sent.drop_if(|_| true);
        if let Some(records_file) = sent.records_file.take() {
            attach::close_internal(records_file.file);
        }
    }
}

/// In a forked child: the records are the parent's.
pub fn reset_in_child() {
    SENT.reset();
    INHERITED.reset();
    if let Some(mut sent) = SENT.lock() {
        // First, so that the parent's file stays as it is.
        if let Some(records_file) = sent.records_file.take() {
            attach::close_internal(records_file.file);
        }
        sent.drop_if(|_| true);
    }
}

/// Notes that a descriptor of the library has a new number.
pub fn relocate(from: i32, to: i32) {
    let (Ok(before), Ok(after)) = (u64::try_from(from), u64::try_from(to)) else {
        return;
    };
    let Some(mut sent) = SENT.lock() else { return };
    let sent = &mut *sent;
    if let Some(records_file) = &mut sent.records_file
        && records_file.file == from
    {
        records_file.file = to;
    }
    for (place, sent_socket) in sent.sockets.iter_mut().enumerate() {
        let Some(sent_socket) = sent_socket else {
            continue;
        };
        for at in MEMORIES {
            if sent_socket.record[at] == before {
                sent_socket.record[at] = after;
                if let Some(records_file) = &sent.records_file {
                    records_file.write(place, &sent_socket.record);
                }
            }
        }
    }
}

/// Records that another image or a spawned program inherits.
pub struct PreparedRecords {
    file: i32,
    memories: Vec<i32>,
    /// For the next image, which reads it in [`read_inherited`].
    pub description: String,
}

fn set_survives_exec(fd: i32, on: bool) {
    let flags = if on { 0 } else { sys::int(libc::FD_CLOEXEC) };
    let _ = sys::fcntl(fd, libc::F_SETFD, flags);
}

fn memories(records: &[Record]) -> Vec<i32> {
    let numbers = records
        .iter()
        .flat_map(|record| MEMORIES.map(|at| record[at]));
    let mut all: Vec<i32> = numbers.filter_map(|one| i32::try_from(one).ok()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Before an exec or a spawn: prepares the records.
pub fn prepare_exec(records: &[Record]) -> Option<PreparedRecords> {
    if records.is_empty() {
        return None;
    }
    let records_file = RecordFile::make(records.len())?;
    for (place, record) in records.iter().enumerate() {
        records_file.write(place, record);
    }
    let (file, memories) = (records_file.file, memories(records));
    let identity = inode(file)?;
    for fd in memories.iter().chain([&file]) {
        set_survives_exec(*fd, true);
    }
    Some(PreparedRecords {
        file,
        memories,
        description: format!("{file}:{}:{identity}", records.len()),
    })
}

impl PreparedRecords {
    /// Undoes the preparation: the exec has failed, or the program was spawned.
    pub fn undo(&self) {
        for fd in &self.memories {
            set_survives_exec(*fd, false);
        }
        attach::close_internal(self.file);
    }
}

/// At the start of an image: reads the records of the former one, which [`find`] returns until [`drop_inherited`].
pub fn read_inherited(description: &str) {
    let mut words = description.split(':');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (Some(file), Some(count), Some(identity)) = (number(), number(), number()) else {
        return;
    };
    // A program in between may have passed the variable on without the file, or spawning has closed it.
    let Some(file) = i32::try_from(file)
        .ok()
        .filter(|file| inode(*file) == Some(identity))
    else {
        return;
    };
    let Some(records) = usize::try_from(count)
        .ok()
        .and_then(|count| read(file, count))
    else {
        return;
    };
    let is_memory = |record: &&Record| {
        (0..2).all(|place| {
            let fd = i32::try_from(record[MEMORIES[place]]);
            fd.is_ok_and(|fd| inode(fd) == Some(record[INODES[place]]))
        })
    };
    let records: Vec<Record> = records.iter().filter(is_memory).copied().collect();
    for fd in memories(&records) {
        table::set(fd, Word::new(Kind::Internal, 0, 0));
        set_survives_exec(fd, false);
    }
    sys::close(file);
    if let Some(mut inherited) = INHERITED.lock() {
        *inherited = records;
    }
}

/// Drops the inherited records once the sockets are adopted.
pub fn drop_inherited() {
    let Some(mut inherited) = INHERITED.lock() else {
        return;
    };
    memories(&inherited)
        .into_iter()
        .for_each(attach::close_internal);
    inherited.clear();
}

/// The effective user of this process.
fn user() -> u32 {
    // SAFETY: no arguments.
    let user = unsafe { sys::raw(libc::SYS_geteuid, [0; 6]) };
    user.map_or(u32::MAX, |user| u32::try_from(user).unwrap_or(u32::MAX))
}

/// The records of a file that belongs to this user.
fn read(file: i32, count: usize) -> Option<Vec<Record>> {
    let sent = Outside::admit(file, bytes(count)).ok()?;
    if sent.owner() != user() {
        return None;
    }
    let mut all = vec![0; bytes(count)];
    if sent.read(0, &mut all).ok()? != all.len() {
        return None;
    }
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let record = |bytes: &[u8]| {
        let mut record = [0; 14];
        let words = bytes.chunks_exact(size_of::<u64>()).map(word);
        record
            .iter_mut()
            .zip(words)
            .for_each(|(to, from)| *to = from);
        record
    };
    Some(all.chunks_exact(size_of::<Record>()).map(record).collect())
}

/// The record of the anchor with that cookie, and the memory of link and region, which are the caller's.
pub fn find(cookie: u64) -> Option<(Record, [i32; 2])> {
    find_inherited(cookie).or_else(|| find_at_sender(cookie))
}

fn find_inherited(cookie: u64) -> Option<(Record, [i32; 2])> {
    let inherited = INHERITED.lock()?;
    let record = *inherited.iter().find(|one| one[COOKIE] == cookie)?;
    let copies = MEMORIES.map(|at| {
        let fd = i32::try_from(record[at]).unwrap_or(-1);
        limits::for_library(|| sys::duplicate(fd, 0, true)).unwrap_or(-1)
    });
    complete(record, copies)
}

fn complete(record: Record, memories: [i32; 2]) -> Option<(Record, [i32; 2])> {
    let whole = (0..2).all(|place| inode(memories[place]) == Some(record[INODES[place]]));
    if !whole {
        memories
            .into_iter()
            .filter(|fd| *fd >= 0)
            .for_each(sys::close);
    }
    whole.then_some((record, memories))
}

/// Looks at the files of all processes of this user.
fn find_at_sender(cookie: u64) -> Option<(Record, [i32; 2])> {
    let own = user();
    let processes = fs::read_dir("/proc").ok()?.flatten().filter(|one| {
        let name = one.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_process && one.metadata().is_ok_and(|file| file.uid() == own)
    });
    for process in processes {
        let folder = process.path().join("fd");
        let numbers = fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_records_file = |path: &std::path::PathBuf| {
            fs::read_link(path).is_ok_and(|target| target.as_os_str() == NAME)
        };
        for path in numbers.map(|one| one.path()).filter(is_records_file) {
            let Ok(file) = File::open(path) else { continue };
            let records = read(file.as_raw_fd(), MOST).unwrap_or_default();
            let Some(record) = records.iter().find(|one| one[COOKIE] == cookie) else {
                continue;
            };
            let open = |at: usize| {
                let path = folder.join(record[at].to_string());
                let file = File::options().read(true).write(true).open(path);
                file.map_or(-1, IntoRawFd::into_raw_fd)
            };
            if let Some(found) = complete(*record, MEMORIES.map(open)) {
                return Some(found);
            }
        }
    }
    None
}
