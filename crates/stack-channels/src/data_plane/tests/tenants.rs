//! Connections of a tenant of this host: whose they are is known by their link.

use super::*;
use netchannel_service::stack::Origin;

const L: ChannelId = id(Class::Latency, 0);
const TENANT: Address = Address::v4([10, 88, 0, 2], 41_000);

struct Crossed {
    world: World,
    link: Arc<LinkEnd>,
}

/// A tenant whose addresses the other host permits.
fn crossed(addresses: &[Address], anchors: usize) -> Crossed {
    let world = World::new(&[L]);
    let (mut own, server) = link(77);
    own.user = None;
    let origin = Origin {
        tenant: "web".to_owned(),
        addresses: addresses.iter().map(|one| ip(one).unwrap()).collect(),
        count: Arc::new(Count::new(anchors)),
    };
    world.hosts[0].crossing().serve(server, Arc::new(origin));
    let permitted = [CLIENT, TENANT].map(|one| Prefix {
        address: ip(&one).unwrap(),
        length: 32,
    });
    world.peers[1].rules().peer = permitted.to_vec();
    Crossed {
        world,
        link: program(own),
    }
}

impl Crossed {
    fn dial(&self, client: Address, listener: u32, server: Address) -> Lane {
        let lane = Lane::lent(&self.link, self.link.lend().unwrap()).unwrap();
        let addresses = (&client, &server);
        assert!(
            self.link
                .announce(lane.handle(), listener, addresses, false)
        );
        lane
    }

    /// Whether it is connected, or the error.
    fn outcome(&mut self, lane: &Lane) -> Result<(), Errno> {
        let flags = self.world.wait(|_| {
            let flags = lane.peer_flags() & (side_flags::ESTABLISHED | side_flags::RESET);
            (flags != 0).then_some(flags)
        });
        if flags & side_flags::ESTABLISHED != 0 {
            return Ok(());
        }
        Err(Errno::from_raw_os_error(lane.peer_error().cast_signed()))
    }

    fn accept(&mut self) -> (Lane, Address) {
        self.world.wait(|world| {
            let link = world.servers.first()?;
            link.read_channel();
            let opened = take(link).pop()?;
            let lane = Lane::accepted(link, opened.loan);
            lane.set_flags(side_flags::ACCEPTED);
            Some((lane, opened.client))
        })
    }
}

#[test]
fn the_other_host_sees_the_tenants_true_address() {
    let mut crossed = crossed(&[TENANT], 1000);
    for listener in [0, THERE, u32::MAX] {
        let mut client = crossed.dial(TENANT, listener, SERVER);
        assert_eq!(crossed.outcome(&client), Ok(()));
        let (mut server, from) = crossed.accept();
        assert_eq!(from, TENANT);
        crossed.world.carry(&mut client, &mut server, &[5; 300_000]);
        crossed.world.carry(&mut server, &mut client, &[6; 300_000]);
        client.close(false);
        server.close(false);
    }
    let world = &mut crossed.world;
    world.wait(|world| (world.connections() == 0).then_some(()));
}

#[test]
fn a_tenant_has_no_address_but_its_own_and_reaches_listeners_only() {
    // A table that names this host's own address opens nothing either.
    let mut crossed = crossed(&[TENANT, CLIENT], 1000);
    let elsewhere = Address::v4([10, 88, 0, 3], 41_000);
    let no_port = Address { port: 0, ..TENANT };
    for (client, server, wanted) in [
        (elsewhere, SERVER, Errno::ADDRNOTAVAIL),
        (CLIENT, SERVER, Errno::ADDRNOTAVAIL),
        (no_port, SERVER, Errno::ADDRNOTAVAIL),
        (TENANT, Address { port: 81, ..SERVER }, Errno::CONNREFUSED),
        (TENANT, CLIENT, Errno::CONNREFUSED),
        // The number of a listener says nothing.
        (TENANT, elsewhere, Errno::CONNREFUSED),
    ] {
        let lane = crossed.dial(client, THERE, server);
        assert_eq!(crossed.outcome(&lane), Err(wanted), "{client:?} {server:?}");
        lane.close(true);
    }
    let lane = crossed.dial(TENANT.mapped(), THERE, SERVER.mapped());
    assert_eq!(crossed.outcome(&lane), Ok(()));
}

#[test]
fn what_the_other_host_does_not_permit_is_refused_as_nobody() {
    let mut crossed = crossed(&[TENANT], 1000);
    let rules = |world: &World, peer: Vec<Prefix>| world.peers[1].rules().peer = peer;
    let only_host = Prefix {
        address: ip(&CLIENT).unwrap(),
        length: 32,
    };
    rules(&crossed.world, vec![only_host]);
    let lane = crossed.dial(TENANT, 0, SERVER);
    assert_eq!(crossed.outcome(&lane), Err(Errno::CONNREFUSED));
    // A listener that is closed, and a peer that is gone.
    crossed.world.hosts[0].send(Command::Unlisten(THERE));
    let lane = crossed.dial(TENANT, THERE, SERVER);
    assert_eq!(crossed.outcome(&lane), Err(Errno::CONNREFUSED));
}

#[test]
fn a_tenant_holds_as_many_anchors_as_it_may() {
    const MOST: usize = 30;
    let mut crossed = crossed(&[TENANT], MOST);
    let mut lanes = Vec::new();
    let refused = loop {
        let lane = crossed.dial(TENANT, 0, SERVER);
        match crossed.outcome(&lane) {
            Ok(()) => lanes.push(lane),
            Err(errno) => break errno,
        }
        assert!(lanes.len() <= MOST);
    };
    assert_eq!(refused, Errno::NOBUFS);
    // Programs of the host notice nothing.
    let client = crossed.world.dial();
    assert_eq!(crossed.outcome(&client), Ok(()));
}

#[test]
fn the_end_of_its_link_ends_its_connections() {
    let mut crossed = crossed(&[TENANT], 1000);
    let client = crossed.dial(TENANT, 0, SERVER);
    assert_eq!(crossed.outcome(&client), Ok(()));
    let (server, _) = crossed.accept();
    crossed.link.fail();
    // As when a stack process ends: nobody holds its anchors any more.
    drop(client);
    let world = &mut crossed.world;
    world
        .wait(|_| (server.peer_flags() & (side_flags::FIN | side_flags::RESET) != 0).then_some(()));
    server.close(false);
    world.wait(|world| (world.connections() == 0).then_some(()));
}
