//! Threads that are other users: the kernel has credentials for each thread, and only the C library makes them those of all.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;

use crate::support::Served;

/// The one whose things are meant to be safe.
pub const HONEST: u32 = 61001;
/// The one who is after them.
pub const HOSTILE: u32 = 61002;
/// Somebody else.
pub const THIRD: u32 = 61003;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that does what it is told, as some user.
pub struct User {
    orders: mpsc::Sender<Work>,
}

impl User {
    /// A thread that is root as long as nothing else is said.
    pub fn root() -> Self {
        let (orders, works) = mpsc::channel::<Work>();
        std::thread::spawn(move || works.into_iter().for_each(|work| work()));
        Self { orders }
    }

    /// A thread that is a user.
    pub fn new(user: u32) -> Self {
        let one = Self::root();
        one.become_user(user);
        one
    }

    /// The thread becomes a user, for good.
    pub fn become_user(&self, user: u32) {
        let became = self.run(move || {
            // SAFETY: takes integers, and no groups. By number, so that it concerns this thread alone.
            unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                    && libc::syscall(libc::SYS_setresgid, user, user, user) == 0
                    && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
            }
        });
        assert!(became, "{}", std::io::Error::last_os_error());
    }

    /// Does something as that user, and waits for it.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (answers, answer) = mpsc::channel();
        let work = move || {
            let _ = answers.send(work());
        };
        self.orders.send(Box::new(work)).unwrap();
        answer.recv().expect("what is to be done does not panic")
    }
}

/// Whether there can be other users here; says so where not.
pub fn has_users(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: {test}: other users need root");
    }
    root
}

/// A daemon whose socket every user reaches.
pub fn served_to_all(limits: netchannel_daemon::Limits) -> Served {
    let served = Served::new(limits, None);
    let socket = served.path();
    let folder = socket.parent().unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    served
}
