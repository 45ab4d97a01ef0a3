//! Forking: the child shares the sockets, not the links. Its connection to the daemon is made before it exists, so that
//! nothing is lost when the parent ends at once.

use core::cell::Cell;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use netchannel_abi::message::Operation;

use crate::HEAP;
use crate::connections::{accepting, asking, connection};
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{
    attach, copying, credentials, faults, former_ports, limits, names, ports, reserved_number,
};
use crate::ground::{addresses, gate, process, real, sys, thread};
use crate::processes::{in_transit, peer_libraries};
use crate::sockets::lane::Lane;
use crate::sockets::owner_table::{self, Claim};
use crate::sockets::socket::{self, Socket};
use crate::sockets::{foreign, link, listener, rings};
use crate::waiting::{epoll, replacement};

#[unsafe(link_section = ".data.netchannel_start")]
static CHILD_CONTROL: AtomicI32 = AtomicI32::new(-1);
/// Counts forks.
static FORKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The record of the child that the thread has just made.
    static CHILD_RECORD: Cell<Claim> = const { Cell::new(Claim::NONE) };
}

/// Called in the parent when `fork` has returned `made`.
#[unsafe(link_section = ".text.netchannel_start")]
pub fn after_fork(made: libc::pid_t) {
    let claimed = CHILD_RECORD.replace(Claim::NONE);
    match u32::try_from(made) {
        Ok(0) => {}
        Ok(child) => owner_table::assign_child(claimed, child),
        Err(_) => owner_table::drop_child(claimed),
    }
}

/// Whether `clone` with these flags and this stack makes a child like that of `fork`: with memory and descriptors of
/// its own.
pub const fn is_fork(flags: usize, stack: usize) -> bool {
    let shared = (libc::CLONE_VM | libc::CLONE_FILES).cast_unsigned() as usize;
    flags & shared == 0 && stack == 0
}

/// A fork by a direct system call, which the C library does not see: only the work of this library is done.
///
/// # Errors
/// Those of the call.
///
/// # Safety
/// The arguments are the program's, for a call for which [`is_fork`] is true.
pub unsafe fn by_system_call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: the handlers run in the order in which `fork` runs them; the call is the program's.
    unsafe {
        prepare();
        let made = sys::raw(number, arguments);
        if made == Ok(0) {
            in_child();
        } else {
            in_parent();
            after_fork(made.map_or(-1, |child| libc::pid_t::try_from(child).unwrap_or(-1)));
        }
        made
    }
}

/// Registers the three handlers.
pub fn initialise() {
    type Handler = unsafe extern "C" fn();
    unsafe extern "C" {
        /// What `pthread_atfork` calls: that is linked into each library, apart from what else runs at the start.
        fn __register_atfork(
            prepare: Handler,
            parent: Handler,
            child: Handler,
            library: *const libc::c_void,
        ) -> libc::c_int;
    }
    // SAFETY: plain functions that live as long as the process, as the missing library says.
    unsafe { __register_atfork(prepare, in_parent, in_child, core::ptr::null()) };
}

#[unsafe(link_section = ".text.netchannel_start")]
unsafe extern "C" fn prepare() {
    real::find_for_children();
    if attach::current().is_some() {
        connection::materialise_all();
    }
    gate::before_fork();
    if attach::current().is_some() {
        prepare_child();
    }
    limits::before_fork();
}

/// Not among what programs without sockets execute.
#[inline(never)]
fn prepare_child() {
    credentials::note_shared();
    connection::before_child();
    reserve_rings_for_child();
    count_references();
    epoll::before_fork();
    if attach::control() < 0 {
        return;
    }
    if limits::are_scarce() && listener::have_retired() {
        // The program needs all numbers.
        return socket::for_each(listener::before_fork);
    }
    socket::for_each(listener::before_adoption);
    let mut words = [0; 14];
    let numbers = listener::numbers();
    words[0] = numbers.len().min(22) as u64;
    for (index, number) in numbers.iter().enumerate().take(22) {
        words[1 + index / 2] |= u64::from(*number) << (32 * (index % 2));
    }
    let mut received = [-1; sys::MOST];
    // Without an answer the child connects to the daemon by itself.
    let adopted = attach::request(Operation::Adopt, words, &[], &mut received);
    let count = adopted.map_or(0, |(_, count)| count);
    if count == 1 {
        CHILD_CONTROL.store(attach::make_internal(received[0]), Ordering::Release);
    } else {
        received.iter().take(count).for_each(|fd| sys::close(*fd));
    }
    // From now on other programs know that several processes hold the listeners: earlier connections have come here.
    listener::stop_looking();
    socket::for_each(listener::before_fork);
}

