//! A program that receives virtual sockets while no daemon serves: it makes a region of its own and an empty directory,
//! and is then like a program whose daemon has ended.

use core::sync::atomic::{AtomicU64, Ordering};

use netchannel_abi::program::{Header, MAGIC};
use netchannel_abi::{LAYOUT_HASH, directory, program};
use netchannel_shm::{Region, ShmError};

use super::{
    Attachment, CONTROL_LOCK, MEMORY, begin, close_internal, current, daemon_is_gone,
    make_internal, map_directory,
};
use crate::descriptors::{confinement, limits};
use crate::ground::{process, sys};

/// As many entries as a daemon gives, so that any daemon takes the region.
const ENTRIES: u32 = 65536;

/// The attachment, made without a daemon if need be. `None` where that fails.
pub fn attach_without_daemon() -> Option<&'static Attachment> {
    super::changes::register_now();
    if current().is_none() && !process::is_vfork_child() {
        let _guard = CONTROL_LOCK.lock()?;
        if current().is_none() && !confinement::began_confined() {
            let made = make().ok()?;
            if !begin(made) {
                close_internal(MEMORY.swap(-1, Ordering::AcqRel));
                return None;
            }
            daemon_is_gone();
        }
    }
    current()
}

fn memory(name: &core::ffi::CStr, size: usize) -> Result<(i32, Region), ShmError> {
    if !limits::allow_file(size) {
        return Err(ShmError::System(libc::EFBIG));
    }
    let create = || Region::create(name, size).map_err(|_| libc::EMFILE);
    limits::for_library(create).map_err(ShmError::System)
}

fn make() -> Result<Attachment, ShmError> {
    let entries = ENTRIES as usize;
    let (shown, empty) = memory(c"netchannel-directory", directory::SIZE)?;
    let mapped = map_directory(shown);
    sys::close(shown);
    drop(empty);
    let (directory, daemon) = mapped?;
    let (fd, region) = memory(c"netchannel-program", program::size(entries))?;
    if let Some(header) = region.at::<Header>(0) {
        header.layout_hash.store(LAYOUT_HASH, Ordering::Relaxed);
        header.entries.store(ENTRIES, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }
    MEMORY.store(make_internal(fd), Ordering::Release);
    Ok(Attachment {
        number: AtomicU64::new(0),
        region: Box::leak(Box::new(region)),
        entries,
        directory,
        daemon,
    })
}
