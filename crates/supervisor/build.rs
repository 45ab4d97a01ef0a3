//! How `netchannel-supervisor` is linked. It runs in images that are not the host, perhaps without any C library, so its linker and its C
//! library are those that lie beside it, at the one path that every container has them.

/// Where a container has the folder of the supervisor.
const FOLDER: &str = "/run/.netchannel";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=NETCHANNEL_CONTAINER_FOLDER={FOLDER}");
    for argument in [
        format!("-Wl,--dynamic-linker={FOLDER}/ld.so"),
        format!("-Wl,-rpath,{FOLDER}"),
        // Before LD_LIBRARY_PATH of the image, and for what libraries need, too.
        "-Wl,--disable-new-dtags".to_owned(),
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
