//! Loss of packets: an XDP program at a host's device that drops what comes in, now and then.
//!
//! The program is attached by a link, which the kernel takes back with its last descriptor: nothing stays when this process
//! ends, however it ends.

use crate::device::DEVICE;
use std::ffi::CString;
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Numbers of linux/bpf.h and linux/if_link.h, which libc does not have.
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// In the device's own path, where a packet is a packet: not where whole segments were put together.
const IN_DRIVER: u32 = 1 << 2;
const PASS: i32 = 2;
const DROP: i32 = 1;
const RANDOM: i32 = 7;

/// Packets are lost as long as this value lives.
#[derive(Debug)]
pub struct Loss {
    _link: OwnedFd,
}

/// `struct bpf_insn`
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`; what is left out is zero.
#[repr(C)]
#[derive(Default)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The beginning of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
struct Link {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// Drops this part of the packets, from 0 to 1, that the calling thread's host receives.
pub fn lose(part: f64) -> io::Result<Loss> {
    let program = load(&program(part))?;
    let name = CString::new(DEVICE)?;
    // SAFETY: the name is terminated.
    let target_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if target_ifindex == 0 {
        return Err(io::Error::last_os_error());
    }
    let link = Link {
        prog_fd: u32::try_from(program.as_raw_fd()).unwrap_or(u32::MAX),
        target_ifindex,
        attach_type: ATTACH_XDP,
        flags: IN_DRIVER,
    };
    Ok(Loss {
        _link: bpf(LINK_CREATE, &link)?,
    })
}

/// Draws a number of 32 bits for each packet, and drops those whose number is low.
fn program(part: f64) -> [Instruction; 6] {
    let instruction = |code, offset, immediate| Instruction {
        code,
        registers: 0,
        offset,
        immediate,
    };
    // A part of all numbers of 32 bits: it saturates at both ends.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a conversion of floats saturates"
    )]
    let below = (part * 4_294_967_296.0) as u32;
    [
        instruction(0x85, 0, RANDOM),              // call bpf_get_prandom_u32
        instruction(0xa6, 2, below.cast_signed()), // if w0 < below goto +2
        instruction(0xb7, 0, PASS),
        instruction(0x95, 0, 0),
        instruction(0xb7, 0, DROP),
        instruction(0x95, 0, 0),
    ]
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let load = Load {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: u32::try_from(program.len()).unwrap_or(0),
        insns: address(program.as_ptr()),
        license: address(c"Apache-2.0".as_ptr()),
        expected_attach_type: ATTACH_XDP,
        ..Load::default()
    };
    bpf(PROG_LOAD, &load)
}

fn address<T>(pointer: *const T) -> u64 {
    u64::try_from(pointer.addr()).unwrap_or(0)
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are of the size given, and what they point to lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of_val(attributes),
        )
    };
    let descriptor = RawFd::try_from(result).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
