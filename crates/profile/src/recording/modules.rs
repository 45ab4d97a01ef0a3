//! The files that code is mapped from.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file with code.
#[derive(Debug)]
pub struct Module {
    /// Its path in the view of the process.
    pub path: PathBuf,
    /// The file, which may be another host path, or deleted by now. None where it cannot be opened.
    pub file: Option<File>,
}

impl Module {
    /// The last part of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.or_else(|| self.path.to_str()).unwrap_or("[unknown]")
    }

    /// Whether it is NetChannel's library.
    #[must_use]
    pub fn is_the_library(&self) -> bool {
        self.name().starts_with("libnetchannel")
    }

    /// Whether it has code of NetChannel, by its name.
    #[must_use]
    pub fn may_be_netchannel(&self) -> bool {
        self.is_the_library() || self.name().starts_with("netchannel")
    }
}

/// All files that code came from, each once.
#[derive(Debug, Default)]
pub struct Modules {
    all: Vec<Module>,
    places: HashMap<(PathBuf, u64), u32>,
}

impl Modules {
    /// The place of the file that a process has mapped.
    pub fn place(&mut self, pid: u32, path: &Path, inode: u64) -> u32 {
        let key = (path.to_owned(), inode);
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        self.all.push(Module {
            path: path.to_owned(),
            file: open(pid, path, inode),
        });
        let place = super::last(self.all.len());
        self.places.insert(key, place);
        place
    }

    /// The file at a place.
    #[must_use]
    pub fn get(&self, place: u32) -> Option<&Module> {
        self.all.get(usize::try_from(place).ok()?)
    }
}

/// Opens the file itself, not another one that has its path by now or in another container.
fn open(pid: u32, path: &Path, inode: u64) -> Option<File> {
    let beside = path.strip_prefix("/").ok()?;
    let within = Path::new("/proc")
        .join(pid.to_string())
        .join("root")
        .join(beside);
    [within.as_path(), path].into_iter().find_map(|path| {
        // A pipe or a device must not be waited for.
        let is_it = std::fs::metadata(path).ok()?;
        (is_it.is_file() && (is_it.ino() == inode || inode == 0))
            .then(|| File::open(path).ok())
            .flatten()
    })
}
