//! Program images: the environment variables by which one image tells the library in the next.

use core::ptr::null;
use std::ffi::CString;

use libc::{c_char, c_int};

use crate::descriptors::{attach, confinement, limits, user};
use crate::ground::environment::Kept;
use crate::ground::sys;
use crate::processes::program::{Verdict, contains};
use crate::processes::{in_transit, not_taken_up, passing, pump_hand_over};

/// Set if sockets were inherited over the exec.
const INHERIT: &[u8] = b"NETCHANNEL_INHERIT=";
/// Number and cookie of the inherited control socket.
const CONTROL: &[u8] = b"NETCHANNEL_CONTROL=";
/// Names of local sockets that take the place of TCP sockets.
const NAMES: &[u8] = b"NETCHANNEL_NAMES=";
/// Inherited epoll sets.
const SETS: &[u8] = b"NETCHANNEL_SETS=";
/// Inherited records of connections.
const RECORDS: &[u8] = b"NETCHANNEL_BAGGAGE=";
const SOCKET: &[u8] = b"NETCHANNEL_SOCKET=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
const NAME: &[u8] = b"libnetchannel.so";
/// More than the longest of the names above.
const LONGEST_NAME: usize = 24;
/// Longer lists of preloaded libraries are read into allocated memory.
const LIST_ROOM: usize = 512;

/// The path under which this program has loaded the library.
#[unsafe(link_section = ".data.netchannel_start")]
static LIBRARY: Kept = Kept::new();

/// What the environment tells the library in this image.
pub struct Inherited {
    /// [`CONTROL`].
    pub control: Option<&'static [u8]>,
    /// [`INHERIT`].
    pub inherits: bool,
    /// [`SETS`].
    pub sets: Option<&'static [u8]>,
    /// [`RECORDS`].
    pub in_transit: Option<&'static [u8]>,
    /// [`NAMES`].
    pub names: Option<&'static [u8]>,
}

impl Inherited {
    /// Whether there is anything, which most programs have not.
    #[inline]
    pub fn any(&self) -> bool {
        self.control.is_some() || self.inherits || self.names.is_some()
    }
}

/// At the start of a program: adopts what was inherited over an exec.
#[cold]
pub fn adopt_inherited(inherited: &Inherited) {
    if let Some(text) = inherited.control.map(String::from_utf8_lossy)
        && let Some((fd, cookie)) = text.split_once(':')
        && let (Ok(fd), Ok(cookie)) = (fd.parse(), cookie.parse())
    {
        attach::inherit_control(fd, cookie);
    }
    if inherited.inherits {
        let sets = inherited.sets.map(<[u8]>::to_vec);
        let in_transit = inherited.in_transit.map(String::from_utf8_lossy);
        in_transit
            .as_deref()
            .inspect(|is_named| in_transit::read_inherited(is_named));
        // SAFETY: only this thread runs yet.
        unsafe {
            for name in [
                c"NETCHANNEL_INHERIT",
                c"NETCHANNEL_CONTROL",
                c"NETCHANNEL_SETS",
                c"NETCHANNEL_BAGGAGE",
            ] {
                libc::unsetenv(name.as_ptr());
            }
        }
        let alone = || limits::has_room_for_a_connection().then(attach::attach_without_daemon);
        if attach::ensure().or_else(|| alone()?).is_some() {
            let sets = sets.and_then(|sets| String::from_utf8(sets).ok());
            passing::adopt_inherited(sets.as_deref());
        } else if !confinement::began_confined() {
            not_taken_up::end_inherited(sys::open_descriptors());
        }
    }
    if let Some(names) = inherited.names.map(String::from_utf8_lossy) {
        adopt_handed_over(&names);
    }
}

/// Adopts the names of sockets that were handed over to a pump before the exec.
fn adopt_handed_over(names: &str) {
    if attach::ensure().is_some() {
        pump_hand_over::adopt(names);
    }
    // SAFETY: only this thread runs yet.
    unsafe { libc::unsetenv(c"NETCHANNEL_NAMES".as_ptr()) };
}

/// At the start of a program: keeps by which path it has loaded the library, and where the daemon is, from its list of
/// preloaded libraries and its variable.
#[inline]
pub fn remember_library(preloaded: Option<&[u8]>, socket: Option<&[u8]>) {
    let library = preloaded.and_then(|list| {
        list.split(|byte| matches!(byte, b':' | b' '))
            .find(|name| contains(name, NAME))
    });
    if let (Some(library), Some(socket)) = (library, socket) {
        LIBRARY.keep(library);
        attach::remember_socket_path(socket);
    }
}

