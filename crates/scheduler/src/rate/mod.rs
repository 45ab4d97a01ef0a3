//! Token buckets: over any span of time, at most the burst and the rate times the span.

mod text;

pub use text::RateError;

use crate::time::SECOND;

/// Largest burst and largest rate per second of a [`Rate`]; within it no product below overflows 64 bits.
pub const MOST: u64 = 8_000_000_000;

/// Largest rate per second: 1 Tbit/s in bytes.
pub const MOST_PER_SECOND: u64 = 125_000_000_000;

/// A cap: units (bytes, or operations) per second, and how many may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    per_second: u64,
    burst: u64,
}

impl Rate {
    /// A rate of 1 to [`MOST_PER_SECOND`] with a burst of 1 to [`MOST`]; other values become the nearest of these.
    #[must_use]
    pub fn new(per_second: u64, burst: u64) -> Self {
        Self {
            per_second: per_second.clamp(1, MOST_PER_SECOND),
            burst: burst.clamp(1, MOST),
        }
    }

    /// A rate in bytes, with a burst of 20 ms of the rate, and at least 4096.
    #[must_use]
    pub fn bytes(per_second: u64) -> Self {
        Self::new(per_second, (per_second / 50).max(4096))
    }

    /// A rate in operations, with a burst of 20 ms of the rate, and at least 1.
    #[must_use]
    pub fn operations(per_second: u64) -> Self {
        Self::new(per_second, per_second / 50)
    }

    /// Units per second.
    #[must_use]
    pub const fn per_second(self) -> u64 {
        self.per_second
    }

    /// Units at once.
    #[must_use]
    pub const fn burst(self) -> u64 {
        self.burst
    }

    /// Divides this cap over the workers of one tenant, by their recent demand: first equal parts, then the unused
    /// parts to the workers that need more (max-min), then the rest to all. The sum of the parts never exceeds the cap,
    /// except for the minimum rate of 1 of each.
    ///
    /// `demands` are units per second; `parts` gets as many rates as both are long.
    pub fn divide(self, demands: &[u64], parts: &mut [Self]) {
        let count = demands.len().min(parts.len());
        let (demands, parts) = (&demands[..count], &mut parts[..count]);
        let Ok(workers) = u64::try_from(count.max(1)) else {
            return;
        };
        // The level up to which every demand is met: found by raising it, at most once per worker.
        let mut level = self.per_second / workers;
        for _ in 0..count {
            let met = demands.iter().filter(|demand| **demand <= level);
            let (used, satisfied) = met.fold((0u64, 0u64), |(used, satisfied), demand| {
                (used.saturating_add(*demand), satisfied + 1)
            });
            if satisfied == workers {
                break;
            }
            let raised = self.per_second.saturating_sub(used) / (workers - satisfied);
            if raised <= level {
                break;
            }
            level = raised;
        }
        let used = demands.iter().fold(0u64, |used, demand| {
            used.saturating_add((*demand).min(level))
        });
        let spare = self.per_second.saturating_sub(used) / workers;
        for (part, demand) in parts.iter_mut().zip(demands) {
            let rate = (*demand).min(level) + spare;
            let burst = u128::from(self.burst) * u128::from(rate) / u128::from(self.per_second);
            *part = Self::new(rate, u64::try_from(burst).unwrap_or(MOST));
        }
    }
}

