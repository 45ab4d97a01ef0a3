//! The state of CoreEngine.

use super::exposed::Exposed;
use super::link::Link;
use super::listener::Listener;
use super::trusted::Neighbours;
use super::unheld::Unheld;
use crate::deposits::Deposits;
use crate::directory::Directory;
use crate::in_flight::InFlight;
use crate::limits::{DESCRIPTOR_RESERVE, Limits};
use crate::port_owners::PortOwners;
use crate::ports::Ports;
use crate::program::Program;
use crate::quota::{Bounds, Kind, Quotas};
use crate::totals::Users;
use netchannel_abi::address::Address;
use netchannel_service::core_engine::ListenerChange;
use netchannel_service::memory;
use netchannel_service::stack::{Stack, StackHandle};
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
    /// A child that was adopted: its socket must be watched.
    pub adopted: Option<u32>,
    /// The cookie of a deposit that counts as fetched once this answer is sent.
    pub fetched: Option<u64>,
}

/// Why a request fails.
#[derive(Debug)]
pub enum Refusal {
    /// The answer carries this errno.
    Errno(Errno),
    /// The program broke the protocol and must be detached.
    Fault(&'static str),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// A stack module of a CoreEngine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackId(usize);

/// The state of the daemon.
#[derive(Debug)]
pub struct CoreEngine {
    pub(super) limits: Limits,
    pub(super) directory: Directory,
    pub(super) programs: HashMap<u32, Program>,
    pub(super) listeners: HashMap<u32, Listener>,
    pub(super) cookies: HashMap<u64, u32>,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) ports: Ports,
    pub(super) owners: PortOwners,
    pub(super) deposits: Deposits,
    pub(super) quotas: Quotas,
    pub(super) in_flight: InFlight,
    /// Links whose clients have ended, oldest first.
    pub(super) orphans: VecDeque<u64>,
    pub(super) exposed: Exposed,
    pub(super) unheld: Unheld,
    /// Bytes that the memory of one user may occupy when more is requested.
    pub(super) memory_bound: u64,
    pub(super) last_program: u32,
    pub(super) last_region: u64,
    pub(super) last_listener: u32,
    pub(super) last_link: u64,
    pub(super) mismatches: HashSet<(u64, u64)>,
    /// The counters of programs that have ended.
    pub(super) departed: Users,
    /// The stack modules.
    pub(super) stacks: Vec<Rc<dyn StackHandle>>,
    /// The module that relays connections between programs of this host. `None` where their lanes are direct.
    pub(super) local: Option<StackId>,
    /// Its programs are a tenant's: they may be in any network namespace, and the addresses that they have are not this host's.
    pub(super) tenant: bool,
    /// Listeners of other hosts in the directory.
    pub(super) remotes: HashMap<u32, (Address, StackId)>,
    /// Tenants that trust this one, and are trusted.
    pub(super) neighbours: Neighbours,
    /// Changes of listeners of this host.
    pub(super) listener_changes: Vec<ListenerChange>,
}

impl CoreEngine {
    /// A daemon without programs.
    #[must_use]
    pub fn new(limits: Limits, directory: Directory) -> Self {
        let ports = Ports::outside(&Ports::kernel_range());
        let descriptors = descriptor_limit(&limits);
        let quotas = Quotas::new(Bounds::of(&limits, ports.count(), descriptors));
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
            exposed: Exposed::default(),
            unheld: Unheld::default(),
            memory_bound: match limits.memory_per_user {
                0 => memory::half_of_the_hosts(),
                bytes => bytes,
            },
            last_program: 0,
            last_region: 0,
            last_listener: 0,
            last_link: 0,
            mismatches: HashSet::new(),
            departed: Users::default(),
            stacks: Vec::new(),
            local: None,
            tenant: false,
            remotes: HashMap::new(),
            neighbours: Neighbours::default(),
            listener_changes: Vec::new(),
        }
    }

    /// Adds a stack module. All modules are added before the first program.
    pub fn add_stack(&mut self, stack: &dyn Stack) -> StackId {
        let id = StackId(self.stacks.len());
        if stack.routes_all() {
            self.local = Some(id);
        }
        self.stacks.push(stack.handle());
        id
    }

    /// Serves the programs of a tenant, which have these addresses: before any is there.
    pub fn serve_tenant(&mut self, addresses: Vec<Address>) {
        self.tenant = true;
        self.directory.set_locals(addresses);
    }

    /// A stack module.
    pub(super) fn stack(&self, id: StackId) -> Option<&dyn StackHandle> {
        self.stacks.get(id.0).map(|one| &**one)
    }

    /// Begins the numbers of listeners, links and regions, and the ports, at a random origin: programs that know
    /// numbers of a former daemon must not confuse them with this one's.
    pub const fn number_from(&mut self, origin: u32) {
        self.last_listener = origin;
        // JSON readers have 53 bits.
        self.last_link = (origin as u64) << 20;
        self.last_region = self.last_link;
        self.ports.begin_at(origin);
    }

    /// The unread descriptors.
    pub const fn in_flight_mut(&mut self) -> &mut InFlight {
        &mut self.in_flight
    }

    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
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

    /// The counters of programs that have ended.
    #[must_use]
    pub const fn departed(&self) -> &Users {
        &self.departed
    }

    /// Whether `more` descriptors can be kept while a reserve stays free for descriptors in transit.
    pub(super) fn admit_descriptors(&self, more: usize) -> Result<(), Refusal> {
        let limit = descriptor_limit(&self.limits);
        let kept = self.quotas.sum(Kind::Descriptors)
            + self
                .stacks
                .iter()
                .map(|one| one.descriptors())
                .sum::<usize>();
        if kept + more + DESCRIPTOR_RESERVE > limit {
            return Err(Refusal::Errno(Errno::MFILE));
        }
        Ok(())
    }

    pub(super) fn program(&self, number: u32) -> Result<&Program, Refusal> {
        let missing = Refusal::Fault("a program that does not exist");
        self.programs.get(&number).ok_or(missing)
    }

    pub(super) fn program_mut(&mut self, number: u32) -> Result<&mut Program, Refusal> {
        let missing = Refusal::Fault("a program that does not exist");
        self.programs.get_mut(&number).ok_or(missing)
    }
}

/// The limit of descriptors that the daemon may open.
fn descriptor_limit(limits: &Limits) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let open = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    match limits.descriptors {
        0 => open,
        share => share.min(open),
    }
}

/// The low half of a word, which must fit into it.
pub(super) fn narrow(word: u64) -> Result<u32, Refusal> {
    u32::try_from(word).map_err(|_| Refusal::Errno(Errno::INVAL))
}
