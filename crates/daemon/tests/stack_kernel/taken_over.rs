//! A stack that was taken over: whatever it says, CoreEngine goes on, and another stack takes its place.

use crate::support::{Client, Served, options};
use netchannel_configuration::{Destination, Publish, Tenant, Way};
use netchannel_daemon::Daemon;
use netchannel_service::core_engine::{Command, StackRequest, Ticket};
use netchannel_service::link::Parts;
use netchannel_service::stack::{Crossing, Entrance, Origin};
use netchannel_stack_process::control::{Control, NewSession};
use netchannel_stack_process::endpoint::Endpoint;
use netchannel_stack_process::message::{CHANNELS, Instruction, Report, SessionLimits};
use netchannel_stack_process::session::SessionStack;
use netchannel_stack_process::stack_end::{Heard, StackEnd};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon of one tenant, without a stack.
fn served() -> (Served, Control) {
    served_as(Tenant::new("web", vec![[10, 88, 0, 2].into()]), None)
}

/// The same, of this tenant, with these channels.
fn served_as(tenant: Tenant, crossing: Option<Arc<dyn Crossing>>) -> (Served, Control) {
    let (sender, receiver) = mpsc::channel();
    let served = Served::bound(move |socket| {
        let mut stack = SessionStack::new(Arc::new(tenant)).unwrap();
        if let Some(crossing) = crossing {
            stack = stack.with_crossing(crossing, 10);
        }
        sender.send(stack.control()).unwrap();
        Daemon::bind_with(options(socket), |_| vec![Box::new(stack)])
    });
    (served, receiver.recv().unwrap())
}

/// A session whose stack is the test, and its socket besides.
fn taken_over(control: &Control, name: &str) -> (StackEnd, OwnedFd) {
    let (own, other) = Endpoint::pair().unwrap();
    let session = NewSession {
        stack: name.to_owned(),
        socket: other,
        limits: SessionLimits {
            anchors: 10,
            sockets: 10,
        },
        binds_ports: true,
    };
    control.use_session(session).unwrap();
    let raw = own.try_clone().unwrap();
    (StackEnd::new(own), raw)
}

fn wait(what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn has_ended(end: &mut StackEnd) -> bool {
    loop {
        match end.hear() {
            Heard::Instruction(_) => {}
            Heard::Nothing => return false,
            Heard::Ended => return true,
        }
    }
}

fn file() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// A program attaches, and gets an answer.
fn serves(served: &Served) {
    let mut client = Client::connect(served);
    assert!(!client.attach().1.is_empty());
}

#[test]
fn garbage_ends_its_session_only() {
    let (served, control) = served();
    for text in [
        &b"{"[..],
        b"\"long\"",
        b"{\"Forget\":-1}",
        b"\0\0",
        &[b'['; 9000],
    ] {
        let (mut end, raw) = taken_over(&control, "bad");
        send(&raw, text, SendFlags::NOSIGNAL).unwrap();
        wait("the session is ended", || has_ended(&mut end));
        serves(&served);
    }
    // A message with a descriptor too many.
    let (mut end, raw) = taken_over(&control, "bad");
    let mut endpoint = Endpoint::new(raw);
    endpoint.send(&"Drained", vec![file()]).unwrap();
    wait("the session is ended", || has_ended(&mut end));
    let (mut good, _) = taken_over(&control, "good");
    wait("another stack is told of the tenant", || {
        matches!(good.hear(), Heard::Instruction(Instruction::Tenant(_)))
    });
    wait("the others are not shown any more", || {
        control.stacks() == [("good".to_owned(), 0)]
    });
}

#[test]
fn requests_for_what_it_has_not_come_to_nothing() {
    let (served, control) = served();
    let (mut end, _raw) = taken_over(&control, "bad");
    let nowhere = netchannel_abi::address::Address::v4([10, 88, 0, 2], 80);
    let ticket = Ticket {
        number: usize::MAX,
        stamp: 0,
    };
    let port: Publish = "127.0.0.1:1:1".parse().unwrap();
    let mut refused = 0;
    for number in 0..2000_u32 {
        let reports = [
            Report::Request(StackRequest::Link(number, nowhere)),
            Report::Request(StackRequest::OfferLink(number)),
            Report::Request(StackRequest::Forget(u64::from(number))),
            Report::Request(StackRequest::Offer {
                ticket,
                listener: number,
                link: u64::from(number),
                slot: number,
                anchor: file(),
            }),
            Report::Published(port, Ok(file())),
            Report::Published(port, Err(Errno::ADDRINUSE)),
            // It was not asked to leave.
            Report::Drained,
        ];
        for report in reports {
            // What is not read yet is kept, within limits.
            while end.flush() == Ok(true) {
                std::thread::yield_now();
            }
            end.send(report).unwrap();
        }
        while let Heard::Instruction(instruction) = end.hear() {
            refused += usize::from(matches!(instruction, Instruction::Core(_)));
        }
        if number % 500 == 0 {
            serves(&served);
        }
    }
    wait("each link that is asked for is refused", || {
        let _ = end.flush();
        while let Heard::Instruction(instruction) = end.hear() {
            refused += usize::from(matches!(instruction, Instruction::Core(_)));
        }
        refused == 4000
    });
    assert_eq!(control.bound_ports(), []);
    serves(&served);
}

/// The channels, which count links.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Crossing for Counting {
    fn serve(&self, _: Parts, _: Arc<Origin>) {
        self.0.fetch_add(1, Relaxed);
    }

    fn publish(&self, _: &str, _: Vec<SocketAddr>, _: Arc<dyn Entrance>) {}
}

