//! Two hosts on one machine: network namespaces joined by a veth pair, for experiments and tests.
//!
//! The crate makes them, gives addresses to their ends and processors to each host, starts programs in either, pulls
//! the cable and reconnects it, and sets options of the devices and of TCP. The namespaces have no name: the kernel
//! keeps them as long as a process holds them open or lives in them. A guard process ends all processes that live in
//! them as soon as their maker has ended, in whatever way. So nothing is left behind, and any number of them can be in
//! use at a time.
//!
//! A sandbox is a third namespace, in which a host's addresses lie on loopback and nothing leads out.
//!
//! It never touches the machine's own network. Of NetChannel it only knows how a daemon is configured for another host.
//!
//! ```text
//!   maker --- Hosts --+-- Host a  10.77.1.1  veth0 ======== veth0  10.77.2.1  Host b
//!     |               |           fd77:1::1                        fd77:2::1
//!     |               +-- enter(&mut Command), within(|| ...), cable, offload
//!     +--- pipe ---> guard: when the pipe ends, kills what lives in a or b
//! ```

mod configuration;
mod delay;
mod device;
mod guard;
mod loss;
mod namespace;
mod netlink;
mod processors;
mod rights;
mod sandbox;

pub use configuration::{Configuration, daemon_arguments, write_key};
pub use delay::Delay;
pub use device::{BUFFER, DEVICE, Offload};
pub use loss::Loss;
pub use processors::Cores;
pub use rights::gain_rights;
pub use sandbox::Sandbox;

use guard::Guard;
use namespace::Namespace;
use processors::Processors;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Addresses of each family that a host has: the first, and others for whom one has not ports enough.
pub const ADDRESSES: u8 = 8;

/// Why the two hosts can not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not let us make namespaces.
    #[error(
        "network namespaces cannot be made ({0}): this needs root with CAP_SYS_ADMIN, or user namespaces \
         (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )]
    NotAllowed(#[source] io::Error),
    /// `ip` is missing.
    #[error("`ip` is not installed (Debian: apt-get install iproute2)")]
    NoIproute,
    /// The devices could not be set up.
    #[error("the two hosts cannot be joined: {0}")]
    Devices(String),
    /// The kernel does not show the available processors.
    #[error("the processors of this machine cannot be divided: {0}")]
    Processors(#[source] io::Error),
    /// The guard could not be started.
    #[error("the guard of the two hosts cannot be started: {0}")]
    Guard(#[source] io::Error),
}

/// Two hosts and the cable between them. They end with this value.
#[derive(Debug)]
pub struct Hosts {
    // Dropped first: it ends the inhabitants while the namespaces are still held.
    _guard: Guard,
    /// One.
    pub a: Host,
    /// The other.
    pub b: Host,
}

impl Hosts {
    /// Makes both, each with processors of its own. Where this process is not root, [`gain_rights`] comes first.
    ///
    /// # Errors
    /// If that is not allowed, or `ip` is missing or fails.
    pub fn make() -> Result<Self, Error> {
        Hosts::make_with(Cores::Own)
    }

    /// Makes both, with processors of their own or shared ones.
    ///
    /// # Errors
    /// If that is not allowed, or `ip` is missing or fails.
    pub fn make_with(cores: Cores) -> Result<Self, Error> {
        let [of_a, of_b] = Processors::divide(cores).map_err(Error::Processors)?;
        let a = Host::make("a", 1, of_a).map_err(Error::NotAllowed)?;
        let b = Host::make("b", 2, of_b).map_err(Error::NotAllowed)?;
        let guard = Guard::start(&[&a.namespace, &b.namespace]).map_err(Error::Guard)?;
        let hosts = Hosts {
            _guard: guard,
            a,
            b,
        };
        device::join(&hosts.a, &hosts.b)?;
        Ok(hosts)
    }

    /// Pulls the cable at one end, or puts it in again: `b` loses its device, `a` its carrier. Addresses stay.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn cable(&self, up: bool) -> Result<(), Error> {
        let word = if up { "up" } else { "down" };
        device::ip(&self.b, &format!("link set {DEVICE} {word}\n"))
    }

    /// Makes a second cable between them, of a network of its own.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn second_cable(&self) -> Result<(), Error> {
        device::join_again(&self.a, &self.b)
    }

    /// TCP's congestion control for all connections between the two, whatever the kernel's default is.
    ///
    /// # Errors
    /// If the kernel does not have it.
    pub fn congestion_control(&self, name: &str) -> Result<(), Error> {
        device::congestion_control(&self.a, name)?;
        device::congestion_control(&self.b, name)
    }

    /// Acknowledgements are not delayed any more, within a host or between the two: bytes that Nagle's algorithm holds
    /// back are sent at once.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn acknowledge_at_once(&self) -> Result<(), Error> {
        device::acknowledge_at_once(&self.a)?;
        device::acknowledge_at_once(&self.b)
    }

    /// A connect to an address that neither host has waits, as for a host that does not answer.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn blackhole_other_addresses(&self) -> Result<(), Error> {
        device::blackhole_other_addresses(&self.a, &self.b)?;
        device::blackhole_other_addresses(&self.b, &self.a)
    }

    /// Loses this part, from 0 to 1, of the packets that `b` receives, as long as the answer lives. Meanwhile segments are cut
    /// before they are sent, so that each packet is one, and the packets must not be larger than a page.
    ///
    /// # Errors
    /// If the kernel takes no XDP program, or not from this user.
    pub fn lose(&self, part: f64) -> io::Result<Loss> {
        self.b.within(|| loss::lose(part))?
    }

    /// Delays the packets that `b` receives by this time, as long as the answer lives. A thread of this process lets them go on, on
    /// `b`'s processors.
    ///
    /// # Errors
    /// If the kernel has no queue for packets (`nft_queue`, or `xt_NFQUEUE` with `nft_compat`), or not for this user.
    pub fn delay(&self, time: Duration) -> io::Result<Delay> {
        let processors = self.b.processors.clone();
        self.b.within(|| delay::delay(time, processors))?
    }

    /// Bytes of a packet, and segments of one call of a device at most: 1 for what no optimisation sees.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn packets(&self, bytes: u16, segments: u16) -> Result<(), Error> {
        for host in [&self.a, &self.b] {
            device::packets(host, bytes, segments)?;
        }
        Ok(())
    }

    /// Bytes to which the buffers of new TCP connections may grow, in either direction.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn buffers(&self, bytes: usize) -> io::Result<()> {
        device::buffers(&self.a, bytes)?;
        device::buffers(&self.b, bytes)
    }

    /// Turns segmentation offload of both ends on or off.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn offload(&self, offload: Offload) -> io::Result<()> {
        self.a.within(|| device::offload(offload))??;
        self.b.within(|| device::offload(offload))?
    }
}

