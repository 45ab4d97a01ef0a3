//! A tenant whose table leads connections over channels: the channels are played.

use super::contract::{PATIENCE, Program, carry, has, session, wait};
use crate::support::{Served, listening, options};
use netchannel_abi::address::Address;
use netchannel_abi::class;
use netchannel_abi::link::side_flags;
use netchannel_configuration::{Destination, Tenant, Way};
use netchannel_daemon::Daemon;
use netchannel_scheduler::Rate;
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_service::played::{pattern, place, read, take, write};
use netchannel_service::stack::{self, Crossing, Origin};
use netchannel_service::urgent::Row;
use netchannel_stack_process::control::Control;
use netchannel_stack_process::counters::Counts;
use netchannel_stack_process::session::SessionStack;
use rustix::io::Errno;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

const OWN: [u8; 4] = [10, 88, 0, 2];
/// On the other host.
const THERE: Address = Address::v4([10, 0, 0, 2], 5432);

fn destination(prefix: &str, way: Way) -> Destination {
    Destination {
        prefix: prefix.parse().unwrap(),
        way,
        peer: Some("beta".to_owned()),
    }
}

fn tenant() -> Tenant {
    Tenant {
        reach: vec![
            "10.0.0.0/16".parse().unwrap(),
            "127.0.0.0/8".parse().unwrap(),
        ],
        connections: 100,
        destinations: vec![
            destination("10.0.7.0/24", Way::None),
            destination("10.0.0.0/8", Way::Channels),
        ],
        ..Tenant::new("web", vec![OWN.into()])
    }
}

/// As [`tenant`], where all that it reaches is over channels. On loopback kernel TCP may take over.
fn all_over_channels() -> Tenant {
    let mut tenant = tenant();
    let prefix = netchannel_configuration::Prefix::of_any([127, 0, 0, 0].into(), 8).unwrap();
    tenant.destinations.push(Destination {
        prefix,
        ..destination("10.0.0.0/8", Way::Channels)
    });
    tenant
}

/// Links that came for the channels.
#[derive(Debug)]
struct Entrance(Mutex<mpsc::Sender<(Parts, Arc<Origin>)>>);

impl Crossing for Entrance {
    fn serve(&self, parts: Parts, origin: Arc<Origin>) {
        self.0.lock().unwrap().send((parts, origin)).unwrap();
    }

    fn publish(&self, _: &str, _: Vec<SocketAddr>, _: Arc<dyn stack::Entrance>) {}
}

/// A program of the tenant, and the channels.
struct World {
    program: Program,
    control: Control,
    links: mpsc::Receiver<(Parts, Arc<Origin>)>,
    link: Option<Arc<LinkEnd>>,
    _served: Served,
}

impl World {
    fn new(tenant: Tenant) -> Self {
        let (entrance, links) = mpsc::channel();
        Self::with(tenant, links, Some(Arc::new(Entrance(entrance.into()))))
    }

    fn with(
        tenant: Tenant,
        links: mpsc::Receiver<(Parts, Arc<Origin>)>,
        crossing: Option<Arc<dyn Crossing>>,
    ) -> Self {
        let (sender, receiver) = mpsc::channel();
        let served = Served::bound(move |path| {
            let tenant = Arc::new(tenant);
            let mut stack = SessionStack::new(Arc::clone(&tenant)).unwrap();
            if let Some(crossing) = crossing {
                stack = stack.with_crossing(crossing, 100);
            }
            let control = stack.control();
            assert_eq!(control.configure(&tenant, None), Vec::new());
            let own = session("one", super::PLACE.session());
            control.use_session(own).unwrap();
            sender.send(control).unwrap();
            Daemon::bind_with(options(path), |_| vec![Box::new(stack)])
        });
        Self {
            program: Program::new(&served),
            control: receiver.recv().unwrap(),
            links,
            link: None,
            _served: served,
        }
    }

    fn dial(&mut self, to: Address) -> Lane {
        self.program.dial(to, class::Hints::default())
    }

