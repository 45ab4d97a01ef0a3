//! How `libnetchannel.so` is linked, so that programs without a socket pay little for it when they start: for each segment that the
//! kernel maps and unmaps, each page that is written to, and each piece of the file that is read.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=start.ld");
    let mut arguments = vec![
        // Calls among its own functions are not looked up again in every process.
        "-Wl,-Bsymbolic".to_owned(),
        // It has nothing to do at its end, and nothing of C++ at its beginning.
        "-nostartfiles".to_owned(),
        // A segment, a call and two pages less. Read-only tables would protect little: the addresses of the C library's functions are found
        // at their first call and kept in variables.
        "-Wl,-z,norelro".to_owned(),
    ];
    if is_linked_by_lld() {
        // Code and read-only data are one segment.
        arguments.push("-Wl,--no-rosegment".to_owned());
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        arguments.push(format!("-Wl,-T,{folder}/start.ld"));
    }
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}

/// Whether the linker is the one that comes with the compiler, which is so by default from 1.90 on, on this target only. Other linkers
/// do not know its options.
fn is_linked_by_lld() -> bool {
    const FIRST: u32 = 90;
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let variable = |name| env::var(name).unwrap_or_default();
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    if variable("TARGET") != "x86_64-unknown-linux-gnu"
        || flags.contains("link")
        || flags.contains("fuse-ld")
    {
        return false;
    }
    let version = Command::new(variable("RUSTC")).arg("--version").output();
    let version = version.map(|version| String::from_utf8_lossy(&version.stdout).into_owned());
    // "rustc 1.95.0 (59807616e 2026-04-14)"
    let minor = version
        .ok()
        .and_then(|version| version.split('.').nth(1)?.parse().ok());
    minor.is_some_and(|minor: u32| minor >= FIRST)
}
