//! Whether nobody but the calling user and root can decide what lies at a path.

use crate::calls::{Facts, Named};
use crate::owner::Standing;
use crate::{Distrust, Owners};
use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// As many symbolic links as the kernel follows.
const MOST_LINKS: u32 = 40;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Whether the socket at `path`, and every folder and symbolic link on the way to it, belong to the calling user or root, and
/// nobody else may write those folders.
///
/// A folder with the sticky bit (`/tmp`) may be written: what lies in it can be replaced by its own owner only. An owner whom this
/// user namespace does not know is the host's root where nobody but him could have made it: not within such a folder.
///
/// Says how the socket's owner is known, for [`peer::judge`](crate::peer::judge).
///
/// # Errors
/// The first that is not so.
pub fn socket(path: &Path) -> Result<Standing, Distrust> {
    let end = Walk::along(path, Owners::now())?;
    if !end.facts.is(libc::S_IFSOCK) {
        return Err(Distrust::NoSocket(end.path));
    }
    Ok(end.owners.standing(end.facts.owner))
}

/// The same of a folder.
///
/// # Errors
/// The first that is not so.
pub fn folder(path: &Path) -> Result<(), Distrust> {
    let owners = Owners::now();
    let end = Walk::along(path, owners)?;
    if !end.facts.is(libc::S_IFDIR) {
        return Err(Distrust::NoFolder(end.path));
    }
    end.check_folder()
}

/// What a walk has come to.
struct Walk {
    owners: Owners,
    path: PathBuf,
    at: Named,
    facts: Facts,
}

impl Walk {
    /// Goes along the path as the kernel does, and judges what it sees by descriptor: what was judged is what is walked through.
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
        })
    }

    /// The entry of that name, whose owner is judged.
    fn step(&self, name: &[u8]) -> Result<Self, Distrust> {
        let path = self.path.join(OsStr::from_bytes(name));
        let text = CString::new(name);
        let text = text.map_err(|_| Distrust::Unreachable(path.clone(), libc::EINVAL))?;
        let entry = Self::look(Some(&self.at), &text, path, self.owners)?;
        let trusted = match self.owners.standing(entry.facts.owner) {
            Standing::Trusted => true,
            // A folder of the host may be mounted into one of ours, a socket must lie in a folder of the same owner.
            Standing::Unmapped if entry.facts.is(libc::S_IFSOCK) => {
                self.facts.owner == entry.facts.owner && !self.is_loose()
            }
            Standing::Unmapped => !self.is_loose(),
            Standing::Stranger => false,
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

    /// Whether others may put something into this folder.
    fn is_loose(&self) -> bool {
        self.facts.mode & WRITABLE_BY_OTHERS != 0
    }

    /// Whether nobody else can replace what lies in this folder.
    fn check_folder(&self) -> Result<(), Distrust> {
        if self.owners.standing(self.facts.owner) == Standing::Stranger {
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

/// The names between the slashes; what stands for the folder itself is left out.
fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .collect()
}
