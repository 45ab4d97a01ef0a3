//! Name servers of the program's own network namespace: what the kernel leads to them stays the kernel's.

use std::fs;

use netchannel_abi::address::Address;
use netchannel_abi::message::NAMES_PORT;

/// The kernel's lists of sockets, of each family, and the state of those that serve.
pub struct Lists([&'static str; 2], &'static str);

/// Of datagrams.
pub const UDP: Lists = Lists(["/proc/self/net/udp", "/proc/self/net/udp6"], "07");
/// Of listeners.
pub const TCP: Lists = Lists(["/proc/self/net/tcp", "/proc/self/net/tcp6"], "0A");

/// Whether a socket of this namespace has port 53 at the address. Where the kernel does not say, one may have it.
pub fn serves(to: &Address, Lists(paths, state): Lists) -> bool {
    let to = to.unmapped();
    let is_there = |own: Address| {
        own.port == NAMES_PORT && (own.is_wildcard() || own.unmapped().bytes == to.bytes)
    };
    // Without IPv6 there is no second list.
    let [Ok(first), second] = paths.map(fs::read_to_string) else {
        return true;
    };
    let second = second.unwrap_or_default();
    let mut lines = first.lines().chain(second.lines());
    lines.any(|line| bound(line, state).is_some_and(is_there))
}

/// The address to which a socket of that state is bound, in a line like `7: 0100007F:0035 00000000:0000 07 ...`.
fn bound(line: &str, state: &str) -> Option<Address> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    words.nth(1).filter(|word| *word == state)?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = [0; 16];
    for (place, digits) in bytes.chunks_exact_mut(4).zip(address.as_bytes().chunks(8)) {
        let word = u32::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?;
        place.copy_from_slice(&word.to_ne_bytes());
    }
    Some(match address.len() {
        8 => Address::v4(*bytes.first_chunk()?, port),
        _ => Address::v6(bytes, port, 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let four = "  671: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 18";
        assert_eq!(bound(four, "07"), Some(Address::v4([127, 0, 0, 53], 53)));
        let six =
            "  671: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07";
        assert_eq!(bound(six, "07"), Some(Address::loopback(true, 53)));
        assert_eq!(bound(four, "0A"), None);
        let title = "  sl  local_address rem_address   st tx_queue";
        assert_eq!(bound(title, "07"), None);
    }
}
