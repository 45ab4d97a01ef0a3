//! Two tenants of one module that may meet, and what a tenant may not.

use super::contract::{PATIENCE, Program, accept, carry, has, session, wait};
use crate::support::{Served, listen_words, options};
use netchannel_abi::address::Address;
use netchannel_abi::class;
use netchannel_abi::link::side_flags;
use netchannel_abi::message::Operation;
use netchannel_configuration::{Met, Tenant};
use netchannel_daemon::Daemon;
use netchannel_scheduler::Rate;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::played::{pattern, read, take, write};
use netchannel_stack_process::control::Control;
use netchannel_stack_process::counters::Counts;
use netchannel_stack_process::session::SessionStack;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const WEB: [u8; 4] = [10, 88, 0, 2];
const DB: [u8; 4] = [10, 88, 0, 3];

fn tenant(name: &str, own: [u8; 4], met: Option<(&str, [u8; 4])>) -> Tenant {
    let met = met.map(|(name, address)| Met {
        name: name.to_owned(),
        addresses: vec![IpAddr::from(address)],
    });
    Tenant {
        meets: met.into_iter().collect(),
        connections: 100,
        ..Tenant::new(name, vec![own.into()])
    }
}

fn web() -> Tenant {
    tenant("web", WEB, Some(("db", DB)))
}

fn db() -> Tenant {
    tenant("db", DB, Some(("web", WEB)))
}

/// A tenant that is served, and a program of it.
struct Side {
    program: Program,
    control: Control,
    served: Served,
}

impl Side {
    fn new(tenant: Tenant, socket: OwnedFd) -> Self {
        let (sender, receiver) = mpsc::channel();
        let served = Served::bound(move |path| {
            let tenant = Arc::new(tenant);
            let stack = SessionStack::new(Arc::clone(&tenant)).unwrap();
            let control = stack.control();
            let bind = Some(netchannel_stack_kernel::BIND);
            assert_eq!(control.configure(&tenant, bind), Vec::new());
            control.use_session(session("one", socket)).unwrap();
            sender.send(control).unwrap();
            Daemon::bind_with(options(path), |_| vec![Box::new(stack)])
        });
        Self {
            program: Program::new(&served),
            control: receiver.recv().unwrap(),
            served,
        }
    }

    fn counts(&self) -> Counts {
        self.control.counts()
    }
}

/// Both, served by one module.
fn sides(web: Tenant, db: Tenant) -> [Side; 2] {
    let mut sockets = super::PLACE.sessions(2);
    let socket = sockets.pop().unwrap();
    [
        Side::new(web, sockets.pop().unwrap()),
        Side::new(db, socket),
    ]
}

/// A port at which a program listens, and where it is offered links.
struct Listening {
    _socket: TcpListener,
    accepts: OwnedFd,
    link: Option<Arc<LinkEnd>>,
    at: Address,
}

impl Side {
    fn listen(&mut self, own: [u8; 4]) -> Listening {
        let socket = TcpListener::bind("0.0.0.0:0").unwrap();
        let (_, accepts) = self.program.client.announce(&socket);
        let at = Address::v4(own, socket.local_addr().unwrap().port());
        Listening {
            _socket: socket,
            accepts,
            link: None,
            at,
        }
    }

    /// What becomes of a connect: the lane, or the error.
    fn connect(&mut self, to: Address) -> Result<Lane, Errno> {
        let lane = self.program.dial(to, class::Hints::default());
        let flags = wait(|| {
            let flags = lane.peer_flags() & (side_flags::ESTABLISHED | side_flags::RESET);
            (flags != 0).then_some(flags)
        });
        if flags & side_flags::RESET == 0 {
            return Ok(lane);
        }
        let (_, daemon) = lane.sides().unwrap();
        let error = daemon.error.load(Relaxed).cast_signed();
        Err(Errno::from_raw_os_error(error))
    }

