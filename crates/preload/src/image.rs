//! Program images: whether the library can be in one, and what it is told by its environment.

use core::ffi::CStr;
use core::ptr::null;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use libc::{c_char, c_int};

use crate::{attach, handover, travel, user, users};

/// Says that sockets came with the exec.
const INHERIT: &[u8] = b"NETCHANNEL_INHERIT=";
/// Number and cookie of the control socket that came with the exec.
const CONTROL: &[u8] = b"NETCHANNEL_CONTROL=";
/// Names of local sockets that were TCP's.
const NAMES: &[u8] = b"NETCHANNEL_NAMES=";
const SOCKET: &[u8] = b"NETCHANNEL_SOCKET=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
const NAME: &[u8] = b"libnetchannel.so";
/// How many interpreters may stand before a script, as in the kernel.
const MOST_INTERPRETERS: usize = 4;

/// Whether a program can have the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is known that would keep it out.
    Takes,
    /// Static, privileged, or of another machine.
    Refuses,
    /// Its dynamic linker would fail over it.
    Breaks,
}

/// The library and the daemon's socket as this program was given them.
struct Given {
    library: CString,
    socket: CString,
}

static GIVEN: AtomicPtr<Given> = AtomicPtr::new(core::ptr::null_mut());

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: getenv returns null or a C string that lives on while nobody changes it.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// At the start of a program: takes up what came with an exec.
pub fn arrive() {
    remember();
    if let Some(text) = variable(c"NETCHANNEL_CONTROL").map(String::from_utf8_lossy)
        && let Some((fd, cookie)) = text.split_once(':')
        && let (Ok(fd), Ok(cookie)) = (fd.parse(), cookie.parse())
    {
        attach::inherit_control(fd, cookie);
    }
    if variable(c"NETCHANNEL_INHERIT").is_some() {
        // SAFETY: no thread but this one runs yet.
        unsafe {
            libc::unsetenv(c"NETCHANNEL_INHERIT".as_ptr());
            libc::unsetenv(c"NETCHANNEL_CONTROL".as_ptr());
        }
        if attach::ensure().is_some() {
            travel::adopt_inherited();
        }
    }
    arrive_handed();
}

/// Takes up the names of sockets that were handed over before the exec.
fn arrive_handed() {
    let Some(text) = variable(c"NETCHANNEL_NAMES").map(String::from_utf8_lossy) else {
        return;
    };
    if attach::ensure().is_some() {
        handover::adopt(&text);
    }
    // SAFETY: no thread but this one runs yet.
    unsafe { libc::unsetenv(c"NETCHANNEL_NAMES".as_ptr()) };
}

fn remember() {
    let library = variable(c"LD_PRELOAD").and_then(|list| {
        list.split(|byte| matches!(byte, b':' | b' '))
            .find(|name| contains(name, NAME))
    });
    let (Some(library), Some(socket)) = (library, variable(c"NETCHANNEL_SOCKET")) else {
        return;
    };
    if let (Ok(library), Ok(socket)) = (CString::new(library), CString::new(socket)) {
        let given = Box::into_raw(Box::new(Given { library, socket }));
        GIVEN.store(given, Ordering::Release);
    }
}

/// The daemon's socket, as it was given at the start.
pub fn socket() -> Option<&'static [u8]> {
    // SAFETY: null, or a leaked box.
    let given = unsafe { GIVEN.load(Ordering::Acquire).as_ref()? };
    Some(given.socket.to_bytes())
}

/// What a program gave as the environment of another, read once.
#[derive(Default)]
pub struct Entries {
    /// Those that go on as they are.
    pointers: Vec<*const c_char>,
    preload: Option<Vec<u8>>,
    has_socket: bool,
}

impl Entries {
    /// Reads an environment.
    ///
    /// # Errors
    /// `EFAULT`.
    ///
    /// # Safety
    /// The program gave the list to be read.
    pub unsafe fn read(from: *const *const c_char) -> Result<Self, c_int> {
        let mut entries = Self::default();
        // SAFETY: the caller's promise.
        for pointer in unsafe { user::pointers(from)? } {
            // SAFETY: the program's string.
            let entry = unsafe { user::string(pointer)? };
            let entry = entry.as_bytes();
            if let Some(value) = entry.strip_prefix(PRELOAD) {
                entries.preload = Some(value.to_vec());
            } else if ![INHERIT, CONTROL, NAMES]
                .iter()
                .any(|one| entry.starts_with(one))
            {
                entries.has_socket |= entry.starts_with(SOCKET);
                entries.pointers.push(pointer);
            }
        }
        Ok(entries)
    }
}

/// The environment of a new program. Its strings are the caller's or its own.
pub struct Environment {
    pointers: Vec<*const c_char>,
    _own: Vec<CString>,
}

