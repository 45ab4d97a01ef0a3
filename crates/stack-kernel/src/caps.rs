//! The caps of a tenant: a token bucket for each direction, shared by all its connections.

use netchannel_configuration::Tenant;
use netchannel_scheduler::{Rate, TokenBucket};

/// What a tenant may move now.
#[derive(Debug, Default)]
pub struct Caps {
    /// To the network.
    pub outgoing: Cap,
    /// From the network. Bytes that are not read stay with the kernel, and its window tells the sender.
    pub incoming: Cap,
}

/// Steps of a second in which bytes are let go: over a tenth of a second a cap is met within a fiftieth.
const STEPS: u64 = 500;
/// Bytes of a step, at least: calls for less cost more than they even out.
const LEAST_STEP: u64 = 16 << 10;

/// One direction.
#[derive(Debug, Default)]
pub struct Cap {
    /// What the tenant's table says.
    own: Option<TokenBucket>,
    /// Its share of a bottleneck.
    share: Option<TokenBucket>,
}

impl Caps {
    /// The caps that a tenant's table says, from `now` on. A bucket that stays keeps its tokens.
    pub fn set(&mut self, tenant: &Tenant, now: u64) {
        self.outgoing.set(tenant.rate_out, now);
        self.incoming.set(tenant.rate_in, now);
    }
}

impl Cap {
    fn set(&mut self, rate: Option<Rate>, now: u64) {
        set_bucket(&mut self.own, rate, now);
    }

    /// Whether it has a share of a bottleneck.
    pub const fn has_share(&self) -> bool {
        self.share.is_some()
    }

    /// Sets its share of a bottleneck.
    pub fn set_share(&mut self, rate: Option<u64>, now: u64) {
        set_bucket(&mut self.share, rate.map(Rate::bytes), now);
    }

    /// How many of `wanted` bytes may be moved.
    ///
    /// # Errors
    /// The time from which it is worth asking again.
    pub fn permit(&mut self, wanted: u64, now: u64) -> Result<u64, u64> {
        permitted_by([&mut self.own, &mut self.share], wanted, now)
    }

    /// So many bytes were moved.
    pub fn take(&mut self, bytes: u64) {
        for bucket in [&mut self.own, &mut self.share].into_iter().flatten() {
            bucket.take(bytes);
        }
    }
}

/// The caps of one tenant's outgoing and another's incoming bytes, which go past the stack's sockets: shares of a bottleneck there do not
/// count. On another host nobody's cap is known.
pub struct Between<'a>(pub Option<&'a mut Cap>, pub Option<&'a mut Cap>);

impl Between<'_> {
    /// Whether there is none.
    pub fn is_free(&self) -> bool {
        let mut caps = [&self.0, &self.1].into_iter().flatten();
        caps.all(|cap| cap.own.is_none())
    }

    /// As [`Cap::permit`].
    ///
    /// # Errors
    /// The time from which it is worth asking again.
    pub fn permit(&mut self, wanted: u64, now: u64) -> Result<u64, u64> {
        let caps = [&mut self.0, &mut self.1].into_iter().flatten();
        permitted_by(caps.map(|cap| &mut cap.own), wanted, now)
    }

    /// So many bytes were moved.
    pub fn take(&mut self, bytes: u64) {
        let caps = [&mut self.0, &mut self.1].into_iter().flatten();
        for bucket in caps.filter_map(|cap| cap.own.as_mut()) {
            bucket.take(bytes);
        }
    }
}

/// What both buckets permit.
fn permitted_by<'a>(
    buckets: impl IntoIterator<Item = &'a mut Option<TokenBucket>>,
    wanted: u64,
    now: u64,
) -> Result<u64, u64> {
    let mut permitted = wanted;
    for bucket in buckets.into_iter().flatten() {
        let step = (bucket.rate().per_second() / STEPS).max(LEAST_STEP);
        permitted = bucket.permit(permitted.min(step), now)?;
    }
    Ok(permitted)
}

fn set_bucket(bucket: &mut Option<TokenBucket>, rate: Option<Rate>, now: u64) {
    match (bucket, rate) {
        (Some(bucket), Some(rate)) => bucket.set_rate(rate, now),
        (bucket, rate) => *bucket = rate.map(|rate| TokenBucket::full(rate, now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cap_all_is_permitted() {
        let mut cap = Cap::default();
        assert_eq!(cap.permit(1 << 40, 0), Ok(1 << 40));
        cap.take(1 << 40);
        assert_eq!(cap.permit(1, 0), Ok(1));
    }

    #[test]
    fn between_two_tenants_the_caps_of_both_hold_and_no_share() {
        let (mut from, mut to) = (Cap::default(), Cap::default());
        from.set_share(Some(1), 0);
        assert!(Between(Some(&mut from), Some(&mut to)).is_free());
        assert_eq!(
            Between(Some(&mut from), Some(&mut to)).permit(1 << 40, 0),
            Ok(1 << 40)
        );
        from.set(Some(Rate::new(1000, 500)), 0);
        to.set(Some(Rate::new(1000, 300)), 0);
        let mut both = Between(Some(&mut from), Some(&mut to));
        assert!(!both.is_free());
        assert_eq!(both.permit(400, 0), Ok(300));
        both.take(300);
        assert_eq!(both.permit(100, 0), Err(100_000_000));
        assert_eq!(
            Between(None, Some(&mut to)).permit(400, 0),
            Err(300_000_000)
        );
        assert!(Between(None, None).is_free());
        // Neither has lost what the other did not permit.
        let mut other = Cap::default();
        assert_eq!(
            Between(Some(&mut from), Some(&mut other)).permit(200, 0),
            Ok(200)
        );
    }

    #[test]
    fn a_cap_that_changes_keeps_what_was_used() {
        let mut cap = Cap::default();
        cap.set(Some(Rate::new(1000, 100)), 0);
        assert_eq!(cap.permit(500, 0), Ok(100));
        cap.take(100);
        cap.set(Some(Rate::new(2000, 100)), 0);
        assert_eq!(cap.permit(100, 0), Err(50_000_000));
        cap.set(None, 0);
        assert_eq!(cap.permit(500, 0), Ok(500));
        cap.set_share(Some(50_000), 0);
        assert_eq!(cap.permit(5000, 0), Ok(4096));
        cap.take(4096);
        assert!(cap.permit(1, 0).is_err());
    }
}
