//! What a call of a sender or a receiver did.

use netchannel_testkit::sys::Errno;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes were moved, or another call may move some.
    Moved,
    /// No progress is possible now.
    Wait,
    /// All bytes are sent, or the stream has ended.
    End,
    /// The connection is broken.
    Broken(Errno),
}

impl Step {
    /// The step of a call that failed.
    pub fn of(errno: Errno) -> Self {
        match errno.0 {
            libc::EAGAIN => Self::Wait,
            libc::EINTR => Self::Moved,
            _ => Self::Broken(errno),
        }
    }
}