/// Tokens of one [`Rate`].
///
/// Only whole tokens are given out; the fraction is kept, so that no rounding adds up. Time that runs backwards counts
/// as standing still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    /// Nanoseconds after which an empty bucket is full.
    fills_in: u64,
    tokens: u64,
    /// Less than a token, in token-nanoseconds.
    fraction: u64,
    filled_at: u64,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn full(rate: Rate, now: u64) -> Self {
        Self {
            tokens: rate.burst,
            ..Self::empty(rate, now)
        }
    }

    /// An empty bucket.
    #[must_use]
    pub fn empty(rate: Rate, now: u64) -> Self {
        Self {
            rate,
            fills_in: (rate.burst * SECOND).div_ceil(rate.per_second),
            tokens: 0,
            fraction: 0,
            filled_at: now,
        }
    }

    /// Another rate, from now on. Tokens in hand stay, up to the new burst.
    pub fn set_rate(&mut self, rate: Rate, now: u64) {
        self.fill(now);
        let tokens = self.tokens.min(rate.burst);
        *self = Self {
            tokens,
            ..Self::empty(rate, now.max(self.filled_at))
        };
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Tokens in hand.
    pub fn available(&mut self, now: u64) -> u64 {
        self.fill(now);
        self.tokens
    }

    /// How many of `wanted` tokens may be taken.
    ///
    /// All or the burst at least, so that a cap makes segments late rather than small.
    ///
    /// # Errors
    ///
    /// The time from which it is worth asking again.
    pub fn permit(&mut self, wanted: u64, now: u64) -> Result<u64, u64> {
        self.fill(now);
        let least = wanted.min(self.rate.burst);
        if self.tokens >= least {
            return Ok(wanted.min(self.tokens));
        }
        let missing = (least - self.tokens) * SECOND - self.fraction;
        let wait = missing.div_ceil(self.rate.per_second);
        Err(self.filled_at.saturating_add(wait))
    }

    /// Takes tokens that were permitted.
    pub fn take(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_sub(tokens);
    }

    fn fill(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.filled_at);
        if elapsed == 0 {
            return;
        }
        self.filled_at = now;
        if elapsed >= self.fills_in {
            self.tokens = self.rate.burst;
            self.fraction = 0;
            return;
        }
        // Below burst * SECOND + per_second + SECOND, because elapsed < fills_in.
        let gained = elapsed * self.rate.per_second + self.fraction;
        let tokens = self.tokens + gained / SECOND;
        if tokens >= self.rate.burst {
            self.tokens = self.rate.burst;
            self.fraction = 0;
        } else {
            self.tokens = tokens;
            self.fraction = gained % SECOND;
        }
    }
}

/// The two caps of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    bytes: Option<TokenBucket>,
    operations: Option<TokenBucket>,
}

impl Allowance {
    /// Full buckets for the existing caps.
    #[must_use]
    pub fn full(bytes: Option<Rate>, operations: Option<Rate>, now: u64) -> Self {
        Self {
            bytes: bytes.map(|rate| TokenBucket::full(rate, now)),
            operations: operations.map(|rate| TokenBucket::full(rate, now)),
        }
    }

    /// Other caps. A bucket that stays keeps its tokens; a new one begins full.
    pub fn set(&mut self, bytes: Option<Rate>, operations: Option<Rate>, now: u64) {
        let kept = |bucket: Option<TokenBucket>, rate: Option<Rate>| match (bucket, rate) {
            (Some(mut bucket), Some(rate)) => {
                bucket.set_rate(rate, now);
                Some(bucket)
            }
            (None, Some(rate)) => Some(TokenBucket::full(rate, now)),
            (_, None) => None,
        };
        self.bytes = kept(self.bytes, bytes);
        self.operations = kept(self.operations, operations);
    }

    /// How many of `wanted` bytes one operation may send.
    ///
    /// # Errors
    ///
    /// The time from which it is worth asking again.
    pub fn permit(&mut self, wanted: u32, now: u64) -> Result<u32, u64> {
        if let Some(operations) = &mut self.operations {
            operations.permit(1, now)?;
        }
        let Some(bytes) = &mut self.bytes else {
            return Ok(wanted);
        };
        let permitted = bytes.permit(u64::from(wanted), now)?;
        Ok(u32::try_from(permitted).unwrap_or(wanted))
    }

    /// Takes one operation that carries no bytes (a connect).
    ///
    /// # Errors
    ///
    /// The time from which it is worth asking again.
    pub fn admit(&mut self, now: u64) -> Result<(), u64> {
        if let Some(operations) = &mut self.operations {
            operations.permit(1, now)?;
            operations.take(1);
        }
        Ok(())
    }

    /// Takes what one operation sent.
    pub fn take(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.take(bytes);
        }
        if let Some(bucket) = &mut self.operations {
            bucket.take(1);
        }
    }
}

#[cfg(test)]
mod tests;
