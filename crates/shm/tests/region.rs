//! Regions: the files that are refused, and the ranges that lie within.

use core::sync::atomic::{AtomicU64, Ordering};

use netchannel_abi::link::{Cell, Slot};
use netchannel_shm::{Access, Region, ShmError};

const SIZE: usize = 8 * 4096;

/// A descriptor that is closed when dropped.
struct Descriptor(i32);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(self.0) };
    }
}

fn memfd(size: usize, seals: libc::c_int) -> Descriptor {
    // SAFETY: plain system calls on a descriptor of ours.
    unsafe {
        let descriptor = libc::memfd_create(
            c"region-test".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        );
        assert!(descriptor >= 0);
        assert_eq!(libc::ftruncate(descriptor, i64::try_from(size).unwrap()), 0);
        assert_eq!(libc::fcntl(descriptor, libc::F_ADD_SEALS, seals), 0);
        Descriptor(descriptor)
    }
}

fn created() -> (Descriptor, Region) {
    let (descriptor, region) = Region::create(c"region-test", SIZE).unwrap();
    (Descriptor(descriptor), region)
}

/// Bytes of the file that occupy memory.
fn occupied(descriptor: &Descriptor) -> i64 {
    // SAFETY: all zero is a valid stat, and the kernel fills it.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        assert_eq!(libc::fstat(descriptor.0, &raw mut stat), 0);
        stat.st_blocks * 512
    }
}

#[test]
fn a_file_that_can_change_its_size_is_refused() {
    let both = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    for seals in [0, libc::F_SEAL_SHRINK, libc::F_SEAL_GROW] {
        let file = memfd(SIZE, seals);
        assert_eq!(
            Region::map(file.0, SIZE, Access::ReadOnly).err(),
            Some(ShmError::NotSealed)
        );
    }
    assert!(Region::map(memfd(SIZE, both).0, SIZE, Access::ReadOnly).is_ok());
}

