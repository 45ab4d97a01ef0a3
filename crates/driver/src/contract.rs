//! The contract of a transport as tests: the requirements for every [`Transport`]. Only for tests: a violation panics
//! with a message.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{Acceptor, Channel, Dequeued, Options, Room, Run, Status, Transport};

/// Longest wait for anything.
const PATIENCE_MS: i32 = 10_000;

/// Checks a transport whose channels go from `at` to `at`. `nobody` is an address without a listener.
///
/// # Panics
/// Where the transport violates the contract.
pub fn check(transport: &dyn Transport, at: SocketAddr, nobody: SocketAddr) {
    assert!(!transport.name().is_empty());
    nothing_waits_at_first(transport, at);
    bytes_go_both_ways_in_order(transport, at);
    a_full_transport_takes_no_more_and_loses_nothing(transport, at);
    the_end_comes_behind_the_bytes(transport, at);
    a_channel_that_is_shut_down_is_lost_at_both_ends(transport, at);
    an_attempt_that_fails_is_told(transport, nobody);
    tuning_does_no_harm(transport, at);
}

/// A channel over `transport`: the dialling end comes first.
///
/// # Panics
/// Where none can be made.
#[must_use]
pub fn pair(transport: &dyn Transport, at: SocketAddr) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let options = Options::default();
    let mut acceptor = transport.listen(at, &options).unwrap();
    connect(transport, &mut *acceptor)
}

fn connect(
    transport: &dyn Transport,
    acceptor: &mut dyn Acceptor,
) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let dialled = transport.connect(acceptor.address(), &Options::default());
    let dialled = dialled.unwrap();
    wait(acceptor.descriptor(), libc::POLLIN);
    let (accepted, _) = acceptor
        .accept()
        .unwrap()
        .expect("readable, yet none waits");
    (dialled, accepted)
}

fn nothing_waits_at_first(transport: &dyn Transport, at: SocketAddr) {
    let mut acceptor = transport.listen(at, &Options::default()).unwrap();
    assert!(acceptor.accept().unwrap().is_none());
    let (mut one, mut other) = connect(transport, &mut *acceptor);
    assert!(acceptor.accept().unwrap().is_none());
    for channel in [&mut one, &mut other] {
        let came = channel.dequeue(&[Room::from(&mut [0; 8][..])]);
        assert_eq!(came.unwrap(), Dequeued::Waits);
        assert_eq!(channel.enqueue(&[]).unwrap(), 0);
    }
}

fn bytes_go_both_ways_in_order(transport: &dyn Transport, at: SocketAddr) {
    let (mut one, mut other) = pair(transport, at);
    for _ in 0..2 {
        let pieces: [&[u8]; 4] = [b"gathered", b"", b" from", b" pieces"];
        let runs = pieces.map(Run::from);
        let mut sent = 0;
        while sent == 0 {
            sent = one.enqueue(&runs).unwrap();
            if sent == 0 {
                wait(one.descriptor(), libc::POLLOUT);
            }
        }
        assert_eq!(sent, 20, "a little goes at once");
        flush(&mut *one);
        let (mut front, mut back) = ([0; 3], [0; 100]);
        let mut came = 0;
        while came < 20 {
            let rooms = [
                Room::from(front.get_mut(came.min(3)..).unwrap()),
                Room::from(back.get_mut(came.saturating_sub(3)..).unwrap()),
            ];
            match other.dequeue(&rooms).unwrap() {
                Dequeued::Bytes(count) => came += count,
                Dequeued::Waits => {}
                Dequeued::End => panic!("an end that nobody made"),
            }
            // There was room for more.
            if came < 20 {
                wait(other.descriptor(), libc::POLLIN);
            }
        }
        assert_eq!((&front, &back[..17]), (b"gat", &b"hered from pieces"[..]));
        std::mem::swap(&mut one, &mut other);
    }
}

