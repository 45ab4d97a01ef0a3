//! Clients that come in over channels at published ports of a tenant: the channels are played.

use super::contract::{Program, accept, carry, has, session, tenant, wait};
use crate::support::{Served, listening, options};
use netchannel_abi::address::Address;
use netchannel_abi::link::side_flags;
use netchannel_configuration::{Publish, Tenant};
use netchannel_daemon::Daemon;
use netchannel_service::anchor::Count;
use netchannel_service::lane::Lane;
use netchannel_service::link::{LinkEnd, Parts};
use netchannel_service::played::{LAYOUT, parts, pattern, take};
use netchannel_service::stack::{Crossing, Entrance, OF_TENANT, Origin};
use netchannel_stack_process::control::Control;
use netchannel_stack_process::session::SessionStack;
use rustix::event::{PollFd, PollFlags, poll};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};

const OWN: [u8; 4] = [10, 88, 0, 2];
/// A client on another host.
const CLIENT: Address = Address::v4([10, 0, 0, 2], 50_000);

type Told = (Vec<SocketAddr>, Arc<dyn Entrance>);

/// What the channels are told.
#[derive(Debug)]
struct Channels(Mutex<mpsc::Sender<Told>>);

impl Crossing for Channels {
    fn serve(&self, _: Parts, _: Arc<Origin>) {}

    fn publish(&self, tenant: &str, at: Vec<SocketAddr>, entrance: Arc<dyn Entrance>) {
        assert_eq!(tenant, "web");
        // The daemon may outlive the test.
        let _ = self.0.lock().unwrap().send((at, entrance));
    }
}

/// A program of the tenant that listens where clients may come in.
struct World {
    listening: TcpListener,
    program: Program,
    control: Control,
    at: SocketAddr,
    told: mpsc::Receiver<Told>,
    _served: Served,
}

impl World {
    fn new(change: impl FnOnce(&mut Tenant)) -> Self {
        let at = listening().local_addr().unwrap();
        let listening = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listening.local_addr().unwrap().port();
        let mut tenant = tenant(Some((at, port)));
        change(&mut tenant);
        let (sender, told) = mpsc::channel();
        let (controls, control) = mpsc::channel();
        let served = Served::bound(move |path| {
            let tenant = Arc::new(tenant);
            let channels = Arc::new(Channels(sender.into()));
            let stack = SessionStack::new(Arc::clone(&tenant)).unwrap();
            let stack = stack.with_crossing(channels, 100);
            let control = stack.control();
            let bind = Some(netchannel_stack_kernel::BIND as _);
            assert_eq!(control.configure(&tenant, bind), Vec::new());
            let own = session("one", super::PLACE.session());
            control.use_session(own).unwrap();
            controls.send(control).unwrap();
            Daemon::bind_with(options(path), |_| vec![Box::new(stack)])
        });
        Self {
            listening,
            program: Program::new(&served),
            control: control.recv().unwrap(),
            at,
            told,
            _served: served,
        }
    }

    /// The program listens: the channels hear of it.
    fn open(&mut self) -> (OwnedFd, Arc<dyn Entrance>) {
        let (_, accepts) = self.program.client.announce(&self.listening);
        let (at, entrance) = wait(|| self.told.try_recv().ok());
        assert_eq!(at, [self.at]);
        (accepts, entrance)
    }

    /// Where clients of the tenant come in.
    fn own(&self) -> Address {
        Address::v4(OWN, self.listening.local_addr().unwrap().port())
    }
}

/// The channels' end of a link to the tenant's stack.
fn enter(entrance: &Arc<dyn Entrance>) -> Arc<LinkEnd> {
    let (client, server) = parts(Some(OF_TENANT), LAYOUT);
    entrance.enter(server);
    Arc::new(LinkEnd::new(client, &Arc::new(Count::new(100))).unwrap())
}

/// A client connects to an address of the host.
fn dial(link: &Arc<LinkEnd>, to: SocketAddr) -> Lane {
    let lane = Lane::lent(link, link.lend().unwrap()).unwrap();
    let to = Address::v4([127, 0, 0, 1], to.port());
    assert!(link.announce(lane.handle(), 3, (&CLIENT, &to), false));
    lane
}

