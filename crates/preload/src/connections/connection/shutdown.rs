//! `shutdown`.

use super::pending;
use crate::ground::lock;
use crate::sockets::lane;
use crate::sockets::lane::Lane;
use crate::sockets::socket::status;
use core::sync::atomic::Ordering;
use libc::c_int;
use netchannel_abi::link::side_flags;

/// `shutdown` of a virtual socket.
pub fn shutdown(lane: &Lane, how: c_int) -> Result<(), i32> {
    let socket = lane.socket;
    if lane.is_connecting() {
        pending::abandon(lane);
        return Ok(());
    }
    if socket.has(status::PUMPED) {
        lane.wait_for_pump();
    }
    let (shut, new_flags) = match how {
        libc::SHUT_RD => (status::SHUT_READ, side_flags::SHUT_READ),
        libc::SHUT_WR => (status::SHUT_WRITE, side_flags::FIN),
        _ => (
            status::SHUT_READ | status::SHUT_WRITE,
            side_flags::SHUT_READ | side_flags::FIN,
        ),
    };
    lane.check_peer_now();
    if lane.is_over() {
        if socket.has(status::CONNECTING) {
            socket.unmark(status::CONNECTING);
            socket.mark(status::DISCONNECTING);
        }
        if socket.has(status::DISSOLVED) {
            // TCP shuts it all the same.
            socket.mark(shut);
        }
        // TCP wakes the watchers of the socket all the same.
        lane.notify_of_change();
        return Err(libc::ENOTCONN);
    }
    let reads = !socket.has(status::SHUT_READ) && shut & status::SHUT_READ == 0;
    let meets_reset = !reads && new_flags & side_flags::FIN != 0 && lane.end_releases_held();
    let new_flags = if meets_reset {
        new_flags | side_flags::RESET
    } else {
        new_flags
    };
    if meets_reset {
        // The end releases bytes that this side no longer reads: both sides are reset.
        lane.publish_broken_pipe();
        lane.leave_error(libc::ECONNRESET);
    }
    // SHUT_WR does not concern a sleeping reader of bytes: only a poll for room, or for the end of both directions.
    let concerns_poll = how != libc::SHUT_WR || lane.is_complete() || !lane.has_room();
    socket.mark(shut);
    socket.unmark(status::CONNECTING);
    // Another thread's close may give the slot to the next connection: not before this is done.
    let held = lock::acquire(&socket.entry.transmit.lock);
    if socket.is(lane.fd) {
        if new_flags & side_flags::FIN != 0 && socket.has(status::HOLDS) {
            if lane.holds_for_shut_peer() {
                // Sent with the end, they are answered by a reset.
                lane.leave_error(libc::ECONNRESET);
                lane.reset_by_held();
            } else {
                lane.clear_hold();
            }
        }
        // Release: the final tail is stored before FIN.
        let before = lane.own().flags.fetch_or(new_flags, Ordering::AcqRel);
        // A writer that waits for room is notified that this side no longer reads, once this side sends no more bytes.
        if (before | new_flags) & side_flags::FIN != 0 {
            lane.announce_flags();
        }
    }
    if held {
        lock::release(&socket.entry.transmit.lock);
    }
    // Threads of this program that sleep on the anchor must see it.
    let sleepers = socket.entry.receive.sleepers.load(Ordering::Acquire);
    let in_calls = if how == libc::SHUT_WR {
        sleepers >= lane::WRITER
    } else {
        sleepers > 0
    };
    let in_poll = socket.entry.transmit.sleepers.load(Ordering::Acquire) > 0;
    if in_calls || in_poll && concerns_poll {
        lane.wake_sleepers();
    }
    lane.notify_of_change();
    Ok(())
}
