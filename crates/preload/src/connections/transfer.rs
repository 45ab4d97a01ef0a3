//! Whole socket calls on a virtual socket: blocking or not, over several buffers, with flags.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use libc::{c_int, iovec};
use netchannel_abi::link::waiter as bits;

use crate::connections::connection;
use crate::connections::replaced;
use crate::descriptors::user;
use crate::ground::{cancel, real};
use crate::sockets::lane::{Lane, ReceiveMode, Stop, Urgent, WHOLE, goes_whole};
use crate::sockets::socket::status;
use crate::waiting::{housekeeping, wait};

thread_local! {
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
}

/// Receives into `vectors`.
///
/// # Errors
/// The errno of `recvmsg`.
///
/// # Safety
/// The vectors are the program's.
#[inline]
pub unsafe fn receive(lane: &mut Lane, vectors: &[iovec], flags: c_int) -> Result<usize, i32> {
    // SAFETY: the caller's promise.
    let result = unsafe { receive_all(lane, vectors, flags) };
    if lane.socket.local.orphan.load(Ordering::Relaxed) > 0 {
        housekeeping::release(&lane.socket);
    }
    result
}

/// Work before a receive: arms a token for `O_ASYNC`, or waits for the pump.
#[cold]
fn prepare_receive(lane: &Lane) {
    if lane.socket.has(status::ASYNC) {
        lane.arm_signal();
    }
    if lane.socket.has(status::PUMPED) {
        lane.wait_for_pump();
    }
}

/// Whether a token came for fewer bytes than the low-water mark, for which TCP wakes no reader. Only a reader with a
/// timeout continues with them, or with those before an urgent byte.
fn is_woken_below_low_water(lane: &Lane) -> bool {
    lane.waits_for_low_water()
        && lane.socket.entry.receive_timeout.load(Ordering::Relaxed) == 0
        && !lane.is_urgent()
}

/// Whether an urgent byte wakes a reader for the bytes before it, as few as they are.
fn is_urgent_below_low_water(lane: &Lane) -> bool {
    lane.waits_for_low_water() && lane.is_urgent()
}