/// The program's end of the next connection.
fn accepted(link: &Arc<LinkEnd>, at: Address) -> Lane {
    let opened = wait(|| {
        link.read_channel();
        take(link).pop()
    });
    assert_eq!((opened.client, opened.server), (CLIENT, at));
    let lane = Lane::accepted(link, opened.loan);
    lane.set_flags(side_flags::ACCEPTED);
    lane
}

#[test]
fn a_client_of_another_host_is_accepted_by_a_program() {
    let mut world = World::new(|_| {});
    let (accepts, entrance) = world.open();
    let link = enter(&entrance);
    let mut far = dial(&link, world.at);
    poll(&mut [PollFd::new(&accepts, PollFlags::IN)], None).unwrap();
    let program = accept(&accepts);
    let mut near = accepted(&program, world.own());
    has(&far, side_flags::ESTABLISHED);
    has(&near, side_flags::OVER_CHANNELS);
    carry(&mut far, &mut near, &pattern(1_000_000, 1));
    carry(&mut near, &mut far, &pattern(2_000_000, 2));
    let counts = wait(|| Some(world.control.counts()).filter(|now| now.bytes_out == 2_000_000));
    assert_eq!((counts.open, counts.open_over_channels), (1, 1));
    assert_eq!((counts.accepted, counts.accepted_over_channels), (1, 1));
    assert_eq!((counts.dialed, counts.bytes_in), (0, 1_000_000));
    assert_eq!(counts.bytes_in_over_channels, 1_000_000);
    near.set_flags(side_flags::FIN);
    has(&far, side_flags::FIN);
    far.close(true);
    has(&near, side_flags::RESET);
    near.close(false);
    wait(|| {
        let now = world.control.counts();
        ((now.open, now.open_over_channels) == (0, 0)).then_some(())
    });
    // An address at which nothing is published.
    let elsewhere = dial(&link, SocketAddr::from(([127, 0, 0, 1], 1)));
    has(&elsewhere, side_flags::RESET);
}

#[test]
fn channels_hear_of_a_port_while_it_is_open_and_published() {
    let mut world = World::new(|_| {});
    let (accepts, _) = world.open();
    drop(accepts);
    // The listener is gone with its program.
    world.program = Program::new(&world._served);
    let (at, _) = wait(|| world.told.try_recv().ok());
    assert_eq!(at, []);
    let (_accepts, _) = world.open();
    let own = Tenant {
        publish: Vec::new(),
        ..tenant(None)
    };
    world.control.configure(&Arc::new(own), None);
    let (at, _) = wait(|| world.told.try_recv().ok());
    assert_eq!(at, []);
}

#[test]
fn a_tenant_that_is_full_lets_clients_wait() {
    let mut world = World::new(|tenant| tenant.connections = 1);
    let (accepts, entrance) = world.open();
    let link = enter(&entrance);
    let first = dial(&link, world.at);
    poll(&mut [PollFd::new(&accepts, PollFlags::IN)], None).unwrap();
    let program = accept(&accepts);
    let near = accepted(&program, world.own());
    has(&first, side_flags::ESTABLISHED);
    let second = dial(&link, world.at);
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(second.peer_flags() & side_flags::ESTABLISHED, 0);
    first.close(false);
    near.close(false);
    let near = accepted(&program, world.own());
    has(&second, side_flags::ESTABLISHED);
    near.close(true);
    has(&second, side_flags::RESET);
}

#[test]
fn a_port_that_is_published_at_any_address_is_reached_at_each() {
    let mut world = World::new(|tenant| {
        let Publish { host, port } = tenant.publish[0];
        let host = SocketAddr::from(([0, 0, 0, 0], host.port()));
        tenant.publish = vec![Publish { host, port }];
    });
    let (_, accepts) = world.program.client.announce(&world.listening);
    let (at, entrance) = wait(|| world.told.try_recv().ok());
    assert!(at[0].ip().is_unspecified());
    let link = enter(&entrance);
    let far = dial(&link, world.at);
    poll(&mut [PollFd::new(&accepts, PollFlags::IN)], None).unwrap();
    drop(accepted(&accept(&accepts), world.own()));
    has(&far, side_flags::ESTABLISHED);
}
