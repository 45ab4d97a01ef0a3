//! `trusts` of `[[tenants]]`: whose programs share memory. It holds where two tables name each other and nothing in them needs somebody on
//! the way of their bytes.

use super::table::{Item, Section};
use crate::tenant::{TENANT_CONNECTIONS, Tenant};

/// The key.
pub const KEY: &str = "trusts";

/// The tenants with those that each trusts. `sections` are in the order of `tenants`.
pub fn trust(mut tenants: Vec<Tenant>, sections: &[Section<'_>]) -> Vec<Tenant> {
    let wanted: Vec<Vec<Item<String>>> = sections.iter().map(|one| one.strings(KEY)).collect();
    for (place, (section, names)) in sections.iter().zip(&wanted).enumerate() {
        let mut trusted: Vec<String> = Vec::new();
        for item in names {
            match check(place, &item.value, &trusted, &tenants, &wanted) {
                Ok(()) => trusted.push(item.value.clone()),
                Err(sentence) => section.report(&item.span, KEY, sentence),
            }
        }
        if let Some(tenant) = tenants.get_mut(place) {
            tenant.trusts = trusted;
        }
    }
    tenants
}

/// Why the tenant at `place`, which trusts those in `trusted`, can not trust the one of that name.
fn check(
    place: usize,
    name: &str,
    trusted: &[String],
    tenants: &[Tenant],
    wanted: &[Vec<Item<String>>],
) -> Result<(), String> {
    let own = tenants.get(place).ok_or_else(String::new)?;
    if trusted.iter().any(|one| one == name) {
        return Err(format!("{name} is named twice: remove one"));
    }
    if !own.may_meet(name) {
        return Err(format!(
            "this tenant does not meet {name}: add meets = [\"{name}\"], or remove it here"
        ));
    }
    let other_place = tenants.iter().position(|one| one.name == name);
    let other_place = other_place.ok_or_else(String::new)?;
    let other = tenants.get(other_place).ok_or_else(String::new)?;
    let names_back = wanted
        .get(other_place)
        .is_some_and(|names| names.iter().any(|item| item.value == own.name));
    if !names_back {
        return Err(format!(
            "tenant {name} does not trust {own} in turn: add trusts = [\"{own}\"] to its table, or remove it here",
            own = own.name
        ));
    }
    if let Some(key) = counted(own) {
        return Err(format!(
            "nobody is on the way between programs that share memory, so {key} would not hold: remove one of the two"
        ));
    }
    // What is the same from either side is told once.
    if other_place < place && own.user != other.user {
        return Err(format!(
            "tenant {name} is of another user, and programs of two users share no memory: give both the same user, or remove it here"
        ));
    }
    Ok(())
}

/// A key of a table that holds only where somebody is on the way.
fn counted(tenant: &Tenant) -> Option<&'static str> {
    let keys = [
        ("rate-in", tenant.rate_in.is_some()),
        ("rate-out", tenant.rate_out.is_some()),
        ("connections", tenant.connections != TENANT_CONNECTIONS),
    ];
    keys.into_iter()
        .find_map(|(key, is_set)| is_set.then_some(key))
}
