//! The state that a hostile program got from the daemon, and random request words derived from it.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use netchannel_abi::address::Address;
use netchannel_abi::directory::{ENTRIES, ENTRIES_OFFSET, Entry, LEFT, SIZE};
use netchannel_abi::message::{Operation, listen_flags};
use netchannel_testkit::support::Random;
use netchannel_testkit::sys;

use super::super::board::{Board, Counter, FIRST_PORT, LASTING, PORTS};
use super::super::memory;
use super::kinds;
use super::link::Link;
use super::packet::Attach;

/// The option that returns a socket's cookie.
const SO_COOKIE: libc::c_int = 57;

/// An attached program of the hostile user.
pub struct HostileProgram {
    /// The state that all processes of the run share.
    pub board: Board,
    /// Its attach socket.
    pub attach: Attach,
    /// The number of its region.
    pub region: u64,
    /// The region's memory.
    pub memory: OwnedFd,
    directory_file: OwnedFd,
    directory: &'static [AtomicU64],
    /// Its listeners: the number and the accept channel.
    pub listeners: Vec<(u64, OwnedFd)>,
    /// Links of which it has an end.
    pub links: Vec<Link>,
    /// Ports that the daemon assigned.
    pub ports: Vec<u16>,
    /// A cookie that the kernel assigned to one of its own sockets.
    pub cookie: u64,
}

impl Drop for HostileProgram {
    fn drop(&mut self) {
        memory::unmap(self.directory);
    }
}

impl HostileProgram {
    /// Attaches as a program does.
    pub fn attach(board: Board, path: &Path) -> Option<Self> {
        let mut attach = Attach::dial(path)?;
        let (answer, mut descriptors) = attach.attach()?;
        board.count(Counter::Requests, 1);
        let directory_file = descriptors.pop()?;
        let memory = descriptors.pop()?;
        let directory = memory::map(directory_file.as_raw_fd(), SIZE, false)?;
        let cookie = TcpListener::bind("127.0.0.1:0").ok();
        let cookie = cookie.and_then(|socket| cookie_of(socket.as_raw_fd()));
        Some(Self {
            board,
            attach,
            region: answer.words[3],
            memory,
            directory_file,
            directory,
            listeners: Vec::new(),
            links: Vec::new(),
            ports: Vec::new(),
            cookie: cookie.unwrap_or(1),
        })
    }

    /// The listeners of all programs, as the directory shows them.
    pub fn listed(&self) -> Vec<(u32, Address)> {
        let size = size_of::<Entry>() / 8;
        let start = ENTRIES_OFFSET / 8;
        let entries = self.directory[start..start + ENTRIES * size].chunks_exact(size);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let found = entries.filter_map(|entry| {
            let number = u32::try_from(load(&entry[0]) & 0xffff_ffff).ok()?;
            let words = [load(&entry[1]), load(&entry[2]), load(&entry[3])];
            (number != 0 && number != LEFT).then(|| (number, Address::from_words(words)))
        });
        found.collect()
    }

    /// A random listener of an honest program, if one is listed.
    pub fn honest(&self, random: &mut Random) -> Option<(u32, Address)> {
        let last = FIRST_PORT + u16::try_from(PORTS).unwrap_or(0);
        let mut listed = self.listed();
        listed.retain(|(number, address)| {
            let own = self
                .listeners
                .iter()
                .any(|(one, _)| *one == u64::from(*number));
            !own && (FIRST_PORT..last).contains(&address.port)
        });
        (!listed.is_empty()).then(|| listed[random.below(listed.len())])
    }

