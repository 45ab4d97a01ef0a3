//! Each case ends a process of its own, which is this test again.

use super::prepare;
use netchannel_daemon::AlternateStack;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

const CASE: &str = "NETCHANNEL_TEST_DEATH";
const LOG: &str = "NETCHANNEL_TEST_LOG";

/// Ends as the environment says.
#[test]
fn subject() {
    let (Ok(case), Some(log)) = (std::env::var(CASE), std::env::var_os(LOG)) else {
        return;
    };
    let _stack = AlternateStack::new();
    prepare(Some(Path::new(&log)));
    // SAFETY: the limit is a local. A test leaves no core behind.
    unsafe {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
    match case.as_str() {
        "fault" => fault(0x10),
        "hole" => hole(),
        "library" => {
            // SAFETY: none; this is to fail, within the C library.
            let length = unsafe { libc::strlen(std::ptr::without_provenance(0x20)) };
            // Else the call is no call where the compiler optimises.
            std::hint::black_box(length);
        }
        "overflow" => {
            let thread = std::thread::Builder::new().name("deep".to_owned());
            let deep = thread.spawn(|| {
                let _stack = AlternateStack::new();
                deeper(u64::MAX)
            });
            let _ = deep.unwrap().join();
        }
        "panic" => {
            let thread = std::thread::Builder::new().name("unlucky".to_owned());
            let _ = thread.spawn(|| panic!("told {}", 42)).unwrap().join();
            std::process::abort();
        }
        _ => {}
    }
}

#[inline(never)]
fn fault(address: usize) {
    // SAFETY: none; this is to fail.
    unsafe { std::ptr::without_provenance::<u8>(address).read_volatile() };
}

/// Memory of a file that has become shorter, as a region would that could be cut.
fn hole() {
    let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 4096).unwrap();
    // SAFETY: a new mapping; reading it is to fail.
    unsafe {
        use std::os::fd::AsRawFd;
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        let at = libc::mmap(
            std::ptr::null_mut(),
            4096,
            read,
            shared,
            memory.as_raw_fd(),
            0,
        );
        rustix::fs::ftruncate(&memory, 0).unwrap();
        at.cast::<u8>().read_volatile();
    }
}

#[inline(never)]
fn deeper(left: u64) -> u64 {
    let room = std::hint::black_box([left; 64]);
    if left == 0 {
        0
    } else {
        deeper(left - 1) + room[1]
    }
}

/// The signal by which the subject ends, and what it leaves in the log.
fn ending(case: &str) -> (Option<i32>, String) {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "daemon::death::tests::subject", "--nocapture"])
        .env(CASE, case)
        .env(LOG, &log)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    (status.signal(), said)
}

fn only_line(said: &str) -> &str {
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.ends_with(&format!(", netchannel {}\n", env!("CARGO_PKG_VERSION"))));
    assert!(
        said[20..].starts_with(|digit: char| digit.is_ascii_digit()) && said.contains("Z ERROR ")
    );
    said
}

/// The functions that `addr2line` finds at an offset, those that were inlined there too; nothing where there is no such program.
fn function_at(offset: &str) -> Option<String> {
    let output = Command::new("addr2line")
        .arg("-Cfie")
        .arg(std::env::current_exe().unwrap())
        .arg(offset)
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_fault_says_where() {
    let (signal, said) = ending("fault");
    assert_eq!(signal, Some(libc::SIGSEGV));
    let line = only_line(&said);
    assert!(line.contains("ended by SIGSEGV at the address 0x10, instruction netchannel+0x"));
    let offset = line.split("netchannel+").nth(1).unwrap();
    let offset = offset.split([';', ',']).next().unwrap();
    if let Some(function) = function_at(offset) {
        assert!(
            function.contains("read_volatile") || function.contains("fault"),
            "{function}"
        );
    }
}

#[test]
fn memory_that_has_gone_says_where() {
    let (signal, said) = ending("hole");
    assert_eq!(signal, Some(libc::SIGBUS));
    assert!(only_line(&said).contains("ended by SIGBUS at the address 0x"));
}

#[test]
fn a_fault_in_a_library_says_who_called() {
    let (signal, said) = ending("library");
    assert_eq!(signal, Some(libc::SIGSEGV));
    let line = only_line(&said);
    assert!(line.contains("instruction libc.so.6+0x"), "{line}");
    let callers = line.split("called from ").nth(1).unwrap();
    let callers = callers.split(';').next().unwrap().split(", ");
    let mut functions = callers.filter_map(|offset| function_at(offset.trim_start_matches('+')));
    if function_at("0x0").is_some() {
        assert!(functions.any(|name| name.contains("subject")), "{line}");
    }
}

#[test]
fn a_stack_that_is_used_up_leaves_a_line_too() {
    let (signal, said) = ending("overflow");
    assert_eq!(signal, Some(libc::SIGSEGV));
    assert!(only_line(&said).contains("; thread deep ("), "{said}");
}

#[test]
fn a_panic_says_where_once() {
    let (signal, said) = ending("panic");
    assert_eq!(signal, Some(libc::SIGABRT));
    let line = only_line(&said);
    let expected = concat!("panic at ", file!(), ":");
    assert!(
        line.contains(expected) && line.contains(": told 42; thread unlucky ("),
        "{line}"
    );
}