    /// The same once the module knows of the other tenant, and of its listener.
    fn connect_in_time(&mut self, to: Address) -> Lane {
        wait(|| match self.connect(to) {
            Err(Errno::HOSTUNREACH | Errno::CONNREFUSED) => None,
            other => Some(other.unwrap()),
        })
    }
}

impl Listening {
    /// The next connection, and where it says that it comes from.
    fn accept(&mut self) -> (Lane, Address) {
        let link = self.link.get_or_insert_with(|| {
            poll(&mut [PollFd::new(&self.accepts, PollFlags::IN)], None).unwrap();
            accept(&self.accepts)
        });
        let opened = wait(|| {
            link.read_channel();
            take(link).pop()
        });
        assert_eq!(opened.server, self.at);
        let lane = Lane::accepted(link, opened.loan);
        lane.set_flags(side_flags::ACCEPTED);
        (lane, opened.client)
    }
}

/// Two tenants with a connection from one to the other.
fn met(web: Tenant, db: Tenant) -> ([Side; 2], Listening, [Lane; 2]) {
    let mut sides = sides(web, db);
    let mut listening = sides[1].listen(DB);
    let client = sides[0].connect_in_time(listening.at);
    let (server, _) = listening.accept();
    (sides, listening, [client, server])
}

#[test]
fn bytes_go_both_ways_and_each_sees_the_others_true_address() {
    let mut sides = sides(web(), db());
    let mut listening = sides[1].listen(DB);
    let mut client = sides[0].connect_in_time(listening.at);
    let (mut server, from) = listening.accept();
    // The port is the program's, whatever address it claims.
    assert_eq!(from, Address::v4(WEB, 40_000));
    carry(&mut client, &mut server, &pattern(2_000_000, 1));
    carry(&mut server, &mut client, &pattern(1_000_000, 2));
    client.set_flags(side_flags::FIN);
    has(&server, side_flags::FIN);
    carry(&mut server, &mut client, b"last words");
    let [one, other] = sides.each_ref().map(Side::counts);
    assert_eq!((one.open, one.dialed, one.accepted), (1, one.dialed, 0));
    assert_eq!((other.open, other.dialed, other.accepted), (1, 0, 1));
    assert_eq!((one.bytes_out, one.bytes_in), (2_000_000, 1_000_010));
    assert_eq!((other.bytes_out, other.bytes_in), (1_000_010, 2_000_000));
    server.close(false);
    has(&client, side_flags::FIN);
    client.close(false);
    wait(|| (sides[0].counts().open + sides[1].counts().open == 0).then_some(()));
    // The link is used again.
    let again = sides[0].connect(listening.at).unwrap();
    listening.accept();
    drop(again);
}

#[test]
fn a_listener_of_the_own_tenant_that_has_no_room_is_waited_for() {
    let mut sides = sides(tenant("web", WEB, None), db());
    let side = &mut sides[0];
    let mut listening = side.listen(WEB);
    let loopback = Address::v4([127, 0, 0, 1], listening.at.port);
    let wanted = listening.at;
    for (to, from) in [(wanted, WEB), (loopback, [127, 0, 0, 1])] {
        let mut client = side.connect_in_time(to);
        listening.at = to;
        let (mut server, seen) = listening.accept();
        assert_eq!(seen, Address::v4(from, 40_000));
        carry(&mut client, &mut server, &pattern(300_000, 1));
        carry(&mut server, &mut client, &pattern(300_000, 2));
        client.close(false);
        server.close(false);
    }
    // It counts as one connection, and as nothing that comes from elsewhere.
    wait(|| (side.counts().open == 0).then_some(()));
    let counts = side.counts();
    assert_eq!(
        (counts.accepted, counts.bytes_in, counts.bytes_out),
        (0, 0, 0)
    );
    listening.at = wanted;
    let mut words = listen_words(&listening._socket);
    words[4] = 2;
    let again = side.program.client.ask(Operation::Listen, &words, &[]);
    assert_eq!(again.unwrap().0.status, 0);
    let mut waiting = Vec::new();
    // More than the backlog, while the program accepts none: the others wait.
    let is_connected = |lane: &Lane| lane.peer_flags() & side_flags::ESTABLISHED != 0;
    while waiting.iter().all(is_connected) {
        waiting.push(side.program.dial(wanted, class::Hints::default()));
        let lane = waiting.last().unwrap();
        let start = Instant::now();
        while !is_connected(lane) && start.elapsed() < Duration::from_millis(300) {
            assert_eq!(lane.peer_flags() & side_flags::RESET, 0);
            std::thread::yield_now();
        }
        assert!(waiting.len() < 20);
    }
    let link = listening.link.as_ref().unwrap();
    let mut accepted = Vec::new();
    wait(|| {
        link.read_channel();
        for opened in take(link) {
            let lane = Lane::accepted(link, opened.loan);
            lane.set_flags(side_flags::ACCEPTED);
            accepted.push(lane);
        }
        (accepted.len() == waiting.len()).then_some(())
    });
    waiting
        .iter()
        .for_each(|lane| has(lane, side_flags::ESTABLISHED));
    drop(accepted);
    // Nobody listens there.
    let nobody = Address {
        port: wanted.port ^ 1,
        ..wanted
    };
    assert_eq!(side.connect(nobody).unwrap_err(), Errno::CONNREFUSED);
}

