//! A pipe through which bytes are spliced to a socket or from one.

use netchannel_testkit::sys::{self, Descriptor};

/// How many bytes a pipe takes at least.
const ROOM: usize = 60_000;

/// A pipe that is closed when it is dropped.
pub struct Pipe {
    pub output: Descriptor,
    pub input: Descriptor,
    /// How many bytes are in the pipe.
    pub filled: usize,
}

impl Pipe {
    pub fn new() -> Self {
        let [output, input] = sys::pipe(libc::O_CLOEXEC | libc::O_NONBLOCK).expect("pipe");
        Self {
            output,
            input,
            filled: 0,
        }
    }

    /// How many of `length` bytes an empty pipe takes.
    pub fn room(length: usize) -> usize {
        length.min(ROOM)
    }

    /// Puts bytes into the empty pipe. Returns how many.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        assert_eq!(self.filled, 0, "the pipe is empty");
        let most = Self::room(bytes.len());
        self.filled = sys::write(self.input, &bytes[..most]).expect("an empty pipe has room");
        self.filled
    }

    /// Takes bytes that were spliced into the pipe.
    pub fn take(&mut self, bytes: &mut [u8]) {
        let mut taken = 0;
        while taken < bytes.len() {
            taken += sys::read(self.output, &mut bytes[taken..]).expect("bytes in a pipe");
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for end in [self.output, self.input] {
            sys::close(end).expect("close");
        }
    }
}
