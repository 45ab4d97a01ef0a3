//! Descriptors that become readable by themselves: when something happens in a folder, or after a time.

use core::ffi::CStr;

use libc::{c_int, itimerspec, time_t, timespec};

use super::{Sys, close, descriptor, int, raw};

/// Closes a new descriptor whose setup failed.
fn or_close(fd: c_int, made: Sys<usize>) -> Sys<c_int> {
    if made.is_err() {
        close(fd);
    }
    made.map(|_| fd)
}

/// Readable once a file was made in a folder, moved there, or got another owner or mode.
///
/// # Errors
/// `EMFILE` where the user has as many as he may, and those of `inotify_add_watch`.
pub fn folder(name: &CStr) -> Sys<c_int> {
    let events = libc::IN_CREATE | libc::IN_MOVED_TO | libc::IN_ATTRIB;
    let flags = int(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
    // SAFETY: no pointer.
    let made = unsafe { raw(libc::SYS_inotify_init1, [flags, 0, 0, 0, 0, 0]) }?;
    let words = [made, name.as_ptr().addr(), events as usize, 0, 0, 0];
    // SAFETY: a C string.
    let watched = unsafe { raw(libc::SYS_inotify_add_watch, words) };
    or_close(descriptor(made), watched)
}

/// Readable after so many seconds.
///
/// # Errors
/// Those of `timerfd_create`.
pub fn seconds(count: time_t) -> Sys<c_int> {
    let none = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let time = itimerspec {
        it_interval: none,
        it_value: timespec {
            tv_sec: count,
            tv_nsec: 0,
        },
    };
    let flags = int(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK);
    let clock = int(libc::CLOCK_MONOTONIC);
    // SAFETY: no pointer.
    let made = unsafe { raw(libc::SYS_timerfd_create, [clock, flags, 0, 0, 0, 0]) }?;
    let words = [made, 0, (&raw const time).addr(), 0, 0, 0];
    // SAFETY: the time is a local.
    let set = unsafe { raw(libc::SYS_timerfd_settime, words) };
    or_close(descriptor(made), set)
}

#[cfg(test)]
mod tests {
    use super::super::is_readable;
    use super::*;

    #[test]
    fn they_are_readable_once_it_has_happened() {
        let place = std::env::temp_dir().join(format!("netchannel-watch-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let name = std::ffi::CString::new(place.to_str().unwrap()).unwrap();
        let (news, time) = (folder(&name).unwrap(), seconds(1).unwrap());
        assert!(!is_readable(news) && !is_readable(time));
        std::fs::write(place.join("file"), "").unwrap();
        assert!(is_readable(news));
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(is_readable(time));
        close(news);
        close(time);
        std::fs::remove_dir_all(&place).unwrap();
        assert_eq!(folder(&name), Err(libc::ENOENT));
    }
}