#[test]
fn a_file_of_another_size_is_refused() {
    let file = memfd(SIZE, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
    for size in [0, SIZE - 4096, SIZE - 1, SIZE + 1, SIZE + 4096, usize::MAX] {
        assert_eq!(
            Region::map(file.0, size, Access::ReadWrite).err(),
            Some(ShmError::NotSealed)
        );
    }
}

#[test]
fn what_is_no_memfd_is_refused() {
    let mut pipe = [0; 2];
    // SAFETY: the kernel fills the array.
    let result = unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(result, 0);
    let pipe = pipe.map(Descriptor);
    for descriptor in [pipe[0].0, -1] {
        assert_eq!(
            Region::map(descriptor, SIZE, Access::ReadOnly).err(),
            Some(ShmError::NotMemory)
        );
    }
    assert_eq!(
        Region::create(c"region-test", 0).err(),
        Some(ShmError::System(libc::EINVAL))
    );
}

#[test]
fn huge_pages_are_refused_however_well_sealed() {
    let (size, both) = (2 << 20, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
    // SAFETY: plain system calls on a descriptor of ours.
    let huge = unsafe { libc::memfd_create(c"huge".as_ptr(), flags) };
    if huge < 0 {
        eprintln!("skipped: this kernel has no huge pages");
        return;
    }
    let huge = Descriptor(huge);
    // SAFETY: as above.
    unsafe {
        assert_eq!(libc::ftruncate(huge.0, i64::try_from(size).unwrap()), 0);
        assert_eq!(libc::fcntl(huge.0, libc::F_ADD_SEALS, both), 0);
    }
    for access in [Access::ReadOnly, Access::ReadWrite] {
        assert_eq!(
            Region::map(huge.0, size, access).err(),
            Some(ShmError::NotMemory)
        );
    }
}

#[test]
fn files_are_refused() {
    let place = std::env::temp_dir().join(format!("netchannel-region-{}", std::process::id()));
    for place in [place.as_path(), "/dev/shm/netchannel-region-test".as_ref()] {
        let Ok(file) = std::fs::File::create_new(place) else {
            continue;
        };
        file.set_len(SIZE as u64).unwrap();
        let refused = Region::map(
            std::os::fd::AsRawFd::as_raw_fd(&file),
            SIZE,
            Access::ReadOnly,
        );
        std::fs::remove_file(place).unwrap();
        assert!(matches!(
            refused.err(),
            Some(ShmError::NotMemory | ShmError::NotSealed)
        ));
    }
}

#[test]
fn reading_a_hole_makes_no_page_of_it() {
    let (file, region) = created();
    region
        .at::<AtomicU64>(5 * 4096)
        .unwrap()
        .store(7, Ordering::Relaxed);
    let before = occupied(&file);
    let outside = netchannel_shm::Outside::admit(file.0, SIZE).unwrap();
    let mut bytes = [1; SIZE];
    assert_eq!(outside.read(0, &mut bytes), Ok(SIZE));
    assert_eq!(bytes[..8], [0; 8]);
    assert_eq!(bytes[5 * 4096], 7);
    assert_eq!(occupied(&file), before);
    assert_eq!(outside.next_data(0), Some(5 * 4096));
    assert_eq!(outside.next_data(6 * 4096), None);
    // Beyond the end there is nothing, and no fault.
    assert_eq!(outside.read(SIZE, &mut bytes), Ok(0));
}

#[test]
fn the_size_of_a_created_region_can_not_be_changed_by_its_holder() {
    let (file, region) = created();
    for length in [0, 4096, 2 * SIZE] {
        // SAFETY: plain system call.
        let result = unsafe { libc::ftruncate(file.0, i64::try_from(length).unwrap()) };
        assert_eq!(result, -1, "{length}");
    }
    // SAFETY: plain system call.
    let seals = unsafe { libc::fcntl(file.0, libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    assert_eq!(seals, -1, "nor may more seals be added");
    assert_eq!(region.size(), SIZE);
}

#[test]
fn two_mappings_share_their_bytes() {
    let (file, region) = created();
    let other = Region::map(file.0, SIZE, Access::ReadOnly).unwrap();
    drop(file);
    region
        .at::<AtomicU64>(4096)
        .unwrap()
        .store(17, Ordering::Relaxed);
    assert_eq!(
        other.at::<AtomicU64>(4096).unwrap().load(Ordering::Relaxed),
        17
    );
}

#[test]
fn a_published_region_can_only_be_read_by_others() {
    let (file, region) = Region::create_published(c"region-test", SIZE).unwrap();
    let file = Descriptor(file);
    assert_eq!(
        Region::map(file.0, SIZE, Access::ReadWrite).err(),
        Some(ShmError::System(libc::EPERM))
    );
    let other = Region::map(file.0, SIZE, Access::ReadOnly).unwrap();
    region
        .at::<AtomicU64>(0)
        .unwrap()
        .store(5, Ordering::Relaxed);
    assert_eq!(other.at::<AtomicU64>(0).unwrap().load(Ordering::Relaxed), 5);
    // SAFETY: plain system calls; the byte is ours.
    unsafe {
        assert_eq!(libc::pwrite(file.0, [1_u8].as_ptr().cast(), 1, 0), -1);
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(libc::fallocate(file.0, punch, 0, 4096), -1);
    }
}

#[test]
fn structures_lie_wholly_and_aligned_within() {
    let (_file, region) = created();
    assert!(region.at::<AtomicU64>(0).is_some());
    assert!(region.at::<AtomicU64>(SIZE - 8).is_some());
    for offset in [
        1,
        4,
        SIZE - 7,
        SIZE - 4,
        SIZE,
        SIZE + 8,
        usize::MAX - 7,
        usize::MAX,
    ] {
        assert!(region.at::<AtomicU64>(offset).is_none(), "{offset}");
    }
    assert!(region.at::<Slot>(128).is_some());
    assert!(region.at::<Slot>(64).is_none());
    assert!(region.at::<Cell>(4096).is_some());
    assert!(region.at::<Cell>(2048).is_none());
    assert!(region.at::<Cell>(SIZE - 2048).is_none());
}

#[test]
fn slices_lie_wholly_within() {
    let (_file, region) = created();
    assert_eq!(
        region.slice::<AtomicU64>(0, SIZE / 8).map(<[_]>::len),
        Some(SIZE / 8)
    );
    assert_eq!(region.slice::<AtomicU64>(SIZE, 0).map(<[_]>::len), Some(0));
    for (offset, count) in [
        (0, SIZE / 8 + 1),
        (8, SIZE / 8),
        (0, usize::MAX),
        (8, usize::MAX / 8),
    ] {
        assert!(
            region.slice::<AtomicU64>(offset, count).is_none(),
            "{offset} {count}"
        );
    }
}

#[test]
fn copies_outside_move_nothing() {
    let (_file, region) = created();
    let from = [9_u8; 64];
    let mut to = [0_u8; 64];
    // SAFETY: both buffers have 64 bytes, and no length above that lies within the region.
    unsafe {
        assert_eq!(region.copy_in(SIZE - 64, from.as_ptr(), 64), 0);
        assert_eq!(region.copy_out(SIZE - 64, to.as_mut_ptr(), 64), 0);
        assert_eq!(to, from);
        for (offset, length) in [
            (SIZE - 63, 64),
            (SIZE, 1),
            (SIZE + 1, 0),
            (usize::MAX, 1),
            (usize::MAX - 32, 64),
            (0, SIZE + 1),
            (1, usize::MAX),
        ] {
            to = [0; 64];
            assert_eq!(region.copy_in(offset, from.as_ptr(), length), length);
            assert_eq!(region.copy_out(offset, to.as_mut_ptr(), length), length);
            assert_eq!(to, [0; 64]);
        }
    }
}

#[test]
fn released_pages_read_zero_and_occupy_nothing() {
    let (file, region) = created();
    let words = region.slice::<AtomicU64>(0, SIZE / 8).unwrap();
    let fill = || {
        words
            .iter()
            .for_each(|word| word.store(1, Ordering::Relaxed))
    };
    let filled = |page: usize| {
        words[page * 512..][..512]
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 1)
    };
    fill();
    assert_eq!(occupied(&file), i64::try_from(SIZE).unwrap());
    region.release_pages(4096, 2 * 4096);
    assert_eq!(occupied(&file), i64::try_from(SIZE - 2 * 4096).unwrap());
    assert!(filled(0) && !filled(1) && !filled(2) && filled(3));

    // Pages of which only a part is named stay: the other part is in other use.
    fill();
    region.release_pages(4096, 2048);
    region.release_pages(4096 + 1, 4096);
    region.release_pages(4096 + 2048, 4096 + 1024);
    assert!((0..8).all(filled));
    region.release_pages(4096 + 1, 2 * 4096);
    assert!(filled(1) && !filled(2) && filled(3));

    // What does not lie within is left alone.
    fill();
    region.release_pages(SIZE - 4096, 2 * 4096);
    region.release_pages(SIZE, 4096);
    region.release_pages(usize::MAX, 4096);
    region.release_pages(0, usize::MAX);
    assert!((0..8).all(filled));
}

#[cfg(target_arch = "x86_64")]
mod fault_handler;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_read_only_mapping_takes_no_bytes() {
    fault_handler::install();
    let (file, region) = created();
    let reader = Region::map(file.0, SIZE, Access::ReadOnly).unwrap();
    let from = [9_u8; 100];
    // SAFETY: the buffer has 100 bytes; the write faults, which the handler mends.
    assert_eq!(unsafe { reader.copy_in(0, from.as_ptr(), 100) }, 100);
    assert_eq!(
        region.at::<AtomicU64>(0).unwrap().load(Ordering::Relaxed),
        0
    );
}

#[test]
fn a_vacated_region_reads_as_zero_and_its_addresses_serve_again() {
    let (first, region) = Region::create(c"first", 8192).expect("a region");
    let (second, other) = Region::create(c"second", 8192).expect("a region");
    region
        .at::<AtomicU64>(0)
        .expect("a word")
        .store(7, Ordering::Relaxed);
    other
        .at::<AtomicU64>(0)
        .expect("a word")
        .store(9, Ordering::Relaxed);
    let vacancy = region.vacate().expect("a vacancy");
    assert_eq!(vacancy.size(), 8192);
    assert_eq!(
        region
            .at::<AtomicU64>(0)
            .expect("a word")
            .load(Ordering::Relaxed),
        0
    );
    let again = Region::map_into(vacancy, second, Access::ReadWrite).expect("a mapping");
    assert_eq!(
        again
            .at::<AtomicU64>(0)
            .expect("a word")
            .load(Ordering::Relaxed),
        9
    );
    // The same addresses: a user of the old region sees the new one.
    assert_eq!(
        region
            .at::<AtomicU64>(0)
            .expect("a word")
            .load(Ordering::Relaxed),
        9
    );
    core::mem::forget(again);
    for descriptor in [first, second] {
        // SAFETY: the descriptors are this test's own.
        unsafe { libc::close(descriptor) };
    }
}

#[test]
fn a_region_takes_the_place_of_another() {
    let (first, former) = Region::create(c"former", 8192).expect("a region");
    let (second, new) = Region::create(c"new", 8192).expect("a region");
    let word = |region: &Region| {
        region
            .at::<AtomicU64>(4096)
            .expect("a word")
            .load(Ordering::Relaxed)
    };
    let set = |region: &Region, value| {
        region
            .at::<AtomicU64>(4096)
            .expect("a word")
            .store(value, Ordering::Relaxed)
    };
    set(&former, 1);
    set(&new, 2);
    new.take_place_of(&former).expect("it fits");
    assert_eq!(word(&former), 2);
    set(&former, 3);
    let seen =
        |descriptor| word(&Region::map(descriptor, 8192, Access::ReadOnly).expect("a mapping"));
    assert_eq!(
        (seen(first), seen(second)),
        (1, 3),
        "what is written goes to the new file only"
    );
    let (third, small) = Region::create(c"small", 4096).expect("a region");
    assert!(small.take_place_of(&former).is_err());
    assert_eq!(word(&former), 3);
    for descriptor in [first, second, third] {
        // SAFETY: the descriptors are this test's own.
        unsafe { libc::close(descriptor) };
    }
}