#[inline(always)]
unsafe fn receive_all(lane: &mut Lane, vectors: &[iovec], flags: c_int) -> Result<usize, i32> {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
        // SAFETY: the caller's promise.
        return unsafe { receive_out_of_band(lane, vectors, flags) };
    }
    cancel::point();
    if lane.socket.has(status::ASYNC | status::PUMPED) {
        prepare_receive(lane);
    }
    let nonblocking = flags & libc::MSG_DONTWAIT != 0 || lane.socket.has(status::NONBLOCKING);
    let peek = flags & libc::MSG_PEEK != 0;
    let discard = flags & libc::MSG_TRUNC != 0;
    // How many bytes a blocking call waits for: the low-water mark, or all that was asked for. Fewer bytes are taken
    // all the same.
    let mut target = if nonblocking {
        1
    } else if flags & libc::MSG_WAITALL != 0 {
        usize::MAX
    } else {
        lane.socket.entry.low_water.load(Ordering::Relaxed).max(1) as usize
    };
    let offset = if peek { lane.peek_offset() } else { 0 };
    let lengths = vectors.iter().map(|vector| vector.iov_len);
    let length = lengths.fold(0, usize::saturating_add);
    let mut total = 0;
    while total < length {
        let mode = ReceiveMode {
            peek,
            discard,
            already_received: total as u64,
            offset,
        };
        // SAFETY: the program's buffers.
        match unsafe { lane.receive_vectors(vectors, total, mode) } {
            Ok(count) => {
                total += count;
                if total >= target {
                    break;
                }
            }
            // Who has shut its reading direction finds here that the listener was killed.
            Err(Stop::End) if total == 0 && housekeeping::carry() => {
                if replaced::is_replaced(lane) {
                    // SAFETY: the caller's promise.
                    return unsafe { replaced::receive(lane.fd, vectors, flags) };
                }
            }
            Err(Stop::End) => break,
            Err(stop @ Stop::Error(_)) if total > 0 => {
                lane.put_back(stop);
                break;
            }
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Wait) => {
                if total >= target {
                    break;
                }
                if nonblocking {
                    if !lane.finds_end() && !housekeeping::carry() {
                        return Err(libc::EAGAIN);
                    }
                    if replaced::is_replaced(lane) {
                        // SAFETY: the caller's promise.
                        return unsafe { replaced::receive(lane.fd, vectors, flags) };
                    }
                    continue;
                }
                // A peek leaves what it has received.
                let received = if peek { total as u64 } else { 0 };
                let at_start = offset + received == 0;
                let ready = |lane: &Lane| {
                    if !at_start {
                        lane.has_more_than(offset, received)
                    } else if peek {
                        // A peek leaves an urgent byte in its place.
                        lane.is_readable() || is_urgent_below_low_water(lane)
                    } else {
                        lane.has_input() || is_urgent_below_low_water(lane)
                    }
                };
                match wait::sleep_on(lane, bits::DATA, ready) {
                    // Another process has dissolved it meanwhile. The error that this left is for others.
                    Ok(()) if lane.socket.has(status::DISSOLVED) && total > 0 => break,
                    Ok(()) if lane.socket.has(status::DISSOLVED) => return Err(libc::EPIPE),
                    Ok(()) if replaced::is_replaced(lane) => {
                        // SAFETY: the caller's promise.
                        return unsafe { replaced::receive(lane.fd, vectors, flags) };
                    }
                    Ok(()) => {
                        while at_start && is_woken_below_low_water(lane) {
                            if let Err(error) = wait::sleep_on(lane, bits::DATA, ready) {
                                note_interruption(error);
                                target = 1;
                                break;
                            }
                        }
                    }
                    Err(error) if total > 0 => {
                        note_interruption(error);
                        break;
                    }
                    // A call that was not to be woken for these bytes takes them all the same.
                    Err(error) if at_start && lane.waits_for_low_water() => {
                        note_interruption(error);
                        target = 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    if total == 0 {
        if vectors.iter().all(|vector| vector.iov_len == 0) {
            // SAFETY: the caller's promise.
            return unsafe { receive_into_no_room(lane, vectors, flags, offset) };
        }
    } else if lane.socket.has(status::PEEK_OFFSET) {
        lane.move_peek_offset(total, peek);
    }
    Ok(total)
}

/// A signal has ended the wait of a receive that returns bytes all the same.
#[cold]
#[inline(never)]
fn note_interruption(error: i32) {
    INTERRUPTED.set(error == libc::EINTR);
}

/// Whether a signal has ended the wait of this thread's last receive, though it returned bytes. Says so once.
pub fn take_interruption() -> bool {
    INTERRUPTED.replace(false)
}

/// Receives what is not part of the stream: the urgent byte, or errors, of which TCP queues none.
#[cold]
unsafe fn receive_out_of_band(lane: &Lane, vectors: &[iovec], flags: c_int) -> Result<usize, i32> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(libc::EAGAIN);
    }
    let first = vectors.iter().find(|vector| vector.iov_len > 0);
    let to = first.filter(|_| flags & libc::MSG_TRUNC == 0);
    let to = to.map_or(core::ptr::null_mut(), |vector| vector.iov_base.cast());
    // SAFETY: the caller's promise.
    match unsafe { lane.take_urgent(to, flags & libc::MSG_PEEK != 0) } {
        Ok(()) => Ok(usize::from(first.is_some())),
        Err(Stop::Error(error)) => Err(error),
        Err(_) => Ok(0),
    }
}

/// Asks whether the peer lives. True when it has just been found dead, or the connection was made anew.
fn is_settled_anew(lane: &Lane) -> bool {
    let gone = lane.socket.has(status::PEER_GONE);
    lane.check_peer_now();
    housekeeping::carry() || !gone && lane.socket.has(status::PEER_GONE)
}

/// Receives into no room: `recv` waits for bytes behind `offset` all the same, but only once, whatever ends the sleep.
///
/// # Safety
/// The vectors, which have no room, are the program's.
#[cold]
unsafe fn receive_into_no_room(
    lane: &mut Lane,
    vectors: &[iovec],
    flags: c_int,
    offset: u64,
) -> Result<usize, i32> {
    let nonblocking = flags & libc::MSG_DONTWAIT != 0 || lane.socket.has(status::NONBLOCKING);
    loop {
        let mode = ReceiveMode {
            peek: true,
            discard: true,
            already_received: 0,
            offset,
        };
        // SAFETY: nothing is copied.
        let got = unsafe { lane.receive(core::ptr::null_mut(), 0, mode) };
        match got {
            Ok(_) => return Ok(0),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::End | Stop::Wait) if is_settled_anew(lane) => {
                if replaced::is_replaced(lane) {
                    // SAFETY: the caller's promise.
                    return unsafe { replaced::receive(lane.fd, vectors, flags) };
                }
            }
            Err(Stop::End) => return Ok(0),
            Err(Stop::Wait) if nonblocking => return Err(libc::EAGAIN),
            Err(Stop::Wait) => {
                let (tail, news) = (lane.peer_tail(), lane.news());
                // Others may take what comes. A change without bytes, such as a `shutdown` of another thread, is enough.
                let ready = |lane: &Lane| {
                    lane.has_more_than(offset, 0) || lane.peer_tail() != tail || lane.news() != news
                };
                let is_over = |lane: &Lane| {
                    ready(lane) || lane.socket.has(status::DISSOLVED) || replaced::is_replaced(lane)
                };
                // A reset, too, is left to the next call. A token of former bytes wakes nobody.
                while wait::sleep_for_any_change(lane, ready).is_ok() && !is_over(lane) {}
                return Ok(0);
            }
        }
    }
}

