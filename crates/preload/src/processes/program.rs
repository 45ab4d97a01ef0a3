//! Program files: which file a name means, and whether the program can load the library. Every shell asks for each of
//! its commands, so a file is read once, without allocated memory.

use core::ffi::CStr;

use libc::{c_char, c_int};

use crate::descriptors::{attach, credentials};
use crate::ground::sys;

/// A variable of this program's environment.
pub fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: getenv returns null or a C string that lives on as long as no thread changes it.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// Whether a text contains the part.
pub fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Most interpreters before a script, as in the kernel.
const MOST_INTERPRETERS: usize = 4;
/// Bytes of a file that are read at once: nearly always all that are needed.
const HEAD: usize = 1024;
/// Room for the name of an interpreter or a dynamic linker.
const NAME: usize = 512;

/// Whether a program can load the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing known prevents it.
    CanLoad,
    /// It can not: it is static, privileged, or of another machine.
    CanNotLoad,
    /// Its dynamic linker would fail over it.
    WouldFail,
}

/// Whether `path` may be executed.
pub fn is_executable(path: &CStr) -> bool {
    let words = [
        at_folder(),
        path.as_ptr().addr(),
        sys::int(libc::X_OK),
        0,
        0,
        0,
    ];
    // SAFETY: a C string.
    unsafe { sys::raw(libc::SYS_faccessat, words) }.is_ok()
}

fn is_file(path: &CStr) -> bool {
    // SAFETY: all zero is a valid `stat`.
    let mut found: libc::stat = unsafe { core::mem::zeroed() };
    let words = [
        at_folder(),
        path.as_ptr().addr(),
        (&raw mut found).addr(),
        0,
        0,
        0,
    ];
    // SAFETY: a C string, and a local of the right size.
    unsafe { sys::raw(libc::SYS_newfstatat, words) }.is_ok()
        && found.st_mode & libc::S_IFMT == libc::S_IFREG
}

fn at_folder() -> usize {
    sys::int(libc::AT_FDCWD)
}

/// The file that `execvp` finds for a name.
pub fn resolve<'a>(name: &CStr, room: &'a mut PathBuffer) -> Option<&'a CStr> {
    if name.to_bytes().contains(&b'/') {
        return compose(&[name.to_bytes()], room);
    }
    let path = variable(c"PATH").unwrap_or(b"/bin:/usr/bin");
    let is_there = |folder: &&[u8]| {
        let mut room = [0; libc::PATH_MAX as usize];
        compose(&[folder, b"/", name.to_bytes()], &mut room)
            .is_some_and(|file| is_file(file) && is_executable(file))
    };
    let mut folders = path
        .split(|byte| *byte == b':')
        .map(|folder| if folder.is_empty() { b"." } else { folder });
    let folder = folders.find(is_there)?;
    compose(&[folder, b"/", name.to_bytes()], room)
}

/// Room for a path.
pub type PathBuffer = [u8; libc::PATH_MAX as usize];

fn compose<'a>(parts: &[&[u8]], room: &'a mut PathBuffer) -> Option<&'a CStr> {
    let mut end = 0;
    for part in parts {
        room.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    *room.get_mut(end)? = 0;
    CStr::from_bytes_until_nul(room).ok()
}

/// Whether the program in `file` can load the library. Where that can not be found out the answer is yes: the kernel
/// then returns the error.
pub fn judge(file: &CStr) -> Verdict {
    if attach::current().is_some() && credentials::changes_owner_at_exec() {
        return Verdict::CanNotLoad;
    }
    inspect(file.as_ptr(), true).unwrap_or(Verdict::CanLoad)
}

/// Whether the program in `file`, an unchecked path, would fail over the library.
pub fn would_fail(file: *const c_char) -> bool {
    inspect(file, false) == Some(Verdict::WouldFail)
}

/// Inspects a program; with `privileges`, these too.
fn inspect(file: *const c_char, privileges: bool) -> Option<Verdict> {
    let mut file = file;
    let mut interpreter: [u8; NAME];
    for _ in 0..=MOST_INTERPRETERS {
        let opened = ProgramFile::new(file)?;
        let head = opened.head();
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next()?;
            let mut words = line.split(u8::is_ascii_whitespace);
            let name = words.find(|word| !word.is_empty())?;
            interpreter = [0; NAME];
            // The last byte stays the end of the string.
            interpreter
                .get_mut(..NAME - 1)?
                .get_mut(..name.len())?
                .copy_from_slice(name);
            file = interpreter.as_ptr().cast();
            continue;
        }
        if privileges && opened.is_privileged() {
            return Some(Verdict::CanNotLoad);
        }
        return inspect_elf(&opened);
    }
    None
}

