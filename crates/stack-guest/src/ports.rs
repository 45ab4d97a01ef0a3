//! At which ports of the tenant's addresses programs listen: what the host is to know, and where its connections lead.

use netchannel_abi::address::{Address, INET};
use netchannel_guest::Families;
use netchannel_service::addresses::covers;
use netchannel_service::core_engine::OwnListener;
use std::collections::BTreeMap;

/// The listeners of the guest's programs.
#[derive(Debug, Default)]
pub struct Ports {
    listeners: BTreeMap<u32, OwnListener>,
}

impl Ports {
    /// A listener came.
    pub fn add(&mut self, number: u32, listener: OwnListener) {
        self.listeners.insert(number, listener);
    }

    /// A listener went. Returns where it was.
    pub fn remove(&mut self, number: u32) -> Option<u16> {
        let gone = self.listeners.remove(&number);
        gone.map(|one| one.address.port)
    }

    /// All ports at which somebody listens, some of them perhaps more than once.
    pub fn all(&self) -> Vec<u16> {
        let all = self.listeners.values();
        all.map(|one| one.address.port).collect()
    }

    /// The listener that takes connections to an address: one at that very address before one at any.
    pub fn listener(&self, to: &Address) -> Option<u32> {
        let is_v4 = to.unmapped().family == INET;
        let takes = |one: &OwnListener| covers(&one.address, to) && !(one.v6_only && is_v4);
        let found = self.listeners.iter().filter(|(_, one)| takes(one));
        let best = found.min_by_key(|(_, one)| one.address.is_wildcard());
        best.map(|(number, _)| *number)
    }

    /// By which families somebody listens at a port of these addresses.
    pub fn families(&self, port: u16, own: &[Address]) -> Families {
        let mut families = Families::NONE;
        for address in own {
            let at = Address { port, ..*address };
            if self.listener(&at).is_some() {
                match address.family {
                    INET => families.v4 = true,
                    _ => families.v6 = true,
                }
            }
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_shown_by_the_families_of_the_tenants_addresses() {
        let own = [Address::v4([10, 88, 0, 2], 0), Address::v6([7; 16], 0, 0)];
        let mut ports = Ports::default();
        let at = |address: Address, v6_only| OwnListener {
            address,
            v6_only,
            defers: 0,
        };
        ports.add(1, at(Address::v4([0; 4], 80), false));
        ports.add(2, at(Address::v6([0; 16], 81, 0), true));
        ports.add(3, at(Address::v6([0; 16], 82, 0), false));
        ports.add(4, at(Address::v4([127, 0, 0, 1], 83), false));
        ports.add(5, at(Address::v4([10, 88, 0, 2], 80), false));
        let families = |port| {
            let found = ports.families(port, &own);
            (found.v4, found.v6)
        };
        assert_eq!(families(80), (true, false));
        assert_eq!(families(81), (false, true));
        assert_eq!(families(82), (true, true));
        assert_eq!(families(83), (false, false));
        let to = Address { port: 80, ..own[0] };
        assert_eq!(ports.listener(&to), Some(5));
        assert_eq!(ports.remove(5), Some(80));
        assert_eq!(ports.listener(&to), Some(1));
    }
}
