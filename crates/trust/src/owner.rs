//! The trusted owners.

use crate::calls;
use core::ffi::CStr;

const ROOT: u32 = 0;
/// The user that the kernel shows for users outside of a user namespace, unless it was configured otherwise.
const OVERFLOW: u32 = 65534;
/// The map of a namespace that knows every user under his own number.
const EVERYBODY: [u32; 3] = [0, 0, u32::MAX];

/// The trusted owners of a file or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owners {
    /// The effective user who checks.
    pub own: u32,
    /// The number that stands for every user outside of this user namespace, including the host's root. `None` where
    /// all users are known.
    pub unmapped: Option<u32>,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The user who checks, or root.
    Trusted,
    /// Unmapped: the host's root, or any other user outside of this namespace.
    Unmapped,
    /// Another user.
    Stranger,
}

impl Owners {
    /// The owners for the calling thread.
    #[must_use]
    pub fn now() -> Self {
        Self {
            own: calls::user(),
            unmapped: in_user_namespace().then(overflow),
        }
    }

    /// Compares `user`.
    #[must_use]
    pub fn ownership(&self, user: u32) -> Ownership {
        // This is checked also where it is our own number: the two can not be distinguished then.
        if Some(user) == self.unmapped {
            return Ownership::Unmapped;
        }
        if user == ROOT || user == self.own {
            return Ownership::Trusted;
        }
        Ownership::Stranger
    }
}

/// Whether there are users of the host that this process can not name. False where `/proc` does not tell.
#[must_use]
pub fn in_user_namespace() -> bool {
    let mut text = [0; 256];
    let text = file(c"/proc/self/uid_map", &mut text);
    text.is_some_and(|text| !knows_everybody(text))
}

fn knows_everybody(map: &str) -> bool {
    let mut numbers = map.split_ascii_whitespace().map(str::parse::<u32>);
    let same = EVERYBODY.iter().all(|known| {
        let number = numbers.next();
        number.is_some_and(|number| number.as_ref() == Ok(known))
    });
    same && numbers.next().is_none()
}

fn overflow() -> u32 {
    let mut text = [0; 16];
    file(c"/proc/sys/kernel/overflowuid", &mut text)
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(OVERFLOW)
}

fn file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a str> {
    let length = calls::read(path, buffer).ok()?;
    core::str::from_utf8(buffer.get(..length)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_of_the_host_knows_everybody() {
        assert!(knows_everybody("         0          0 4294967295\n"));
        for other in [
            "",
            "0 1001 1\n",
            "0 0 65536\n",
            "0 100000 65536\n65536 0 1\n",
            "0 0 4294967295\n1 1 1\n",
        ] {
            assert!(!knows_everybody(other), "{other:?}");
        }
    }

    #[test]
    fn nobody_is_a_stranger_but_where_users_are_unknown() {
        let host = Owners {
            own: 1001,
            unmapped: None,
        };
        assert_eq!(host.ownership(0), Ownership::Trusted);
        assert_eq!(host.ownership(1001), Ownership::Trusted);
        assert_eq!(host.ownership(OVERFLOW), Ownership::Stranger);
        let inside = Owners {
            own: OVERFLOW,
            unmapped: Some(OVERFLOW),
        };
        assert_eq!(inside.ownership(0), Ownership::Trusted);
        assert_eq!(inside.ownership(OVERFLOW), Ownership::Unmapped);
        assert_eq!(inside.ownership(1002), Ownership::Stranger);
    }
}
