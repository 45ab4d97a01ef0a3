//! Full buffers: one end sends until nothing more is taken, the other end reads all of it, and an actor that watches
//! for room is notified. The number of bytes that fit is not compared, but all of them must arrive, byte for byte, and
//! the edge must come.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::board::Board;
use super::generate::Generator;
use super::memory::fill;
use super::program::MOST_ACTORS;

/// The parts of one send, from the pattern of a step.
const PARTS: [&[usize]; 4] = [&[4096], &[65_536], &[100, 30_000, 7], &[20_000, 20_000]];
/// The size of a file that is sent.
const FILE: usize = 1 << 20;
/// How long the bytes of the sender may take to arrive.
const SOON: Duration = Duration::from_millis(400);
/// Buffered bytes may move on to the other end. The buffer counts as full if it takes nothing for this long.
const QUIET: Duration = Duration::from_millis(2);
/// Through daemons, which may have to wait for a processor, this many times as long as bytes in transit may take.
const TRANSITS: u32 = 10;
/// The time between two attempts, in which others have the processor.
const MOMENT: Duration = Duration::from_micros(50);
/// More bytes than any buffers take.
const MOST: u64 = 64 << 20;

/// Sends until there is no room, by one of several calls. The bytes are counted in the step's total.
pub fn fill_up(board: Board, socket: i32, how: i64, step: i64) -> String {
    let (total, _) = board.totals(step);
    // SAFETY: takes integers.
    let before = unsafe { libc::fcntl(socket, libc::F_GETFL) };
    if before < 0 {
        return "not open".to_owned();
    }
    // SAFETY: takes integers.
    unsafe { libc::fcntl(socket, libc::F_SETFL, before | libc::O_NONBLOCK) };
    let file = (how == 3).then(|| pattern_file(step));
    let quiet = QUIET.max(board.settling() * TRANSITS);
    let mut last = Instant::now();
    let outcome = loop {
        let sent = total.load(Ordering::Relaxed);
        let part = PARTS[usize::try_from(sent % 4).unwrap_or(0)];
        match send_some(socket, how, file, part, step, sent) {
            Ok(0) => break "nothing taken".to_owned(),
            Ok(count) => {
                total.fetch_add(count, Ordering::Relaxed);
                last = Instant::now();
            }
            Err(libc::EAGAIN) if last.elapsed() > quiet => break "full".to_owned(),
            Err(libc::EAGAIN) => std::thread::sleep(MOMENT),
            Err(error) => break format!("-1 {:?}", netchannel_testkit::sys::Errno(error)),
        }
        if sent > MOST {
            break "never full".to_owned();
        }
    };
    // SAFETY: takes integers.
    unsafe {
        libc::fcntl(socket, libc::F_SETFL, before);
        file.map(|file| libc::close(file));
    }
    outcome
}

