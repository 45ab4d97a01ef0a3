//! Corner 16: a child confines itself with a system call filter that kills it for any call that it does not need, as
//! sshd's unprivileged processes do. The child shares its connection with its parent, which goes on with it.

use netchannel_testkit::support::*;
use netchannel_testkit::sys::{self, Descriptor};

use crate::case::cases;

cases! {
    families: [
        corner_16_confined_reads_and_writes,
        corner_16_confined_child_hands_back,
        corner_16_confined_child_hands_back_on_a_busy_machine,
        corner_16_confined_child_reads_before_its_end,
        corner_16_confined_child_leaves_bytes_to_its_parent,
        corner_16_confined_with_limits_of_nothing,
        corner_16_confined_from_its_start,
    ];
}

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
/// BPF_LD | BPF_W | BPF_ABS
const LOAD: u16 = 0x20;
/// BPF_JMP | BPF_JEQ | BPF_K
const EQUAL: u16 = 0x15;
/// BPF_RET | BPF_K
const RETURN: u16 = 0x06;

/// The calls that a child of these cases makes, and those that its memory and its end need.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

const fn instruction(code: u16, when_true: u8, when_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: when_true,
        jf: when_false,
        k,
    }
}

/// After this any other call kills the process.
fn confine() {
    let mut filter = vec![instruction(LOAD, 0, 0, 0)];
    for number in ALLOWED {
        filter.extend(answer_to(*number, libc::SECCOMP_RET_ALLOW));
    }
    filter.push(instruction(RETURN, 0, 0, KILL));
    set_filter(filter);
}

fn answer_to(number: libc::c_long, answer: u32) -> [libc::sock_filter; 2] {
    [
        instruction(EQUAL, 0, 1, u32::try_from(number).unwrap()),
        instruction(RETURN, 0, 0, answer),
    ]
}

fn set_filter(mut filter: Vec<libc::sock_filter>) {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: integers, and a program of that length.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(set, "no filter: {:?}", sys::last_errno());
}

/// Reads by `read`, which a confined process may.
fn read_bytes(socket: Descriptor, expected: &[u8]) {
    let mut buffer = [0; 64];
    let mut got = 0;
    while got < expected.len() {
        await_events(socket, libc::POLLIN);
        got += sys::read(socket, &mut buffer[got..expected.len()]).unwrap();
    }
    assert_eq!(&buffer[..got], expected);
}

fn corner_16_confined_reads_and_writes(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        confine();
        for _ in 0..20 {
            read_bytes(server, b"question");
            assert_eq!(sys::write(server, b"answer"), Ok(6));
        }
    });
    for _ in 0..20 {
        send_all(client, b"question");
        expect_bytes(client, b"answer");
    }
    child.join();
    expect_alive(client, server);
    sys::close(server).unwrap();
    expect_end(client);
}

/// The parent goes on after the bytes that the child has read and written.
fn corner_16_confined_child_hands_back(family: Family) {
    hands_back(family, 10, || ());
}

/// The same where the process that serves the child seldom gets a processor.
fn corner_16_confined_child_hands_back_on_a_busy_machine(family: Family) {
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let busy = fork_child(|| {
        stay_on_first_processor(0);
        loop {
            std::hint::spin_loop();
        }
    });
    hands_back(family, 3, slow_down_pumps);
    busy.kill();
}

fn stay_on_first_processor(process: libc::pid_t) {
    // SAFETY: all zero is a valid set of processors, of which the first is added.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(process, size_of_val(&set), &raw const set);
    }
}

fn slow_down_pumps() {
    for number in pumps() {
        stay_on_first_processor(number);
        let number = libc::id_t::try_from(number).unwrap();
        // A tenth of the busy process's share: with less they would have no processor for many seconds where other
        // tests run, too.
        // SAFETY: takes integers.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, number, 10) };
    }
}

/// The pumps: processes of the library are orphans, which are re-parented to this process.
fn pumps() -> Vec<libc::pid_t> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_pump = |number: &libc::pid_t| {
        let described = std::fs::read_to_string(format!("/proc/{number}/stat"));
        let described = described.unwrap_or_default();
        let mut words = described.split_whitespace();
        let named = words.nth(1) == Some("(netchannel-pump)");
        let lives = words.next() != Some("Z");
        let parent = words.next().and_then(|word| word.parse().ok());
        named && lives && parent == Some(sys::getpid())
    };
    numbers.filter(is_pump).collect()
}

