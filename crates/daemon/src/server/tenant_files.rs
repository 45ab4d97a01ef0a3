//! What lies in the folders of tenants for images that are not the host: `libnetchannel.so`, and the supervisor of programs that it can not
//! enter, with the C library that it runs with. Beside `nc.sock` lies `nc.sock.lib`.
//!
//! ```text
//!  nc.sock.lib/libnetchannel.so         each one file, by a name in each tenant's folder
//!  nc.sock.lib/{lib,lib64,x86_64-linux-gnu} -> .
//!  nc.sock.lib/{netchannel-supervisor,ld.so,libc.so.6,libgcc_s.so.1}
//! ```
//!
//! `LD_PRELOAD=.../nc.sock.lib/$LIB/libnetchannel.so`: a linker of glibc puts `lib64` or `lib/x86_64-linux-gnu` there. Another, as that of
//! musl, finds nothing under that name and goes on; with the file itself it would end every program.

use netchannel_control::path::{LIBRARY, LINKER, SUPERVISOR, library_folder};
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
/// The C library of the supervisor.
const C_LIBRARY: [&str; 2] = ["libc.so.6", "libgcc_s.so.1"];
/// How the file of this host's linker is called, before its version.
const HOST_LINKER: &str = "ld-linux";

/// A file for all tenants.
#[derive(Debug)]
struct Part {
    name: &'static str,
    source: PathBuf,
    mode: u32,
}

/// The files of this daemon, for its tenants.
#[derive(Debug)]
pub struct Files {
    /// None where no library is named.
    parts: Vec<Part>,
    /// The folder with the files that all tenants have names of: a thousand do not need them a thousand times.
    copies: PathBuf,
    are_copied: bool,
}

impl Files {
    /// For the tenants of the daemon at this socket: this library, and the supervisor beside it.
    pub fn new(library: Option<&Path>, daemon_socket: &Path) -> Self {
        let folder = daemon_socket.parent().unwrap_or(Path::new("."));
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self {
            parts: library.map_or_else(Vec::new, |library| parts(library, &maps)),
            copies: folder.join("tenants"),
            are_copied: false,
        }
    }

    /// Puts them beside a tenant's socket, in place of those of an older daemon, which programs may still have loaded.
    ///
    /// # Errors
    /// A sentence.
    pub fn place(&mut self, socket: &Path) -> Result<(), String> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let folder = library_folder(socket);
        self.place_in(&folder).map_err(|error| {
            format!(
                "containers load the library of the host, and get no supervisor: {} can not hold one ({error})",
                folder.display()
            )
        })
    }

    fn place_in(&mut self, folder: &Path) -> io::Result<()> {
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
        if !self.are_copied {
            fs::create_dir_all(&self.copies)?;
            for part in &self.parts {
                let copy = self.copies.join(part.name);
                renew(&copy, part.mode, |new| {
                    fs::copy(&part.source, new).map(drop)
                })?;
            }
            self.are_copied = true;
        }
        for part in &self.parts {
            let copy = self.copies.join(part.name);
            renew(&folder.join(part.name), part.mode, |new| {
                // On another file system there can be no second name.
                fs::hard_link(&copy, new).or_else(|_| fs::copy(&copy, new).map(drop))
            })?;
        }
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
        if !self.parts.is_empty() {
            remove_folder(&library_folder(socket));
        }
    }

    /// No tenant is left.
    pub fn remove_copies(&mut self) {
        if std::mem::take(&mut self.are_copied) {
            for part in &self.parts {
                let _ = fs::remove_file(self.copies.join(part.name));
            }
        }
    }
}

