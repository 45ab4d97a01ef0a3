//! Large transfers with copy workers, whose parts are made small so that there are many: this test runs itself under NetChannel,
//! one subject at a time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::daemon::PrivateDaemon;
use netchannel_testkit::runner::find_netchannel;
use netchannel_testkit::support::{pattern, pattern_mismatch};

/// Names the subject.
const SUBJECT: &str = "NETCHANNEL_TEST_SUBJECT";
/// Three workers, calls from 64 KiB on, parts of 4 KiB.
const FORCED: (&str, &str) = ("NETCHANNEL_COPY_WORKERS", "3,65536,4096");
const LARGE: usize = 1 << 20;

/// Runs a subject under `netchannel run`. `None` if `netchannel` is not built.
fn run(name: &str, arguments: &[&str], forced: bool) -> Option<Output> {
    let own = std::env::current_exe().unwrap();
    let Some(program) = find_netchannel(own.parent().unwrap()) else {
        println!("left out: no netchannel program is built, and NETCHANNEL_PROGRAM is not set");
        return None;
    };
    let daemon = PrivateDaemon::start(&program).expect("a folder and the daemon");
    let mut command = Command::new(&program);
    command
        .args(["run", "--require", "--socket"])
        .arg(daemon.socket())
        .args(arguments)
        .arg("--")
        .arg(&own)
        .args(["--exact", "subject", "--nocapture"])
        .env_remove(FORCED.0)
        .env(SUBJECT, name);
    if forced {
        command.env(FORCED.0, FORCED.1);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}", output.status);
    Some(output)
}

#[test]
fn every_byte_of_many_threads_arrives() {
    run("bytes", &[], true);
}

#[test]
fn a_bad_buffer_keeps_what_came_before_it() {
    run("faults", &[], true);
}

#[test]
fn children_make_their_own() {
    run("forks", &[], true);
}

#[test]
fn handlers_run_and_harm_nothing() {
    run("signals", &[], true);
}

#[test]
fn credentials_namespaces_and_filters_meet_no_copy_worker() {
    run("privileges", &[], true);
}

#[test]
fn where_no_thread_can_be_made_the_caller_copies() {
    run("limit", &[], true);
}

#[test]
fn closing_and_ending_meanwhile_is_no_harm() {
    run("ends", &[], true);
}

#[test]
fn as_many_as_were_asked_for() {
    run("none", &["--copy-workers", "0"], false);
    run("two", &["--copy-workers", "2"], false);
    run(
        "none",
        &["--copy-workers", "2", "--class", "latency"],
        false,
    );
}

#[test]
fn subject() {
    match std::env::var(SUBJECT).as_deref() {
        Ok("bytes") => bytes(),
        Ok("faults") => faults(),
        Ok("forks") => forks(),
        Ok("signals") => signals(),
        Ok("privileges") => privileges(),
        Ok("limit") => limit(),
        Ok("ends") => ends(),
        Ok("none") => {
            exchange(4);
            assert_eq!(helpers().len(), 0);
        }
        Ok("two") => {
            exchange(4);
            expect_helpers(2);
        }
        _ => {}
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The states of this process's copy workers.
fn helpers() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter(|status| status.contains("nc-copy"))
        .collect()
}

/// Waits until there are `count` workers. On a busy machine it takes a while until a worker has its name.
fn expect_helpers(count: usize) {
    let begun = Instant::now();
    while helpers().len() != count {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{}",
            helpers().len()
        );
        exchange(1);
    }
}

/// Sends and receives `messages` large messages over one connection, and compares them.
fn exchange(messages: usize) {
    let (mut client, mut server) = pair();
    let sizes = [LARGE, 70_000, 300_001, 2 * LARGE - 1];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (number, size) in (0..messages).zip(sizes.iter().cycle()) {
                client.write_all(&pattern(number * 13, *size)).unwrap();
            }
        });
        for (number, size) in (0..messages).zip(sizes.iter().cycle()) {
            let mut bytes = vec![0; *size];
            server.read_exact(&mut bytes).unwrap();
            assert_eq!(pattern_mismatch(number * 13, &bytes), None);
        }
    });
}

fn bytes() {
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| exchange(40));
        }
    });
    expect_helpers(3);
}

