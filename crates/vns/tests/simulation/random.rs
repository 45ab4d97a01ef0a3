//! Random numbers that depend on nothing but the seed.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15);
        random.word();
        random
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From 0 to `most`, both included.
    pub fn upto(&mut self, most: u64) -> u64 {
        match most.checked_add(1) {
            Some(values) => self.word() % values,
            None => self.word(),
        }
    }

    /// From `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.upto(most - least)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.word().is_multiple_of(times)
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.word() % length as u64).unwrap()
    }

    /// A length that is often small, from 1 to `most`.
    pub fn length(&mut self, most: u64) -> u64 {
        let most = match self.upto(3) {
            0 => most.min(3),
            1 => most.min(100),
            _ => most,
        };
        self.between(1, most.max(1))
    }
}
