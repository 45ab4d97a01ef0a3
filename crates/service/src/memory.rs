//! Sealed memory that the daemon creates and hands out.

use netchannel_abi::{LAYOUT_HASH, VERSION, link, program};
use netchannel_shm::{Access, Outside, Region, ShmError};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// The errno of an error of the memory layer.
pub fn errno(error: ShmError) -> Errno {
    match error {
        ShmError::System(code) => Errno::from_raw_os_error(code),
        ShmError::NotSealed | ShmError::NotMemory => Errno::INVAL,
    }
}

/// Creates sealed memory of that size, all zero.
pub fn create(name: &CStr, size: usize) -> Result<(OwnedFd, Region), Errno> {
    let (descriptor, region) = Region::create(name, size).map_err(errno)?;
    // SAFETY: the descriptor was just made and nobody else owns it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok((descriptor, region))
}

/// Creates the region of a program with `entries` unused sockets.
pub fn program_region(entries: u32) -> Result<(OwnedFd, usize), Errno> {
    let count = usize::try_from(entries).map_err(|_| Errno::INVAL)?;
    let size = program::size(count);
    let (descriptor, region) = create(c"netchannel-program", size)?;
    let header: &program::Header = region.at(0).ok_or(Errno::INVAL)?;
    header.layout_hash.store(LAYOUT_HASH, Ordering::Relaxed);
    header.entries.store(entries, Ordering::Relaxed);
    header.magic.store(program::MAGIC, Ordering::Release);
    Ok((descriptor, size))
}

/// Creates the memory of a link. All its slots are zero: never used.
pub fn link(layout: link::Layout, number: u64) -> Result<OwnedFd, Errno> {
    let slots = u32::try_from(layout.slots).map_err(|_| Errno::INVAL)?;
    let arena = u64::try_from(layout.arena).map_err(|_| Errno::INVAL)?;
    let (descriptor, region) = create(c"netchannel-link", layout.size())?;
    let header: &link::Header = region.at(0).ok_or(Errno::INVAL)?;
    header.version.store(VERSION, Ordering::Relaxed);
    header.slots.store(slots, Ordering::Relaxed);
    header.layout_hash.store(LAYOUT_HASH, Ordering::Relaxed);
    header.arena.store(arena, Ordering::Relaxed);
    header.link.store(number, Ordering::Relaxed);
    header.magic.store(link::MAGIC, Ordering::Release);
    Ok(descriptor)
}

/// Creates memory that this process alone may write. Its mapping is made before the seal against further writable
/// mappings. The seal also holds for descriptors opened again through `/proc`.
pub fn published(name: &CStr, size: usize) -> Result<(OwnedFd, Region), Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let descriptor = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&descriptor, u64::try_from(size).map_err(|_| Errno::FBIG)?)?;
    rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)?;
    let region = Region::map(descriptor.as_raw_fd(), size, Access::ReadWrite).map_err(errno)?;
    rustix::fs::fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    Ok((descriptor, region))
}

/// Whether a descriptor is memory whose size is sealed at exactly `size` bytes.
pub fn is_sealed(descriptor: &OwnedFd, size: u64) -> bool {
    usize::try_from(size).is_ok_and(|size| Outside::admit(descriptor.as_raw_fd(), size).is_ok())
}

/// Whether two descriptors refer to the same file.
pub fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    match (rustix::fs::fstat(one), rustix::fs::fstat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

/// Bytes that a memfd occupies.
pub fn occupied(descriptor: &OwnedFd) -> u64 {
    rustix::fs::fstat(descriptor)
        .ok()
        .and_then(|stat| u64::try_from(stat.st_blocks).ok())
        .map_or(0, |blocks| blocks.saturating_mul(512))
}

/// Half of the host's memory.
pub fn half_of_the_hosts() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(u64::MAX, |kilobytes| kilobytes.saturating_mul(512))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_memory_can_not_be_written_by_others() {
        let (descriptor, region) = published(c"test", 4096).unwrap();
        assert_eq!(region.size(), 4096);
        let raw = descriptor.as_raw_fd();
        assert!(Region::map(raw, 4096, Access::ReadOnly).is_ok());
        assert_eq!(
            Region::map(raw, 4096, Access::ReadWrite).unwrap_err(),
            ShmError::System(libc::EPERM)
        );
        let again = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{raw}"));
        if let Ok(again) = again {
            assert!(Region::map(again.as_raw_fd(), 4096, Access::ReadWrite).is_err());
            assert!(std::io::Write::write(&mut &again, b"x").is_err());
        }
    }

    #[test]
    fn an_untouched_link_occupies_a_page() {
        let layout = link::Layout {
            slots: link::MOST_SLOTS,
            arena: 256 << 20,
        };
        let descriptor = link(layout, 1).unwrap();
        assert!(
            occupied(&descriptor) <= 4 << 20,
            "{}",
            occupied(&descriptor)
        );
    }
}
