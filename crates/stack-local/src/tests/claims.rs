//! What a program says of itself to the relay.

use super::*;
use crate::LocalStack;
use netchannel_abi::address::Address;
use netchannel_abi::directory::SIZE;
use netchannel_abi::link::side_flags;
use netchannel_service::core_engine::{AcceptMode, Command, StackRequest};
use netchannel_service::memory::published;
use netchannel_service::published_ports::PublishedPorts;
use netchannel_service::stack::Stack;
use netchannel_service::targets::{Choice, Targets};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const USER: u32 = 1001;

fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came");
        std::thread::yield_now();
    }
}

/// The errno of a connect that is refused.
fn refused(lane: &Lane) -> u32 {
    wait(|| (lane.peer_flags() & side_flags::RESET != 0).then_some(()));
    let (_, relay) = lane.sides().unwrap();
    relay.error.load(Ordering::Relaxed)
}

#[test]
fn a_program_has_the_ports_of_its_user() {
    let (_memory, region) = published(c"directory", SIZE).unwrap();
    let owners = PublishedPorts::new(Arc::new(region));
    owners.set(
        HERE.port,
        u64::from(netchannel_abi::directory::owner_word(USER)),
    );
    owners.set(
        HERE.port + 1,
        u64::from(netchannel_abi::directory::owner_word(0)),
    );
    let relay = LocalStack::start(owners).unwrap();
    let (client, server) = parts(Some(USER), LAYOUT);
    let client = LinkEnd::new(client, &Arc::new(Count::new(1000))).unwrap();
    let client = Arc::new(client);
    relay.handle().send(Command::Serve(server));
    let dial = |port: u16, server: Address| {
        let lane = Lane::lent(&client, client.lend().unwrap()).unwrap();
        let here = Address { port, ..HERE };
        assert!(client.announce(lane.handle(), 3, (&here, &server), false));
        lane
    };
    for port in [0, 443, HERE.port + 1] {
        let lane = dial(port, THERE);
        assert_eq!(
            refused(&lane),
            Errno::ADDRNOTAVAIL.raw_os_error().unsigned_abs()
        );
        lane.close(false);
    }
    // One that means another address than the listener's takes nobody with it.
    let astray = dial(HERE.port, Address { port: 81, ..THERE });
    let right = dial(HERE.port, THERE);
    let asked = || {
        wait(|| {
            relay
                .take_requests()
                .into_iter()
                .find_map(|request| match request {
                    StackRequest::Link(3, meant) => Some(meant.port),
                    _ => None,
                })
        })
    };
    assert_eq!(asked(), 81);
    relay.handle().send(Command::Link(
        3,
        Err(netchannel_service::core_engine::WRONG_ADDRESS),
    ));
    assert_eq!(
        refused(&astray),
        Errno::CONNREFUSED.raw_os_error().unsigned_abs()
    );
    astray.close(false);
    assert_eq!(asked(), THERE.port);
    relay.handle().send(Command::Link(3, Err(Errno::NOBUFS)));
    assert_eq!(refused(&right), Errno::NOBUFS.raw_os_error().unsigned_abs());
    right.close(false);
}

#[test]
fn a_link_of_one_of_several_processes_is_claimed_also_when_one_is_left() {
    let (former, later) = (link(), link());
    let find = |key| match key {
        1 => Some(&former.0),
        2 => Some(&later.0),
        _ => None,
    };
    let of = |shared| AcceptMode {
        shared,
        ..AcceptMode::default()
    };
    let mut targets = Targets::default();
    targets.add(3, 1, of(false));
    assert_eq!(targets.choose(3, find), Choice::Link(1, false));
    targets.set_mode(3, of(true));
    targets.set_mode(3, of(false));
    // It may be of the process that is gone.
    assert_eq!(targets.choose(3, find), Choice::RequestLink);
    former.1.listen_for_jobs();
    assert_eq!(targets.choose(3, find), Choice::Link(1, true));
    targets.answered(3);
    targets.add(3, 2, of(false));
    assert_eq!(targets.choose(3, find), Choice::Link(2, false));
}