/// Whether an environment names the library and the daemon, and nothing that must be removed: then it can stay as it
/// is.
///
/// # Safety
/// The program gave the list to be read.
pub unsafe fn is_complete(environment: *const *const c_char) -> bool {
    // SAFETY: the caller's promise.
    let found = unsafe { scan(environment) };
    found.is_some_and(|is_named| is_named || LIBRARY.get().is_none())
}

/// Whether the library and the daemon are named; `None` where the environment must be read in full.
unsafe fn scan(environment: *const *const c_char) -> Option<bool> {
    let (mut preloads, mut sockets) = (0, 0);
    let mut at = environment;
    while !at.is_null() {
        let mut start = [0; LONGEST_NAME];
        // SAFETY: the program's list and its strings.
        unsafe {
            let entry: *const c_char = user::read(at).ok()?;
            if entry.is_null() {
                break;
            }
            let start = user::beginning(entry, &mut start).ok()?;
            if start.starts_with(PRELOAD) {
                let mut list = [0; LIST_ROOM];
                let list = user::beginning(entry, &mut list).ok()?;
                if list.len() == LIST_ROOM || preloads > 0 {
                    return None;
                }
                preloads += usize::from(contains(list, NAME));
            } else if start.starts_with(SOCKET) {
                sockets += 1;
            } else if [INHERIT, CONTROL, NAMES, SETS, RECORDS]
                .iter()
                .any(|one| start.starts_with(one))
            {
                return None;
            }
        }
        at = at.wrapping_add(1);
    }
    Some(preloads > 0 && sockets > 0)
}

/// The environment that a program gives to another one, read once.
#[derive(Default)]
pub struct Entries {
    /// Entries that stay as they are.
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
            } else if ![INHERIT, CONTROL, NAMES, SETS, RECORDS]
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

/// The state that another image inherits.
#[derive(Default)]
pub struct InheritedState {
    /// There are sockets, sets or listeners.
    pub any: bool,
    /// The control socket, with its cookie.
    pub control: Option<(i32, u64)>,
    /// Records of connections.
    pub in_transit: Option<String>,
    /// Epoll sets.
    pub sets: Option<String>,
}

/// The environment of another program. Its strings are the caller's or its own.
pub struct Environment {
    pointers: Vec<*const c_char>,
    _own: Vec<CString>,
}

impl Environment {
    /// `from` with the library and the daemon's socket, even where the program left them out, and the variables for
    /// what the image inherits.
    pub fn new(from: Entries, verdict: Verdict, inherited: &InheritedState) -> Self {
        let Entries {
            mut pointers,
            preload,
            has_socket,
        } = from;
        let mut own = Vec::new();
        let library = LIBRARY.get();
        if let Some(value) = preloaded(preload.as_deref(), library, verdict) {
            own.push([PRELOAD, &value].concat());
        }
        if let Some(place) = attach::remembered_socket_path().filter(|_| !has_socket) {
            own.push([SOCKET, place].concat());
        }
        if inherited.any {
            own.push([INHERIT, b"1"].concat());
        }
        if let Some((fd, cookie)) = inherited.control {
            own.push([CONTROL, format!("{fd}:{cookie}").as_bytes()].concat());
        }
        for (name, is_named) in [(SETS, &inherited.sets), (RECORDS, &inherited.in_transit)] {
            if let Some(is_named) = is_named {
                own.push([name, is_named.as_bytes()].concat());
            }
        }
        if let Some(names) = pump_hand_over::describe_names() {
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

    /// The pointer for `execve`.
    pub fn pointer(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// The list of preloaded libraries with this library at its end, or without it where the program would fail over it.
fn preloaded(before: Option<&[u8]>, library: Option<&[u8]>, verdict: Verdict) -> Option<Vec<u8>> {
    let before = before.unwrap_or(&[]);
    let mut names: Vec<&[u8]> = before
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|name| !name.is_empty())
        .collect();
    if verdict == Verdict::WouldFail {
        names.retain(|name| !contains(name, NAME));
    } else if let Some(library) = library
        && !names.iter().any(|name| contains(name, NAME))
    {
        names.push(library);
    }
    (!names.is_empty()).then(|| names.join(&b':'))
}
