//! A place without a network: for programs of a tenant.

use crate::guard::Guard;
use crate::{Error, Host, device};
use std::ops::{Deref, RangeInclusive};

/// A namespace that has the first addresses of a host on its loopback device, and no other device. It ends with this value.
#[derive(Debug)]
pub struct Sandbox {
    // Dropped first, as that of the hosts is.
    _guard: Guard,
    place: Host,
}

impl Sandbox {
    /// Makes one on the processors of a host, with addresses of its network: 0 are those of the host. Ports that the kernel chooses in it
    /// are among `ports`.
    ///
    /// # Errors
    /// As for the hosts.
    pub fn make(host: &Host, address: u8, ports: &RangeInclusive<u16>) -> Result<Self, Error> {
        let processors = host.processors.clone();
        let place = Host::make("sandbox", host.number, processors).map_err(Error::NotAllowed)?;
        let guard = Guard::start(&[&place.namespace]).map_err(Error::Guard)?;
        device::on_loopback(&place, address)?;
        let range = format!("{} {}", ports.start(), ports.end());
        let set = place.set("ipv4/ip_local_port_range", &range);
        set.map_err(|error| Error::Devices(error.to_string()))?;
        Ok(Sandbox {
            _guard: guard,
            place,
        })
    }
}

impl Deref for Sandbox {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.place
    }
}