/// The library, and the supervisor where all is there that it needs: it runs with the C library of this process.
fn parts(library: &Path, maps: &str) -> Vec<Part> {
    let part = |name, source: &Path, mode| Part {
        name,
        source: source.to_owned(),
        mode,
    };
    let mut parts = vec![part(LIBRARY, library, 0o444)];
    let supervisor = library.with_file_name(SUPERVISOR);
    if !supervisor.is_file() {
        tracing::info!(
            "containers get no supervisor: there is no {}",
            supervisor.display()
        );
        return parts;
    }
    let loaded = |is: &dyn Fn(&str) -> bool| {
        let paths = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]));
        let mut files = paths.map(Path::new);
        files.find(|file| {
            file.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is)
        })
    };
    let linker = loaded(&|name| name.starts_with(HOST_LINKER));
    let [libc, unwinder] = C_LIBRARY.map(|wanted| loaded(&|name| name == wanted));
    let (Some(linker), Some(libc), Some(unwinder)) = (linker, libc, unwinder) else {
        tracing::info!(
            "containers get no supervisor: this daemon has no C library that can be copied"
        );
        return parts;
    };
    parts.extend([
        part(SUPERVISOR, &supervisor, 0o555),
        part(LINKER, linker, 0o555),
        part(C_LIBRARY[0], libc, 0o444),
        part(C_LIBRARY[1], unwinder, 0o444),
    ]);
    parts
}

/// Makes a file that all may read, and gives it its name once it is whole.
fn renew(file: &Path, mode: u32, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    make(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(mode))?;
    fs::rename(&new, file)?;
    // Two names of one file both stay.
    let _ = fs::remove_file(&new);
    Ok(())
}

/// Only what was put there.
fn remove_folder(folder: &Path) {
    let files = [LIBRARY, SUPERVISOR, LINKER].into_iter().chain(C_LIBRARY);
    for name in NAMES_OF_LIB.into_iter().chain(files) {
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
        let mut library = Files::new(Some(&source), &place.path().join("nc.sock"));
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
        let mut newer = Files::new(Some(&source), &place.path().join("nc.sock"));
        newer.place(&sockets[0]).unwrap();
        newer.place(&sockets[0]).unwrap();
        assert_eq!(fs::read(&files[0]).unwrap(), b"two");
        assert_eq!(io::read_to_string(loaded).unwrap(), "one");
        for socket in &sockets {
            newer.remove(socket);
            assert_eq!(fs::read_dir(socket.parent().unwrap()).unwrap().count(), 0);
        }
        newer.remove_copies();
        let left: Vec<_> = fs::read_dir(place.path().join("tenants"))
            .unwrap()
            .collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn the_supervisor_has_the_c_library_of_the_daemon() {
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join(LIBRARY);
        fs::write(&library, "library").unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert_eq!(parts(&library, &maps).len(), 1);
        fs::write(library.with_file_name(SUPERVISOR), "supervisor").unwrap();
        assert_eq!(parts(&library, "").len(), 1);
        let socket = place.path().join("tenants/a/nc.sock");
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let mut files = Files::new(Some(&library), &place.path().join("nc.sock"));
        files.place(&socket).unwrap();
        let folder = library_folder(&socket);
        for (name, mode) in [(SUPERVISOR, 0o555), (LINKER, 0o555), ("libc.so.6", 0o444)] {
            let found = fs::metadata(folder.join(name)).unwrap();
            assert_eq!(found.mode() & 0o777, mode, "{name}");
        }
        assert_eq!(&fs::read(folder.join(LINKER)).unwrap()[..4], b"\x7fELF");
        files.remove(&socket);
        assert!(!folder.exists());
        files.remove_copies();
        assert_eq!(
            fs::read_dir(place.path().join("tenants")).unwrap().count(),
            1
        );
    }

    #[test]
    fn what_can_not_be_placed_is_told() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing.so");
        let socket = place.path().join("nc.sock");
        let told = Files::new(Some(&missing), &socket)
            .place(&socket)
            .unwrap_err();
        assert!(
            told.starts_with("containers load the library of the host, and get no supervisor: "),
            "{told}"
        );
        assert_eq!(Files::new(None, &socket).place(&socket), Ok(()));
    }
}