fn send_some(
    socket: i32,
    how: i64,
    file: Option<i32>,
    parts: &[usize],
    step: i64,
    sent: u64,
) -> Result<u64, i32> {
    let start = usize::try_from(sent).unwrap_or(0);
    let length: usize = parts.iter().sum();
    let mut bytes = vec![0; length];
    fill(&mut bytes, step, start);
    let mut rest = &bytes[..];
    let vectors: Vec<_> = parts
        .iter()
        .map(|part| {
            let (first, after) = rest.split_at(*part);
            rest = after;
            libc::iovec {
                iov_base: first.as_ptr().cast_mut().cast(),
                iov_len: first.len(),
            }
        })
        .collect();
    let count = i32::try_from(vectors.len()).unwrap_or(0);
    // SAFETY: bytes, vectors and the offset are locals.
    let result = unsafe {
        match (how, file) {
            (1, _) => libc::write(socket, bytes.as_ptr().cast(), length),
            (2, _) => libc::writev(socket, vectors.as_ptr(), count),
            (_, Some(file)) => {
                let mut offset = (sent % FILE as u64).cast_signed();
                libc::sendfile(socket, file, &raw mut offset, FILE)
            }
            _ => libc::send(socket, bytes.as_ptr().cast(), length, libc::MSG_NOSIGNAL),
        }
    };
    u64::try_from(result).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// A file with the bytes that a step sends.
fn pattern_file(step: i64) -> i32 {
    let mut bytes = vec![0; FILE];
    fill(&mut bytes, step, 0);
    // SAFETY: a name that ends with a zero; the bytes are valid.
    unsafe {
        let file = libc::memfd_create(c"file".as_ptr(), libc::MFD_CLOEXEC);
        libc::pwrite(file, bytes.as_ptr().cast(), FILE, 0);
        file
    }
}

/// Reads all bytes that a step has sent. `repeats` says whether they repeat a file's bytes.
pub fn drain(board: Board, socket: i32, step: i64, repeats: bool) -> String {
    let (total, read) = board.totals(step);
    let mut bytes = vec![0; 50_000];
    let mut expected = vec![0; bytes.len()];
    let mut last = Instant::now();
    loop {
        let (sent, before) = (total.load(Ordering::Relaxed), read.load(Ordering::Relaxed));
        if before >= sent {
            return "all".to_owned();
        }
        let room = usize::try_from(sent - before).unwrap_or(0).min(bytes.len());
        // SAFETY: there is room for that many bytes.
        let got =
            unsafe { libc::recv(socket, bytes.as_mut_ptr().cast(), room, libc::MSG_DONTWAIT) };
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        match usize::try_from(got) {
            Ok(0) => return "an end".to_owned(),
            Ok(count) => {
                let start = usize::try_from(before).unwrap_or(0);
                if repeats {
                    let place = start % FILE;
                    let first = count.min(FILE - place);
                    fill(&mut expected[..first], step, place);
                    fill(&mut expected[first..count], step, 0);
                } else {
                    fill(&mut expected[..count], step, start);
                }
                if bytes[..count] != expected[..count] {
                    return "wrong bytes".to_owned();
                }
                read.fetch_add(count as u64, Ordering::Relaxed);
                last = Instant::now();
            }
            Err(_) if error == libc::EAGAIN && last.elapsed() < SOON => std::thread::yield_now(),
            Err(_) if error == libc::EAGAIN => return "less".to_owned(),
            Err(_) => return format!("-1 {:?}", netchannel_testkit::sys::Errno(error)),
        }
    }
}

impl Generator {
    /// Makes a connection, fills and empties it a few times, with actors that watch for room.
    pub(super) fn fill_and_drain(&mut self) {
        let (server, client) = self.two_ends();
        let family = self.model.one(&[4, 6]);
        let (sent, read) = self.plain_connection(server, client, family);
        let ((writer, from), (reader, to)) = if self.model.percent(50) {
            (sent, read)
        } else {
            (read, sent)
        };
        let mut writer = writer;
        if self.model.actors.len() < MOST_ACTORS.min(5) && self.model.percent(40) {
            // A child inherits the connection from its parent, which has the link.
            let child = self.model.actors.len();
            self.add_actor_action("fork", writer, &[vec![i64::try_from(child).unwrap_or(0)]]);
            if self.model.percent(50) {
                // Where no relative has the connection, sets do not look for room.
                self.add("close", writer, vec![vec![from]]);
            }
            writer = child;
        }
        let sets: Vec<i64> = (0..self.model.one(&[1, 1, 2]))
            .map(|_| self.set_for_room(writer, from))
            .collect();
        for _ in 0..self.model.one(&[1, 2, 3]) {
            let how = self.model.one(&[0, 1, 2, 3]);
            let filled = self.add("fill", writer, vec![vec![from], vec![how]]);
            if self.model.percent(40) {
                let room = i64::from(libc::POLLOUT);
                self.add("poll", writer, vec![vec![from, room], vec![0]]);
            }
            self.wait_in_sets(writer, &sets, 70, 0);
            let drained = vec![vec![to], vec![filled], vec![i64::from(how == 3)]];
            if writer != reader && self.model.percent(50) {
                self.wait_in_sets(writer, &sets[..1], 100, -1);
                self.add("drain", reader, drained);
            } else {
                self.add("drain", reader, drained);
            }
            self.wait_in_sets(writer, &sets, 90, 1000);
            self.wait_in_sets(writer, &sets, 50, 0);
        }
    }

    /// Makes a set that watches a socket for room.
    fn set_for_room(&mut self, actor: usize, socket: i64) -> i64 {
        let edge = libc::EPOLLET;
        let (room, both) = (libc::EPOLLOUT, libc::EPOLLIN | libc::EPOLLOUT);
        let events = self
            .model
            .one(&[room | edge, both | edge, room, both | edge]);
        let events = i64::from(events) & 0xffff_ffff;
        let set = self.add("epoll_create1", actor, vec![vec![0]]);
        let add = i64::from(libc::EPOLL_CTL_ADD);
        let member = vec![vec![set], vec![add], vec![socket], vec![events, socket, 0]];
        self.add("epoll_ctl", actor, member);
        self.wait_in_sets(actor, &[set], 70, 0);
        set
    }

    /// Waits in each set, in `often` of a hundred cases.
    fn wait_in_sets(&mut self, actor: usize, sets: &[i64], often: usize, time: i64) {
        for set in sets {
            if self.model.percent(often) {
                self.add(
                    "epoll_wait",
                    actor,
                    vec![vec![*set], vec![16, 0], vec![time]],
                );
            }
        }
    }

    /// Makes a connection. Returns the actor and the variable of the accepted end, and those of the connected end.
    fn plain_connection(
        &mut self,
        server: usize,
        client: usize,
        family: i64,
    ) -> ((usize, i64), (usize, i64)) {
        let listener = self.listener(server, family);
        let target = self.model.sockets[listener].variable;
        let socket = self.socket(client, family, 0);
        self.connect(client, socket, vec![0, target, family, 0]);
        self.accept(server, listener);
        let connected = self.model.sockets[socket].variable;
        let accepted = self.model.sockets.last().map_or(0, |last| last.variable);
        ((server, accepted), (client, connected))
    }
}
