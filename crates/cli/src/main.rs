//! The entry point of the program `netchannel`.
#![no_main]

use std::ffi::{c_char, c_int};
use std::io::Write;

/// Replaces the entry point of the standard library, which would change the handling of SIGPIPE: a program started by
/// `netchannel run` must not notice a difference.
// SAFETY: this program has no other symbol of that name.
#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    let code = netchannel_cli::execute();
    // The runtime of the standard library, which would do this at the end, is not used.
    let _ = std::io::stdout().flush();
    code
}