#[test]
fn only_who_is_named_by_both_tables_is_met() {
    let strangers = || tenant("web", WEB, None);
    for (one, other, wanted) in [
        (strangers(), db(), Errno::ACCESS),
        (strangers(), tenant("db", DB, None), Errno::ACCESS),
        // One table alone does not open the other.
        (web(), tenant("db", DB, None), Errno::HOSTUNREACH),
        (
            web(),
            tenant("db", DB, Some(("dc", WEB))),
            Errno::HOSTUNREACH,
        ),
        (
            web(),
            tenant("dc", DB, Some(("web", WEB))),
            Errno::HOSTUNREACH,
        ),
    ] {
        let mut sides = sides(one, other);
        let listening = sides[1].listen(DB);
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..2 {
            let refused = sides[0].connect(listening.at).unwrap_err();
            assert_eq!(refused, wanted);
        }
        let counts = sides[1].counts();
        assert_eq!((counts.open, counts.accepted, counts.bytes_in), (0, 0, 0));
    }
}

#[test]
fn what_a_program_says_opens_nothing_else() {
    let mut sides = sides(web(), db());
    let listening = sides[1].listen(DB);
    drop(sides[0].connect_in_time(listening.at));
    let other_port = Address {
        port: listening.at.port ^ 1,
        ..listening.at
    };
    assert_eq!(
        sides[0].connect(other_port).unwrap_err(),
        Errno::CONNREFUSED
    );
    let loopback = Address::v4([127, 0, 0, 1], listening.at.port);
    assert_eq!(sides[0].connect(loopback).unwrap_err(), Errno::ACCESS);
    // Numbers of listeners that are not its gateway: those of the other tenant, too.
    let program = &mut sides[0].program;
    let gateway = program.gateway();
    let link = program.link(gateway, listening.at);
    let announce = |listener, port| {
        let lane = Lane::lent(&link, link.lend().unwrap()).unwrap();
        let from = Address::v4([127, 0, 0, 1], port);
        assert!(link.announce(lane.handle(), listener, (&from, &listening.at), false));
        has(&lane, side_flags::RESET | side_flags::ESTABLISHED);
        let (_, daemon) = lane.sides().unwrap();
        let error = daemon.error.load(Relaxed).cast_signed();
        lane.close(true);
        error
    };
    for listener in (0..40).filter(|one| *one != gateway) {
        let refused = Errno::CONNREFUSED.raw_os_error();
        assert_eq!(announce(listener, 40_000), refused, "{listener}");
    }
    assert_eq!(announce(gateway, 0), Errno::ADDRNOTAVAIL.raw_os_error());
    assert_eq!(announce(gateway, 40_000), 0);
}

