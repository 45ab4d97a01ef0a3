//! Tenants share a bottleneck in the network by weight, however many connections each has (NetKernel, section 6.2: a share of a tenant, not of
//! a flow). The stack can not see the bottleneck; it sees what each tenant's sockets took over a while, and which tenants wanted more. Whose
//! sockets took more than its share of that gets a rate a little above its share, so that the sum can grow; whose took all that it wanted gets
//! none.

/// How much above its share a rate is, in parts of 1000: the sum of all rates follows a bottleneck that widens.
const ABOVE: u64 = 1050;
/// What a new measurement counts, in parts of 4.
const FRESH: u64 = 2;
/// Bytes per second below which nothing is shared.
const LEAST: u64 = 64 << 10;

/// What one tenant did over an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Its weight.
    pub weight: u64,
    /// Bytes per second that its sockets took.
    pub rate: u64,
    /// It has more to send than they took.
    pub wants_more: bool,
}

/// What is known of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Its rate, smoothed.
    smooth: u64,
}

impl Share {
    /// Adds a measurement, and returns the smoothed rate.
    pub const fn measure(&mut self, rate: u64) -> u64 {
        self.smooth = if self.smooth == 0 {
            rate
        } else {
            (self.smooth * (4 - FRESH) + rate * FRESH) / 4
        };
        self.smooth
    }
}

/// The rates of tenants, in bytes per second: `None` where one needs none.
pub fn rates(demands: &[Demand]) -> Vec<Option<u64>> {
    let hungry: Vec<&Demand> = demands.iter().filter(|one| one.wants_more).collect();
    let mut rates = vec![None; demands.len()];
    let weights: u64 = hungry.iter().map(|one| one.weight).sum();
    let all: u64 = hungry.iter().map(|one| one.rate).sum();
    if hungry.len() < 2 || weights == 0 || all < LEAST {
        return rates;
    }
    for (rate, demand) in rates.iter_mut().zip(demands) {
        if demand.wants_more {
            let share = u128::from(all) * u128::from(demand.weight) / u128::from(weights);
            let share = u64::try_from(share).unwrap_or(u64::MAX);
            *rate = Some((share.saturating_mul(ABOVE) / 1000).max(1));
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(weight: u64, rate: u64, wants_more: bool) -> Demand {
        Demand {
            weight,
            rate,
            wants_more,
        }
    }

    /// A bottleneck that gives flows equal parts, as far as their rates let them.
    fn bottleneck(capacity: f64, flows: &[f64], limits: &[Option<u64>]) -> Vec<f64> {
        let mut got = vec![0.0; flows.len()];
        let mut left = capacity;
        let mut open: Vec<usize> = (0..flows.len()).collect();
        while !open.is_empty() && left > 1.0 {
            let all: f64 = open.iter().map(|one| flows[*one]).sum();
            let given = left;
            left = 0.0;
            open.retain(|one| {
                got[*one] += given * flows[*one] / all;
                let limit = limits[*one].map_or(f64::INFINITY, |limit| limit as f64);
                if got[*one] > limit {
                    left += got[*one] - limit;
                    got[*one] = limit;
                    return false;
                }
                true
            });
        }
        got
    }

    fn jain(shares: &[f64]) -> f64 {
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|one| one * one).sum();
        sum * sum / (shares.len() as f64 * squares)
    }

    #[test]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates of a few hundred million"
    )]
    fn tenants_of_one_eight_and_32_flows_share_alike_and_follow_the_bottleneck() {
        let flows = [1.0, 8.0, 32.0];
        let mut limits = vec![None; 3];
        let mut shares = [Share::default(); 3];
        for (capacity, wanted) in [(1e8, 0.95), (3e8, 0.95), (5e7, 0.95)] {
            let mut got = Vec::new();
            for _ in 0..60 {
                got = bottleneck(capacity, &flows, &limits);
                let demands: Vec<Demand> = got
                    .iter()
                    .zip(&mut shares)
                    .map(|(rate, share)| demand(1, share.measure(*rate as u64), true))
                    .collect();
                limits = rates(&demands);
            }
            let used: f64 = got.iter().sum();
            assert!(jain(&got) > 0.99 && used > wanted * capacity, "{got:?}");
        }
    }

    #[test]
    fn who_wants_no_more_has_no_rate_and_one_alone_neither() {
        let alone = [demand(1, 1 << 30, true), demand(1, 1 << 20, false)];
        assert_eq!(rates(&alone), [None, None]);
        let two = [
            demand(3, 3 << 20, true),
            demand(1, 1 << 20, true),
            demand(1, 9, false),
        ];
        let found = rates(&two);
        assert_eq!(found[2], None);
        let (one, other) = (found[0].unwrap(), found[1].unwrap());
        assert!(one.abs_diff(3 * other) <= 3, "{found:?}");
    }
}
