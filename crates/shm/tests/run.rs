//! Runs and rooms: refused ranges, and bytes that go between regions and sockets.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use netchannel_shm::run::{MOST_VECTORS, gather_write, scatter_read, transfer};
use netchannel_shm::{Region, Room, Run, Span};

const SIZE: usize = 4096;

fn region() -> Region {
    let (descriptor, region) = Region::create(c"run-test", SIZE).unwrap();
    // SAFETY: the descriptor is ours, and the mapping does not need it.
    unsafe { libc::close(descriptor) };
    region
}

const fn span(offset: usize, length: usize) -> Span {
    Span { offset, length }
}

fn fill(region: &Region, offset: usize, bytes: &[u8]) {
    let room = region.room(span(offset, bytes.len())).unwrap();
    assert_eq!(transfer(&[Run::from(bytes)], &[room]), bytes.len());
}

#[test]
fn what_lies_outside_is_refused() {
    let region = region();
    for (offset, length) in [
        (SIZE + 1, 0),
        (SIZE, 1),
        (0, SIZE + 1),
        (usize::MAX, 2),
        (1, SIZE),
    ] {
        assert!(region.run(span(offset, length)).is_none());
        assert!(region.room(span(offset, length)).is_none());
    }
    assert_eq!(region.run(span(0, SIZE)).unwrap().length(), SIZE);
    assert_eq!(region.room(span(SIZE, 0)).unwrap().length(), 0);
}

#[test]
fn transfers_match_pieces_of_any_sizes() {
    let (one, other) = (region(), region());
    let bytes: Vec<u8> = (0..=249).cycle().take(1000).collect();
    fill(&one, 10, &bytes);
    let runs = [span(10, 300), span(310, 0), span(310, 700)].map(|span| one.run(span).unwrap());
    let rooms = [span(4000, 96), span(0, 600)].map(|span| other.room(span).unwrap());
    assert_eq!(transfer(&runs, &rooms), 696);
    let mut got = [0; 696];
    let back = [span(4000, 96), span(0, 600)].map(|span| other.run(span).unwrap());
    assert_eq!(transfer(&back, &[Room::from(&mut got[..])]), 696);
    assert_eq!(got[..], bytes[..696]);
    assert_eq!(transfer(&[Run::empty()], &rooms), 0);
    assert_eq!(transfer(&runs, &[Room::empty()]), 0);
}

#[test]
fn sockets_are_written_and_read_without_a_copy_between() {
    let (mut one, mut other) = UnixStream::pair().unwrap();
    let region = region();
    fill(&region, 4000, b"hello ");
    fill(&region, 0, b"world");
    let runs = [
        Run::from(&b"> "[..]),
        region.run(span(4000, 6)).unwrap(),
        region.run(span(0, 5)).unwrap(),
    ];
    assert_eq!(gather_write(one.as_raw_fd(), &runs), Ok(13));
    let mut got = [0; 13];
    other.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"> hello world");

    one.write_all(b"abcdefgh").unwrap();
    let mut head = [0; 2];
    let rooms = [
        Room::from(&mut head[..]),
        region.room(span(4094, 2)).unwrap(),
        region.room(span(0, 100)).unwrap(),
    ];
    assert_eq!(scatter_read(other.as_raw_fd(), &rooms), Ok(8));
    assert_eq!(&head, b"ab");
    let mut tail = [0; 6];
    let parts = [span(4094, 2), span(0, 4)].map(|span| region.run(span).unwrap());
    assert_eq!(transfer(&parts, &[Room::from(&mut tail[..])]), 6);
    assert_eq!(&tail, b"cdefgh");

    assert_eq!(
        scatter_read(other.as_raw_fd(), &[region.room(span(0, 1)).unwrap()]),
        Err(libc::EAGAIN)
    );
    drop(one);
    assert_eq!(
        scatter_read(other.as_raw_fd(), &[region.room(span(0, 1)).unwrap()]),
        Ok(0)
    );
    assert_eq!(gather_write(other.as_raw_fd(), &runs), Err(libc::EPIPE));
}

#[test]
fn more_pieces_than_the_kernel_takes_go_in_part() {
    let (one, _other) = UnixStream::pair().unwrap();
    let region = region();
    let runs = vec![region.run(span(0, 1)).unwrap(); MOST_VECTORS + 10];
    assert_eq!(gather_write(one.as_raw_fd(), &runs), Ok(MOST_VECTORS));
}
