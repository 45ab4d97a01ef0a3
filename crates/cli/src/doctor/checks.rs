//! The checks.

use super::{Finding, Verdict};
use crate::library;
use netchannel_control::client::ClientError;
use netchannel_control::types::{Request, Response};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, getrlimit};
use std::path::Path;
use std::time::Duration;

/// The oldest kernel with all required features: memfd seals against later writers.
const OLDEST_KERNEL: (u32, u32) = (5, 10);
/// Descriptors under which a server of a few thousand connections runs out.
const ENOUGH_DESCRIPTORS: u64 = 16384;
/// Ports outside the kernel's range that suffice for all programs of a busy host.
const ENOUGH_PORTS: u32 = 4096;

/// A check that came out well.
pub fn ok(check: &'static str, found: impl Into<String>) -> Finding {
    Finding {
        check,
        verdict: Verdict::Ok,
        found: found.into(),
        fix: None,
    }
}

/// A check that did not come out well, and the command that fixes it.
pub fn bad(
    check: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    Finding {
        check,
        verdict,
        found: found.into(),
        fix: Some(fix.into()),
    }
}

/// The checks of the host.
pub fn host() -> Vec<Finding> {
    vec![
        kernel(),
        memfd(),
        memfd_noexec(),
        huge_pages(),
        memory(),
        overcommit(),
        descriptors(),
        ports(),
        cores(),
        namespaces(),
    ]
}

/// The checks of this installation, and of the daemon at `socket`.
pub fn installation(socket: &Path) -> Vec<Finding> {
    vec![library_found(), daemon(socket)]
}

/// A command of root's that holds until the host is restarted, and how it stays.
fn until_restart(command: &str, setting: &str) -> String {
    format!(
        "{command}   (as root; until the next restart of the host: as a line '{setting}' in /etc/sysctl.d/90-netchannel.conf it stays)"
    )
}

fn read(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|word| word.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST_KERNEL => ok("kernel", release),
        _ => bad(
            "kernel",
            Verdict::Fail,
            format!(
                "Linux {release}, older than {}.{}",
                OLDEST_KERNEL.0, OLDEST_KERNEL.1
            ),
            "boot a newer kernel",
        ),
    }
}

fn memfd() -> Finding {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let sealed = rustix::fs::memfd_create(c"netchannel-doctor", flags).and_then(|descriptor| {
        rustix::fs::ftruncate(&descriptor, 4096)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        rustix::fs::fcntl_add_seals(&descriptor, seals)
    });
    match sealed {
        Ok(()) => ok("memfd and seals", "work"),
        Err(error) => bad(
            "memfd and seals",
            Verdict::Fail,
            format!("memfd_create or sealing is refused ({error})"),
            "allow memfd_create and fcntl in the sandbox's seccomp profile",
        ),
    }
}

fn memfd_noexec() -> Finding {
    match read("/proc/sys/vm/memfd_noexec").as_deref() {
        Some("2") => bad(
            "memfd_noexec",
            Verdict::Fail,
            "vm.memfd_noexec=2 refuses memory files made without MFD_NOEXEC_SEAL",
            until_restart("sysctl -w vm.memfd_noexec=1", "vm.memfd_noexec=1"),
        ),
        Some(value) => ok("memfd_noexec", format!("vm.memfd_noexec={value}")),
        None => ok("memfd_noexec", "the kernel does not know it"),
    }
}

fn overcommit() -> Finding {
    overcommit_of(read("/proc/sys/vm/overcommit_memory").as_deref())
}

/// Shared memory is not reserved beforehand: where the kernel's limit is reached, a process that touches a new page of
/// it is killed.
fn overcommit_of(setting: Option<&str>) -> Finding {
    const CHECK: &str = "overcommit";
    match setting {
        Some("2") => bad(
            CHECK,
            Verdict::Warn,
            "vm.overcommit_memory=2: links that ended count as used memory in full, and at the bound programs get SIGBUS",
            "keep CommitLimit in /proc/meminfo far above Committed_AS, start the daemon with a small --arena, or sysctl -w \
             vm.overcommit_memory=0",
        ),
        Some(value) => ok(CHECK, format!("vm.overcommit_memory={value}")),
        None => ok(CHECK, "the kernel does not tell"),
    }
}

#[test]
fn a_kernel_that_promises_no_memory_is_told() {
    assert_eq!(overcommit_of(Some("2")).verdict, Verdict::Warn);
    assert_eq!(overcommit_of(Some("0")).verdict, Verdict::Ok);
    assert_eq!(overcommit_of(None).verdict, Verdict::Ok);
}