/// An open file and its first bytes.
struct ProgramFile {
    fd: c_int,
    head: [u8; HEAD],
    length: usize,
}

impl ProgramFile {
    fn new(path: *const c_char) -> Option<Self> {
        // Opening a pipe must not block.
        let flags = sys::int(libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY);
        let words = [at_folder(), path.addr(), flags, 0, 0, 0];
        // SAFETY: the kernel reads the path, also an invalid one.
        let fd = unsafe { sys::raw(libc::SYS_openat, words) }.ok()?;
        let mut opened = Self {
            fd: c_int::try_from(fd).ok()?,
            head: [0; HEAD],
            length: 0,
        };
        let words = [fd, opened.head.as_mut_ptr().addr(), HEAD, 0, 0, 0];
        // SAFETY: the room is ours.
        opened.length = unsafe { sys::raw(libc::SYS_read, words) }.ok()?;
        Some(opened)
    }

    fn head(&self) -> &[u8] {
        self.head.get(..self.length).unwrap_or_default()
    }

    /// Fills `into` with the bytes at `offset`.
    fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(into.len())?;
        if let Some(known) = self.head().get(start..end) {
            into.copy_from_slice(known);
            return Some(());
        }
        let words = [
            sys::int(self.fd),
            into.as_mut_ptr().addr(),
            into.len(),
            start,
            0,
            0,
        ];
        // SAFETY: the room is the caller's.
        let count = unsafe { sys::raw(libc::SYS_pread64, words) }.ok()?;
        (count == into.len()).then_some(())
    }

    /// Whether executing it changes user, group or capabilities, for which the dynamic linker ignores `LD_PRELOAD`.
    fn is_privileged(&self) -> bool {
        let mut value = [0_u8; 64];
        // SAFETY: all zero is a valid `stat`.
        let mut found: libc::stat = unsafe { core::mem::zeroed() };
        let fd = sys::int(self.fd);
        // SAFETY: the calls only read; the locals that are written to have the right size.
        let (known, user, group, capabilities) = unsafe {
            let ask = |number, words| sys::raw(number, words).ok();
            let name = c"security.capability".as_ptr().addr();
            let room = [fd, name, value.as_mut_ptr().addr(), value.len(), 0, 0];
            (
                ask(libc::SYS_fstat, [fd, (&raw mut found).addr(), 0, 0, 0, 0]),
                ask(libc::SYS_geteuid, [0; 6]),
                ask(libc::SYS_getegid, [0; 6]),
                ask(libc::SYS_fgetxattr, room),
            )
        };
        let (user, group) = (user.unwrap_or(0), group.unwrap_or(0));
        known.is_some()
            && (found.st_mode & libc::S_ISUID != 0 && found.st_uid as usize != user
                || found.st_mode & libc::S_ISGID != 0 && found.st_gid as usize != group
                || user != 0 && capabilities.is_some_and(|length| length > 0))
    }
}

impl Drop for ProgramFile {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

fn inspect_elf(file: &ProgramFile) -> Option<Verdict> {
    const OWN: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let head = file.head();
    if head.get(..4)? != b"\x7fELF" {
        return None;
    }
    // ELF class 2 is 64 bits; data encoding 1 is little endian.
    if head.get(4..6)? != [2, 1] || half(head, 18)? != OWN {
        return Some(Verdict::CanNotLoad);
    }
    let start = word(head, 32)?;
    let (size, count) = (half(head, 54)?, half(head, 56)?);
    for index in 0..u64::from(count) {
        let mut header = [0; 40];
        let offset = index.checked_mul(u64::from(size))?.checked_add(start)?;
        file.read(offset, &mut header)?;
        // PT_INTERP names the dynamic linker.
        if header.get(..4)? == 3_u32.to_le_bytes() {
            let length = usize::try_from(word(&header, 32)?).ok()?.min(NAME);
            let mut linker = [0; NAME];
            let linker = linker.get_mut(..length)?;
            file.read(word(&header, 8)?, linker)?;
            let foreign = contains(linker, b"musl");
            return Some(if foreign {
                Verdict::WouldFail
            } else {
                Verdict::CanLoad
            });
        }
    }
    Some(Verdict::CanNotLoad)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
