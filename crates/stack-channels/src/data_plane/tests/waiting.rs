//! Connections of a peer that wait for a listener: how many, how long, and for whom; and what programs may say of themselves.

use super::*;
use netchannel_driver::{Channel, Dequeued};
use netchannel_shm::{Room, Run};
use netchannel_wire::{Frame, Handle, NcSyn, Parser, Refusal, Step};

/// A host with the listener, and a peer that the test plays.
struct Played {
    host: DataPlane,
    peer: Arc<Peer>,
    channel: Box<dyn Channel>,
    parser: Parser,
    unread: Vec<u8>,
    next: u32,
    /// The listening program's end, which does not accept.
    server: Option<Arc<LinkEnd>>,
    backlog: usize,
}

impl Played {
    fn new(backlog: usize) -> Self {
        let host = start(Some(2));
        let terms = Terms {
            peer_sockets: 1 << 16,
            ..TERMS
        };
        let peer = Peer::new(0, terms, rules(CLIENT, SERVER));
        let at = ([127, 0, 0, 1], 0).into();
        let (channel, other) = netchannel_driver::contract::pair(&netchannel_driver::Tcp, at);
        host.send(Command::Channel {
            peer: Arc::clone(&peer),
            instance: ChannelInstance(1),
            id: id(Class::Latency, 0),
            channel: other,
            rest: Vec::new(),
        });
        let mut parser = Parser::new(1 << 18);
        parser.open();
        Self {
            host,
            peer,
            channel,
            parser,
            unread: Vec::new(),
            next: 0,
            server: None,
            backlog,
        }
    }

    fn ask(&mut self, server: Address) {
        let syn = Frame::NcSyn(NcSyn {
            handle: Handle {
                index: self.next,
                generation: 1,
            },
            client: CLIENT,
            server,
            limit: 2048,
            listener: LISTENER,
            class: None,
        });
        self.next += 1;
        let mut bytes = [0; 256];
        let length = syn.encode(&mut bytes).unwrap();
        let mut rest = &bytes[..length];
        while !rest.is_empty() {
            let taken = self.channel.enqueue(&[Run::from(rest)]).unwrap();
            rest = &rest[taken..];
        }
    }

    /// Plays CoreEngine: the listener is at its address only.
    fn answer(&mut self) {
        for report in self.host.take_reports() {
            let Report::Request(StackRequest::Link(LISTENER, meant)) = report else {
                continue;
            };
            let answer = if meant == SERVER {
                let (client, server) = link(2);
                self.server = Some(program(server));
                let mode = relay::AcceptMode {
                    backlog: self.backlog,
                    ..MODE
                };
                Ok((client, mode))
            } else {
                Err(relay::WRONG_ADDRESS)
            };
            let told = relay::Command::Link(LISTENER, answer);
            self.host.send(Command::Links(told));
        }
    }

    /// Refusals that have come.
    fn refusals(&mut self) -> Vec<Refusal> {
        let mut bytes = vec![0; 1 << 16];
        let room = &mut bytes[..];
        while let Ok(Dequeued::Bytes(count)) = self.channel.dequeue(&[Room::from(&mut *room)]) {
            self.unread.extend(&room[..count]);
        }
        let mut found = Vec::new();
        while let Ok(Step::Frame { frame, consumed }) = self.parser.next(&self.unread) {
            if let Frame::NcRst(refused) = frame {
                found.push(refused.reason);
            }
            self.unread.drain(..consumed);
        }
        found
    }

    fn waiting(&self) -> usize {
        self.peer.waiting.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn wait<T>(&mut self, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.answer();
            if let Some(found) = look(self) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "nothing came");
            std::thread::yield_now();
        }
    }

    /// A connection that has come to the listening program.
    fn come(&self) -> Option<Lane> {
        let link = self.server.as_ref()?;
        assert!(link.read_channel());
        let opened = take(link).pop()?;
        Some(Lane::accepted(link, opened.loan))
    }
}