fn huge_pages() -> Finding {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let Some(setting) = read(SETTING) else {
        return bad(
            "huge pages",
            Verdict::Warn,
            "the kernel has none for shared memory; large rings use small pages",
            "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        );
    };
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or_default();
    if matches!(chosen, "never" | "deny") {
        return bad(
            "huge pages",
            Verdict::Warn,
            format!("shmem_enabled is {chosen}; large rings use small pages"),
            format!(
                "echo advise > {SETTING}   (as root; until the next restart of the host: as a line 'w {SETTING} - - - - advise' in \
                 /etc/tmpfiles.d/netchannel.conf it stays)"
            ),
        );
    }
    ok("huge pages", format!("shmem_enabled is {chosen}"))
}

fn memory() -> Finding {
    let text = read("/proc/meminfo").unwrap_or_default();
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse::<u64>().ok());
    match available {
        Some(kilobytes) if kilobytes < 256 * 1024 => bad(
            "memory",
            Verdict::Warn,
            format!("{} MiB are free; rings stay small", kilobytes / 1024),
            "end programs, or give the container more memory",
        ),
        Some(kilobytes) => ok("memory", format!("{} MiB are free", kilobytes / 1024)),
        None => bad(
            "memory",
            Verdict::Warn,
            "/proc/meminfo cannot be read",
            "mount -t proc proc /proc",
        ),
    }
}

fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let soft = limit.current.unwrap_or(u64::MAX);
    let found = format!("{soft} for programs, {hard} for the daemon");
    if hard < ENOUGH_DESCRIPTORS {
        let wanted = ENOUGH_DESCRIPTORS * 4;
        return bad(
            "descriptors",
            Verdict::Warn,
            found,
            format!("ulimit -Hn {wanted}, or LimitNOFILE={wanted} in the service"),
        );
    }
    ok("descriptors", found)
}

fn ports() -> Finding {
    let range = read("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut words = range
        .split_whitespace()
        .filter_map(|word| word.parse::<u32>().ok());
    let (Some(first), Some(last)) = (words.next(), words.next()) else {
        return bad(
            "ports",
            Verdict::Warn,
            "ip_local_port_range cannot be read; the default is assumed",
            "mount -t proc proc /proc",
        );
    };
    let left = (65535_u32 - 1024).saturating_sub(last.saturating_sub(first.max(1024)));
    let found = format!("{left} outside the kernel's range {first} to {last}");
    if left < ENOUGH_PORTS {
        let setting = "net.ipv4.ip_local_port_range=32768 60999";
        let fix = until_restart(&format!("sysctl -w '{setting}'"), setting);
        return bad("ports", Verdict::Warn, found, fix);
    }
    ok("ports", found)
}

fn cores() -> Finding {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    if count == 1 {
        return bad(
            "cores",
            Verdict::Warn,
            "one: two programs cannot work at the same time, so every exchange is a switch",
            "give the machine or the container a second core",
        );
    }
    ok("cores", count.to_string())
}

fn namespaces() -> Finding {
    let disabled = read("/proc/sys/user/max_user_namespaces").as_deref() == Some("0")
        || read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0");
    if disabled && !rustix::process::geteuid().is_root() {
        return bad(
            "user namespaces",
            Verdict::Warn,
            "switched off; only tests that make networks of their own need them",
            until_restart(
                "sysctl -w user.max_user_namespaces=10000",
                "user.max_user_namespaces=10000",
            ),
        );
    }
    ok("user namespaces", "can be made")
}

fn library_found() -> Finding {
    match library::find() {
        Ok(path) => ok("library", path.display().to_string()),
        Err(error) => bad(
            "library",
            Verdict::Fail,
            error.to_string(),
            "cargo build --release",
        ),
    }
}

fn daemon(socket: &Path) -> Finding {
    let shown = socket.display();
    let answer = netchannel_control::request(socket, Request::Hello, Duration::from_secs(2));
    match answer {
        Ok(Response::Hello(hello)) if hello.layout == netchannel_abi::LAYOUT_HASH => ok(
            "daemon",
            format!(
                "netchannel {}, process {}, at {shown}",
                hello.version, hello.process
            ),
        ),
        Ok(Response::Hello(hello)) => bad(
            "daemon",
            Verdict::Fail,
            format!(
                "process {} at {shown} is of another version; nobody can attach",
                hello.process
            ),
            format!("netchannel stop --socket {shown}"),
        ),
        Ok(_) => bad(
            "daemon",
            Verdict::Fail,
            format!("what answers at {shown} is no daemon of this version"),
            "name another path with --socket PATH",
        ),
        Err(ClientError::NoDaemon(_)) => ok(
            "daemon",
            format!("none at {shown}; `netchannel run` starts one"),
        ),
        Err(error) => bad(
            "daemon",
            Verdict::Fail,
            error.to_string(),
            "name another path with --socket PATH, or restart the daemon",
        ),
    }
}
