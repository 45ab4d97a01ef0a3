//! The reasons why the dynamic linker does not load the library into a program.

use crate::elf::{self, INTERPRETER, NOTES, half};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The limit of interpreters before a script, as in the kernel.
const MOST_INTERPRETERS: usize = 4;
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Why the library cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No dynamic linker takes part.
    Static,
    /// It runs with more rights than its caller.
    Privileged,
    /// It is of another processor or word size.
    OtherMachine,
    /// Its dynamic linker is not glibc's, and would fail over a library made for that.
    OtherLinker,
    /// Go's runtime makes its own system calls, whatever is loaded with it.
    Go,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Static => "is linked statically, so the library cannot load into it",
            Self::Privileged => {
                "is setuid, setgid or has capabilities, so the library cannot load into it"
            }
            Self::OtherMachine => {
                "is made for another processor or word size, so the library cannot load into it"
            }
            Self::OtherLinker => "is not linked with glibc, so the library cannot load into it",
            Self::Go => "is a Go program, whose system calls pass the library by",
        })
    }
}

/// The known reason why the library is not loaded into `program`. `None` also where nothing can be found out: the
/// kernel then reports the error.
pub fn obstacle(program: &OsStr) -> Option<Obstacle> {
    obstacle_of(&resolve(program)?)
}

fn obstacle_of(file: &Path) -> Option<Obstacle> {
    let mut file = file.to_owned();
    for _ in 0..=MOST_INTERPRETERS {
        let mut opened = File::open(&file).ok()?;
        let mut head = Vec::new();
        opened.by_ref().take(4096).read_to_end(&mut head).ok()?;
        if let Some(line) = head.strip_prefix(b"#!") {
            file = interpreter(line)?;
            continue;
        }
        if is_privileged(&file, &opened) {
            return Some(Obstacle::Privileged);
        }
        return elf_obstacle(&opened, &head);
    }
    None
}

/// The file that is executed for a script: the one after `#!`, or the argument of `env`.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let file = Path::new(OsStr::from_bytes(words.next()?));
    if file.file_name() != Some(OsStr::new("env")) {
        return Some(file.to_owned());
    }
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    resolve(OsStr::from_bytes(named?))
}

/// The file of a name, as `execvp` finds it.
fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| {
            let access = rustix::fs::access(file, rustix::fs::Access::EXEC_OK);
            access.is_ok() && file.is_file()
        })
}

/// Whether executing it changes user, group or capabilities, which makes the linker deaf to
/// `LD_PRELOAD`.
fn is_privileged(file: &Path, opened: &File) -> bool {
    let Ok(metadata) = opened.metadata() else {
        return false;
    };
    let user = rustix::process::geteuid();
    let set_user = metadata.mode() & SETUID != 0 && metadata.uid() != user.as_raw();
    let group = rustix::process::getegid().as_raw();
    let set_group = metadata.mode() & SETGID != 0 && metadata.gid() != group;
    let mut value = [0_u8; 64];
    let capabilities = rustix::fs::getxattr(file, "security.capability", &mut value[..]);
    set_user || set_group || (!user.is_root() && capabilities.is_ok_and(|length| length > 0))
}

fn elf_obstacle(file: &File, head: &[u8]) -> Option<Obstacle> {
    if head.get(..4)? != b"\x7fELF" {
        return None;
    }
    let own = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    // Two is 64 bits; little endian is one.
    if head.get(4..6)? != [2, 1] || half(head, 18)? != own {
        return Some(Obstacle::OtherMachine);
    }
    let (mut linker, mut is_go) = (None, false);
    for (kind, content) in elf::contents(file, head, &[INTERPRETER, NOTES])? {
        if kind == INTERPRETER {
            linker = Some(content);
        } else {
            // Go's linker leaves a note of its own.
            is_go |= content.windows(4).any(|name| name == b"Go\0\0");
        }
    }
    match linker {
        None => Some(Obstacle::Static),
        Some(linker) if linker.windows(4).any(|part| part == b"musl") => {
            Some(Obstacle::OtherLinker)
        }
        Some(_) => is_go.then_some(Obstacle::Go),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::sample as elf;

    /// A dynamically linked one with a second program header: the note of Go's linker.
    fn go(linker: &[u8]) -> Vec<u8> {
        let note = b"\x04\0\0\0\x53\0\0\0\x04\0\0\0Go\0\0";
        let mut second = vec![0; 56];
        second[0] = 4;
        second[8..16].copy_from_slice(&(176 + linker.len() as u64).to_le_bytes());
        second[32..40].copy_from_slice(&(note.len() as u64).to_le_bytes());
        let mut bytes = elf(3, linker);
        bytes[56..58].copy_from_slice(&2_u16.to_le_bytes());
        bytes[72..80].copy_from_slice(&176_u64.to_le_bytes());
        bytes.splice(120..120, second);
        bytes.extend_from_slice(note);
        bytes
    }

    fn judged(bytes: &[u8]) -> Option<Obstacle> {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("program");
        std::fs::write(&file, bytes).unwrap();
        obstacle_of(&file)
    }

    #[test]
    fn the_kinds_of_programs_are_told_apart() {
        let glibc = b"/lib64/ld-linux-x86-64.so.2\0";
        assert_eq!(judged(&elf(3, glibc)), None);
        assert_eq!(judged(&elf(1, b"")), Some(Obstacle::Static));
        let musl = elf(3, b"/lib/ld-musl-x86_64.so.1\0");
        assert_eq!(judged(&musl), Some(Obstacle::OtherLinker));
        assert_eq!(judged(&go(glibc)), Some(Obstacle::Go));
        let mut narrow = elf(3, glibc);
        narrow[4] = 1;
        assert_eq!(judged(&narrow), Some(Obstacle::OtherMachine));
        assert_eq!(judged(b"\x7fELF"), None);
        assert_eq!(judged(b""), None);
        assert_eq!(obstacle(OsStr::new("sh")), None);
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let place = tempfile::tempdir().unwrap();
        let lone = place.path().join("lone");
        std::fs::write(&lone, elf(1, b"")).unwrap();
        let script = format!("#! {} -x\n", lone.display());
        assert_eq!(judged(script.as_bytes()), Some(Obstacle::Static));
        assert_eq!(judged(b"#!/usr/bin/env -S sh\n"), None);
    }

    #[test]
    fn a_program_that_gains_rights_is_told_apart() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("program");
        std::fs::write(&file, elf(3, b"/lib64/ld-linux-x86-64.so.2\0")).unwrap();
        let mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, permissions).unwrap();
        };
        mode(0o4755);
        assert_eq!(obstacle_of(&file), None, "one's own setuid changes nothing");
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(12345), None).unwrap();
            mode(0o4755);
            assert_eq!(obstacle_of(&file), Some(Obstacle::Privileged));
        } else {
            let passwd = OsStr::new("/usr/bin/passwd");
            assert_eq!(obstacle(passwd), Some(Obstacle::Privileged));
        }
    }

    #[test]
    fn a_script_that_interprets_itself_ends() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("loop");
        std::fs::write(&file, format!("#!{}\n", file.display())).unwrap();
        assert_eq!(obstacle_of(&file), None);
    }
}
