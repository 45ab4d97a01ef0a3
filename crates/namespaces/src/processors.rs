//! The processors of a host: two hosts never share one, unless that is requested or there is only one.

use std::fmt::Write as _;
use std::io;
use std::mem::size_of;
use std::sync::Arc;

/// How the processors of this machine are divided among the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cores {
    /// Each host has a half of its own, which also processes what it receives.
    #[default]
    Own,
    /// Both have all.
    Shared,
}

/// The processors of one host; none where it shares all with the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processors(Arc<[usize]>);

impl Processors {
    /// The processors of both hosts.
    pub fn divide(cores: Cores) -> io::Result<[Self; 2]> {
        let usable = usable()?;
        if cores == Cores::Shared || usable.len() < 2 {
            return Ok([Processors::default(), Processors::default()]);
        }
        let (first, second) = usable.split_at(usable.len() / 2);
        Ok([Processors(first.into()), Processors(second.into())])
    }

    /// Their numbers.
    pub fn numbers(&self) -> &[usize] {
        &self.0
    }

    /// One of them, in turns.
    pub fn one(&self, index: usize) -> Self {
        let chosen = self.0.iter().cycle().nth(index % self.0.len().max(1));
        Processors(chosen.copied().into_iter().collect())
    }

    /// Keeps the calling thread, and what it starts, to them.
    pub fn keep(&self) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        // SAFETY: all-zero is an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &number in self.0.iter() {
            // SAFETY: the numbers are of processors that a set of this size had.
            unsafe { libc::CPU_SET(number, &mut set) };
        }
        // SAFETY: `set` is live and of the size given.
        let result =
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// As the kernel writes them: hexadecimal, words of 32 from the highest on.
    pub fn mask(&self) -> String {
        let highest = self.0.iter().max().copied().unwrap_or(0) / 32;
        let mut text = String::new();
        for word in (0..=highest).rev() {
            let of_word = self.0.iter().filter(|&&number| number / 32 == word);
            let bits = of_word.fold(0_u32, |bits, number| bits | 1 << (number % 32));
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(text, "{comma}{bits:08x}");
        }
        text
    }
}

fn usable() -> io::Result<Vec<usize>> {
    // SAFETY: all-zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live output of the size given.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number is below the size of the set.
    let is_in = |number: &usize| unsafe { libc::CPU_ISSET(*number, &set) };
    Ok((0..8 * size_of::<libc::cpu_set_t>())
        .filter(is_in)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_as_the_kernel_writes_them() {
        let mask = |numbers: &[usize]| Processors(numbers.into()).mask();
        assert_eq!(mask(&[0]), "00000001");
        assert_eq!(mask(&[1, 4, 31]), "80000012");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
    }

    #[test]
    fn no_processor_is_of_both_hosts() {
        let [a, b] = Processors::divide(Cores::Own).unwrap();
        assert!(a.numbers().iter().all(|one| !b.numbers().contains(one)));
        assert_eq!(a.numbers().is_empty(), b.numbers().is_empty());
        let [a, b] = Processors::divide(Cores::Shared).unwrap();
        assert!(a.numbers().is_empty() && b.numbers().is_empty());
    }
}
