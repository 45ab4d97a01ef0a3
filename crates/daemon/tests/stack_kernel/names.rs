//! Name service over datagrams: the pair that a program gets, and where its questions go.

use super::contract::{served, tenant, wait};
use crate::support::{Client, Served};
use netchannel_abi::address::Address;
use netchannel_abi::message::{MOST_QUESTION, Operation};
use netchannel_configuration::Tenant;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A question, as much of it as anybody on the way reads.
const QUESTION: [u8; 17] = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 53];

fn resolver() -> UdpSocket {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let patience = Some(Duration::from_secs(20));
    server.set_read_timeout(patience).unwrap();
    server
}

/// A program of a tenant whose operator names that resolver.
fn asking(resolver: Option<&UdpSocket>) -> (Served, Client, OwnedFd) {
    let resolver = resolver.map(|server| server.local_addr().unwrap());
    let served = served(
        Tenant {
            resolver,
            ..tenant(None)
        },
        false,
    );
    let mut client = Client::attached(&served);
    let end = pair(&mut client);
    (served, client, end)
}

/// The program's end of a pair; before the stack has come, there is none.
fn pair(client: &mut Client) -> OwnedFd {
    wait(|| {
        let (answer, mut descriptors) = client.ask(Operation::Names, &[], &[]).unwrap();
        (answer.status == 0).then(|| descriptors.pop().unwrap())
    })
}

fn packet(to: &Address, question: &[u8]) -> Vec<u8> {
    let words = to.to_words().map(u64::to_ne_bytes);
    [&words.concat()[..], question].concat()
}

fn send(end: &OwnedFd, packet: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(end, packet, SendFlags::NOSIGNAL)
}

fn receive(end: &OwnedFd) -> Vec<u8> {
    let mut room = [0; 1 << 16];
    wait(|| {
        let got = rustix::net::recv(end, &mut room, RecvFlags::DONTWAIT);
        got.ok().map(|(length, _)| room[..length].to_vec())
    })
}

#[test]
fn questions_go_to_the_operators_resolver_and_answers_come_from_whom_was_asked() {
    let server = resolver();
    let (_served, _client, end) = asking(Some(&server));
    for last in 1..9 {
        // More servers than are kept at a time.
        let asked = Address::v4([192, 0, 2, last], 53);
        send(&end, &packet(&asked, &QUESTION)).unwrap();
        let mut room = [0; 512];
        let (length, from) = server.recv_from(&mut room).unwrap();
        assert_eq!(room[..length], QUESTION);
        server.send_to(&[last; 4000], from).unwrap();
        assert_eq!(receive(&end), packet(&asked, &[last; 4000]));
    }
}

#[test]
fn what_leads_nowhere_is_refused_and_what_is_no_question_is_lost() {
    let server = resolver();
    let (_served, _client, end) = asking(None);
    let asked = Address::v4(SERVER, 53);
    send(&end, &packet(&asked, &QUESTION)).unwrap();
    let mut refused = QUESTION;
    refused[2] |= 0x80;
    refused[3] = 5;
    assert_eq!(receive(&end), packet(&asked, &refused));
    // The tenant reaches loopback, but no port there except for that of names.
    let port = server.local_addr().unwrap().port();
    let long = vec![0; MOST_QUESTION + 1];
    for lost in [
        packet(&Address::v4([127, 0, 0, 1], port), &QUESTION),
        packet(&Address::default(), &QUESTION),
        packet(&asked, &long),
        packet(&asked, &[]),
        vec![1],
    ] {
        send(&end, &lost).unwrap();
    }
    // Of an address of its own the tenant has nobody.
    let own = Address::v4([10, 88, 0, 2], 53);
    send(&end, &packet(&own, &QUESTION)).unwrap();
    assert_eq!(receive(&end), packet(&own, &refused));
    server.set_nonblocking(true).unwrap();
    assert!(server.recv(&mut [0]).is_err());
}

#[test]
fn a_tenant_has_so_many_and_they_go_with_their_programs() {
    let server = resolver();
    let (_served, mut client, first) = asking(Some(&server));
    let asked = Address::v4(SERVER, 53);
    let answers = |end: &OwnedFd| {
        let mut room = [0; 512];
        send(end, &packet(&asked, &QUESTION)).is_ok_and(|_| {
            // The end of one for which there was no room is closed.
            let ready =
                || rustix::net::recv(end, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK);
            let (_, from) = server.recv_from(&mut room).unwrap();
            server.send_to(b"answer", from).unwrap();
            wait(|| ready().ok());
            receive(end).ends_with(b"answer")
        })
    };
    assert!(answers(&first));
    let mut ends = Vec::new();
    let closed = loop {
        let end = pair(&mut client);
        let start = std::time::Instant::now();
        let mut is_closed = false;
        // It is closed a moment after it came.
        while !is_closed && ends.len() >= 255 && start.elapsed() < Duration::from_secs(20) {
            is_closed = matches!(
                rustix::net::recv(&end, &mut [0; 1], RecvFlags::DONTWAIT),
                Ok((0, _))
            );
        }
        if is_closed {
            break end;
        }
        ends.push(end);
        assert!(ends.len() < 256, "there is no bound");
    };
    assert!(send(&closed, &packet(&asked, &QUESTION)).is_err());
    assert!(answers(ends.last().unwrap()));
    ends.clear();
    wait(|| answers_now(&mut client, &asked, &server));
    drop(client);
    assert!(answers(&first), "the pair outlives who asked for it");
}

/// Whether there is room for another one.
fn answers_now(client: &mut Client, asked: &Address, server: &UdpSocket) -> Option<()> {
    let end = pair(client);
    std::thread::sleep(Duration::from_millis(10));
    send(&end, &packet(asked, &QUESTION)).ok()?;
    let mut room = [0; 512];
    server.recv_from(&mut room).ok().map(drop)
}
