//! Tenants that may meet have one worker of the stack together: it leads their connections from lane to lane.

use netchannel_configuration::Tenant;

/// The places of the one at `place` and of those that it may meet, or that they may meet in turn, as long as none has a stack
/// process; in order.
pub fn group(tenants: &[&Tenant], place: usize) -> Vec<usize> {
    let mut found = vec![place];
    let mut looked = 0;
    while let Some(one) = found.get(looked).and_then(|place| tenants.get(*place)) {
        looked += 1;
        for (other_place, other) in tenants.iter().enumerate() {
            let meet = one.may_meet(&other.name) && other.may_meet(&one.name);
            if meet && other.stack.is_none() && !found.contains(&other_place) {
                found.push(other_place);
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_configuration::Met;

    fn tenant(name: &str, meets: &[&str]) -> Tenant {
        let met = |name: &&str| Met {
            name: (*name).to_owned(),
            addresses: Vec::new(),
        };
        Tenant {
            meets: meets.iter().map(met).collect(),
            ..Tenant::new(name, Vec::new())
        }
    }

    #[test]
    fn who_meets_whom_directly_or_by_others_is_one_group() {
        let mut all = [
            tenant("a", &["c"]),
            tenant("b", &["d"]),
            tenant("c", &["a", "e"]),
            tenant("d", &[]),
            tenant("e", &["c"]),
        ];
        let of = |all: &[Tenant], place| group(&all.iter().collect::<Vec<_>>(), place);
        for place in [0, 2, 4] {
            assert_eq!(of(&all, place), [0, 2, 4]);
        }
        assert_eq!((of(&all, 1), of(&all, 3)), (vec![1], vec![3]));
        all[2].stack = Some("egress".to_owned());
        assert_eq!(of(&all, 0), [0]);
    }
}