/// Sends `vectors`.
///
/// # Errors
/// The errno of `sendmsg`; `EPIPE` after the signal, unless `MSG_NOSIGNAL`.
///
/// # Safety
/// The vectors are the program's.
#[inline]
pub unsafe fn send(lane: &mut Lane, vectors: &[iovec], flags: c_int) -> Result<usize, i32> {
    // SAFETY: the caller's promise.
    let result = unsafe {
        if flags & libc::MSG_FASTOPEN != 0
            // The call connects, too.
            && let Err(error) = connection::connect_to_send(lane.fd, &lane.socket)
        {
            Err(error)
        } else if vectors.len() > 1 && is_small(vectors) {
            send_gathered(lane, vectors, flags)
        } else {
            send_without_signal(lane, vectors, flags)
        }
    };
    if lane.socket.local.orphan.load(Ordering::Relaxed) > 0 {
        housekeeping::release(&lane.socket);
    }
    if result == Err(libc::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: raising a signal in the calling thread, as the kernel would.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    result
}

fn is_small(vectors: &[iovec]) -> bool {
    let mut total = 0usize;
    vectors.iter().all(|vector| {
        total = total.saturating_add(vector.iov_len);
        total <= WHOLE
    })
}

/// Sends several small buffers as one.
#[inline(never)]
unsafe fn send_gathered(lane: &mut Lane, vectors: &[iovec], flags: c_int) -> Result<usize, i32> {
    let mut buffer = [const { core::mem::MaybeUninit::<u8>::uninit() }; WHOLE];
    let base = buffer.as_mut_ptr().cast::<u8>();
    let mut length = 0;
    for vector in vectors {
        // SAFETY: the caller's promise; together they are no longer than the buffer.
        let put =
            unsafe { user::copy_bytes(base.add(length), vector.iov_base.cast(), vector.iov_len) };
        if let Err(fault) = put {
            // An error of the connection takes precedence.
            // SAFETY: nothing is copied.
            unsafe { send_without_signal(lane, &[], flags)? };
            return Err(fault);
        }
        length += vector.iov_len;
    }
    let gathered = iovec {
        iov_base: base.cast(),
        iov_len: length,
    };
    // SAFETY: so many bytes of the buffer were written.
    unsafe { send_without_signal(lane, &[gathered], flags) }
}

#[inline(always)]
unsafe fn send_without_signal(
    lane: &mut Lane,
    vectors: &[iovec],
    flags: c_int,
) -> Result<usize, i32> {
    if flags & (libc::MSG_OOB | libc::MSG_MORE | libc::MSG_EOR) != 0 {
        // SAFETY: the caller's promise.
        return unsafe { send_flagged(lane, vectors, flags) };
    }
    // SAFETY: the caller's promise.
    unsafe { send_vectors(lane, vectors, flags, Kind::Plain) }
}

/// The kind of a send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// The last byte is urgent.
    Urgent,
    /// `MSG_MORE`.
    More,
}

#[cold]
#[inline(never)]
unsafe fn send_flagged(lane: &mut Lane, vectors: &[iovec], flags: c_int) -> Result<usize, i32> {
    if flags & libc::MSG_OOB == 0 {
        let more = flags & libc::MSG_MORE != 0;
        let kind = if more { Kind::More } else { Kind::Plain };
        // SAFETY: the caller's promise.
        let sent = unsafe { send_vectors(lane, vectors, flags, kind) };
        if flags & libc::MSG_EOR != 0 && sent.is_ok() {
            lane.end_record();
        }
        return sent;
    }
    let filled = vectors.iter().rposition(|vector| vector.iov_len > 0);
    let vectors = vectors.get(..=filled.unwrap_or(0)).unwrap_or_default();
    // SAFETY: the caller's promise.
    unsafe { send_vectors(lane, vectors, flags, Kind::Urgent) }
}

