//! The tenant of this program: its addresses, and whom its programs ask for names.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fs::File;
use std::io::Read;

use libc::{c_char, c_int};
use netchannel_abi::address::Address;

use super::exchange;
use crate::descriptors::{attach, gateway};
use crate::ground::real;
use crate::resolver::{Failure, Found, Name, Resolver, Settings};

/// More of a file is not read.
const MOST_FILE: u64 = 64 << 10;
const HOST_NAME: usize = 256;

/// The addresses that programs of the tenant have.
#[derive(Clone, Copy)]
pub struct Tenant {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

impl Tenant {
    /// The tenant, if this program is attached and belongs to one.
    pub fn current() -> Option<Self> {
        let attachment = attach::current()?;
        gateway::listener(attachment)?;
        let (v4, v6) = (Address::v4([0; 4], 0), Address::v6([0; 16], 0, 0));
        let octets = |family: &Address| gateway::source_address(attachment, family);
        Some(Self {
            v4: octets(&v4).and_then(|own| Some(own.bytes.first_chunk::<4>().copied()?.into())),
            v6: octets(&v6).map(|own| own.bytes.into()),
        })
    }

    /// The tenant of a program that need not be attached yet, as one is that looks names up before it has a socket.
    #[cold]
    pub fn of_program() -> Option<Self> {
        let _ = crate::is_ready() && attach::ensure().is_some();
        Self::current()
    }

    /// The address from which a connection starts.
    pub fn source(&self, to: IpAddr) -> Option<IpAddr> {
        match to.to_canonical() {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }

    /// Whom to ask, in this order: the operator's resolver or a program of the tenant, at its own address; then the servers of
    /// `resolv.conf`. One of loopback would be found by the C library, if it served.
    fn servers(&self, settings: &Settings) -> Vec<IpAddr> {
        let own = [self.v4.map(IpAddr::V4), self.v6.map(IpAddr::V6)];
        let mut servers: Vec<IpAddr> = own.into_iter().flatten().collect();
        for server in &settings.servers {
            let plain = server.to_canonical();
            let is_elsewhere = !plain.is_loopback() && !plain.is_unspecified();
            if is_elsewhere && !servers.contains(&plain) {
                servers.push(plain);
            }
        }
        servers
    }

    /// Looks for what a program wrote, in the domains of the host.
    pub fn search(&self, text: &[u8], kinds: &[u16]) -> Result<Found, Failure> {
        self.resolve(false, |resolver| resolver.search(text, kinds))
    }

    /// Asks about one name.
    pub fn query(&self, name: &Name, kinds: &[u16]) -> Result<Found, Failure> {
        self.resolve(false, |resolver| resolver.query(name, kinds))
    }

    /// Looks names up with `work`; where `is_raw`, the answers are left to the program. `errno` is what it was before.
    #[cold]
    pub fn resolve(
        &self,
        is_raw: bool,
        work: impl FnOnce(&mut Resolver<'_>) -> Result<Found, Failure>,
    ) -> Result<Found, Failure> {
        let before = real::errno();
        let uncancelled = Uncancelled::begin();
        let settings = settings();
        let servers = self.servers(&settings);
        let mut ask = |server, questions: &[_]| exchange::ask(server, questions, settings.timeout);
        let result = work(&mut Resolver {
            settings: &settings,
            servers: &servers,
            ask: &mut ask,
            is_raw,
            random: exchange::random,
        });
        drop(uncancelled);
        real::set_errno(before);
        result
    }
}

fn settings() -> Settings {
    let mut file = Vec::new();
    if let Ok(opened) = File::open("/etc/resolv.conf") {
        // What could be read of it counts.
        let _ = opened.take(MOST_FILE).read_to_end(&mut file);
    }
    let mut host = [0_u8; HOST_NAME];
    // SAFETY: a local buffer of that length, of which the last byte is not given away.
    unsafe { libc::gethostname(host.as_mut_ptr().cast::<c_char>(), HOST_NAME - 1) };
    let host = host.split(|byte| *byte == 0).next().unwrap_or_default();
    Settings::read(&file, host)
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, former: *mut c_int) -> c_int;
}

/// While this lives, the thread is not cancelled: a descriptor and memory would be lost.
struct Uncancelled(c_int);

impl Uncancelled {
    fn begin() -> Self {
        const DISABLED: c_int = 1;
        let mut former = 0;
        // SAFETY: a local.
        unsafe { pthread_setcancelstate(DISABLED, &raw mut former) };
        Self(former)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: no pointer is given back.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}
