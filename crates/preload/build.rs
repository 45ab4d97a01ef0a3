//! How `libnetchannel.so` is linked, so that programs without a socket pay little for it when they start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let arguments = [
        // Calls among its own functions are not looked up again in every process.
        "-Wl,-Bsymbolic",
        // It has nothing to do at its end, and nothing of C++ at its beginning.
        "-nostartfiles",
    ];
    for argument in arguments {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
