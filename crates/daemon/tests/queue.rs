//! The queue of a listener, as the daemon knows it: it is named as long as all holders have a part in it, and its links are for them alone.

mod support;

use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET};
use netchannel_abi::message::Operation;
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use support::{Client, Served, inode, small};

const NAME: u64 = 0x1234_5678_9abc_def0;

fn raw(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

/// The queue that the directory names for a listener.
fn named(directory: &OwnedFd, listener: u64) -> u64 {
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let entries: &[directory::Entry] = region.slice(ENTRIES_OFFSET, ENTRIES).unwrap();
    let is_it = |entry: &&directory::Entry| u64::from(entry.listener.load(Relaxed)) == listener;
    entries.iter().find(is_it).unwrap().queue.load(Relaxed)
}

/// A listener, its holder with a part in the queue, and the directory.
fn with_queue(served: &Served) -> (Client, u64, OwnedFd, OwnedFd) {
    let mut server = Client::connect(served);
    let directory = server.attach().1.pop().unwrap();
    let (listener, accepts) = server.listen();
    assert_eq!(named(&directory, listener), 0);
    assert_eq!(server.status_of(Operation::Queue, &[listener, NAME]), 0);
    assert_eq!(named(&directory, listener), NAME);
    (server, listener, directory, accepts)
}

#[test]
fn a_queue_is_named_while_all_holders_have_a_part_in_it() {
    let served = Served::new(small(), None);
    let (mut server, listener, directory, _accepts) = with_queue(&served);
    // A child has what its parent has.
    let (_, mut given) = server.ask(Operation::Adopt, &[1, listener], &[]).unwrap();
    let mut child = Client::over(given.remove(0));
    assert_eq!(named(&directory, listener), NAME);
    // Who holds the listener by other means knows of no queue.
    let mut other = Client::attached(&served);
    other.announce(&server.listening[0]);
    assert_eq!(named(&directory, listener), 0);
    let exists = raw(Errno::EXIST);
    assert_eq!(
        other.status_of(Operation::Queue, &[listener, NAME + 1]),
        exists
    );
    drop(other);
    served.await_status(|status| status.programs.len() == 2);
    assert_eq!(named(&directory, listener), NAME);
    // The child executes another program.
    assert_eq!(child.attach().0.status, 0);
    assert_eq!(child.attach().0.status, 0);
    assert_eq!(named(&directory, listener), 0);
    drop(child);
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(named(&directory, listener), NAME);
    assert_eq!(server.status_of(Operation::Queue, &[listener, 0]), 0);
    assert_eq!(named(&directory, listener), 0);
}

#[test]
fn nobody_names_the_queue_of_a_listener_that_is_not_his() {
    let served = Served::new(small(), None);
    let (_server, listener, directory, _accepts) = with_queue(&served);
    let mut other = Client::attached(&served);
    let missing = raw(Errno::NOENT);
    for name in [0, NAME, NAME + 1] {
        assert_eq!(
            other.status_of(Operation::Queue, &[listener, name]),
            missing
        );
    }
    assert_eq!(named(&directory, listener), NAME);
}

#[test]
fn a_link_of_a_queue_is_for_the_holders_of_its_listener() {
    let served = Served::new(small(), None);
    let (mut server, listener, _directory, _accepts) = with_queue(&served);
    let mut client = Client::attached(&served);
    let (answer, given) = client
        .ask(Operation::Connect, &[listener, 0, 0, 0, 1], &[])
        .unwrap();
    assert_eq!((answer.status, given.len()), (0, 1));
    let link = answer.words[0];
    let (joined, memory) = server.ask(Operation::Join, &[listener, link], &[]).unwrap();
    assert_eq!((joined.status, memory.len()), (0, 1));
    assert_eq!(inode(&memory[0]), inode(&given[0]));
    assert_eq!(&joined.words[..2], &answer.words[1..3]);
    // Another listener's holder, and who holds none.
    let mut stranger = Client::attached(&served);
    let (another, _channel) = stranger.listen();
    let refused = stranger.status_of(Operation::Join, &[another, link]);
    assert_eq!(refused, raw(Errno::PERM));
    let missing = raw(Errno::NOENT);
    assert_eq!(
        stranger.status_of(Operation::Join, &[listener, link]),
        missing
    );
    assert_eq!(
        server.status_of(Operation::Join, &[listener, link + 100]),
        missing
    );
    // It goes with its client.
    drop(client);
    served.await_status(|status| status.links == 0);
    assert_eq!(
        server.status_of(Operation::Join, &[listener, link]),
        missing
    );
}