    /// Makes a kernel listener, announces it, and closes the kernel's socket without telling the daemon.
    pub fn squat(&mut self, random: &mut Random) -> bool {
        let index = random.between(LASTING, PORTS - 1);
        let port = FIRST_PORT + u16::try_from(index).unwrap_or(0);
        let places = [([127, 0, 0, 1], port), ([0; 4], port), ([127, 0, 0, 1], 0)];
        let (host, port) = places[random.below(places.len())];
        let Ok(socket) = TcpListener::bind(SocketAddr::from((host, port))) else {
            return false;
        };
        let Ok(SocketAddr::V4(bound)) = socket.local_addr() else {
            return false;
        };
        let cookie = cookie_of(socket.as_raw_fd()).unwrap_or(0);
        self.cookie = self.cookie.max(cookie);
        let address = Address::v4(host, bound.port());
        let shows = random.once_in(2);
        let shown = if shows {
            vec![socket.as_raw_fd()]
        } else {
            Vec::new()
        };
        let made = self.announce(address, cookie, &shown, random);
        if random.once_in(8) {
            // Now and then the listener stays open, as any program may do.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        made
    }

    /// Announces a listener.
    pub fn announce(
        &mut self,
        address: Address,
        cookie: u64,
        shown: &[RawFd],
        random: &mut Random,
    ) -> bool {
        let [a, b, c] = address.to_words();
        let flags = if random.once_in(4) {
            listen_flags::REUSE_PORT
        } else {
            0
        };
        let words = [a, b, c, cookie, 128, flags, shown.len() as u64];
        self.board.count(Counter::Requests, 1);
        let Some((answer, mut descriptors)) = self.attach.want(Operation::Listen, &words, shown)
        else {
            return false;
        };
        self.board.count(Counter::Squats, 1);
        if let Some(channel) = descriptors.pop() {
            self.listeners.push((answer.words[0], channel));
        }
        true
    }

    /// Takes offered links, and the connections that arrive on them.
    pub fn serve(&mut self, random: &mut Random) {
        for (_, channel) in &self.listeners {
            while let Some((offer, descriptors)) = super::packet::receive(channel.as_raw_fd(), 0) {
                self.board.count(Counter::Offers, 1);
                self.links.extend(Link::of(&offer, true, descriptors));
            }
        }
        for link in &mut self.links {
            link.take(random);
        }
    }

    /// Asks for a link to a listener of an honest program.
    pub fn connect(&mut self, random: &mut Random) -> Option<(u32, Address)> {
        let (listener, address) = self.honest(random)?;
        let to = if address.is_wildcard() {
            Address::v4([127, 0, 0, 1], address.port)
        } else {
            address
        };
        let [a, b, c] = to.to_words();
        let words = [u64::from(listener), a, b, c];
        self.board.count(Counter::Requests, 1);
        let (answer, descriptors) = self.attach.want(Operation::Connect, &words, &[])?;
        self.links.extend(Link::of(&answer, false, descriptors));
        Some((listener, to))
    }

    /// Asks for ports, which the program may then show as its own.
    pub fn reserve(&mut self, count: u64) -> bool {
        self.board.count(Counter::Requests, 1);
        // A late answer would still grant the ports, and the judge would not know of them.
        let asked = self
            .attach
            .ask_within(60_000, Operation::Ports, &[count], &[]);
        let Some((answer, _)) = asked.filter(|(answer, _)| answer.status == 0) else {
            return false;
        };
        let first = u16::try_from(answer.words[0]).unwrap_or(0);
        let given = u16::try_from(answer.words[1]).unwrap_or(0);
        for port in first..first.saturating_add(given) {
            self.board.grant(port);
            self.ports.push(port);
        }
        given > 0
    }

    /// An address from which a connection may claim to come.
    pub fn address(&self, random: &mut Random) -> Address {
        let honest = FIRST_PORT + u16::try_from(random.below(PORTS)).unwrap_or(0);
        let own = self.ports.get(random.below(self.ports.len().max(1)));
        match random.below(8) {
            0 => Address::v4([203, 0, 113, 9], 443),
            1 => Address::v4([127, 0, 0, 1], 22),
            2 => Address::v4([127, 0, 0, 1], honest),
            3 => Address::v4(
                [10, 77, 1, 1],
                1 + u16::from(random.number().to_le_bytes()[0]),
            ),
            4 => Address::v6(1_u128.to_be_bytes(), honest, 0),
            _ => Address::v4([127, 0, 0, 1], own.copied().unwrap_or(10_000)),
        }
    }

    /// A word that the daemon might accept.
    pub fn word(&self, random: &mut Random) -> u64 {
        let near = [0, 0, 0, 1, u64::MAX][random.below(5)];
        let base = match random.below(12) {
            0 | 1 => {
                let listed = self.listed();
                let one = listed.get(random.below(listed.len().max(1)));
                one.map_or(1, |(number, _)| u64::from(*number))
            }
            2 => self.links.last().map_or(1 << 20, |link| link.number),
            3 => self.listeners.last().map_or(1, |(number, _)| *number),
            4 => self.region,
            5 => self.cookie,
            6 => self.address(random).to_words()[0],
            7 => random.below(70_000) as u64,
            8 => u64::MAX,
            9 => random.number(),
            10 => self
                .listeners
                .last()
                .map_or(1, |(number, _)| *number << 32 | *number),
            _ => random.below(4) as u64,
        };
        base.wrapping_add(near)
    }

    /// A descriptor: one of its own, or a new one of any kind, which is pushed to `made` so that it lives as long as
    /// the message.
    pub fn descriptor(&self, random: &mut Random, made: &mut Vec<OwnedFd>) -> RawFd {
        let links = &self.links;
        let link = links.get(random.below(links.len().max(1)));
        let owned = match random.below(8) {
            0 => Some(self.memory.as_raw_fd()),
            1 => Some(self.directory_file.as_raw_fd()),
            2 | 3 => link.map(|link| {
                let place = random.below(link.descriptors.len().min(4));
                link.descriptors[place].as_raw_fd()
            }),
            4 => self
                .listeners
                .last()
                .map(|(_, channel)| channel.as_raw_fd()),
            _ => None,
        };
        if let Some(descriptor) = owned {
            return descriptor;
        }
        made.extend(kinds::any(&self.board, random));
        made.last()
            .map_or_else(|| self.memory.as_raw_fd(), AsRawFd::as_raw_fd)
    }
}

/// The kernel's cookie of a socket.
pub fn cookie_of(socket: RawFd) -> Option<u64> {
    sys::option(socket, libc::SOL_SOCKET, SO_COOKIE).ok()
}
