//! Where the daemon's socket is.

use crate::ground::environment::Kept;

/// The path of the daemon's socket from the environment at the start: some programs clear their environment.
#[unsafe(link_section = ".data.netchannel_start")]
static SOCKET_PATH: Kept = Kept::new();

/// Remembers the path of the daemon's socket.
pub fn remember_socket_path(place: &[u8]) {
    SOCKET_PATH.keep(place);
}

/// The remembered path of the daemon's socket.
pub fn remembered_socket_path() -> Option<&'static [u8]> {
    SOCKET_PATH.get()
}

/// The path of the daemon's socket, as remembered at the start or as the environment says now.
pub(super) fn socket_path() -> Option<&'static [u8]> {
    remembered_socket_path().or_else(|| {
        // SAFETY: getenv returns null or a C string that lives on.
        unsafe {
            let value = libc::getenv(c"NETCHANNEL_SOCKET".as_ptr());
            (!value.is_null()).then(|| core::ffi::CStr::from_ptr(value).to_bytes())
        }
    })
}