#[test]
fn links_to_channels_are_few_and_only_for_whose_table_says_so() {
    let over = |way| Tenant {
        destinations: vec![Destination {
            prefix: "10.0.0.0/8".parse().unwrap(),
            way,
            peer: None,
        }],
        ..Tenant::new("web", vec![[10, 88, 0, 2].into()])
    };
    for (way, most) in [(Way::None, 0), (Way::Channels, 4)] {
        let counting = Arc::new(Counting::default());
        let (served, control) = served_as(over(way), Some(Arc::clone(&counting) as _));
        let (mut end, _raw) = taken_over(&control, "bad");
        let to = netchannel_abi::address::Address::v4([10, 0, 0, 2], 80);
        let mut ask = |count: usize| {
            let (mut asked, mut made, mut answers) = (0, Vec::new(), 0);
            wait("each is answered", || {
                if asked < count {
                    let request = StackRequest::Link(CHANNELS, to);
                    end.send(Report::Request(request)).unwrap();
                    asked += 1;
                }
                while let Heard::Instruction(instruction) = end.hear() {
                    if let Instruction::Core(Command::Link(CHANNELS, answer)) = instruction {
                        answers += 1;
                        made.extend(answer.map(|(parts, _)| parts.number));
                    }
                }
                answers == count
            });
            for link in &made {
                end.send(Report::Request(StackRequest::Forget(*link)))
                    .unwrap();
            }
            made.len()
        };
        assert_eq!(ask(50), most);
        // Those that went make room.
        assert_eq!(ask(50), most);
        assert_eq!(counting.0.load(Relaxed), 2 * most);
        serves(&served);
    }
}

#[test]
fn one_that_reads_nothing_is_ended() {
    let (served, control) = served();
    let (end, _raw) = taken_over(&control, "deaf");
    let tenant = Arc::new(Tenant::new("web", vec![[10, 88, 0, 2].into()]));
    wait("the session is ended", || {
        for _ in 0..100 {
            let problems = control.configure(&tenant, None);
            assert_eq!(problems, []);
        }
        control.stacks().is_empty()
    });
    drop(end);
    serves(&served);
}
