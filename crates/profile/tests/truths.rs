//! Known truths: what a program does is what its profile says. Skipped, by name, where the kernel's part may not be sampled.

use clap::Parser;
use netchannel_profile::{Arguments, Report};
use netchannel_taxonomy::{Category, Side};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// Of the processor, for each thread that is measured: beside others a program takes longer, and its begin weighs no more.
const TIME: Duration = Duration::from_millis(1500);

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

/// The profile of a test of this file that is ignored otherwise; none where the kernel may not be sampled.
fn profile(program: &str, options: &[&str]) -> Option<Report> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("profile.json");
    let this = std::env::current_exe().unwrap();
    let words = [
        "profile",
        "--json",
        "--frequency",
        "999",
        "--output",
        text(&output),
    ]
    .into_iter();
    let command = ["--", text(&this), "--ignored", "--exact", program];
    let line = Line::parse_from(words.chain(options.iter().copied()).chain(command));
    if let Err(error) = line.arguments.execute() {
        println!("skipped: {program}: {error}");
        return None;
    }
    let report: Report = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    if let Some(note) = report.notes.iter().find(|note| note.contains("sysctl")) {
        println!("skipped: {program}: {note}");
        return None;
    }
    println!(
        "{:?} {:?}",
        report.categories,
        report.functions.iter().take(20).collect::<Vec<_>>()
    );
    // Fewer tell nothing; a machine with much else to do may give no more.
    assert!(report.categories.total() > 50, "{:?}", report.categories);
    Some(report)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn share(report: &Report, categories: &[Category]) -> f64 {
    let shares = categories
        .iter()
        .map(|category| report.categories.share(*category));
    shares.sum()
}

fn for_a_while(mut work: impl FnMut()) {
    let begun = processor_time();
    while processor_time() - begun < TIME {
        work();
    }
}

/// What the calling thread has had of the processor.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the live value.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0);
    let seconds = u64::try_from(time.tv_sec).unwrap();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap())
}

#[test]
#[ignore = "measured by another test"]
fn copier() {
    /// More than a receive buffer has, in bytes.
    const PART: usize = 16 << 20;
    const PARTS: usize = 32;
    // What was received and is only looked at is copied each time, and nothing else is done with it.
    // So much that calls are few.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let size: libc::c_int = 4 << 20;
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // SAFETY: the value is a live integer, whose size is told. Who may not go beyond the host's limit has what it allows.
        unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const size).cast(),
                4,
            )
        };
    }
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    let mut buffer = vec![1_u8; PART * PARTS];
    // The window opens as what was sent arrives.
    for _ in 0..30 {
        let _ = sender.write(&buffer[..PART]);
        std::thread::sleep(Duration::from_millis(10));
    }
    // Each part has left the caches when it is written again: where copies are fast, what is done for each segment weighs.
    let mut parts = (0..PARTS).cycle();
    for_a_while(|| {
        let begin = parts.next().unwrap() * PART;
        assert!(receiver.peek(&mut buffer[begin..begin + PART]).unwrap() > 0);
    });
}

#[test]
#[ignore = "measured by another test"]
fn busy_loop() {
    let mut sum = 0_u64;
    for_a_while(|| {
        for number in 0..1_000_000_u64 {
            sum = black_box(sum.wrapping_add(number));
        }
    });
}

#[test]
#[ignore = "measured by another test"]
fn contender() {
    /// A lock that all threads may use.
    struct Lock(std::cell::UnsafeCell<libc::pthread_mutex_t>);
    // SAFETY: a mutex is made for several threads.
    unsafe impl Sync for Lock {}
    static LOCK: Lock = Lock(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for_a_while(|| {
                    for _ in 0..10_000 {
                        // SAFETY: the lock is initialised, never moved, and released by who took it.
                        unsafe {
                            libc::pthread_mutex_lock(LOCK.0.get());
                            libc::pthread_mutex_unlock(LOCK.0.get());
                        }
                    }
                });
            });
        }
    });
}

fn pin(processor: usize) {
    // SAFETY: a zeroed set is an empty one, and lives as long as the calls.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(done, 0);
}

#[test]
#[ignore = "measured by another test"]
fn stream() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(0);
            let mut socket = TcpStream::connect(address).unwrap();
            let buffer = vec![0; 128 << 10];
            for_a_while(|| socket.write_all(&buffer).unwrap());
        });
        pin(1);
        let (mut socket, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 128 << 10];
        while socket.read(&mut buffer).unwrap() > 0 {}
    });
}

#[test]
fn a_program_that_only_copies_is_copy() {
    // The interrupts of a busy machine fall into the program, too: more in one run than in the next.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let Some(report) = profile("copier", &[]) else {
            return;
        };
        // Other programs take the processor, and the buffer is given memory once: that is the machine's doing.
        let others = share(&report, &[Category::Memory, Category::Scheduling]);
        let copy = 100.0 * report.categories.share(Category::Copy) / (100.0 - others);
        // The walk over segments is no copy: up to 6 of 100 where 40 GB are copied in a second.
        if copy >= 90.0 {
            return;
        }
        seen.push(copy);
    }
    panic!("{seen:?}");
}

#[test]
fn a_busy_loop_is_none_of_the_stack() {
    let Some(report) = profile("busy_loop", &[]) else {
        return;
    };
    let of_the_network = share(
        &report,
        &[
            Category::Copy,
            Category::TcpIp,
            Category::Netdevice,
            Category::Skb,
        ],
    );
    assert!(of_the_network < 2.0, "{of_the_network}");
    // What interrupts it, and takes its processor for others, is the machine's doing.
    let interrupted = share(&report, &[Category::Scheduling, Category::Other]);
    let program = report.categories.share(Category::Program);
    assert!(100.0 * program / (100.0 - interrupted) >= 95.0, "{program}");
}

#[test]
fn a_contended_lock_is_locks_and_scheduling() {
    let Some(report) = profile("contender", &[]) else {
        return;
    };
    let found = share(&report, &[Category::Locks, Category::Scheduling]);
    // Entering the kernel is neither, nor are the loop and what a C library without symbols has no name for.
    let beside = share(&report, &[Category::Other, Category::Program]);
    assert!(found >= 0.9 * (100.0 - beside), "{found}, {beside}");
    assert!(found >= 30.0, "{found}");
}

#[test]
fn the_ends_of_a_stream_are_told_apart() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        println!("skipped: the_ends_of_a_stream_are_told_apart: one processor");
        return;
    }
    let by_chain = profile("stream", &[]);
    let pins = ["--sender-processors", "0", "--receiver-processors", "1"];
    let by_processor = profile("stream", &pins);
    let (Some(by_chain), Some(by_processor)) = (by_chain, by_processor) else {
        return;
    };
    for (report, how) in [(by_chain, "chains"), (by_processor, "processors")] {
        for side in [Side::Sender, Side::Receiver] {
            let copied = report
                .sides
                .get(&side)
                .map_or(0, |counts| counts.get(Category::Copy));
            assert!(copied > 0, "{how}: {side:?} copies nothing");
        }
    }
}