    /// The error of a connect; none where it is connected.
    fn outcome(lane: &Lane) -> Option<Errno> {
        has(lane, side_flags::ESTABLISHED | side_flags::RESET);
        let error = lane.peer_error().cast_signed();
        (lane.peer_flags() & side_flags::ESTABLISHED == 0).then(|| Errno::from_raw_os_error(error))
    }

    /// The next connection that comes to the channels: its lane, and where it says that it comes from.
    fn cross(&mut self) -> (Lane, Address) {
        wait(|| {
            if let Ok((parts, origin)) = self.links.try_recv() {
                let own = [std::net::IpAddr::from(OWN)];
                assert_eq!((&*origin.tenant, &*origin.addresses), ("web", &own[..]));
                let end = LinkEnd::new(parts, &origin.count).unwrap();
                self.link = Some(Arc::new(end));
            }
            let link = Arc::clone(self.link.as_ref()?);
            link.read_channel();
            let opened = take(&link).pop()?;
            let lane = Lane::accepted(&link, opened.loan).of_daemon();
            Some((lane, opened.client))
        })
    }

    fn refuse(&mut self, errno: Errno) {
        let (far, _) = self.cross();
        far.refuse(errno.raw_os_error().unsigned_abs());
    }

    /// A connection, and the channels' end of it.
    fn pair(&mut self) -> [Lane; 2] {
        let near = self.dial(THERE);
        let (far, _) = self.cross();
        far.set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
        assert_eq!(Self::outcome(&near), None);
        [near, far]
    }

    fn counts(&self) -> Counts {
        self.control.counts()
    }
}

/// A server of the kernel's at a port of loopback.
fn kernel() -> (TcpListener, Address) {
    let server = listening();
    let port = server.local_addr().unwrap().port();
    (server, Address::v4([127, 0, 0, 1], port))
}

/// The connection came by kernel TCP, and carries bytes.
fn is_by_kernel(mut near: Lane, server: &TcpListener) {
    assert_eq!(World::outcome(&near), None);
    let flags = near.peer_flags();
    let shown = side_flags::OVER_CHANNELS | side_flags::ANSWERS;
    assert_eq!(flags & shown, side_flags::ANSWERS);
    let (mut stream, _) = server.accept().unwrap();
    write(&mut near, b"by the kernel");
    let mut got = [0; 13];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"by the kernel");
    stream.write_all(b"yes").unwrap();
    let mut answer = Vec::new();
    wait(|| {
        answer.extend(read(&mut near));
        (answer == b"yes").then_some(())
    });
    near.close(false);
}

#[test]
fn bytes_go_over_channels_and_the_tenants_true_address_is_told() {
    let mut world = World::new(tenant());
    let hints = class::Hints {
        priority: 6,
        ..class::Hints::default()
    };
    let mut near = world.program.dial(THERE, hints);
    let (mut far, client) = world.cross();
    // The port is the program's, whatever address it claims.
    assert_eq!(client, Address::v4(OWN, 40_000));
    assert_eq!(far.hints_word(), hints.to_word());
    // Nobody is connected before the other host says so.
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(near.peer_flags() & side_flags::ESTABLISHED, 0);
    far.set_flags(side_flags::ESTABLISHED | side_flags::ACCEPTED);
    assert_eq!(World::outcome(&near), None);
    assert_ne!(near.peer_flags() & side_flags::OVER_CHANNELS, 0);
    carry(&mut near, &mut far, &pattern(2_000_000, 1));
    carry(&mut far, &mut near, &pattern(1_000_000, 2));
    near.set_flags(side_flags::FIN);
    has(&far, side_flags::FIN);
    carry(&mut far, &mut near, b"last words");
    let counts = world.counts();
    assert_eq!((counts.open, counts.open_over_channels), (1, 1));
    assert_eq!((counts.dialed, counts.dialed_over_channels), (1, 1));
    assert_eq!((counts.bytes_out, counts.bytes_in), (2_000_000, 1_000_010));
    assert_eq!(
        (
            counts.bytes_out_over_channels,
            counts.bytes_in_over_channels
        ),
        (2_000_000, 1_000_010)
    );
    far.close(false);
    has(&near, side_flags::FIN);
    near.close(false);
    wait(|| (world.counts().open == 0).then_some(()));
    assert_eq!(
        (world.counts().open_over_channels, world.counts().fell_back),
        (0, 0)
    );
    // The link is used again.
    drop(world.pair());
    assert!(world.links.try_recv().is_err());
}