/// Sends buffers. For an urgent byte the last buffer is not empty, unless all are.
#[inline(always)]
unsafe fn send_vectors(
    lane: &mut Lane,
    vectors: &[iovec],
    flags: c_int,
    kind: Kind,
) -> Result<usize, i32> {
    cancel::point();
    let nonblocking = flags & libc::MSG_DONTWAIT != 0 || lane.socket.has(status::NONBLOCKING);
    let mut total = 0;
    lane.check_peer();
    if lane.socket.has(status::PUMPED) {
        lane.wait_for_pump();
    }
    let more = kind == Kind::More;
    // Those that are sent together: other threads that send put nothing between them.
    let plain = vectors.len() - usize::from(kind == Kind::Urgent && !vectors.is_empty());
    // How many bytes of the vectors from the present one on are sent.
    let mut done = 0;
    for (index, vector) in vectors.iter().enumerate() {
        let whole = goes_whole(vector.iov_len, nonblocking);
        while done < vector.iov_len {
            // SAFETY: the program's buffers, within their lengths.
            let put = unsafe {
                if index < plain {
                    let together = vectors.get(index..plain).unwrap_or_default();
                    lane.send_vectors(together, done, nonblocking, more)
                } else {
                    let from = vector.iov_base.cast::<u8>().wrapping_add(done);
                    let urgent = if nonblocking {
                        Urgent::LastThatFits
                    } else {
                        Urgent::Last
                    };
                    lane.send_urgently(from, vector.iov_len - done, whole, urgent)
                        .map(|count| (count, nonblocking))
                }
            };
            match put {
                Ok((count, ended)) => {
                    done += count;
                    total += count;
                    if ended {
                        return Ok(total);
                    }
                }
                Err(Stop::Wait) => {
                    if nonblocking {
                        if lane.want_space() {
                            continue;
                        }
                        return if total > 0 {
                            Ok(total)
                        } else {
                            Err(libc::EAGAIN)
                        };
                    }
                    let length = if whole { vector.iov_len } else { 1 };
                    match wait::sleep_on(lane, bits::SPACE, |lane| lane.has_room_for(length)) {
                        Ok(()) if replaced::is_replaced(lane) => {
                            let left = vectors.get(index..).unwrap_or_default();
                            // SAFETY: the caller's promise.
                            let sent = unsafe { replaced::send(lane.fd, left, done, flags) };
                            return sent.map(|sent| total + sent).or_else(|error| match total {
                                0 => Err(error),
                                total => Ok(total),
                            });
                        }
                        Ok(()) => {}
                        Err(_) if total > 0 => return Ok(total),
                        Err(error) => return Err(error),
                    }
                }
                Err(_) if total > 0 => return Ok(total),
                // Its acceptor was killed: only now is known what became of the connection.
                Err(Stop::Error(libc::EPIPE))
                    if lane.socket.has(status::SHUT_WRITE) && housekeeping::carry() =>
                {
                    if replaced::is_replaced(lane) {
                        let left = vectors.get(index..).unwrap_or_default();
                        // SAFETY: the caller's promise.
                        return unsafe { replaced::send(lane.fd, left, done, flags) };
                    }
                }
                Err(Stop::End) => return Err(libc::EPIPE),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        done -= vector.iov_len;
        let later = vectors.get(index + 1..).unwrap_or_default();
        if total > 0 && done == 0 && !later.is_empty() && lane.socket.has(status::WRITE_MET_CLOSED)
        {
            let more = readable(later);
            lane.refuse_more(more, kind == Kind::Urgent);
            return Ok(total + more);
        }
    }
    if total == 0 {
        // Nothing to send: only an error can be reported.
        // SAFETY: nothing is copied.
        if let Err(Stop::Error(error)) = unsafe { lane.send(core::ptr::null(), 0, false) } {
            return Err(error);
        }
    }
    Ok(total)
}

/// The size of the buffers before the first that faults. TCP takes all bytes of a call whose first ones will meet a
/// reset.
#[cold]
fn readable(vectors: &[iovec]) -> usize {
    // SAFETY: the memory is only looked at, and may fault.
    let is_readable = |vector: &&iovec| unsafe {
        user::probe_read(vector.iov_base.cast(), vector.iov_len).is_ok()
    };
    let readable = vectors.iter().take_while(is_readable);
    readable.map(|vector| vector.iov_len).sum()
}

/// Sends a buffer of the library, with `MSG_MORE` or not, and waits for room even on a non-blocking socket.
///
/// # Errors
/// As `send`, without a signal.
///
/// # Safety
/// The buffer is readable for its length.
pub unsafe fn send_fully(
    lane: &mut Lane,
    from: *const u8,
    length: usize,
    more: bool,
) -> Result<usize, i32> {
    loop {
        // SAFETY: the caller's promise.
        let sent = unsafe { lane.send(from, length, more) };
        match sent {
            Ok(sent) => return Ok(sent),
            Err(Stop::Wait) => {
                wait::sleep_on(lane, bits::SPACE, Lane::is_writable)?;
                replaced::give_up(lane);
            }
            Err(Stop::End) => return Err(libc::EPIPE),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}

/// A C result from a transfer.
pub fn result(transfer: Result<usize, i32>) -> isize {
    match transfer {
        Ok(count) => isize::try_from(count).unwrap_or(isize::MAX),
        Err(error) => real::fail::<isize>(error),
    }
}