#[test]
fn a_program_that_is_killed_ends_the_connection_as_tcp_does() {
    for unread in [false, true] {
        let (sides, listening, [mut client, server]) = met(web(), db());
        if unread {
            write(&mut client, b"nobody reads this");
            wait(|| (sides[1].counts().bytes_in > 0).then_some(()));
        }
        let [_one, other] = sides;
        drop((server, listening, other.program));
        has(&client, side_flags::FIN | side_flags::RESET);
        let reset = client.peer_flags() & side_flags::RESET != 0;
        assert_eq!(reset, unread);
    }
}

#[test]
fn a_tenant_that_is_served_no_more_resets_what_others_have_with_it() {
    let ([mut one, mut other], listening, [client, server]) = met(web(), db());
    other.served.stop();
    has(&client, side_flags::RESET);
    drop((server, client));
    wait(|| (one.counts().open == 0).then_some(()));
    wait(|| (one.connect(listening.at).err() == Some(Errno::HOSTUNREACH)).then_some(()));
}

#[test]
fn the_caps_of_both_hold() {
    const BYTES: usize = 1 << 20;
    // What the burst does not hold takes so long, and the other way is not capped.
    let least = Duration::from_millis(450);
    let rate = Some(Rate::new(2 << 20, 64 << 10));
    for direction in 0..2 {
        for capped in 0..2 {
            let (mut one, mut other) = (web(), db());
            match (direction, capped) {
                (0, 0) => one.rate_out = rate,
                (0, _) => other.rate_in = rate,
                (_, 0) => one.rate_in = rate,
                _ => other.rate_out = rate,
            }
            let (_sides, _listening, [mut client, mut server]) = met(one, other);
            let (from, to) = match direction {
                0 => (&mut client, &mut server),
                _ => (&mut server, &mut client),
            };
            let start = Instant::now();
            carry(to, from, &pattern(BYTES, 2));
            let freely = start.elapsed();
            let start = Instant::now();
            carry(from, to, &pattern(BYTES, 1));
            let took = start.elapsed();
            assert!(took > least && took < PATIENCE, "{took:?}");
            assert!(freely < took, "{freely:?} against {took:?}");
        }
    }
}

#[test]
fn a_tenant_has_no_more_connections_than_it_may() {
    let few = Tenant {
        connections: 1,
        ..web()
    };
    let (mut sides, listening, _lanes) = met(few, db());
    let refused = sides[0].connect(listening.at).unwrap_err();
    assert_eq!(
        (refused, sides[0].counts().over_limit),
        (Errno::ADDRNOTAVAIL, 1)
    );
    // At a server that has as many as it may, clients wait.
    let few = Tenant {
        connections: 1,
        ..db()
    };
    let (mut sides, mut listening, [client, server]) = met(web(), few);
    let waits = sides[0].program.dial(listening.at, class::Hints::default());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        waits.peer_flags() & (side_flags::ESTABLISHED | side_flags::RESET),
        0
    );
    assert_eq!(sides[1].counts().open, 1);
    client.close(false);
    server.close(false);
    has(&waits, side_flags::ESTABLISHED);
    let _accepted = listening.accept();
    assert_eq!(sides[1].counts().open, 1);
}

#[test]
fn caps_that_are_lifted_let_go_what_they_held() {
    let capped = Tenant {
        rate_out: Some(Rate::new(1000, 1000)),
        ..web()
    };
    let (sides, _listening, [mut client, mut server]) = met(capped, db());
    let bytes = pattern(100_000, 1);
    let mut sent = write(&mut client, &bytes);
    std::thread::sleep(Duration::from_millis(50));
    assert!(read(&mut server).len() < 5000);
    sides[0].control.configure(&Arc::new(web()), None);
    let start = Instant::now();
    wait(|| {
        sent += write(&mut client, &bytes[sent..]);
        read(&mut server);
        (sides[1].counts().bytes_in == 100_000).then_some(())
    });
    assert!(start.elapsed() < Duration::from_secs(5));
}