#[test]
fn urgent_bytes_are_told_with_their_row_and_the_stack_loses_none() {
    let mut world = World::new(tenant());
    let [mut near, mut far] = world.pair();
    // Of three that were sent one after the other the last counts; the reader decides what becomes of the others.
    let at = near.published();
    assert_eq!(place(&mut near, at, b"ab123c"), 6);
    let (own, _) = near.sides().unwrap();
    own.row.store(2, Relaxed);
    own.urgent.store(5, Relaxed);
    near.publish_with_mark(at + 6, Row::default()).unwrap();
    let mut got = Vec::new();
    wait(|| {
        got.extend(read(&mut far));
        (got.len() == 6).then_some(())
    });
    assert_eq!(
        (&got[..], far.urgent()),
        (&b"ab123c"[..], Row { first: 2, end: 5 })
    );
    let (_, stack) = far.sides().unwrap();
    assert_eq!(stack.passed.load(Relaxed), 0);
}

#[test]
fn what_reach_does_not_name_is_denied_before_a_way_is_chosen() {
    let mut world = World::new(tenant());
    // Within the prefix of the channels, and not within reach.
    let beyond = world.dial(Address::v4([10, 1, 0, 2], 80));
    assert_eq!(World::outcome(&beyond), Some(Errno::ACCESS));
    let nowhere = world.dial(Address::v4([10, 0, 7, 1], 80));
    assert_eq!(World::outcome(&nowhere), Some(Errno::NETUNREACH));
    // The number that stands for the channels is no listener of a program's.
    let gateway = world.program.gateway();
    let link = world.program.link(gateway, THERE);
    for listener in [u32::MAX, 0, gateway + 1] {
        let lane = Lane::lent(&link, link.lend().unwrap()).unwrap();
        let from = Address::v4(OWN, 40_000);
        assert!(link.announce(lane.handle(), listener, (&from, &THERE), false));
        assert_eq!(World::outcome(&lane), Some(Errno::CONNREFUSED));
        lane.close(true);
    }
    assert_eq!(world.counts().denied, 2);
    assert!(world.links.try_recv().is_err());
    // A port of nobody's would be one that the program chooses to be.
    let lane = Lane::lent(&link, link.lend().unwrap()).unwrap();
    let from = Address::v4(OWN, 0);
    assert!(link.announce(lane.handle(), gateway, (&from, &THERE), false));
    assert_eq!(World::outcome(&lane), Some(Errno::ADDRNOTAVAIL));
}

#[test]
fn where_channels_do_not_lead_kernel_tcp_takes_over() {
    let (server, at) = kernel();
    // The other host does not know the listener, or does not permit the tenant, or has no room.
    let mut world = World::new(all_over_channels());
    for errno in [Errno::CONNREFUSED, Errno::ADDRNOTAVAIL, Errno::NOBUFS] {
        let near = world.dial(at);
        world.refuse(errno);
        is_by_kernel(near, &server);
    }
    let counts = world.counts();
    assert_eq!((counts.dialed, counts.fell_back), (3, 3));
    assert_eq!(
        (counts.dialed_over_channels, counts.open_over_channels),
        (0, 0)
    );
    assert_eq!(counts.bytes_out, 3 * 13);
    // Nobody is there either.
    drop(server);
    let near = world.dial(at);
    world.refuse(Errno::CONNREFUSED);
    assert_eq!(World::outcome(&near), Some(Errno::CONNREFUSED));
    // What has taken its time takes no more of it.
    let near = world.dial(at);
    world.refuse(Errno::TIMEDOUT);
    assert_eq!(World::outcome(&near), Some(Errno::TIMEDOUT));
    wait(|| (world.counts().open == 0).then_some(()));
    // A daemon without channels.
    let (server, at) = kernel();
    let (_entrance, links) = mpsc::channel();
    let mut world = World::with(all_over_channels(), links, None);
    let near = world.dial(at);
    is_by_kernel(near, &server);
    assert_eq!(world.counts().fell_back, 1);
}

