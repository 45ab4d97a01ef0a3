//! `libnetchannel.so` in the folders of tenants, for images that are not the host: beside `nc.sock` lies `nc.sock.lib`.
//!
//! ```text
//!  nc.sock.lib/libnetchannel.so         one file, by a name in each tenant's folder
//!  nc.sock.lib/{lib,lib64,x86_64-linux-gnu} -> .
//! ```
//!
//! `LD_PRELOAD=.../nc.sock.lib/$LIB/libnetchannel.so`: a linker of glibc puts `lib64` or `lib/x86_64-linux-gnu` there. Another, as that of
//! musl, finds nothing under that name and goes on; with the file itself it would end every program.

use netchannel_control::path::{LIBRARY, library_folder};
use rustix::fs::StatVfsMountFlags;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What `$LIB` may be: of Debian, of RHEL, of others.
const NAMES_OF_LIB: [&str; 3] = ["lib", "lib64", DEBIANS];
/// Below `lib`.
const DEBIANS: &str = if cfg!(target_arch = "x86_64") {
    "x86_64-linux-gnu"
} else {
    "aarch64-linux-gnu"
};

/// The library of this daemon, for its tenants.
#[derive(Debug)]
pub struct Library {
    /// None where no library is named.
    source: Option<PathBuf>,
    /// The file that all tenants have names of: a thousand do not need it a thousand times.
    copy: PathBuf,
    is_copied: bool,
}

impl Library {
    /// For the tenants of the daemon at this socket.
    pub fn new(source: Option<&Path>, daemon_socket: &Path) -> Self {
        let folder = daemon_socket.parent().unwrap_or(Path::new("."));
        Self {
            source: source.map(Path::to_owned),
            copy: folder.join("tenants").join(LIBRARY),
            is_copied: false,
        }
    }

    /// Puts it beside a tenant's socket, in place of one of an older daemon, which programs may still have loaded.
    ///
    /// # Errors
    /// A sentence.
    pub fn place(&mut self, socket: &Path) -> Result<(), String> {
        let Some(source) = self.source.clone() else {
            return Ok(());
        };
        let folder = library_folder(socket);
        self.place_in(&folder, &source).map_err(|error| {
            format!(
                "containers load the library of the host: {} can not hold one ({error})",
                folder.display()
            )
        })
    }

    fn place_in(&mut self, folder: &Path, source: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o755).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => fs::set_permissions(folder, Permissions::from_mode(0o755))?,
        }
        if rustix::fs::statvfs(folder)?
            .f_flag
            .contains(StatVfsMountFlags::NOEXEC)
        {
            remove_folder(folder);
            return Err(io::Error::other("it is mounted without exec"));
        }
        if !self.is_copied {
            if let Some(parent) = self.copy.parent() {
                fs::create_dir_all(parent)?;
            }
            renew(&self.copy, |new| fs::copy(source, new).map(drop))?;
            self.is_copied = true;
        }
        renew(&folder.join(LIBRARY), |new| {
            // On another file system there can be no second name.
            fs::hard_link(&self.copy, new).or_else(|_| fs::copy(source, new).map(drop))
        })?;
        for name in NAMES_OF_LIB {
            match symlink(".", folder.join(name)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes what lies in the folder of a tenant that is no more.
    pub fn remove(&self, socket: &Path) {
        if self.source.is_some() {
            remove_folder(&library_folder(socket));
        }
    }

    /// No tenant is left.
    pub fn remove_copy(&mut self) {
        if std::mem::take(&mut self.is_copied) {
            let _ = fs::remove_file(&self.copy);
        }
    }
}

/// Makes a file that all may read, and gives it its name once it is whole.
fn renew(file: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let new = file.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    make(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o444))?;
    fs::rename(&new, file)?;
    // Two names of one file both stay.
    let _ = fs::remove_file(&new);
    Ok(())
}

/// Only what was put there.
fn remove_folder(folder: &Path) {
    for name in NAMES_OF_LIB.into_iter().chain([LIBRARY]) {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn tenants_have_names_of_one_file() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source.so");
        fs::write(&source, "one").unwrap();
        let sockets =
            ["a", "b"].map(|name| place.path().join("tenants").join(name).join("nc.sock"));
        for socket in &sockets {
            fs::create_dir_all(socket.parent().unwrap()).unwrap();
        }
        let mut library = Library::new(Some(&source), &place.path().join("nc.sock"));
        for socket in &sockets {
            library.place(socket).unwrap();
        }
        let files = sockets
            .each_ref()
            .map(|socket| library_folder(socket).join(LIBRARY));
        let number = |file: &Path| fs::metadata(file).unwrap().ino();
        assert_eq!(number(&files[0]), number(&files[1]));
        let through = library_folder(&sockets[0]).join("lib64").join(LIBRARY);
        assert_eq!(fs::read(through).unwrap(), b"one");
        assert_eq!(fs::metadata(&files[0]).unwrap().mode() & 0o777, 0o444);
        // A daemon of another version, over what the first has left.
        fs::write(&source, "two").unwrap();
        let loaded = fs::File::open(&files[0]).unwrap();
        let mut newer = Library::new(Some(&source), &place.path().join("nc.sock"));
        newer.place(&sockets[0]).unwrap();
        newer.place(&sockets[0]).unwrap();
        assert_eq!(fs::read(&files[0]).unwrap(), b"two");
        assert_eq!(io::read_to_string(loaded).unwrap(), "one");
        for socket in &sockets {
            newer.remove(socket);
            assert_eq!(fs::read_dir(socket.parent().unwrap()).unwrap().count(), 0);
        }
        newer.remove_copy();
        let left: Vec<_> = fs::read_dir(place.path().join("tenants"))
            .unwrap()
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn what_can_not_be_placed_is_told() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing.so");
        let socket = place.path().join("nc.sock");
        let told = Library::new(Some(&missing), &socket)
            .place(&socket)
            .unwrap_err();
        assert!(
            told.starts_with("containers load the library of the host: "),
            "{told}"
        );
        assert_eq!(Library::new(None, &socket).place(&socket), Ok(()));
    }
}