/// Counts a reference of the child to every socket, whatever the number of its descriptors.
fn count_references() {
    owner_table::before_fork();
    let fork = FORKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    socket::for_each(|socket| {
        if socket.local.forked.swap(fork, Ordering::Relaxed) != fork {
            socket.add_reference();
            owner_table::inherit(socket.word.index());
        }
    });
}

/// Reserves rings for the child. It often serves the connection that was accepted last, to which nothing was sent yet,
/// or one of a few.
fn reserve_rings_for_child() {
    const MOST: usize = 4;
    for has_sent in [false, true] {
        let mut left = MOST;
        socket::for_each(|socket| {
            if left > 0
                && socket.word.kind() == Kind::Virtual
                && (socket.entry.transmit.own.load(Ordering::Relaxed) != 0) == has_sent
                && Lane::of(*socket, -1).is_some_and(|lane| lane.reserve_rings())
            {
                left -= 1;
            }
        });
    }
}

/// Makes a child without the program's handlers, the C library's knowledge, or a signal at its end. Unsafe like `fork`:
/// the child calls [`become_child`] and touches only the library's own memory.
///
/// # Errors
/// Those of `clone`.
pub fn clone() -> Result<usize, i32> {
    gate::before_fork();
    credentials::note_shared();
    count_references();
    limits::before_fork();
    // SAFETY: as fork, under the condition above.
    let made = unsafe { sys::raw(libc::SYS_clone, [0; 6]) };
    limits::after_fork();
    match made {
        Err(_) => owner_table::drop_child(owner_table::in_parent()),
        // The child, or its child, takes the record.
        Ok(0) => {}
        Ok(_) => {
            owner_table::in_parent();
        }
    }
    // Also in the child, where it does not matter which thread opens it.
    gate::in_parent();
    made
}

/// Called in a child made without the C library's handlers: it has no connection to the daemon.
pub fn become_child() {
    CHILD_CONTROL.store(-1, Ordering::Release);
    // SAFETY: the handler's work is safe in any child.
    unsafe { in_child() };
}

#[unsafe(link_section = ".text.netchannel_start")]
unsafe extern "C" fn in_parent() {
    CHILD_RECORD.set(owner_table::in_parent());
    gate::in_parent();
    limits::after_fork();
    if CHILD_CONTROL.load(Ordering::Relaxed) >= 0 {
        attach::close_internal(CHILD_CONTROL.swap(-1, Ordering::AcqRel));
    }
}

#[unsafe(link_section = ".text.netchannel_start")]
unsafe extern "C" fn in_child() {
    gate::in_child();
    limits::after_fork();
    HEAP.reset();
    thread::forget();
    let has_namespace = process::renew_in_child();
    attach::reset_in_child();
    addresses::reset_in_child();
    faults::reset_in_child();
    table::reset_in_child();
    process::reset_in_child();
    copying::reset_in_child();
    if attach::current().is_some() {
        reset_attached(has_namespace);
    }
}

/// Not among what programs without sockets execute.
#[inline(never)]
fn reset_attached(has_namespace: bool) {
    owner_table::in_child(has_namespace);
    attach::adopt_in_child(CHILD_CONTROL.swap(-1, Ordering::AcqRel));
    ports::reset();
    connection::reset_in_child();
    asking::reset_in_child();
    // They were dropped before the fork; another thread may have made some since.
    socket::for_each(Socket::drop_spare);
    socket::reset_in_child();
    link::reset_in_child();
    foreign::reset_in_child();
    in_transit::reset_in_child();
    peer_libraries::reset_in_child();
    epoll::reset_in_child();
    reserved_number::reset_in_child();
    replacement::reset_in_child();
    listener::reset_in_child();
    names::reset_in_child();
    former_ports::reset_in_child();
    rings::reset_in_child();
    accepting::reset_in_child();
}