#[test]
fn channels_that_end_reset_what_goes_over_them_and_the_next_have_another_link() {
    let (server, at) = kernel();
    let mut world = World::new(all_over_channels());
    let [near, far] = world.pair();
    let waits = world.dial(at);
    let (asked, _) = world.cross();
    world.link.take().unwrap().fail();
    drop((far, asked));
    has(&near, side_flags::RESET);
    is_by_kernel(waits, &server);
    let [mut near, mut far] = world.pair();
    carry(&mut near, &mut far, b"again");
}

#[test]
fn who_gives_up_leaves_nothing() {
    let mut world = World::new(tenant());
    let near = world.dial(THERE);
    let (far, _) = world.cross();
    near.close(true);
    has(&far, side_flags::RESET | side_flags::CLOSED);
    far.close(true);
    wait(|| (world.counts().open == 0).then_some(()));
    assert_eq!(world.counts().open_over_channels, 0);
    let [near, far] = world.pair();
    // A program that is killed, with bytes that it has not read.
    let mut far = far;
    write(&mut far, b"nobody reads this");
    wait(|| (world.counts().bytes_in > 0).then_some(()));
    drop(near);
    world.program = Program::new(&world._served);
    has(&far, side_flags::RESET);
}

#[test]
fn the_tenants_caps_and_connections_hold() {
    const BYTES: usize = 1 << 20;
    // What the burst does not hold takes so long, and the other way is not capped.
    let least = Duration::from_millis(450);
    let rate = Some(Rate::new(2 << 20, 64 << 10));
    for outward in [true, false] {
        let capped = Tenant {
            rate_out: rate.filter(|_| outward),
            rate_in: rate.filter(|_| !outward),
            connections: 1,
            ..tenant()
        };
        let mut world = World::new(capped);
        let [mut near, mut far] = world.pair();
        let (from, to) = match outward {
            true => (&mut near, &mut far),
            false => (&mut far, &mut near),
        };
        let start = Instant::now();
        carry(to, from, &pattern(BYTES, 2));
        let freely = start.elapsed();
        let start = Instant::now();
        carry(from, to, &pattern(BYTES, 1));
        let took = start.elapsed();
        assert!(took > least && took < PATIENCE, "{took:?}");
        assert!(freely < took, "{freely:?} against {took:?}");
        let more = world.dial(THERE);
        assert_eq!(World::outcome(&more), Some(Errno::ADDRNOTAVAIL));
        assert_eq!(world.counts().over_limit, 1);
    }
}

#[test]
fn another_table_is_for_new_connections() {
    let (server, at) = kernel();
    let mut world = World::new(all_over_channels());
    let [mut near, mut far] = world.pair();
    let plain = Tenant {
        destinations: Vec::new(),
        ..tenant()
    };
    world.control.configure(&Arc::new(plain), None);
    let by_kernel = wait(|| {
        let near = world.dial(at);
        let flags = wait(|| {
            let flags = near.peer_flags();
            let news = world.link.as_ref().is_some_and(|link| link.has_jobs());
            (flags & side_flags::ESTABLISHED != 0 || news).then_some(flags)
        });
        if flags & side_flags::ESTABLISHED == 0 {
            // The table had not come yet.
            world.refuse(Errno::TIMEDOUT);
            return None;
        }
        Some(near)
    });
    is_by_kernel(by_kernel, &server);
    carry(&mut near, &mut far, b"the former goes on");
    assert_eq!(world.counts().open_over_channels, 1);
    // And back.
    world
        .control
        .configure(&Arc::new(all_over_channels()), None);
    wait(|| {
        let near = world.dial(THERE);
        let asked = wait(|| {
            let news = world.link.as_ref().is_some_and(|link| link.has_jobs());
            let refused = near.peer_flags() & side_flags::RESET != 0;
            (news || refused).then_some(news)
        });
        asked.then_some(())
    });
}
