//! CoreEngine: programs, listeners, links, ports and deposits, and what each request does to them.
//!
//! It does no waiting; answers that do not fit into a socket are the caller's to judge. Whatever a
//! program says is checked against what that program was given.

mod asked;
mod connections;
mod links;
mod listeners;
mod proofs;
mod registry;
mod relayed;
mod remotes;
mod reservations;
mod uses;

pub use connections::Link;
pub use listeners::Listener;
pub use relayed::Asker;
pub use remotes::ListenerNews;
pub use uses::UserUse;

use crate::deposits::Deposits;
use crate::directory::Directory;
use crate::hosts::Hosts;
use crate::in_flight::InFlight;
use crate::limits::{DESCRIPTOR_RESERVE, Limits};
use crate::packet::Sender;
use crate::port_owners::PortOwners;
use crate::ports::Ports;
use crate::program::Program;
use crate::quota::{Bounds, DAEMON, Kind, Quotas};
use crate::relay::Relay;
use crate::totals::Users;
use netchannel_abi::address::Address;
use netchannel_abi::message::{Message, Operation};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// An answer with its descriptors.
#[derive(Debug, Default)]
pub struct Answer {
    /// Words of the answer.
    pub words: [u64; 14],
    /// Descriptors of the answer.
    pub descriptors: Vec<Rc<OwnedFd>>,
    /// A child that was adopted: its socket is to be watched.
    pub adopted: Option<u32>,
    /// The cookie of a deposit that is fetched with this answer, should it arrive.
    pub fetched: Option<u64>,
}

