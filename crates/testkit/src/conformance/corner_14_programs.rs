//! Corner 14, programs that begin from arguments and environments that fault.

use std::ffi::CStr;
use std::ptr::null;

use libc::{c_char, c_int};
use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Errno};

use crate::case::cases;
use crate::corner_14_faults::forbidden;

cases! {
    plain: [
        corner_14_fault_in_programs_without_sockets,
    ];
    families: [
        corner_14_fault_in_programs,
        corner_14_programs_begin_by_every_call,
    ];
}

type Strings = *const *const c_char;

const FILE: &CStr = c"/bin/true";

/// A function that starts a program. Returns the errno.
type StartProgram = unsafe fn(*const c_char, Strings, Strings) -> c_int;

unsafe fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the arguments may be bad, which the kernel checks.
    unsafe { libc::execve(path, arguments, environment) };
    sys::last_errno().0
}

unsafe fn by_number(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_execve, path, arguments, environment) };
    sys::last_errno().0
}

unsafe fn execveat(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let folder = libc::AT_FDCWD;
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_execveat, folder, path, arguments, environment, 0) };
    sys::last_errno().0
}

unsafe fn spawn(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let mut process = 0;
    // SAFETY: as above.
    let error = unsafe {
        libc::posix_spawn(
            &raw mut process,
            path,
            null(),
            null(),
            arguments.cast(),
            environment.cast(),
        )
    };
    if error == 0 {
        child_of_id(process).join();
    }
    error
}

const CALLS: [StartProgram; 4] = [execve, by_number, execveat, spawn];

fn expect_faults() {
    let bad: *const c_char = forbidden().cast();
    let (file, entry) = (FILE.as_ptr(), c"A=1".as_ptr());
    let (arguments, environment) = ([file, null()], [entry, null()]);
    let broken = [file, bad, null()];
    let eight = std::ptr::without_provenance(8);
    let minus_one = std::ptr::without_provenance(usize::MAX);
    for (index, call) in CALLS.into_iter().enumerate() {
        let expect = |path, arguments, environment| {
            // SAFETY: it fails, and this program goes on.
            let error = unsafe { call(path, arguments, environment) };
            assert_eq!(Errno(error), Errno(libc::EFAULT), "call {index}");
        };
        for path in [bad, eight, minus_one] {
            expect(path, arguments.as_ptr(), environment.as_ptr());
        }
        for list in [bad.cast(), eight.cast(), broken.as_ptr()] {
            expect(file, arguments.as_ptr(), list);
            // The C library itself counts the arguments of what it spawns.
            if index < CALLS.len() - 1 || list == broken.as_ptr() {
                expect(file, list, environment.as_ptr());
            }
        }
    }
}

fn corner_14_fault_in_programs_without_sockets() {
    expect_faults();
}

fn corner_14_fault_in_programs(family: Family) {
    let (listening, address) = listener(family);
    let client = connect_to(address);
    let server = sys::accept(listening).unwrap();
    expect_faults();
    expect_alive(client, server);
    let client = connect_to(address);
    expect_alive(client, sys::accept(listening).unwrap());
}

/// With an environment that ends at the end of readable memory.
fn corner_14_programs_begin_by_every_call(family: Family) {
    let (client, server) = pair(family);
    // SAFETY: the page in front of the forbidden ones is made anew, and filled from its end.
    let environment = unsafe {
        let page = forbidden();
        assert_eq!(libc::mprotect(page.cast(), 4096, 3), 0);
        let text = page.add(4096 - 4);
        std::ptr::copy_nonoverlapping(c"A=1".as_ptr().cast(), text, 4);
        let list: *mut *const c_char = page.add(4096 - 32).cast();
        list.write(text.cast());
        list.add(1).write(null());
        list
    };
    let arguments = [FILE.as_ptr(), null()];
    for call in CALLS {
        fork_child(|| {
            // SAFETY: all of it is there.
            let error = unsafe { call(FILE.as_ptr(), arguments.as_ptr(), environment) };
            assert_eq!(error, 0);
        })
        .join();
    }
    expect_alive(client, server);
}
