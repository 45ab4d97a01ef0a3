//! How a supervisor of system calls (`netchannel run --static=plain`) tells the library's own calls from a program's.
//!
//! ```text
//!  program without the library --socket, connect, accept--> filter --> supervisor
//!  library                     --the same, marked---------> filter --> kernel
//! ```

/// The sixth argument of a marked call. None of the calls that the filter holds back has so many, so the kernel does not
/// look at it. A program that marks its own calls only has them made by the kernel.
pub const MARK: u64 = 0x6e65_7463_6861_6e31;

/// The same as a register.
#[expect(
    clippy::cast_possible_truncation,
    reason = "registers have 64 bits on every machine that there is a library for"
)]
pub const WORD: usize = MARK as usize;
