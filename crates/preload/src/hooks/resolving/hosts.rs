//! Entries of hosts, as the functions of `gethostbyname` return them.

use core::ffi::CStr;
use core::net::IpAddr;

use libc::{c_char, c_int, hostent};

use super::tenant::Tenant;
use crate::resolver::{Failure, Found, Name, kinds};

/// A host.
pub struct Host {
    name: String,
    aliases: Vec<String>,
    addresses: Vec<IpAddr>,
    family: c_int,
}

impl Host {
    /// The host of a name, with its addresses of one family.
    ///
    /// # Errors
    /// Why there is none.
    pub fn by_name(tenant: &Tenant, name: &CStr, family: c_int) -> Result<Self, Failure> {
        let kind = match family {
            libc::AF_INET => kinds::A,
            libc::AF_INET6 => kinds::AAAA,
            _ => return Err(Failure::NotFound),
        };
        let found = tenant.search(name.to_bytes(), &[kind])?;
        Self::of(&found, family).ok_or(Failure::NoRecovery)
    }

    fn of(found: &Found, family: c_int) -> Option<Self> {
        let reply = found.first()?;
        Some(Self {
            name: reply.canonical.host()?,
            aliases: reply.aliases.iter().filter_map(Name::host).collect(),
            addresses: found.addresses(),
            family,
        })
    }

    /// The host of an address.
    ///
    /// # Errors
    /// Why there is none.
    pub fn by_address(tenant: &Tenant, address: IpAddr) -> Result<Self, Failure> {
        let asked = Name::reverse(address).ok_or(Failure::NotFound)?;
        let found = tenant.query(&asked, &[kinds::PTR])?;
        let names = found.0.iter().flat_map(|reply| &reply.names);
        let mut names = names.filter_map(Name::host);
        Ok(Self {
            name: names.next().ok_or(Failure::NoRecovery)?,
            aliases: names.collect(),
            addresses: vec![address],
            family: match address {
                IpAddr::V4(_) => libc::AF_INET,
                IpAddr::V6(_) => libc::AF_INET6,
            },
        })
    }

    /// Leaves out what has no place in a buffer that does not grow.
    pub fn shorten(&mut self, addresses: usize, aliases: usize) {
        self.addresses.truncate(addresses);
        self.aliases.truncate(aliases);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it as the C structure, with all it points at in `room` bytes at `buffer`. `false` where these are too few.
    ///
    /// # Safety
    /// Both may be written.
    pub unsafe fn write(&self, entry: *mut hostent, buffer: *mut c_char, room: usize) -> bool {
        let length = if self.family == libc::AF_INET6 { 16 } else { 4 };
        let before = buffer.align_offset(align_of::<*mut c_char>());
        let pointers = self.aliases.len() + self.addresses.len() + 2;
        let texts = core::iter::once(&self.name).chain(&self.aliases);
        let text_bytes: usize = texts.map(|text| text.len() + 1).sum();
        let list_bytes = pointers * size_of::<*mut c_char>();
        let needed = before + list_bytes + self.addresses.len() * length + text_bytes;
        if needed > room {
            return false;
        }
        // SAFETY: the lists, the addresses and the texts lie one after the other, and need no more than `room`.
        unsafe {
            let mut list = buffer.add(before).cast::<*mut c_char>();
            let mut place = buffer.add(before + list_bytes);
            let mut put = |bytes: &[u8]| {
                let at = place;
                core::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), at, bytes.len());
                place = place.add(bytes.len());
                at
            };
            let addresses = list;
            for address in &self.addresses {
                list.write(match address {
                    IpAddr::V4(v4) => put(&v4.octets()),
                    IpAddr::V6(v6) => put(&v6.octets()),
                });
                list = list.add(1);
            }
            list.write(core::ptr::null_mut());
            list = list.add(1);
            let mut text = |text: &str| {
                let at = put(text.as_bytes());
                put(&[0]);
                at
            };
            let name = text(&self.name);
            let aliases = list;
            for alias in &self.aliases {
                list.write(text(alias));
                list = list.add(1);
            }
            list.write(core::ptr::null_mut());
            entry.write(hostent {
                h_name: name,
                h_aliases: aliases,
                h_addrtype: self.family,
                h_length: c_int::try_from(length).unwrap_or(0),
                h_addr_list: addresses,
            });
        }
        true
    }
}
