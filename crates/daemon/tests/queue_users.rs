//! The queue of a listener that root and one other user hold: it is that user's, for clients of all users, and what one acceptor reads no
//! program of another user does. Users are threads with credentials of their own.

mod support;
#[path = "support/user.rs"]
mod user;

use netchannel_abi::address::Address;
use netchannel_abi::directory::{self, ENTRIES, ENTRIES_OFFSET};
use netchannel_abi::message::{Operation, queue_flags};
use netchannel_shm::{Access, Region};
use rustix::io::Errno;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use support::{Answer, Client, Served, small};
use user::{HONEST, HOSTILE, THIRD, User, has_users, served_to_all};

const NAME: u64 = 0x1234_5678_9abc_def0;

/// A program of some user.
struct Program {
    user: User,
    client: Option<Client>,
    directory: OwnedFd,
}

impl Program {
    fn new(served: &Served, user: u32) -> Self {
        let user = if user == 0 {
            User::root()
        } else {
            User::new(user)
        };
        let path = served.path();
        let (client, directory) = user.run(move || {
            let mut client = Client::dial(&path);
            let (answer, mut descriptors) = client.attach();
            assert_eq!(answer.status, 0);
            (client, descriptors.pop().unwrap())
        });
        Self {
            user,
            client: Some(client),
            directory,
        }
    }

    fn ask(&mut self, operation: Operation, words: &[u64], beside: &[&TcpListener]) -> Answer {
        let mut client = self.client.take().unwrap();
        let words = words.to_vec();
        let beside: Vec<_> = beside.iter().map(|one| one.try_clone().unwrap()).collect();
        let (client, answer) = self.user.run(move || {
            let shown: Vec<_> = beside.iter().map(AsFd::as_fd).collect();
            let answer = client.ask(operation, &words, &shown);
            (client, answer)
        });
        self.client = Some(client);
        answer.unwrap()
    }

    fn status(&mut self, operation: Operation, words: &[u64]) -> u32 {
        self.ask(operation, words, &[]).0.status
    }

    /// Holds a listener, which it shows.
    fn hold(&mut self, socket: &TcpListener) -> u64 {
        let port = socket.local_addr().unwrap().port();
        let [a, b, c] = Address::v4([127, 0, 0, 1], port).to_words();
        let cookie = rustix::net::sockopt::socket_cookie(socket).unwrap();
        let words = [a, b, c, cookie, 128, 0, 1];
        let (answer, _) = self.ask(Operation::Listen, &words, &[socket]);
        assert_eq!(answer.status, 0);
        answer.words[0]
    }

    /// The queue that the directory names for a listener, and whose it is.
    fn named(&self, listener: u64) -> (u64, u32) {
        let raw = self.directory.as_raw_fd();
        let region = Region::map(raw, directory::SIZE, Access::ReadOnly).unwrap();
        let entries: &[directory::Entry] = region.slice(ENTRIES_OFFSET, ENTRIES).unwrap();
        let is_it = |entry: &&directory::Entry| u64::from(entry.listener.load(Relaxed)) == listener;
        let entry = entries.iter().find(is_it).unwrap();
        (entry.queue.load(Relaxed), entry.queue_user.load(Relaxed))
    }
}

fn raw(errno: Errno) -> u32 {
    errno.raw_os_error().unsigned_abs()
}

/// A master of root, and a worker of another user who has a part in the queue.
fn master_and_worker(served: &Served, flags: u64) -> (TcpListener, Program, Program, u64) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut master = Program::new(served, 0);
    let listener = master.hold(&socket);
    let mut worker = Program::new(served, HONEST);
    assert_eq!(worker.hold(&socket), listener);
    assert_eq!(master.named(listener).0, 0);
    assert_eq!(worker.status(Operation::Queue, &[listener, NAME, flags]), 0);
    (socket, master, worker, listener)
}

/// A link of a client whose connections go through the queue.
fn link_of(client: &mut Program, listener: u64) -> u64 {
    let (answer, given) = client.ask(Operation::Connect, &[listener, 0, 0, 0, 1], &[]);
    assert_eq!((answer.status, given.len()), (0, 1));
    assert_eq!(answer.words[4], u64::from(HONEST), "whose program accepts");
    answer.words[0]
}

#[test]
fn what_another_user_accepts_nobody_else_reads() {
    if !has_users("queues of several users") {
        return;
    }
    let served = served_to_all(small());
    let (socket, mut master, mut worker, listener) = master_and_worker(&served, 0);
    assert_eq!(master.named(listener), (NAME, HONEST));
    let mut client = Program::new(&served, HOSTILE);
    let link = link_of(&mut client, listener);
    let (refused, missing) = (raw(Errno::PERM), raw(Errno::NOENT));
    assert_eq!(master.status(Operation::Join, &[listener, link]), refused);
    assert_eq!(client.status(Operation::Join, &[listener, link]), missing);
    let (joined, memory) = worker.ask(Operation::Join, &[listener, link], &[]);
    assert_eq!((joined.status, memory.len()), (0, 1));
    assert_eq!(joined.words[2], u64::from(HOSTILE), "whose the client is");
    // With a third user nobody has a queue, and no memory is given to anybody.
    let mut third = Program::new(&served, THIRD);
    assert_eq!(third.hold(&socket), listener);
    assert_eq!(third.named(listener).0, 0);
    for one in [&mut third, &mut worker, &mut master] {
        assert_eq!(one.status(Operation::Join, &[listener, link]), refused);
    }
    let asked = client.status(Operation::Connect, &[listener, 0, 0, 0, 1]);
    assert_eq!(asked, refused);
    drop(third);
    served.await_status(|status| status.programs.len() == 3);
    assert_eq!(client.named(listener), (NAME, HONEST));
    // Where only root is left, what the worker has read is not root's.
    drop(worker);
    served.await_status(|status| status.programs.len() == 2);
    assert_eq!(master.status(Operation::Join, &[listener, link]), refused);
}

#[test]
fn a_program_of_root_that_accepts_ends_the_queue() {
    if !has_users("queues of several users") {
        return;
    }
    let served = served_to_all(small());
    let (_socket, mut master, worker, listener) = master_and_worker(&served, 0);
    let apart = [listener, 0, queue_flags::ACCEPTS];
    assert_eq!(master.status(Operation::Queue, &apart), 0);
    assert_eq!(worker.named(listener).0, 0);
    drop(master);
    served.await_status(|status| status.programs.len() == 1);
    assert_eq!(worker.named(listener), (NAME, HONEST));
}

#[test]
fn who_sees_other_users_has_clients_of_its_own_user_only() {
    if !has_users("queues of several users") {
        return;
    }
    let served = served_to_all(small());
    let (_socket, _master, _worker, listener) = master_and_worker(&served, queue_flags::CONFINED);
    let mut client = Program::new(&served, HOSTILE);
    let asked = client.status(Operation::Connect, &[listener, 0, 0, 0, 1]);
    assert_eq!(asked, raw(Errno::PERM));
    let mut own = Program::new(&served, HONEST);
    link_of(&mut own, listener);
}