/// A buffer with `usable` accessible bytes, followed by as many inaccessible ones as a large call has.
fn fenced(usable: usize) -> *mut u8 {
    let whole = usable.next_multiple_of(4096);
    let (none, flags) = (
        std::ptr::null_mut(),
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, and a change of a part of it.
    unsafe {
        let start = libc::mmap(none, whole + 2 * LARGE, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(libc::mprotect(start, whole, protection), 0);
        start.cast::<u8>().add(whole - usable)
    }
}

fn faults() {
    for usable in [4096, 65_000, 100_000, 200_001, 300_000, 700_000] {
        let (client, mut server) = pair();
        let base = fenced(usable);
        let sent = pattern(usable, usable);
        // SAFETY: that many bytes are usable.
        unsafe { base.copy_from_nonoverlapping(sent.as_ptr(), usable) };
        let address = base.addr();
        let sender = std::thread::spawn(move || {
            let base = std::ptr::with_exposed_provenance::<u8>(address);
            let mut done = 0;
            loop {
                let from = base.wrapping_add(done).cast();
                // SAFETY: bytes that cannot be read fault, which the call returns as an error.
                let now = unsafe { libc::send(client.as_raw_fd(), from, LARGE - done, 0) };
                let Ok(now) = usize::try_from(now) else { break };
                done += now;
            }
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
            assert_eq!(done, usable);
            client
        });
        let mut got = vec![0; usable];
        server.read_exact(&mut got).unwrap();
        assert!(got == sent);
        let mut client = sender.join().unwrap();

        let message = pattern(7, LARGE);
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&message).unwrap());
            let mut done = 0;
            while done < usable {
                let to = base.wrapping_add(done).cast();
                // SAFETY: bytes that cannot be written fault, which the call returns as an error.
                let now = unsafe { libc::recv(server.as_raw_fd(), to, LARGE - done, 0) };
                done += usize::try_from(now).expect("only beyond the fence it fails");
            }
            assert_eq!(done, usable);
            // SAFETY: that many bytes were written.
            let got = unsafe { std::slice::from_raw_parts(base, usable) };
            assert_eq!(pattern_mismatch(7, got), None);
            let mut rest = vec![0; LARGE - usable];
            server.read_exact(&mut rest).unwrap();
            assert_eq!(pattern_mismatch(7 + usable, &rest), None);
        });
    }
}

/// Runs `body` in a child, which must return.
fn in_child(body: impl FnOnce()) -> libc::c_int {
    // SAFETY: the child uses what the C library and this test have made ready for it.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(done.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    }
}

fn forks() {
    // The parent's workers exist, busy or asleep, when it forks. No connection is opened or closed meanwhile.
    for _ in 0..10 {
        exchange(3);
        let status = in_child(|| {
            assert_eq!(helpers().len(), 0);
            exchange(3);
            expect_helpers(3);
        });
        assert_eq!(status, 0);
    }
    expect_helpers(3);
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn signals() {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 500,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        exchange(4);
    }
    assert!(HANDLED.load(Ordering::Relaxed) > 100);
}

fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

fn privileges() {
    let status = in_child(|| {
        exchange(3);
        expect_helpers(3);
        // SAFETY: plain calls; the child ends soon.
        unsafe {
            if is_root() {
                assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
                assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
                assert_eq!(helpers().len(), 0);
                expect_helpers(3);
                let states = helpers();
                assert!(
                    states
                        .iter()
                        .all(|state| state.contains("Uid:\t65534\t65534"))
                );
            }
            // Not EINVAL, which a process with several threads gets.
            if libc::unshare(libc::CLONE_NEWUSER) != 0 {
                let error = std::io::Error::last_os_error().raw_os_error();
                assert_ne!(error, Some(libc::EINVAL));
            }
            assert_eq!(helpers().len(), 0);
        }
    });
    assert_eq!(status, 0);
    let status = in_child(|| {
        exchange(3);
        filter();
        assert_eq!(helpers().len(), 0);
        exchange_alone();
        assert_eq!(helpers().len(), 0);
    });
    assert_eq!(status, 0);
}

/// After this a new thread, or the end of a thread, kills the process.
fn filter() {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf: 0,
        k,
    };
    let equal = |number: libc::c_long, jt: u8| libc::sock_filter {
        jt,
        ..statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            u32::try_from(number).unwrap(),
        )
    };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        equal(libc::SYS_clone, 3),
        equal(libc::SYS_clone3, 2),
        equal(libc::SYS_exit, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog {
        len: 6,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is a local.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
        let done = libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0);
        assert_eq!(done, 0);
    }
}

/// As [`exchange`], by one thread.
fn exchange_alone() {
    let (mut client, mut server) = pair();
    for number in 0..20 {
        client.write_all(&pattern(number, 100_000)).unwrap();
        let mut bytes = vec![0; 100_000];
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(pattern_mismatch(number, &bytes), None);
    }
}

fn limit() {
    if !is_root() {
        println!("left out: whoever is not root has threads already");
        return;
    }
    let status = in_child(|| {
        let limit = libc::rlimit {
            rlim_cur: 1,
            rlim_max: 1,
        };
        // SAFETY: plain calls; the child ends soon.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), 0);
            // A user without other processes.
            assert_eq!(libc::setresuid(64_999, 64_999, 64_999), 0);
        }
        exchange_alone();
        assert_eq!(helpers().len(), 0);
    });
    assert_eq!(status, 0);
}

fn ends() {
    for round in 0..20 {
        let status = in_child(|| {
            let (client, server) = pair();
            let (fd, other) = (client.as_raw_fd(), server.as_raw_fd());
            for _ in 0..2 {
                std::thread::spawn(move || {
                    let bytes = vec![7; LARGE];
                    // SAFETY: the buffer is so long; the descriptor may be closed at any time.
                    while unsafe { libc::send(fd, bytes.as_ptr().cast(), LARGE, 0) } >= 0 {}
                });
            }
            std::thread::spawn(move || {
                let mut bytes = vec![0; LARGE];
                // SAFETY: as above.
                while unsafe { libc::recv(other, bytes.as_mut_ptr().cast(), LARGE, 0) } > 0 {}
            });
            std::thread::sleep(Duration::from_millis(3 + round));
            if round % 2 == 0 {
                drop(client);
                std::thread::sleep(Duration::from_millis(2));
            }
            // SAFETY: ends the process while the threads go on.
            unsafe { libc::exit(0) };
        });
        assert_eq!(status, 0);
    }
}
