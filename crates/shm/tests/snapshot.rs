//! Copies for inspection: their content, and that they cost the owner of the memory nothing.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use netchannel_abi::program::SocketEntry;
use netchannel_shm::{Outside, Region, Snapshot};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SIZE: usize = 64 << 20;

fn created() -> (OwnedFd, Region) {
    let (descriptor, region) = Region::create(c"snapshot-test", SIZE).unwrap();
    // SAFETY: the descriptor was just made and nobody else owns it.
    (unsafe { OwnedFd::from_raw_fd(descriptor) }, region)
}

fn occupied(descriptor: &OwnedFd) -> u64 {
    let file = std::fs::File::from(descriptor.try_clone().unwrap());
    std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512
}

#[test]
fn what_was_copied_is_found_where_it_lies_in_the_file() {
    let (descriptor, region) = created();
    let word = |offset: usize| region.at::<AtomicU64>(offset).unwrap();
    let outside = Outside::admit(descriptor.as_raw_fd(), SIZE).unwrap();
    word(4096 + 128).store(7, Relaxed);
    let mut copy = Snapshot::new(5000);
    assert_eq!(copy.room(), 8192);
    assert!(copy.at::<AtomicU64>(0).is_none(), "nothing was copied");
    copy.fill(&outside, 4096 + 128, 5000).unwrap();
    let read = |copy: &Snapshot, offset| copy.at::<AtomicU64>(offset).map(|one| one.load(Relaxed));
    assert_eq!(read(&copy, 4096 + 128), Some(7));
    word(4096 + 128).store(8, Relaxed);
    assert_eq!(read(&copy, 4096 + 128), Some(7), "it stays as it was");
    assert_eq!(read(&copy, 4096), None, "before the copy");
    assert_eq!(read(&copy, 4096 + 128 + 4992), Some(0), "the last");
    assert_eq!(read(&copy, 4096 + 128 + 5000), None, "behind the copy");
    assert_eq!(read(&copy, 4096 + 129), None, "not aligned");
    assert!(copy.at::<SocketEntry>(4096 + 128).is_some());
    assert!(copy.slice::<AtomicU64>(4096 + 128, usize::MAX).is_none());
    assert!(copy.slice::<AtomicU64>(usize::MAX, 1).is_none());
    copy.fill(&outside, SIZE - 64, 5000).unwrap();
    assert!(copy.at::<AtomicU64>(SIZE - 8).is_some());
    assert!(copy.at::<AtomicU64>(SIZE).is_none(), "behind the file");
    copy.fill(&outside, SIZE + 64, 5000).unwrap();
    assert!(copy.at::<AtomicU64>(SIZE + 64).is_none());
}

#[test]
fn holes_stay_holes() {
    let (descriptor, region) = created();
    let outside = Outside::admit(descriptor.as_raw_fd(), SIZE).unwrap();
    region
        .at::<AtomicU64>(SIZE - 4096)
        .unwrap()
        .store(1, Relaxed);
    let before = occupied(&descriptor);
    let mut copy = Snapshot::new(1 << 16);
    for start in (0..SIZE).step_by(1 << 16) {
        copy.fill(&outside, start, 1 << 16).unwrap();
        assert_eq!(copy.at::<AtomicU64>(start).unwrap().load(Relaxed), 0);
    }
    assert_eq!(occupied(&descriptor), before);
    let first = outside.next_data(0).unwrap();
    assert!(first > 0 && first <= SIZE - 4096);
}