fn a_full_transport_takes_no_more_and_loses_nothing(transport: &dyn Transport, at: SocketAddr) {
    const MOST: usize = 1 << 28;
    let (mut one, mut other) = pair(transport, at);
    let block: Vec<u8> = (0..100_003u32)
        .map(|place| place.to_le_bytes()[0])
        .collect();
    let byte = |place: usize| block[place % block.len()];
    let mut sent = 0;
    // Until the transport is full, and stays full.
    for _ in 0..50 {
        loop {
            let start = sent % block.len();
            let taken = one.enqueue(&[Run::from(&block[start..])]).unwrap();
            sent += taken;
            assert!(sent < MOST, "no transport may take bytes without end");
            if taken == 0 {
                break;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let Status {
        unsent,
        unacknowledged,
        ..
    } = one.status();
    assert!(unsent <= unacknowledged || unacknowledged == 0);
    let mut came = 0;
    let mut buffer = vec![0; 65_536];
    while came < sent {
        flush_if_possible(&mut *one);
        match other.dequeue(&[Room::from(&mut buffer[..])]).unwrap() {
            Dequeued::Bytes(count) => {
                let right = |(place, found): (usize, &u8)| *found == byte(came + place);
                assert!(buffer[..count].iter().enumerate().all(right));
                came += count;
            }
            Dequeued::Waits => wait(other.descriptor(), libc::POLLIN),
            Dequeued::End => panic!("an end that nobody made"),
        }
    }
    // There is room again, and the descriptor says so.
    wait(one.descriptor(), libc::POLLOUT);
    assert_eq!(one.enqueue(&[Run::from(&b"x"[..])]).unwrap(), 1);
}

fn the_end_comes_behind_the_bytes(transport: &dyn Transport, at: SocketAddr) {
    let (mut one, mut other) = pair(transport, at);
    send(&mut *one, b"last words");
    drop(one);
    assert_eq!(read_to_end(&mut *other).unwrap(), b"last words");
    let again = other.dequeue(&[Room::from(&mut [0; 8][..])]);
    assert_eq!(again.unwrap(), Dequeued::End, "the end does not pass");
}

fn a_channel_that_is_shut_down_is_lost_at_both_ends(transport: &dyn Transport, at: SocketAddr) {
    let (mut one, mut other) = pair(transport, at);
    send(&mut *one, b"words");
    one.shut_down();
    one.shut_down();
    assert!(one.enqueue(&[Run::from(&b"more"[..])]).is_err());
    match read_to_end(&mut *one) {
        Ok(words) => assert!(words.is_empty()),
        Err(error) => assert_ne!(error.kind(), io::ErrorKind::WouldBlock),
    }
    assert_eq!(read_to_end(&mut *other).unwrap(), b"words");
    let _ = other.status();
}

fn an_attempt_that_fails_is_told(transport: &dyn Transport, nobody: SocketAddr) {
    let Ok(mut channel) = transport.connect(nobody, &Options::default()) else {
        return;
    };
    let words = [Run::from(&b"words"[..])];
    for _ in 0..3 {
        match channel.enqueue(&words) {
            Err(error) => {
                assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
                return;
            }
            Ok(taken) => assert_eq!(taken, 0, "nobody is there to take it"),
        }
        wait(channel.descriptor(), libc::POLLOUT);
    }
    panic!("writable, and takes nothing");
}

fn tuning_does_no_harm(transport: &dyn Transport, at: SocketAddr) {
    let (mut one, mut other) = pair(transport, at);
    one.tune(&Options::default());
    one.tune(&Options {
        congestion_control: Some("no-such-algorithm".to_owned()),
        send_buffer: Some(1 << 16),
        receive_buffer: Some(1 << 16),
        unsent_low_water: Some(1 << 16),
        priority: Some(6),
        dscp: Some(46),
        unanswered: Some(std::time::Duration::from_secs(15)),
        from: None,
    });
    send(&mut *one, b"words");
    drop(one);
    assert_eq!(read_to_end(&mut *other).unwrap(), b"words");
}

/// Sends all bytes, which must fit.
fn send(channel: &mut dyn Channel, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = channel.enqueue(&[Run::from(bytes)]).unwrap();
        bytes = bytes.get(taken..).unwrap_or_default();
        if !bytes.is_empty() {
            wait(channel.descriptor(), libc::POLLOUT);
        }
    }
    flush(channel);
}

fn flush(channel: &mut dyn Channel) {
    while !channel.flush().unwrap() {
        wait(channel.descriptor(), libc::POLLOUT);
    }
}

fn flush_if_possible(channel: &mut dyn Channel) {
    let _ = channel.flush().unwrap();
}

fn read_to_end(channel: &mut dyn Channel) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match channel.dequeue(&[Room::from(&mut buffer[..])])? {
            Dequeued::Bytes(count) => all.extend_from_slice(buffer.get(..count).unwrap()),
            Dequeued::Waits => wait(channel.descriptor(), libc::POLLIN),
            Dequeued::End => return Ok(all),
        }
    }
}

/// Sleeps on a descriptor as a worker does.
fn wait(descriptor: BorrowedFd<'_>, events: i16) {
    let mut entry = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one entry, borrowed for the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, PATIENCE_MS) };
    assert_eq!(ready, 1, "the descriptor never became ready");
}
