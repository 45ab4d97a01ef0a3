//! The library lies in the images of tenants, too, whose C library may be older than that of the host.

use std::path::Path;
use std::process::Command;

use netchannel_testkit::runner::find_netchannel;

/// The oldest C library that is still maintained by a distribution for everybody: that of RHEL 8 and its like, until May 2029. (Debian 11
/// with 2.31 ended in August 2026.)
const OLDEST: (u32, u32) = (2, 28);
/// What may be missing: older C libraries have them, and no newer.
const OPTIONAL: [&str; 2] = ["__libc_dlopen_mode", "__libc_dlsym"];

/// Of the C library, where a symbol has one.
type Version = Option<(u32, u32)>;

/// The version of a symbol that a line of `objdump -T` names, whether it need not exist, and its name.
fn symbol(line: &str) -> Option<(Version, bool, &str)> {
    let (before, after) = line.split_once("*UND*")?;
    let name = after.split_whitespace().last()?;
    let version = after.split_once("(GLIBC_").map(|(_, version)| {
        let mut parts = version
            .split([')', '.'])
            .map_while(|part| part.parse::<u32>().ok());
        let [major, minor] = [(); 2].map(|()| parts.next().expect("a version of two numbers"));
        (major, minor)
    });
    Some((version, before.contains(" w "), name))
}

#[test]
fn the_library_asks_for_no_symbol_that_the_oldest_c_library_lacks() {
    let own = std::env::current_exe().unwrap();
    let Some(program) = find_netchannel(own.parent().unwrap()) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return;
    };
    let library = program
        .parent()
        .unwrap_or(Path::new("."))
        .join("libnetchannel.so");
    let Ok(output) = Command::new("objdump").arg("-T").arg(&library).output() else {
        println!("left out: objdump is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let symbols: Vec<_> = text.lines().filter_map(symbol).collect();
    assert!(
        symbols.len() > 10,
        "{}: {text}{}",
        library.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    for (version, is_weak, name) in symbols {
        match version {
            Some(version) => assert!(version <= OLDEST, "{name} is of {version:?}"),
            None => assert!(
                is_weak && OPTIONAL.contains(&name),
                "{name} has no version, and must be found"
            ),
        }
    }
}

#[test]
fn lines_of_objdump_are_read() {
    let line = "0000000000000000  w   DF *UND*	0000000000000000 (GLIBC_2.2.5) dlsym";
    assert_eq!(symbol(line), Some((Some((2, 2)), true, "dlsym")));
    let line = "0000000000000000      DF *UND*	0000000000000000 (GLIBC_2.34) dlsym";
    assert_eq!(symbol(line), Some((Some((2, 34)), false, "dlsym")));
    let line = "0000000000000000  w   D  *UND*	0000000000000000              __libc_dlsym";
    assert_eq!(symbol(line), Some((None, true, "__libc_dlsym")));
}