/// Why a request is not met.
#[derive(Debug)]
pub enum Refusal {
    /// The answer carries this errno.
    Errno(Errno),
    /// The program broke the protocol and is to be detached.
    Fault(&'static str),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// The state of the daemon.
#[derive(Debug)]
pub struct CoreEngine {
    limits: Limits,
    directory: Directory,
    programs: HashMap<u32, Program>,
    listeners: HashMap<u32, Listener>,
    cookies: HashMap<u64, u32>,
    links: BTreeMap<u64, Link>,
    ports: Ports,
    owners: PortOwners,
    deposits: Deposits,
    quotas: Quotas,
    in_flight: InFlight,
    /// Links of clients that are gone, the oldest first.
    orphans: VecDeque<u64>,
    exposed: proofs::Exposed,
    /// Bytes that the memory of one user may occupy when he asks for more.
    memory_bound: u64,
    last_program: u32,
    last_region: u64,
    last_listener: u32,
    last_link: u64,
    mismatches: HashSet<(u64, u64)>,
    /// What programs counted that are gone.
    departed: Users,
    /// Leads connections to listeners of this host, where that is asked for.
    relay: Option<Relay>,
    /// Leads connections to listeners of other hosts, and from there to those of this one.
    hosts: Option<Rc<Hosts>>,
    /// Listeners of other hosts in the directory.
    remotes: HashMap<u32, Address>,
    /// What happened to listeners of this host.
    news: Vec<ListenerNews>,
}

impl CoreEngine {
    /// A daemon without programs.
    #[must_use]
    pub fn new(
        limits: Limits,
        directory: Directory,
        relay: Option<Relay>,
        hosts: Option<Rc<Hosts>>,
    ) -> Self {
        let ports = Ports::outside(&Ports::kernel_range());
        let quotas = Quotas::new(Bounds::of(&limits, ports.count(), descriptor_limit()));
        Self {
            limits,
            directory,
            programs: HashMap::new(),
            listeners: HashMap::new(),
            cookies: HashMap::new(),
            links: BTreeMap::new(),
            ports,
            owners: PortOwners::new(limits.claims_per_program),
            deposits: Deposits::new(quotas.clone()),
            in_flight: InFlight::new(quotas.clone()),
            quotas,
            orphans: VecDeque::new(),
            exposed: proofs::Exposed::default(),
            memory_bound: match limits.memory_per_user {
                0 => uses::half_of_memory(),
                bytes => bytes,
            },
            last_program: 0,
            last_region: 0,
            last_listener: 0,
            last_link: 0,
            mismatches: HashSet::new(),
            departed: Users::default(),
            relay,
            hosts,
            remotes: HashMap::new(),
            news: Vec::new(),
        }
    }

    /// Numbers of listeners, links and regions, and the ports that are given, go on from here: programs that knew another daemon shall
    /// not take its numbers for this one's.
    pub const fn number_from(&mut self, origin: u32) {
        self.last_listener = origin;
        // Readers of JSON have 53 bits.
        self.last_link = (origin as u64) << 20;
        self.last_region = self.last_link;
        self.ports.begin_at(origin);
    }

    /// Handles one request of program `number`. `lost` says that descriptors beside it were lost.
    ///
    /// # Errors
    /// An errno for the answer, or the fault for which the program is to be detached.
    pub fn handle_request(
        &mut self,
        number: u32,
        message: &Message,
        descriptors: Vec<OwnedFd>,
        lost: bool,
        sender: Option<Sender>,
    ) -> Result<Answer, Refusal> {
        let sender = sender.ok_or(Refusal::Fault("a message of which nobody knows the sender"))?;
        if message.status != 0 {
            return Err(Refusal::Fault("an answer where a request belongs"));
        }
        let operation = Operation::from_word(message.operation);
        let operation = operation.ok_or(Refusal::Fault("an operation that does not exist"))?;
        let words = &message.words;
        let wanted = match operation {
            // A region comes with its size.
            Operation::Attach => usize::from(words[5] != 0),
            // A listening socket is its own proof.
            Operation::Listen => usize::from(words[6] != 0),
            Operation::Deposit => 1,
            Operation::Reoffer => 3,
            // A bound socket shows the port that is asked for.
            Operation::Ports if words[0] == 0 => descriptors.len().min(1),
            _ => 0,
        };
        if lost {
            return Err(Refusal::Errno(Errno::MFILE));
        }
        if descriptors.len() != wanted {
            return Err(Refusal::Fault("a wrong number of descriptors"));
        }
        if sender.user() != self.program(number)?.user {
            if operation != Operation::Attach {
                return Err(Refusal::Errno(Errno::PERM));
            }
            self.begin_anew(number, sender)?;
        }
        let program = self.program(number)?;
        // A child may let go of what its parent announced it with, and ask for nothing else.
        let lets_go = program.adopted && operation == Operation::Unlisten;
        let early = program.estate.is_none() && !lets_go;
        if matches!(
            operation,
            Operation::Attach | Operation::Adopt | Operation::Listen | Operation::Connect
        ) {
            self.in_flight.admit(sender.user())?;
        }
        match operation {
            // A second one comes from the same process after an exec.
            Operation::Attach => self.attach(number, sender, words, descriptors),
            _ if early => Err(Refusal::Fault("a request before Attach")),
            Operation::Adopt => self.adopt(number, words),
            Operation::Listen => self.listen(number, words, descriptors.first()),
            Operation::Unlisten => self.unlisten(number, words),
            Operation::Queue => self.queue(number, words),
            Operation::Join => self.join(number, words),
            Operation::Connect => self.connect(number, words),
            Operation::Reoffer => self.reoffer(number, words, descriptors),
            Operation::Ports => self.reserve_ports(number, words, descriptors.first()),
            Operation::Deposit => self.deposit(number, words, descriptors),
            Operation::Lookup => self.look_up(number, words),
            Operation::Offer | Operation::Anchors => {
                Err(Refusal::Fault("a message that belongs to another socket"))
            }
        }
    }

    /// Sends the answer to a request of program `number`.
    ///
    /// # Errors
    /// As [`InFlight::send`].
    pub fn send_answer(
        &mut self,
        number: u32,
        socket: &Rc<OwnedFd>,
        message: &Message,
        answer: &Answer,
    ) -> Result<(), Errno> {
        let user = self.programs.get(&number).map_or(DAEMON, |one| one.user);
        let descriptors = &answer.descriptors;
        self.in_flight.send(socket, user, message, descriptors)?;
        if let Some(cookie) = answer.fetched {
            self.deposits.take(cookie, user, false);
            self.settle_released();
        }
        Ok(())
    }

    /// What was sent and is not read yet.
    pub const fn in_flight_mut(&mut self) -> &mut InFlight {
        &mut self.in_flight
    }

    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The relay, if there is one.
    #[must_use]
    pub const fn relay(&self) -> Option<&Relay> {
        self.relay.as_ref()
    }

    /// The directory.
    #[must_use]
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The directory, to be changed.
    pub const fn directory_mut(&mut self) -> &mut Directory {
        &mut self.directory
    }

    /// The deposits.
    pub const fn deposits_mut(&mut self) -> &mut Deposits {
        &mut self.deposits
    }

    /// All programs and connections by number.
    #[must_use]
    pub const fn programs(&self) -> &HashMap<u32, Program> {
        &self.programs
    }

    /// All listeners by number.
    #[must_use]
    pub const fn listeners(&self) -> &HashMap<u32, Listener> {
        &self.listeners
    }

    /// All links by number.
    #[must_use]
    pub const fn links(&self) -> &BTreeMap<u64, Link> {
        &self.links
    }

    /// What programs counted that are gone.
    #[must_use]
    pub const fn departed(&self) -> &Users {
        &self.departed
    }

    /// Whether `more` descriptors can be kept and a few still be free for what passes through.
    fn admit_descriptors(&self, more: usize) -> Result<(), Refusal> {
        let limit = descriptor_limit();
        let kept = self.quotas.sum(Kind::Descriptors)
            + self.relay.as_ref().map_or(0, Relay::descriptors)
            + self.hosts.as_ref().map_or(0, |hosts| hosts.descriptors());
        if kept + more + DESCRIPTOR_RESERVE > limit {
            return Err(Refusal::Errno(Errno::MFILE));
        }
        Ok(())
    }

    fn program(&self, number: u32) -> Result<&Program, Refusal> {
        let missing = Refusal::Fault("a program that does not exist");
        self.programs.get(&number).ok_or(missing)
    }

    fn program_mut(&mut self, number: u32) -> Result<&mut Program, Refusal> {
        let missing = Refusal::Fault("a program that does not exist");
        self.programs.get_mut(&number).ok_or(missing)
    }
}

/// How many descriptors the daemon may open.
fn descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// The low half of a word that must fit into it.
fn narrow(word: u64) -> Result<u32, Refusal> {
    u32::try_from(word).map_err(|_| Refusal::Errno(Errno::INVAL))
}
