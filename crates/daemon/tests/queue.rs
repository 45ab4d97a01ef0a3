//! The queue of a listener, as the daemon knows it: it is named as long as all holders have a part in it, and its links are for them alone.

mod support;

use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET};
use netchannel_abi::message::Operation;
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use support::{Client, Served, inode, packet_pair, receive, small};

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
    // It stays when its client ends, whose connections may wait in the queue, and goes with the listener.
    drop(client);
    served.await_status(|status| status.programs.len() == 2);
    assert_eq!(server.status_of(Operation::Join, &[listener, link]), 0);
    drop(server);
    served.await_status(|status| status.links == 0);
}

#[test]
fn a_connection_whose_client_can_not_enter_the_queue_is_offered_to_its_acceptors() {
    let served = Served::new(small(), None);
    let (mut server, listener, _directory, accepts) = with_queue(&served);
    let mut client = Client::attached(&served);
    let connect = |client: &mut Client, queued| {
        let words = [listener, 0, 0, 0, queued];
        let (answer, given) = client.ask(Operation::Connect, &words, &[]).unwrap();
        assert_eq!(answer.status, 0);
        (answer.words[0], given)
    };
    let (link, given) = connect(&mut client, 1);
    let (anchor, other) = UnixStream::pair().unwrap();
    let enter = |client: &mut Client, words: [u64; 3]| {
        let entered = client.ask(Operation::Enter, &words, &[anchor.as_fd()]);
        entered.unwrap().0.status
    };
    assert_eq!(enter(&mut client, [listener, link, 5]), 0);
    let (offer, offered) = receive(&accepts).unwrap();
    assert_eq!(offer.operation, Operation::Offer as u32);
    assert_eq!(&offer.words[..2], &[link, listener]);
    assert_eq!(&offer.words[6..8], &[5, 1]);
    assert_eq!(inode(&offered[0]), inode(&given[0]), "the link's memory");
    assert_eq!(inode(&offered[2]), inode(&anchor), "the anchor");
    // Neither another's link, nor one without a queue, nor a slot that there is not, nor another listener.
    let refused = raw(Errno::PERM);
    let mut stranger = Client::attached(&served);
    let (another, _channel) = stranger.listen();
    assert_eq!(enter(&mut stranger, [listener, link, 5]), refused);
    assert_eq!(enter(&mut stranger, [another, link, 5]), refused);
    let (direct, _ends) = connect(&mut client, 0);
    assert_eq!(receive(&accepts).unwrap().0.words[7], 0, "a link");
    assert_eq!(enter(&mut client, [listener, direct, 5]), refused);
    assert_eq!(enter(&mut client, [another, link, 5]), refused);
    assert_eq!(enter(&mut client, [listener, link, 1 << 20]), refused);
    let missing = enter(&mut client, [listener, link + 100, 5]);
    assert_eq!(missing, raw(Errno::NOENT));
    rustix::io::ioctl_fionbio(&accepts, true).unwrap();
    let heard = rustix::io::read(&accepts, &mut [0_u8; 8]);
    assert_eq!(heard, Err(Errno::AGAIN), "something else was offered");
    // No descriptor that is none of a connection is passed on.
    let file = std::fs::File::open("/dev/null").unwrap();
    let (listening, _other) = packet_pair();
    for wrong in [file.as_fd(), listening.as_fd()] {
        let mut liar = Client::attached(&served);
        let (own, _memory) = connect(&mut liar, 1);
        assert!(
            liar.ask(Operation::Enter, &[listener, own, 5], &[wrong])
                .is_none()
        );
    }
    drop((other, server.status_of(Operation::Queue, &[listener, 0])));
}

#[test]
fn the_end_of_an_acceptor_wakes_another_one() {
    let served = Served::new(small(), None);
    let (mut server, listener, _directory, accepts) = with_queue(&served);
    let looks = || {
        let unread = || rustix::io::ioctl_fionread(&accepts).unwrap() > 0;
        let heard = std::iter::from_fn(|| unread().then(|| receive(&accepts).unwrap()));
        heard
            .filter(|(message, _)| message.operation == Operation::Look as u32)
            .count()
    };
    let adopt = |server: &mut Client| {
        let (_, mut given) = server.ask(Operation::Adopt, &[1, listener], &[]).unwrap();
        Client::over(given.remove(0))
    };
    let child = adopt(&mut server);
    assert_eq!(looks(), 0);
    drop(child);
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(looks(), 1);
    // Nobody may read them for long.
    for _ in 0..20 {
        drop(adopt(&mut server));
    }
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(looks(), 4);
    // One that has never waited was woken for nothing.
    let mut child = adopt(&mut server);
    assert_eq!(child.status_of(Operation::Unlisten, &[listener, 0, 1]), 0);
    drop(child);
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(looks(), 0);
    // Who has no part in the queue is woken by none of its connections.
    let mut other = Client::attached(&served);
    other.announce(&server.listening[0]);
    drop(other);
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(looks(), 0);
}
