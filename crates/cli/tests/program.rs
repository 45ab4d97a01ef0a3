//! The program itself: exit codes, sentences, daemons that start, end and are killed.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

mod place;

use place::{Place, eventually, said};

#[test]
fn run_has_the_programs_exit_code_and_its_own() {
    let place = Place::with_library();
    let code = |words: &[&str]| place.ask(words).status.code();
    assert_eq!(code(&["run", "--", "sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["run", "--", "/no/such/program"]), Some(127));
    assert_eq!(code(&["run", "--", "no-such-program-anywhere"]), Some(127));
    assert_eq!(code(&["run", "--", "/"]), Some(126));
    assert_eq!(code(&["run"]), Some(125));
    assert_eq!(code(&["run", "--no-such-option", "--", "true"]), Some(125));
    assert_eq!(code(&["run", "--help"]), Some(0));
    assert_eq!(code(&["ss", "--no-such-option"]), Some(2));
}

#[test]
fn run_sets_the_environment_and_leaves_the_rest_alone() {
    let place = Place::with_library();
    let script = "echo $LD_PRELOAD; echo $NETCHANNEL_SOCKET; echo $NETCHANNEL_REQUIRE; echo $0";
    let output = place
        .command(&["run", "--require", "--", "sh", "-c", script])
        .env("LD_PRELOAD", "libc.so.6")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let library = place.folder.path().join("libnetchannel.so");
    let expected = format!(
        "libc.so.6:{}\n{}\n1\nsh\n",
        library.display(),
        place.socket().display()
    );
    assert_eq!(text, expected);
    assert!(output.stderr.is_empty());
}

#[test]
fn a_library_of_another_version_is_said() {
    let place = Place::with_library_of(netchannel_abi::LAYOUT_HASH ^ 1);
    let output = place.ask(&["run", "--", "sh", "-c", "echo \"[$LD_PRELOAD]\""]);
    assert_eq!(output.stdout, b"[]\n");
    assert!(said(&output).contains("is of another version than this program"));
    assert!(said(&output).contains("kernel TCP"));
    let output = place.ask(&["run", "--require", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn run_passes_on_how_signals_are_handled() {
    let place = Place::with_library();
    let show = ["run", "--", "grep", "SigIgn", "/proc/self/status"];
    let plain = place.ask(&show).stdout;
    let ignored = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        let mask = text.split_whitespace().nth(1).unwrap().to_owned();
        u64::from_str_radix(&mask, 16).unwrap() & 1 << 12 != 0
    };
    assert!(!ignored(&plain));
    // A shell that ignores SIGPIPE passes that on; so must we.
    let words: Vec<String> = show.iter().skip(2).map(|word| (*word).to_owned()).collect();
    let line = format!(
        "trap '' PIPE; exec {} run --socket {} -- {}",
        place.folder.path().join("netchannel").display(),
        place.socket().display(),
        words.join(" ")
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(ignored(&output.stdout));
}

#[test]
fn a_program_finds_no_child_it_did_not_make() {
    let place = Place::with_library();
    let script = "cat /proc/self/task/*/children /proc/$$/task/$$/children | wc -w";
    let output = place.ask(&["run", "--", "sh", "-c", script]);
    // The shell's own children: `cat` and `wc`, and nothing else.
    let count: u32 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(count <= 2, "{count}");
}

#[test]
fn a_daemon_in_the_background_holds_nothing_of_its_starter() {
    let place = Place::with_library();
    let started = Instant::now();
    let line = format!(
        "{} run --socket {} -- true 3>&1 4>&2",
        place.folder.path().join("netchannel").display(),
        place.socket().display(),
    );
    // Returns only when every holder of standard output and error is gone.
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(place.ask(&["status"]).status.success());
}

#[test]
fn without_the_library_it_says_so_and_runs_over_tcp() {
    let place = Place::new();
    let output = place.ask(&["run", "--", "echo", "hello"]);
    assert_eq!(output.stdout, b"hello\n");
    assert!(output.status.success());
    let sentence = said(&output);
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    assert!(sentence.contains("libnetchannel.so") && sentence.contains("kernel TCP"));
    let refused = place.ask(&["run", "--require", "--", "echo", "hello"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(refused.stdout.is_empty());
}

#[test]
fn without_a_daemon_it_says_so_and_runs_over_tcp() {
    let place = Place::with_library();
    let output = place.ask(&["run", "--no-daemon", "--", "echo", "hello"]);
    assert_eq!(output.stdout, b"hello\n");
    assert!(said(&output).contains("no daemon serves"));
    let refused = place.ask(&["run", "--no-daemon", "--require", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    // Where none can be started, the reason is told.
    std::fs::write(place.socket(), "not a socket").unwrap();
    let output = place.ask(&["run", "--", "echo", "hello"]);
    assert_eq!(output.stdout, b"hello\n");
    let sentence = said(&output);
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
}

#[test]
fn a_static_program_is_run_over_tcp() {
    let place = Place::with_library();
    let source = place.folder.path().join("lone.c");
    let lone = place.folder.path().join("lone");
    // Without any libc, as not every host has a static one.
    let exit = if cfg!(target_arch = "aarch64") {
        "mov x8, #93\\n mov x0, #7\\n svc #0"
    } else {
        "mov $60, %eax\\n mov $7, %edi\\n syscall"
    };
    let code = format!("void _start(void) {{ __asm__ volatile(\"{exit}\"); }}\n");
    std::fs::write(&source, code).unwrap();
    let built = Command::new("cc")
        .args(["-static", "-nostdlib", "-o"])
        .args([&lone, &source])
        .status();
    assert!(built.unwrap().success());
    let lone = lone.to_str().unwrap();
    let output = place.ask(&["run", "--", lone]);
    assert_eq!(output.status.code(), Some(7));
    assert!(
        said(&output).contains("linked statically"),
        "{}",
        said(&output)
    );
    let refused = place.ask(&["run", "--require", "--", lone]);
    assert_eq!(refused.status.code(), Some(125));
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(lone, mode).unwrap();
    assert_eq!(place.ask(&["run", "--", lone]).status.code(), Some(126));
}

#[test]
fn two_that_start_together_share_one_daemon() {
    let place = Place::with_library();
    let children: Vec<Child> = (0..4)
        .map(|_| {
            place
                .command(&["run", "--require", "--", "true"])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
}

/// A daemon holds the lock before it answers, and until after its last answer.
#[test]
fn run_waits_for_a_daemon_that_begins_or_ends() {
    let place = Place::with_library();
    let lock = std::fs::File::create(place.folder.path().join("s.sock.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let child = place
        .command(&["run", "--require", "--", "true"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(lock);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn one_daemon_per_path() {
    let place = Place::new();
    let mut first = place.daemon(&[]);
    let second = place.ask(&["daemon"]);
    assert_eq!(second.status.code(), Some(3));
    assert!(said(&second).contains("another daemon serves"));
    first.signal("-TERM");
    assert_eq!(first.child.wait().unwrap().code(), Some(0));
    let left: Vec<_> = std::fs::read_dir(place.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("s.sock"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_killed_daemon_leaves_nothing_in_the_way() {
    let place = Place::new();
    let mut first = place.daemon(&[]);
    first.signal("-KILL");
    first.child.wait().unwrap();
    assert!(place.socket().exists());
    assert_eq!(place.ask(&["status"]).status.code(), Some(1));
    let _second = place.daemon(&[]);
}

#[test]
fn an_idle_daemon_costs_nothing_and_ends() {
    let place = Place::new();
    let mut daemon = place.daemon(&["--idle-exit", "2"]);
    let switches = || {
        let path = format!("/proc/{}/status", daemon.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with("voluntary_ctxt"));
        line.unwrap().to_owned()
    };
    std::thread::sleep(Duration::from_millis(100));
    let before = switches();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(before, switches());
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

/// A program that has no socket yet needs the daemon all the same: a shell, or a script that sleeps.
#[test]
fn a_daemon_does_not_end_before_a_program_that_run_has_begun() {
    let place = Place::with_library();
    let mut daemon = place.daemon(&["--idle-exit", "1"]);
    let mut program = place
        .command(&["run", "--require", "--", "sleep", "60"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(program.try_wait().unwrap().is_none());
    assert!(place.ask(&["status"]).status.success());
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

#[test]
fn commands_answer_in_json_and_in_words() {
    let place = Place::new();
    let none = place.ask(&["ss"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(said(&none).contains("no daemon serves"));
    let _daemon = place.daemon(&[]);
    for words in [["status", "--json"], ["ss", "--json"], ["doctor", "--json"]] {
        let output = place.ask(&words);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    }
    let text = String::from_utf8(place.ask(&["status"]).stdout).unwrap();
    assert!(text.contains("programs     0"), "{text}");
    let text = String::from_utf8(place.ask(&["ss"]).stdout).unwrap();
    assert!(text.starts_with("STATE"), "{text}");
    let ended = place.ask(&["status", "--shutdown"]);
    assert!(ended.status.success());
    eventually(|| !place.socket().exists());
}

#[test]
fn a_log_that_can_not_be_written_ends_nothing() {
    let place = Place::new();
    let _daemon = place.daemon(&["--log", "/dev/full"]);
    assert!(place.ask(&["status"]).status.success());
}

#[test]
fn a_daemon_that_is_killed_by_a_fault_says_so_and_ends_by_it() {
    use std::os::unix::process::ExitStatusExt;
    let place = Place::new();
    let log = place.folder.path().join("log");
    let no_core = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(rustix::process::Resource::Core, no_core).unwrap();
    for (signal, number) in [("SEGV", 11), ("BUS", 7), ("ABRT", 6)] {
        let mut daemon = place.daemon(&["--log", log.to_str().unwrap()]);
        daemon.signal(&format!("-{signal}"));
        assert_eq!(daemon.child.wait().unwrap().signal(), Some(number));
        let said = std::fs::read_to_string(&log).unwrap();
        let last = said.lines().last().unwrap();
        let expected = format!("ERROR ended by SIG{signal} sent by process ");
        assert!(last.contains(&expected), "{said}");
        assert!(last.contains(&format!("of process {}, netchannel ", daemon.child.id())));
    }
}

#[test]
fn a_daemon_gives_up_what_it_does_not_use() {
    let place = Place::new();
    // With a thread besides the first.
    let daemon = place.daemon(&["--relay"]);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let mut threads = 0;
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        let shown = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
        };
        // CAP_NET_BIND_SERVICE, CAP_SYS_PTRACE, CAP_SYS_NICE: see docs/operating.md.
        let used = 1 << 10 | 1 << 19 | 1 << 23;
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(shown(set) & !used, 0, "{set} {status}");
        }
        // Bounds are changed by who has CAP_SETPCAP.
        let own = rustix::thread::capabilities(None).unwrap().effective;
        if own.contains(rustix::thread::CapabilitySet::SETPCAP) {
            assert_eq!(shown("CapBnd:") & !used, 0, "{status}");
        }
        assert_eq!(shown("NoNewPrivs:"), 1);
        threads += 1;
    }
    assert!(threads > 1);
}

#[test]
fn a_daemon_that_does_not_answer_is_told_from_one_that_is_not_there() {
    let place = Place::new();
    let daemon = place.daemon(&[]);
    daemon.signal("-STOP");
    let output = place.ask(&["doctor"]);
    daemon.signal("-CONT");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("timed out after 2s"), "{text}");
    drop(daemon);
    let said = said(&place.ask(&["status"]));
    assert!(said.contains("no daemon serves at"), "{said}");
}