#[test]
fn who_waits_at_a_full_backlog_goes_with_its_start() {
    let mut world = Played::new(0);
    world.ask(SERVER);
    let first = world.wait(|world| world.come());
    for _ in 0..10 {
        world.ask(SERVER);
    }
    world.wait(|world| (world.waiting() == 10).then_some(()));
    world.host.send(Command::Fail {
        peer: Arc::clone(&world.peer),
        reason: netchannel_vns::Reason::Restarted,
        what: FailureScope::Start,
    });
    world.wait(|world| (world.waiting() == 0).then_some(()));
    // Now there would be room.
    first.set_flags(side_flags::ACCEPTED);
    std::thread::sleep(Duration::from_millis(200));
    assert!(world.come().is_none(), "a connection of nobody");
}

#[test]
fn who_waits_at_a_full_backlog_comes_in_turn_when_there_is_room() {
    let mut world = Played::new(0);
    for _ in 0..20 {
        world.ask(SERVER);
    }
    for left in (0..20).rev() {
        let lane = world.wait(|world| world.come());
        world.wait(|world| (world.waiting() == left).then_some(()));
        lane.set_flags(side_flags::ACCEPTED);
    }
}

#[test]
fn a_flood_that_waits_takes_bounded_memory() {
    const MANY: usize = 20_000;
    let mut world = Played::new(0);
    world.ask(SERVER);
    let _first = world.wait(|world| world.come());
    let mut refused = 0;
    for _ in 0..MANY {
        world.ask(SERVER);
        refused += world.refusals().len();
    }
    world.wait(|world| {
        let new = world.refusals();
        assert!(new.iter().all(|one| *one == Refusal::BacklogFull));
        refused += new.len();
        (refused + world.waiting() >= MANY).then_some(())
    });
    assert!(world.waiting() <= 4096, "{} wait", world.waiting());
}

#[test]
fn a_listener_whose_connections_the_kernel_defers_takes_none_of_a_peer_that_does_not_know_it() {
    let mut world = Played::new(100);
    world.host.set_deferring(LISTENER, true);
    world.ask(SERVER);
    assert_eq!(
        world.wait(|world| world.refusals().pop()),
        Refusal::KernelOnly
    );
    world.host.set_deferring(LISTENER, false);
    world.ask(SERVER);
    world.wait(|world| world.come());
}

#[test]
fn who_means_another_address_harms_nobody_who_waits_with_it() {
    let mut world = Played::new(100);
    // Nobody answers until all have asked.
    world.ask(Address { port: 81, ..SERVER });
    world.ask(SERVER);
    std::thread::sleep(Duration::from_millis(50));
    world.wait(|world| world.come());
    assert_eq!(
        world.wait(|world| world.refusals().pop()),
        Refusal::NoListener
    );
    // And over a link that is known.
    world.ask(Address { port: 81, ..SERVER });
    assert_eq!(
        world.wait(|world| world.refusals().pop()),
        Refusal::NoListener
    );
    assert!(world.come().is_none());
}

#[test]
fn a_program_connects_from_its_own_addresses_to_what_listens() {
    let mut world = World::new(&[id(Class::Latency, 0)]);
    let own = CLIENT;
    for (client, server, errno) in [
        (
            Address {
                port: OTHERS,
                ..own
            },
            SERVER,
            Errno::ADDRNOTAVAIL,
        ),
        (Address { port: 443, ..own }, SERVER, Errno::ADDRNOTAVAIL),
        (Address { port: 0, ..own }, SERVER, Errno::ADDRNOTAVAIL),
        (
            Address::v4([127, 0, 0, 1], own.port),
            SERVER,
            Errno::ADDRNOTAVAIL,
        ),
        (
            Address::v4([203, 0, 113, 9], own.port),
            SERVER,
            Errno::ADDRNOTAVAIL,
        ),
        (own, Address { port: 81, ..SERVER }, Errno::CONNREFUSED),
        (
            own,
            Address::v4([10, 9, 0, 3], SERVER.port),
            Errno::CONNREFUSED,
        ),
    ] {
        let loan = world.client.lend().unwrap();
        let lane = Lane::lent(&world.client, loan).unwrap();
        let handle = lane.handle();
        assert!(
            world
                .client
                .announce(handle, THERE, (&client, &server), false)
        );
        world.wait(|_| (lane.peer_flags() & side_flags::RESET != 0).then_some(()));
        let (_, daemon) = lane.sides().unwrap();
        let said = daemon.error.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(
            said,
            errno.raw_os_error().unsigned_abs(),
            "{client:?} {server:?}"
        );
        lane.close(false);
    }
    world.connect();
}
