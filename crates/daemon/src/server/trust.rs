//! Tenants that trust one another: whose programs have links to one another.

use netchannel_configuration::Tenant;

/// The places of those whom the one at `place` trusts, and who trust it; in order.
pub fn trusted(tenants: &[&Tenant], place: usize) -> Vec<usize> {
    let Some(own) = tenants.get(place) else {
        return Vec::new();
    };
    let numbered = tenants.iter().enumerate();
    let trusted = numbered.filter(|(other_place, other)| {
        *other_place != place && own.does_trust(&other.name) && other.does_trust(&own.name)
    });
    trusted.map(|(other_place, _)| other_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_it_alone_is_not_trusted() {
        let tenant = |name, trusts: &[&str]| Tenant {
            trusts: trusts.iter().map(ToString::to_string).collect(),
            ..Tenant::new(name, Vec::new())
        };
        let all = [
            tenant("a", &["b", "c"]),
            tenant("b", &["a"]),
            tenant("c", &[]),
            tenant("d", &["d"]),
        ];
        let all: Vec<&Tenant> = all.iter().collect();
        let of = |place| trusted(&all, place);
        assert_eq!([of(0), of(1)], [[1], [0]]);
        assert!(of(2).is_empty() && of(3).is_empty() && of(4).is_empty());
    }
}
