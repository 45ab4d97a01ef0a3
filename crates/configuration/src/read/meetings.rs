//! `meets` of `[[tenants]]`: it holds where two tables name each other, so that it is looked at once all are read.

use super::table::{Item, Section};
use crate::tenant::{Met, Tenant};

/// What one table says.
pub struct Wanted<'a> {
    pub section: Section<'a>,
    pub names: Vec<Item<String>>,
}

/// The tenants with those that each may meet. `wanted` is in the order of `tenants`.
pub fn meet(mut tenants: Vec<Tenant>, wanted: &[Wanted<'_>]) -> Vec<Tenant> {
    for (place, one) in wanted.iter().enumerate() {
        let mut met: Vec<Met> = Vec::new();
        for item in &one.names {
            match check(place, &item.value, &met, &tenants, wanted) {
                Ok(found) => met.push(found),
                Err(sentence) => one.section.report(&item.span, "meets", sentence),
            }
        }
        if let Some(tenant) = tenants.get_mut(place) {
            tenant.meets = met;
        }
    }
    tenants
}

/// The tenant of that name, or why the one at `place`, which meets those in `met`, can not meet it.
fn check(
    place: usize,
    name: &str,
    met: &[Met],
    tenants: &[Tenant],
    wanted: &[Wanted<'_>],
) -> Result<Met, String> {
    let own = tenants.get(place).ok_or_else(String::new)?;
    if own.name == name {
        return Err("the programs of one tenant reach each other anyway: remove it".to_owned());
    }
    if met.iter().any(|one| one.name == name) {
        return Err(format!("{name} is named twice: remove one"));
    }
    let mut named = tenants.iter().enumerate();
    let Some((other_place, other)) = named.find(|(_, one)| one.name == name) else {
        return Err(format!(
            "there is no tenant {name}: write the name of another one, or add its table [[tenants]]"
        ));
    };
    let found = Met {
        name: other.name.clone(),
        addresses: other.addresses.clone(),
    };
    let names_back = wanted
        .get(other_place)
        .is_some_and(|one| one.names.iter().any(|item| item.value == own.name));
    if !names_back {
        return Err(format!(
            "tenant {name} does not name {own} in turn: add meets = [\"{own}\"] to its table, or remove it here",
            own = own.name
        ));
    }
    // What is the same from either side is told once.
    if other_place < place && own.stack != other.stack {
        let shown = |stack: &Option<String>| stack.clone().unwrap_or_else(|| "kernel".to_owned());
        return Err(format!(
            "tenant {name} has the stack {} and this one {}: give both the same",
            shown(&other.stack),
            shown(&own.stack)
        ));
    }
    let is_own = |one: &&std::net::IpAddr| other_place < place && own.addresses.contains(one);
    if let Some(address) = other.addresses.iter().find(is_own) {
        return Err(format!(
            "tenant {name} has the address {address}, too: tenants that meet need different ones"
        ));
    }
    let twin = met.iter().find(|one| {
        one.addresses
            .iter()
            .any(|one| other.addresses.contains(one))
    });
    if let Some(twin) = twin {
        return Err(format!(
            "tenants {} and {name} have the same address: give one of them another",
            twin.name
        ));
    }
    Ok(found)
}