/// One of two hosts.
#[derive(Debug, Clone)]
pub struct Host {
    name: &'static str,
    /// The third byte of its IPv4 addresses and the second group of its IPv6 addresses.
    number: u8,
    namespace: Namespace,
    processors: Processors,
}

impl Host {
    fn make(name: &'static str, number: u8, processors: Processors) -> io::Result<Self> {
        Ok(Host {
            name,
            number,
            namespace: Namespace::make()?,
            processors,
        })
    }

    /// The processors that are its own; none where it shares all with the other host.
    #[must_use]
    pub fn processors(&self) -> &[usize] {
        self.processors.numbers()
    }

    /// `a` or `b`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its IPv4 address of an index below [`ADDRESSES`].
    #[must_use]
    pub fn v4(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 1 + index)
    }

    /// Its IPv4 address on the second cable, where there is one.
    #[must_use]
    pub fn v4_of_second_cable(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, 0, self.number)
    }

    /// Its IPv6 address of an index below [`ADDRESSES`].
    #[must_use]
    pub fn v6(&self, index: u8) -> Ipv6Addr {
        Ipv6Addr::new(
            0xfd77,
            u16::from(self.number),
            0,
            0,
            0,
            0,
            0,
            1 + u16::from(index),
        )
    }

    /// The first of 256 addresses that contain all its IPv4 addresses, and none of the other host.
    #[must_use]
    pub fn network_v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 0)
    }

    /// The 64 bits that all its IPv6 addresses begin with, and none of the other host's.
    #[must_use]
    pub fn network_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, u16::from(self.number), 0, 0, 0, 0, 0, 0)
    }

    /// Its first IPv4 address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        IpAddr::V4(self.v4(0))
    }

    /// Its processors in the kernel's notation.
    fn mask(&self) -> String {
        self.processors.mask()
    }

    /// Lets a program start in this host, on its processors.
    pub fn enter(&self, command: &mut Command) {
        self.enter_on(command, self.processors.clone());
    }

    /// Lets a program start in this host on one of its processors, the next one for the next index; on any, where the hosts share
    /// all.
    pub fn enter_at(&self, command: &mut Command, index: usize) {
        self.enter_on(command, self.processors.one(index));
    }

    fn enter_on(&self, command: &mut Command, processors: Processors) {
        let namespace = self.namespace.clone();
        // SAFETY: both are plain system calls; nothing is allocated or locked.
        unsafe {
            command.pre_exec(move || {
                processors.keep()?;
                namespace.enter()
            })
        };
    }

    /// A program that starts in this host.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.enter(&mut command);
        command
    }

    /// Does something in this host, on a thread of its own: what it opens belongs to this host for good.
    ///
    /// # Errors
    /// If the thread cannot enter.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.within(work)
    }

    /// A setting below `/proc/sys/net` of this host, such as `ipv4/tcp_congestion_control`.
    ///
    /// # Errors
    /// If there is no setting of that name.
    pub fn setting(&self, name: &str) -> io::Result<String> {
        let text = self.within(|| fs::read_to_string(format!("/proc/sys/net/{name}")))??;
        Ok(text.trim().to_owned())
    }

    /// Changes a setting below `/proc/sys/net` of this host.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&self, name: &str, value: &str) -> io::Result<()> {
        self.within(|| fs::write(format!("/proc/sys/net/{name}"), value))?
    }

    /// The path of the namespace for other processes, as long as this process holds it: `nsenter --net=PATH`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let descriptor = self.namespace.as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{descriptor}", std::process::id()))
    }

    /// The namespace's inode, by which `/proc/PID/ns/net` names it.
    ///
    /// # Errors
    /// If the kernel does not show it.
    pub fn inode(&self) -> io::Result<u64> {
        self.namespace.inode()
    }
}
