//! The functions of the kernel, by address.

use std::io;
use std::path::Path;

/// The kernel's list of symbols.
const PATH: &str = "/proc/kallsyms";

/// The functions of the kernel and its modules.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// The start addresses, in order.
    addresses: Vec<u64>,
    /// The range of each name in the text.
    names: Vec<(u32, u32)>,
    text: String,
}

impl KernelSymbols {
    /// The symbols of this host. Empty where they are hidden from this user.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn here() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string(Path::new(PATH))?))
    }

    /// Reads lines such as `ffffffff81e2e17f T __sys_socket [module]`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found: Vec<(u64, &str)> = text.lines().filter_map(function).collect();
        // Stable: of several names of one place the first is kept.
        found.sort_by_key(|(address, _)| *address);
        found.dedup_by_key(|(address, _)| *address);
        let mut symbols = Self::default();
        for (address, name) in found {
            let start = symbols.text.len();
            symbols.text.push_str(name);
            let place = |place| u32::try_from(place).unwrap_or(u32::MAX);
            symbols
                .names
                .push((place(start), place(symbols.text.len())));
            symbols.addresses.push(address);
        }
        symbols
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Which function has the address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<u32> {
        let after = self.addresses.partition_point(|start| *start <= address);
        u32::try_from(after.checked_sub(1)?).ok()
    }

    /// The name of a function.
    #[must_use]
    pub fn name(&self, place: u32) -> &str {
        let place = usize::try_from(place).ok();
        let range = place.and_then(|place| self.names.get(place));
        let name = range.and_then(|(start, end)| {
            let (start, end) = (usize::try_from(*start).ok()?, usize::try_from(*end).ok()?);
            self.text.get(start..end)
        });
        name.unwrap_or("[unknown]")
    }
}

fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    let name = words.next()?;
    (is_code && address != 0).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_the_function_that_begins_before_it() {
        let symbols = KernelSymbols::parse(
            "20 t second\n10 T first\n10 T alias\n15 D data\n30 t third [module]\n",
        );
        let name = |address| symbols.find(address).map(|place| symbols.name(place));
        assert_eq!(name(0xf), None);
        assert_eq!(name(0x10), Some("first"));
        assert_eq!(name(0x1f), Some("first"));
        assert_eq!(name(0x20), Some("second"));
        assert_eq!(name(0x99), Some("third"));
    }

    #[test]
    fn hidden_addresses_are_none() {
        let symbols = KernelSymbols::parse("0000000000000000 T first\n0000000000000000 t second\n");
        assert!(symbols.is_empty());
    }
}
