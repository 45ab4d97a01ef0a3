//! A daemon in a thread, and a raw client of the attach protocol.
#![allow(dead_code, reason = "each test program uses a part of it")]

use netchannel_abi::address::Address;
use netchannel_abi::message::{MESSAGE_BYTES, Message, Operation};
use netchannel_abi::{LAYOUT_HASH, VERSION};
use netchannel_configuration::Configuration;
use netchannel_control::hosts::Hosts;
use netchannel_control::types::{Request, Response, Status};
use netchannel_daemon::{Daemon, Limits, Options, ServeError, Stopper};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Served {
    place: tempfile::TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

pub fn small() -> Limits {
    Limits {
        slots: 64,
        arena: 4 << 20,
        entries: 64,
        ..Limits::default()
    }
}

/// The options of a daemon for tests, which is small and knows no other hosts.
pub fn options(socket: PathBuf) -> Options {
    Options {
        socket,
        idle_exit: None,
        limits: small(),
        version: "test".to_owned(),
        configuration: None,
        relay_local: false,
        library: None,
        tenant: None,
    }
}

impl Served {
    pub fn new(limits: Limits, idle_exit: Option<Duration>) -> Self {
        Self::with(limits, idle_exit, None)
    }

    /// A daemon that knows other hosts.
    pub fn with(
        limits: Limits,
        idle_exit: Option<Duration>,
        configuration: Option<Configuration>,
    ) -> Self {
        Self::bound(move |socket| {
            Daemon::bind(Options {
                idle_exit,
                limits,
                configuration,
                ..options(socket)
            })
        })
    }

    /// A daemon that is bound to the path as `bind` says.
    pub fn bound(
        bind: impl FnOnce(PathBuf) -> Result<Daemon, ServeError> + Send + 'static,
    ) -> Self {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("d.sock");
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let daemon = bind(socket)?;
            sender.send(daemon.stopper()?).unwrap();
            daemon.serve()
        });
        let stopper = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        Self {
            place,
            stopper,
            thread: Some(thread),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.place.path().join("d.sock")
    }

    pub fn stop(&mut self) {
        self.stopper.stop();
        self.join();
    }

    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn status(&self) -> Status {
        let answer =
            netchannel_control::request(&self.path(), Request::Status, Duration::from_secs(5));
        match answer.unwrap() {
            Response::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// What it shows of other hosts.
    pub fn hosts(&self) -> Hosts {
        let answer =
            netchannel_control::request(&self.path(), Request::Hosts, Duration::from_secs(5));
        match answer.unwrap() {
            Response::Hosts(hosts) => *hosts,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the status shows what is wanted.
    pub fn await_status(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "never came to it: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

pub struct Client {
    pub socket: OwnedFd,
    sequence: u32,
    /// What it listens on.
    pub listening: Vec<TcpListener>,
}

pub type Answer = (Message, Vec<OwnedFd>);

impl Client {
    pub fn connect(served: &Served) -> Self {
        Self::dial(&served.path())
    }

    pub fn dial(path: &PathBuf) -> Self {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let address = SocketAddrUnix::new(path).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        Self::over(socket)
    }

    pub fn over(socket: OwnedFd) -> Self {
        // A daemon that does not answer fails the test rather than hangs it.
        let patience = Some(Duration::from_secs(10));
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            patience,
        )
        .unwrap();
        Self {
            socket,
            sequence: 0,
            listening: Vec::new(),
        }
    }

    pub fn attached(served: &Served) -> Self {
        let mut client = Self::connect(served);
        let (answer, descriptors) = client.attach();
        assert_eq!(answer.status, 0);
        assert_eq!(descriptors.len(), 2);
        client
    }

    pub fn attach(&mut self) -> Answer {
        let name = u64::from_le_bytes(*b"testprog");
        let words = [
            u64::from(VERSION),
            LAYOUT_HASH,
            u64::from(std::process::id()),
            name,
        ];
        self.ask(Operation::Attach, &words, &[]).unwrap()
    }

    pub fn ask(
        &mut self,
        operation: Operation,
        words: &[u64],
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<Answer> {
        self.sequence += 1;
        let mut all = [0; 14];
        all[..words.len()].copy_from_slice(words);
        let message = Message::new(operation, self.sequence, all);
        send(&self.socket, &message.to_bytes(), descriptors);
        let (answer, descriptors) = receive(&self.socket)?;
        assert_eq!(answer.operation, operation as u32);
        assert_eq!(answer.sequence, self.sequence);
        Some((answer, descriptors))
    }

    pub fn status_of(&mut self, operation: Operation, words: &[u64]) -> u32 {
        self.ask(operation, words, &[]).unwrap().0.status
    }

    /// Listens, and announces it. Returns the number and the accept channel.
    pub fn listen(&mut self) -> (u64, OwnedFd) {
        let socket = listening();
        let announced = self.announce(&socket);
        self.listening.push(socket);
        announced
    }

    /// Announces a listener that there is.
    pub fn announce(&mut self, socket: &TcpListener) -> (u64, OwnedFd) {
        let (answer, mut descriptors) = self
            .ask(Operation::Listen, &listen_words(socket), &[])
            .unwrap();
        assert_eq!(answer.status, 0);
        (answer.words[0], descriptors.pop().unwrap())
    }

    pub fn is_detached(&self) -> bool {
        receive(&self.socket).is_none()
    }
}

/// A TCP socket that listens somewhere on loopback.
pub fn listening() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// A listener at a port that the kernel gives nobody by itself: it stays free between a close and the next bind.
pub fn listening_at_own_port() -> TcpListener {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = || std::process::id() * 16 + NEXT.fetch_add(1, Relaxed);
    let ports = std::iter::repeat_with(|| 10_000 + u16::try_from(next() % 22_000).unwrap());
    let bound = |port| TcpListener::bind(("127.0.0.1", port)).ok();
    ports.take(1000).find_map(bound).expect("a free port")
}

pub fn port(socket: &TcpListener) -> u16 {
    socket.local_addr().unwrap().port()
}

/// Where a listener listens.
pub fn address(socket: &TcpListener) -> Address {
    match socket.local_addr().unwrap() {
        SocketAddr::V4(v4) => Address::v4(v4.ip().octets(), v4.port()),
        SocketAddr::V6(v6) => Address::v6(v6.ip().octets(), v6.port(), v6.scope_id()),
    }
}

/// The words that announce a listener.
pub fn listen_words(socket: &TcpListener) -> [u64; 6] {
    let [a, b, c] = address(socket).to_words();
    let cookie = rustix::net::sockopt::socket_cookie(socket).unwrap();
    [a, b, c, cookie, 128, 0]
}

pub fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    // A daemon that has hung up already is what some tests are about.
    let _ = sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    );
}

/// The next message; `None` when the other side hung up.
pub fn receive(socket: &OwnedFd) -> Option<Answer> {
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let length = match result {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::CONNRESET) => return None,
        Err(error) => panic!("no answer: {error}"),
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (length > 0).then(|| (Message::from_bytes(&bytes[..length]).unwrap(), descriptors))
}

pub fn packet_pair() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap()
}

pub fn inode(descriptor: impl AsFd) -> u64 {
    rustix::fs::fstat(descriptor).unwrap().st_ino
}
