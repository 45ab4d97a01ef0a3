//! Listeners that go to other programs in messages: what waits for them waits for whoever gets them.

mod support;

use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET, entry_flags};
use netchannel_abi::message::{Operation, queue_flags};
use netchannel_shm::{Access, Region};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use support::{Client, Served, receive, small};

const NAME: u64 = 0x1234_5678_9abc_def0;

/// What the directory says of a listener: its queue, and whether several programs hold it.
fn listed(directory: &OwnedFd, listener: u64) -> Option<(u64, bool)> {
    let region = Region::map(directory.as_raw_fd(), directory::SIZE, Access::ReadOnly).unwrap();
    let entries: &[directory::Entry] = region.slice(ENTRIES_OFFSET, ENTRIES).unwrap();
    let is_it = |entry: &&directory::Entry| u64::from(entry.listener.load(Relaxed)) == listener;
    let entry = entries.iter().find(is_it)?;
    let shared = entry.flags.load(Relaxed) & entry_flags::SHARED != 0;
    Some((entry.queue.load(Relaxed), shared))
}

#[test]
fn one_that_strangers_may_hold_has_no_queue() {
    let served = Served::new(small(), None);
    let mut server = Client::connect(&served);
    let directory = server.attach().1.pop().unwrap();
    let (listener, _accepts) = server.listen();
    assert_eq!(server.status_of(Operation::Queue, &[listener, NAME]), 0);
    assert_eq!(listed(&directory, listener), Some((NAME, false)));
    let words = [listener, 0, queue_flags::STRANGER];
    assert_eq!(server.status_of(Operation::Queue, &words), 0);
    assert_eq!(listed(&directory, listener), Some((0, true)));
    // Not even for a relative that joins one later.
    assert_eq!(server.status_of(Operation::Queue, &[listener, NAME]), 0);
    assert_eq!(listed(&directory, listener), Some((0, true)));
    // The one that was awaited comes, and goes.
    let mut other = Client::attached(&served);
    other.announce(&server.listening[0]);
    assert_eq!(listed(&directory, listener), Some((0, true)));
    drop(other);
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(listed(&directory, listener), Some((NAME, false)));
    // One that never comes lets it go.
    for (flag, is_awaited) in [
        (queue_flags::STRANGER, true),
        (queue_flags::STRANGER_GONE, false),
    ] {
        assert_eq!(
            server.status_of(Operation::Queue, &[listener, NAME, flag]),
            0
        );
        let queue = if is_awaited { 0 } else { NAME };
        assert_eq!(listed(&directory, listener), Some((queue, is_awaited)));
    }
}

/// A listener that its only holder has sent in a message and closed while a connection waits for it.
struct InMessage {
    socket: TcpListener,
    listener: u64,
    link: u64,
    directory: OwnedFd,
    _programs: [Client; 2],
}

fn in_message(served: &Served) -> InMessage {
    let mut server = Client::connect(served);
    let directory = server.attach().1.pop().unwrap();
    let (listener, _accepts) = server.listen();
    let words = [listener, 0, queue_flags::STRANGER];
    assert_eq!(server.status_of(Operation::Queue, &words), 0);
    let mut client = Client::attached(served);
    let (answer, _given) = client.ask(Operation::Connect, &[listener], &[]).unwrap();
    assert_eq!(answer.status, 0);
    let socket = server.listening.pop().unwrap();
    assert_eq!(server.status_of(Operation::Unlisten, &[listener, 1]), 0);
    InMessage {
        socket,
        listener,
        link: answer.words[0],
        directory,
        _programs: [server, client],
    }
}

#[test]
fn what_waits_for_one_in_a_message_is_offered_to_who_gets_it() {
    let served = Served::new(small(), None);
    let sent = in_message(&served);
    assert_eq!(listed(&sent.directory, sent.listener), None);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut other = Client::attached(&served);
    let (again, accepts) = other.announce(&sent.socket);
    assert_eq!(again, sent.listener);
    assert_eq!(listed(&sent.directory, sent.listener), Some((0, false)));
    let (offer, _) = receive(&accepts).unwrap();
    assert_eq!(offer.words[..2], [sent.link, sent.listener]);
}

#[test]
fn with_its_socket_what_waits_for_it_is_gone() {
    let served = Served::new(small(), None);
    let sent = in_message(&served);
    std::thread::sleep(std::time::Duration::from_millis(100));
    served.await_status(|status| status.links == 1);
    drop(sent.socket);
    served.await_status(|status| status.links == 0);
}
