//! Whether only the calling user and root can change what is at a path.

use crate::calls::{Facts, Named};
use crate::owner::Ownership;
use crate::{Distrust, Owners};
use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The kernel follows as many symbolic links.
const MOST_LINKS: u32 = 40;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Checks that the socket at `path`, and every directory and symbolic link on the way to it, belong to the calling user
/// or root, and that no other user may write these directories.
///
/// A directory with the sticky bit (`/tmp`) may be writable: only its owner can replace a file in it. An unmapped owner
/// counts as the host's root where no other user could have created the file: not within such a directory.
///
/// Returns how whoever may listen there is known, for [`peer::judge`](crate::peer::judge): the owner of the socket, or the host's root who has
/// given a socket in a directory of his to the calling user, as a tenant's.
///
/// # Errors
/// The first violation.
pub fn socket(path: &Path) -> Result<Ownership, Distrust> {
    let end = Walk::along(path, Owners::now())?;
    if !end.facts.is(libc::S_IFSOCK) {
        return Err(Distrust::NoSocket(end.path));
    }
    match end.within {
        Some(Ownership::Unmapped) => Ok(Ownership::Unmapped),
        _ => Ok(end.owners.ownership(end.facts.owner)),
    }
}

/// The same check of a directory.
///
/// # Errors
/// The first violation.
pub fn folder(path: &Path) -> Result<(), Distrust> {
    let owners = Owners::now();
    let end = Walk::along(path, owners)?;
    if !end.facts.is(libc::S_IFDIR) {
        return Err(Distrust::NoFolder(end.path));
    }
    end.check_folder()
}

/// The state of a walk along a path.
struct Walk {
    owners: Owners,
    path: PathBuf,
    at: Named,
    facts: Facts,
    /// Whose the directory is in which it was found by its name.
    within: Option<Ownership>,
}

impl Walk {
    /// Follows the path as the kernel does, and checks each component by descriptor: the checked component is the one
    /// that is walked through.
    fn along(path: &Path, owners: Owners) -> Result<Self, Distrust> {
        let mut ahead = components(path.as_os_str().as_bytes());
        let mut walk = Self::from(if path.is_absolute() { "/" } else { "." }, owners)?;
        let mut links = 0;
        while let Some(name) = ahead.pop_front() {
            if !walk.facts.is(libc::S_IFDIR) {
                return Err(Distrust::NoFolder(walk.path));
            }
            walk.check_folder()?;
            let entry = walk.step(&name)?;
            if !entry.facts.is(libc::S_IFLNK) {
                walk = entry;
                continue;
            }
            links += 1;
            let unreachable = |errno| Distrust::Unreachable(entry.path.clone(), errno);
            if links > MOST_LINKS {
                return Err(unreachable(libc::ELOOP));
            }
            let target = entry.at.target().map_err(unreachable)?;
            for name in components(&target).into_iter().rev() {
                ahead.push_front(name);
            }
            if target.starts_with(b"/") {
                walk = Self::from("/", owners)?;
            }
        }
        Ok(walk)
    }

    fn from(start: &str, owners: Owners) -> Result<Self, Distrust> {
        let name = CString::new(start).unwrap_or_default();
        Self::look(None, &name, PathBuf::from(start), owners)
    }

    fn look(
        folder: Option<&Named>,
        name: &CString,
        path: PathBuf,
        owners: Owners,
    ) -> Result<Self, Distrust> {
        let found = Named::find(folder, name).and_then(|at| Ok((at.facts()?, at)));
        let (facts, at) = found.map_err(|errno| Distrust::Unreachable(path.clone(), errno))?;
        Ok(Self {
            owners,
            path,
            at,
            facts,
            within: None,
        })
    }

    /// The entry of that name, after a check of its owner.
    fn step(&self, name: &[u8]) -> Result<Self, Distrust> {
        let path = self.path.join(OsStr::from_bytes(name));
        let text = CString::new(name);
        let text = text.map_err(|_| Distrust::Unreachable(path.clone(), libc::EINVAL))?;
        let mut entry = Self::look(Some(&self.at), &text, path, self.owners)?;
        entry.within = Some(self.owners.ownership(self.facts.owner));
        let trusted = match self.owners.ownership(entry.facts.owner) {
            Ownership::Trusted => true,
            // A directory of the host may be mounted into one of ours; a socket must be in a directory of the same
            // owner.
            Ownership::Unmapped if entry.facts.is(libc::S_IFSOCK) => {
                self.facts.owner == entry.facts.owner && !self.is_loose()
            }
            Ownership::Unmapped => !self.is_loose(),
            Ownership::Stranger => false,
        };
        if trusted {
            return Ok(entry);
        }
        Err(Distrust::Owner {
            path: entry.path,
            owner: entry.facts.owner,
            own: self.owners.own,
        })
    }

    /// Whether other users may create files in this directory.
    fn is_loose(&self) -> bool {
        self.facts.mode & WRITABLE_BY_OTHERS != 0
    }

    /// Whether no other user can replace files in this directory.
    fn check_folder(&self) -> Result<(), Distrust> {
        if self.owners.ownership(self.facts.owner) == Ownership::Stranger {
            return Err(Distrust::Owner {
                path: self.path.clone(),
                owner: self.facts.owner,
                own: self.owners.own,
            });
        }
        if self.is_loose() && self.facts.mode & libc::S_ISVTX == 0 {
            return Err(Distrust::Writable {
                path: self.path.clone(),
                mode: self.facts.mode,
            });
        }
        Ok(())
    }
}

/// The components of a path, without those that stand for the directory itself.
fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .collect()
}
