//! The C library's streams on virtual sockets. stdio makes system calls that no hook sees: so a stream on a virtual
//! socket uses functions of the library to read and write.

use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};

use super::{data, descriptors};
use crate::connections::connection;
use crate::connections::connection::lane;
use crate::descriptors::table::{self, Kind};
use crate::ground::real::{self, StreamFunctions};
use crate::ground::{older, sys};
use netchannel_abi::reason::Reason;

/// The descriptor is stored in the pointer itself, off by one: nothing is allocated.
fn cookie(fd: c_int) -> *mut c_void {
    core::ptr::without_provenance_mut(sys::int(fd) + 1)
}

fn descriptor(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr().wrapping_sub(1)).unwrap_or(-1)
}

unsafe extern "C" fn on_read(stream: *mut c_void, buffer: *mut c_char, length: size_t) -> ssize_t {
    // SAFETY: the C library's buffer.
    unsafe { data::read(descriptor(stream), buffer.cast(), length) }
}

/// Writes all bytes, as stdio does by itself; fewer are an error.
unsafe extern "C" fn on_write(
    stream: *mut c_void,
    buffer: *const c_char,
    length: size_t,
) -> ssize_t {
    let mut done = 0;
    while done < length {
        // SAFETY: the C library's buffer, within its length.
        let put = unsafe {
            let from = buffer.wrapping_add(done).cast();
            data::write(descriptor(stream), from, length - done)
        };
        match usize::try_from(put) {
            Ok(put @ 1..) => done += put,
            _ => break,
        }
    }
    ssize_t::try_from(done).unwrap_or(0)
}

unsafe extern "C" fn on_seek(_: *mut c_void, _: *mut off64_t, _: c_int) -> c_int {
    real::fail(libc::ESPIPE)
}

unsafe extern "C" fn on_close(stream: *mut c_void) -> c_int {
    // SAFETY: the stream's descriptor ends with it.
    unsafe { descriptors::close(descriptor(stream)) }
}

/// Offset of the descriptor in a stream of the C library, on all 64-bit machines.
const NUMBER_AT: usize = 112;
/// The descriptor of a stream made of functions.
const NO_NUMBER: c_int = -2;

/// Offset of the pointer to the data for wide characters, and more than their size.
const WIDE_AT: usize = 160;
const WIDE_ROOM: usize = 1024;

/// A stream over the functions above, which also knows its descriptor.
unsafe fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's mode is a C string; stdio ignores unknown letters.
    unsafe {
        if !matches!((*mode).cast_unsigned(), b'r' | b'w' | b'a') {
            return invalid();
        }
        let functions = StreamFunctions {
            read: on_read,
            write: on_write,
            seek: on_seek,
            close: on_close,
        };
        let made = real::fopencookie(cookie(fd), mode, functions);
        if !made.is_null() {
            let number = made.cast::<u8>().add(NUMBER_AT).cast::<c_int>();
            if *number == NO_NUMBER {
                *number = fd;
            }
        }
        made
    }
}

/// At the start of a program: makes the standard stream `fd` work if it is on a virtual socket.
pub fn adopt_standard(fd: c_int) {
    let (name, mode) = match fd {
        0 => (c"stdin", c"r"),
        1 => (c"stdout", c"w"),
        2 => (c"stderr", c"w"),
        _ => return,
    };
    // SAFETY: no code uses the streams yet; the C library allows assigning these variables, which it has, or the program
    // in its place. They are looked up here and not by the dynamic linker, which would do so for every program.
    unsafe {
        let place = older::find(libc::RTLD_DEFAULT, name).cast::<*mut FILE>();
        let made = open(fd, mode.as_ptr());
        if made.is_null() || place.is_null() {
            return;
        }
        if fd == 2 {
            libc::setvbuf(made, core::ptr::null_mut(), libc::_IONBF, 0);
        }
        place.write(made);
    }
}

fn invalid() -> *mut FILE {
    let _: c_int = real::fail(libc::EINVAL);
    core::ptr::null_mut()
}