/// The process that serves the child loses the processor while it copies. The child reads the bytes that it had before,
/// and ends.
fn corner_16_confined_child_reads_before_its_end(family: Family) {
    const PIECES: usize = 150;
    // SAFETY: takes integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    for _ in 0..40 {
        let (client, server) = pair(family);
        let confined = Baton::new();
        let child = fork_child(|| {
            confine();
            confined.pass();
            await_events(server, libc::POLLIN);
            for _ in 0..PIECES {
                assert_eq!(sys::write(server, b"."), Ok(1));
            }
            read_bytes(server, b"one");
        });
        confined.take();
        let pumps = pumps();
        let tell = |signal| {
            for pump in &pumps {
                let _ = sys::kill(*pump, signal);
            }
        };
        send_all(client, b"one");
        expect_bytes(client, b".");
        tell(libc::SIGSTOP);
        std::thread::sleep(std::time::Duration::from_millis(10));
        tell(libc::SIGCONT);
        child.join();
        send_all(client, b"two");
        expect_bytes(client, &[b'.'; PIECES - 1]);
        expect_bytes(server, b"two");
        expect_alive(client, server);
    }
}

fn hands_back(family: Family, times: usize, after_confining: fn()) {
    let (confined, back) = (Baton::new(), Baton::new());
    for _ in 0..times {
        let (client, server) = pair(family);
        let child = fork_child(|| {
            confine();
            confined.pass();
            read_bytes(server, b"one");
            assert_eq!(sys::write(server, b"1"), Ok(1));
            back.pass();
        });
        confined.take();
        after_confining();
        send_all(client, b"one");
        back.take();
        send_all(server, b"2");
        expect_bytes(client, b"12");
        send_all(client, b"two");
        expect_bytes(server, b"two");
        child.join();
        expect_alive(client, server);
        sys::close(client).unwrap();
        expect_end(server);
        sys::close(server).unwrap();
    }
}

fn corner_16_confined_child_leaves_bytes_to_its_parent(family: Family) {
    let (client, server) = pair(family);
    let ready = Baton::new();
    let child = fork_child(|| {
        confine();
        read_bytes(server, b"for the child");
        assert_eq!(sys::write(server, b"."), Ok(1));
        ready.take();
    });
    send_all(client, b"for the child");
    expect_bytes(client, b".");
    send_all(client, b"for its parent");
    ready.pass();
    child.join();
    expect_bytes(server, b"for its parent");
    expect_alive(client, server);
}

/// As sshd does before its filter: no process and no descriptor can be made any more.
fn corner_16_confined_with_limits_of_nothing(family: Family) {
    let (client, server) = pair(family);
    let child = fork_child(|| {
        for (resource, most) in [(libc::RLIMIT_NOFILE, 1), (libc::RLIMIT_NPROC, 0)] {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            // SAFETY: the limit is a local.
            assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
        }
        confine();
        read_bytes(server, b"question");
        assert_eq!(sys::write(server, b"answer"), Ok(6));
    });
    send_all(client, b"question");
    expect_bytes(client, b"answer");
    child.join();
    expect_alive(client, server);
}

/// The next image knows only that there is a filter. It makes its own connection, and needs none of these calls.
fn corner_16_confined_from_its_start(family: Family) {
    const MESSAGES: [libc::c_long; 2] = [libc::SYS_sendmsg, libc::SYS_recvmsg];
    let (listening, address) = listener(family);
    let address = address.to_string();
    let child = fork_child(|| {
        sys::close(listening).unwrap();
        let mut filter = vec![instruction(LOAD, 0, 0, 0)];
        for number in MESSAGES {
            filter.extend(answer_to(number, KILL));
        }
        filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
        set_filter(filter);
        exec_helper(&["connect-say", address.as_str(), "still here"], true);
    });
    let server = sys::accept(listening).unwrap();
    expect_bytes(server, b"still here");
    sys::close(server).unwrap();
    child.join();
}
