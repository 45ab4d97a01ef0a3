//! The port that `getsockname` shows for a socket whose connection has ended, and that is neither bound nor connected
//! again. As over TCP it is the former port, though it no longer belongs to the socket. The kernel socket in its place
//! never had it.

use core::sync::atomic::{AtomicU32, Ordering};

/// The port that the kernel shows for such a socket, which it does not own either, and the former port. All zero is
/// none.
#[derive(Default)]
pub struct FormerPort(AtomicU32);

impl FormerPort {
    /// Notes that the kernel shows `shown`, and that the socket had `former`.
    pub fn note(&self, shown: u16, former: u16) {
        let word = u32::from(shown) << 16 | u32::from(former);
        self.0.store(word, Ordering::Relaxed);
    }

    /// Forgets it: the socket gets another port.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether there is one.
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The port to show instead of the kernel's.
    pub fn instead_of(&self, port: u16) -> u16 {
        let word = self.0.load(Ordering::Relaxed);
        if word >> 16 == u32::from(port) && word != 0 {
            word as u16
        } else {
            port
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FormerPort;

    #[test]
    fn only_what_is_no_port_is_replaced() {
        let former = FormerPort::default();
        assert_eq!(former.instead_of(0), 0);
        former.note(0, 700);
        assert_eq!((former.instead_of(0), former.instead_of(8)), (700, 8));
        former.note(9, 700);
        assert_eq!((former.instead_of(9), former.instead_of(0)), (700, 0));
        former.forget();
        assert_eq!(former.instead_of(9), 9);
    }
}