/// Called before `freopen`, which puts another file under the number without a hook: ends a virtual socket's use of the
/// stream.
unsafe fn detach(stream: *mut FILE) {
    // SAFETY: the program's open stream.
    unsafe {
        let fd = libc::fileno(stream);
        if fd < 0 || lane(fd).is_none() {
            return;
        }
        libc::fflush(stream);
        // The stream becomes one of a file, which needs data for wide characters; a stream made of functions has none,
        // and `freopen` does not check that.
        let wide = stream.cast::<u8>().add(WIDE_AT).cast::<*mut c_void>();
        if (*wide).is_null() || (*wide).addr() == usize::MAX {
            *wide = libc::calloc(1, WIDE_ROOM);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if null >= 0 {
            descriptors::dup3(null, fd, libc::O_CLOEXEC);
            libc::close(null);
        }
    }
}

/// Formats and sends. A text longer than the buffer is formatted twice.
#[cfg(target_arch = "x86_64")]
unsafe fn print(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    const ROOM: usize = 1024;
    // SAFETY: the program's format and arguments; the list is copied, since formatting consumes it.
    unsafe {
        let mut copy = arguments.cast::<ArgumentList>().read();
        let mut text = [0u8; ROOM];
        let length = real::vsnprintf(text.as_mut_ptr().cast(), ROOM, format, arguments);
        let Ok(wanted) = usize::try_from(length) else {
            return -1;
        };
        if wanted < ROOM {
            return written(fd, &text[..wanted]);
        }
        let mut text = vec![0u8; wanted + 1];
        let list = (&raw mut copy).cast();
        real::vsnprintf(text.as_mut_ptr().cast(), wanted + 1, format, list);
        written(fd, &text[..wanted])
    }
}

/// The argument list of the x86-64 C convention.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct ArgumentList([u64; 3]);

#[cfg(target_arch = "x86_64")]
unsafe fn written(fd: c_int, text: &[u8]) -> c_int {
    // SAFETY: the library's own text.
    let put = unsafe { on_write(cookie(fd), text.as_ptr().cast(), text.len()) };
    if usize::try_from(put) == Ok(text.len()) {
        c_int::try_from(put).unwrap_or(c_int::MAX)
    } else {
        -1
    }
}

hook! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if table::get(fd).kind() == Kind::Deferred {
            connection::deferred::announce(fd);
        }
        match table::get(fd).kind() {
            // Stdio will use the file under the number, so that it has to stay a kernel socket.
            Kind::Fresh => {
                if let Err(error) = connection::to_kernel(fd, Reason::Unsupported) {
                    let _: c_int = real::fail(error);
                    return core::ptr::null_mut();
                }
            }
            Kind::Virtual => return open(fd, mode),
            _ => {}
        }
        real::fdopen(fd, mode)
    }

    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        fdopen(fd, mode)
    }

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        detach(stream);
        real::freopen(path, mode, stream)
    }

    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        freopen(path, mode, stream)
    }
}

#[cfg(target_arch = "x86_64")]
hook! {
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if lane(fd).is_none() {
            return real::vdprintf(fd, format, arguments);
        }
        print(fd, format, arguments)
    }

    fn __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void,
    ) -> c_int {
        if lane(fd).is_none() {
            return real::__vdprintf_chk(fd, flag, format, arguments);
        }
        print(fd, format, arguments)
    }
}

/// Builds the argument list of a variadic call on the stack and passes it on: `$named` arguments precede the variable
/// ones, `$at` is the register for the list's address.
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($name:ident, $function:path, $named:literal, $at:literal) => {
        /// Takes the place of the C function of this name, whose further arguments are variable.
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            // The registers are saved in the order of the list, behind the list itself.
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                "mov dword ptr [rsp], 8 * {named}",
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $at, ", rsp"),
                "call {function}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                named = const $named,
                function = sym $function,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
variadic!(dprintf, vdprintf, 2, "rdx");
#[cfg(target_arch = "x86_64")]
variadic!(__dprintf_chk, __vdprintf_chk, 3, "rcx");