impl Environment {
    /// `from` with the library and the daemon's socket in it even where the program left them out,
    /// and word of what the image `inherits`, with the `control` socket.
    pub fn new(
        from: Entries,
        verdict: Verdict,
        inherits: bool,
        control: Option<(i32, u64)>,
    ) -> Self {
        let Entries {
            mut pointers,
            preload,
            has_socket,
        } = from;
        let mut own = Vec::new();
        // SAFETY: null or a leaked box.
        let given = unsafe { GIVEN.load(Ordering::Acquire).as_ref() };
        let library = given.map(|given| given.library.as_bytes());
        if let Some(value) = preloaded(preload.as_deref(), library, verdict) {
            own.push([PRELOAD, &value].concat());
        }
        if let Some(given) = given.filter(|_| !has_socket) {
            own.push([SOCKET, given.socket.as_bytes()].concat());
        }
        if inherits {
            own.push([INHERIT, b"1"].concat());
        }
        if let Some((fd, cookie)) = control {
            own.push([CONTROL, format!("{fd}:{cookie}").as_bytes()].concat());
        }
        if let Some(names) = handover::names() {
            own.push([NAMES, names.as_bytes()].concat());
        }
        let own: Vec<CString> = own
            .into_iter()
            .filter_map(|one| CString::new(one).ok())
            .collect();
        pointers.extend(own.iter().map(|one| one.as_ptr()));
        pointers.push(null());
        Self {
            pointers,
            _own: own,
        }
    }

    /// As `execve` wants it.
    pub fn pointer(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// The list of preloaded libraries with ours at its end, or without it where it would break the
/// program.
fn preloaded(before: Option<&[u8]>, library: Option<&[u8]>, verdict: Verdict) -> Option<Vec<u8>> {
    let before = before.unwrap_or(&[]);
    let mut names: Vec<&[u8]> = before
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|name| !name.is_empty())
        .collect();
    if verdict == Verdict::Breaks {
        names.retain(|name| !contains(name, NAME));
    } else if let Some(library) = library
        && !names.iter().any(|name| contains(name, NAME))
    {
        names.push(library);
    }
    (!names.is_empty()).then(|| names.join(&b':'))
}

/// Whether `path` could be executed at all.
pub fn is_executable(path: &CStr) -> bool {
    // SAFETY: a C string.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// The file that `execvp` finds for a name.
pub fn resolve(name: &CStr) -> Option<CString> {
    if name.to_bytes().contains(&b'/') {
        return Some(name.to_owned());
    }
    let path = variable(c"PATH").unwrap_or(b"/bin:/usr/bin");
    path.split(|byte| *byte == b':').find_map(|folder| {
        let folder = if folder.is_empty() { b"." } else { folder };
        let file = CString::new([folder, b"/", name.to_bytes()].concat()).ok()?;
        let is_file = Path::new(std::ffi::OsStr::from_bytes(file.to_bytes())).is_file();
        (is_file && is_executable(&file)).then_some(file)
    })
}

/// Whether the program in `file` can have the library, and what it would share with this one. What can not be told is taken to have
/// it: the kernel then says what is wrong with it.
pub fn judge(file: &CStr) -> Verdict {
    if users::ends_at_exec() {
        return Verdict::Refuses;
    }
    look_at(Path::new(std::ffi::OsStr::from_bytes(file.to_bytes()))).unwrap_or(Verdict::Takes)
}

fn look_at(file: &Path) -> Option<Verdict> {
    let mut file: PathBuf = file.to_owned();
    for _ in 0..=MOST_INTERPRETERS {
        let opened = File::open(&file).ok()?;
        let mut head = [0; 512];
        let length = (&opened).read(&mut head).ok()?;
        let head = head.get(..length)?;
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next()?;
            let mut words = line.split(u8::is_ascii_whitespace);
            let name = words.find(|word| !word.is_empty())?;
            file = PathBuf::from(std::ffi::OsStr::from_bytes(name));
            continue;
        }
        if is_privileged(&opened) {
            return Some(Verdict::Refuses);
        }
        return look_at_elf(&opened, head);
    }
    None
}

/// Whether executing it changes user, group or capabilities, which makes the linker deaf to
/// `LD_PRELOAD`.
fn is_privileged(opened: &File) -> bool {
    use std::os::fd::AsRawFd;
    let Ok(metadata) = opened.metadata() else {
        return false;
    };
    let mut value = [0u8; 64];
    // SAFETY: plain questions; the buffer is a local.
    let (user, group, capabilities) = unsafe {
        let name = c"security.capability".as_ptr();
        let fd = opened.as_raw_fd();
        let length = libc::fgetxattr(fd, name, value.as_mut_ptr().cast(), value.len());
        (libc::geteuid(), libc::getegid(), length > 0)
    };
    metadata.mode() & 0o4000 != 0 && metadata.uid() != user
        || metadata.mode() & 0o2000 != 0 && metadata.gid() != group
        || user != 0 && capabilities
}

fn look_at_elf(file: &File, head: &[u8]) -> Option<Verdict> {
    const OWN: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    if head.get(..4)? != b"\x7fELF" {
        return None;
    }
    // Two is 64 bits; little endian is one.
    if head.get(4..6)? != [2, 1] || half(head, 18)? != OWN {
        return Some(Verdict::Refuses);
    }
    let start = word(head, 32)?;
    let (size, count) = (half(head, 54)?, half(head, 56)?);
    for index in 0..u64::from(count) {
        let mut header = [0; 40];
        let offset = index.checked_mul(u64::from(size))?.checked_add(start)?;
        file.read_exact_at(&mut header, offset).ok()?;
        // PT_INTERP names the dynamic linker.
        if header.get(..4)? == 3_u32.to_le_bytes() {
            let length = usize::try_from(word(&header, 32)?).ok()?.min(4096);
            let mut linker = vec![0; length];
            file.read_exact_at(&mut linker, word(&header, 8)?).ok()?;
            let foreign = contains(&linker, b"musl");
            return Some(if foreign {
                Verdict::Breaks
            } else {
                Verdict::Takes
            });
        }
    }
    Some(Verdict::Refuses)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
