//! The torture program for some seconds, over kernel TCP and under NetChannel.
//!
//! Longer runs are started by hand: `torture bytes --seconds 600`, `torture killer --rounds 5000`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::{Transport, command, find_netchannel};

const TORTURE: &str = env!("CARGO_BIN_EXE_torture");

fn passes(transport: &Transport, arguments: &[&str]) -> Result<(), String> {
    let program = Path::new(TORTURE);
    let output = command(program, transport)
        .args(arguments)
        .output()
        .expect("it starts");
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if output.status.success() && text.contains("PASS") {
        return Ok(());
    }
    Err(format!(
        "torture {}: {}\n{text}",
        arguments.join(" "),
        output.status
    ))
}

fn everything(transport: &Transport) {
    let runs: [&[&str]; 6] = [
        &[
            "bytes",
            "--seconds",
            "6",
            "--seed",
            "20260",
            "--connections",
            "12",
        ],
        &["killer", "--seconds", "4", "--seed", "20261"],
        &["hostile", "--seconds", "4", "--seed", "20262"],
        &["servers", "--seconds", "6", "--seed", "20263"],
        &["shared", "--seconds", "4", "--seed", "20264"],
        &["handed", "--seconds", "4", "--seed", "20271"],
    ];
    let failures: Vec<_> = runs
        .iter()
        .filter_map(|arguments| passes(transport, arguments).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn kernel_tcp_stands_it() {
    everything(&Transport::Kernel);
}

#[test]
fn netchannel_stands_it() {
    under_netchannel(&[]);
}

#[test]
fn netchannel_stands_it_with_copy_workers() {
    let Some(program) = find_netchannel(Path::new(TORTURE)) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return;
    };
    let daemon = PrivateDaemon::start(&program).expect("a folder and the daemon");
    // Three workers, for calls from 64 KiB on, in parts of 4 KiB: every transfer above a stride is split.
    let workers = ("NETCHANNEL_COPY_WORKERS", "3,65536,4096");
    for kind in ["bytes", "killer"] {
        let output = std::process::Command::new(&program)
            .args(["run", "--require", "--socket"])
            .arg(daemon.socket())
            .args(["--", TORTURE, kind, "--seconds", "4", "--seed", "20266"])
            .env(workers.0, workers.1)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {said}");
    }
}

/// The program, where its supervisor of system calls is built, too.
fn with_supervisor() -> Option<PathBuf> {
    let Some(program) = find_netchannel(Path::new(TORTURE)) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return None;
    };
    if !program.with_file_name("netchannel-supervisor").exists() {
        println!("left out: no netchannel-supervisor is built");
        return None;
    }
    Some(program)
}

/// The supervisor of system calls is not asked about the library's own, which signals would end.
#[test]
fn netchannel_stands_it_under_a_supervisor() {
    let Some(program) = with_supervisor() else {
        return;
    };
    let daemon = PrivateDaemon::start(&program).expect("a folder and the daemon");
    let output = std::process::Command::new(&program)
        .args(["run", "--require", "--static=plain", "--socket"])
        .arg(daemon.socket())
        .args(["--", TORTURE, "bytes", "--mode", "blocking"])
        .args(["--seconds", "3", "--seed", "20267"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// In a tenant a supervisor is asked about the kernel's sockets, too, and a signal ends the wait for its answer.
#[test]
fn families_of_a_tenant_stand_signals() {
    const TENANT: &str = "[[tenants]]\nname = \"web\"\naddresses = [\"10.88.0.2\"]\n";
    let Some(program) = with_supervisor() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tenant.toml");
    std::fs::write(&file, TENANT).expect("the configuration");
    let file = file.to_str().expect("a readable path");
    let daemon = PrivateDaemon::start_with(&program, &["--config", file]).expect("the daemon");
    let output = std::process::Command::new(&program)
        .args(["tenants", "run", "web", "--", TORTURE, "servers"])
        .args(["--seconds", "8", "--seed", "131"])
        // What SPECIFICATION 16.15 keeps of a listener that is handed on.
        .args(["--except", "HandedOn"])
        .env("NETCHANNEL_SOCKET", daemon.socket())
        .output()
        .expect("it runs");
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
}

#[test]
fn netchannel_stands_it_through_the_relay() {
    under_netchannel(&["--relay"]);
}

fn under_netchannel(arguments: &[&str]) {
    let Some(program) = find_netchannel(Path::new(TORTURE)) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return;
    };
    let mut daemon =
        PrivateDaemon::start_with(&program, arguments).expect("a folder and the daemon");
    let before = daemon.descriptors();
    let transport = Transport::NetChannel {
        program,
        socket: daemon.socket(),
    };
    everything(&transport);
    assert!(
        daemon.is_running(),
        "the daemon ended meanwhile:\n{}",
        daemon.log()
    );
    // All programs have ended, and the daemon must hold nothing for them.
    let start = std::time::Instant::now();
    while daemon.descriptors() > before && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        daemon.descriptors() <= before,
        "the daemon keeps descriptors, it had {before}:\n{}\n{}",
        daemon.descriptor_names().join("\n"),
        daemon.log()
    );
}

/// A daemon of the test's own, and how programs reach it.
fn private() -> Option<(PrivateDaemon, Transport)> {
    let Some(program) = find_netchannel(Path::new(TORTURE)) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return None;
    };
    let daemon = PrivateDaemon::start(&program).expect("a folder and the daemon");
    let socket = daemon.socket();
    Some((daemon, Transport::NetChannel { program, socket }))
}

#[test]
fn programs_and_their_connections_outlive_the_daemon() {
    let Some((mut daemon, transport)) = private() else {
        return;
    };
    let running = std::thread::spawn(move || {
        let seed = ["--seed", "20263", "--family", "v4"];
        let arguments = [&["bytes", "--seconds", "6", "--mode", "edge"], &seed[..]].concat();
        passes(&transport, &arguments)
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(!running.is_finished(), "it was to be killed in the middle");
    daemon.kill();
    let outcome = running.join().expect("no panic");
    assert_eq!(outcome, Ok(()));
}

#[test]
fn families_outlive_daemons() {
    const SHAPES: [&str; 5] = ["ExecuteEach", "PreforkSets", "ForkEach", "Rotating", "Pass"];
    let Some((mut daemon, transport)) = private() else {
        return;
    };
    let running = std::thread::spawn(move || {
        let each = SHAPES.iter().map(|shape| {
            let seed = ["--seed", "20269", "--only", shape];
            let arguments = [&["servers", "--seconds", "3"], &seed[..]].concat();
            passes(&transport, &arguments)
        });
        each.collect::<Result<(), _>>()?;
        passes(&transport, &["handed", "--seconds", "4", "--seed", "20271"])
    });
    while !running.is_finished() {
        std::thread::sleep(Duration::from_millis(300));
        daemon.kill();
        daemon.start_again().expect("the daemon");
    }
    let outcome = running.join().expect("no panic");
    assert_eq!(outcome, Ok(()));
}

#[test]
fn users_stand_a_hostile_one() {
    let Some(program) = find_netchannel(Path::new(TORTURE)) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return;
    };
    // Over kernel TCP too: the judge must accept everything that TCP does.
    for netchannel in [None, Some(&program)] {
        let mut command = std::process::Command::new(TORTURE);
        command.args(["users", "--seconds", "12", "--seed", "20268"]);
        if let Some(program) = netchannel {
            command.arg("--netchannel").arg(program);
        }
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        if output.status.code() == Some(netchannel_testkit::support::SKIPPED) {
            return println!("{said}");
        }
        assert!(output.status.success(), "{netchannel:?}: {said}");
    }
}
