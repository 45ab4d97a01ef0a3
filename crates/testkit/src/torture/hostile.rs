//! Programs that write random values into all words that they share with a serving process, while that process also
//! serves an honest program. The honest program's bytes are compared. The serving process must neither crash nor stand
//! still. Over kernel TCP nothing is shared, and nothing is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Baton, Family, Random, fork_child, listener_with};
use netchannel_testkit::sys::{self, Descriptor};

use crate::{Options, STOP, blocking, send_number};

/// Connections of a hostile program, in each direction.
const CONNECTIONS: usize = 3;

/// Runs hostile programs, one after the other, until the time is over or `--rounds` of them have run.
pub fn run(options: &Options) {
    sys::alarm(libc::c_uint::try_from(options.seconds + 60).unwrap_or(60));
    let family = options.family.unwrap_or(Family::V4);
    let seed = options.seed;
    let (honest, hostile) = (Baton::new(), Baton::new());
    let victim = fork_child(|| {
        sys::alarm(0);
        serve(family, seed, honest, hostile);
    });
    let honest_port = port(honest);
    let hostile_port = port(hostile);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let connections = options.connections.min(4);
    let neighbour = fork_child(|| {
        sys::alarm(0);
        let numbers = Arc::new(AtomicU64::new(0));
        let address = family.loopback(honest_port);
        blocking::drive(address, seed, connections, &numbers, end);
        let socket = blocking_connect(family, honest_port).expect("the victim serves on");
        send_number(socket, STOP).expect("send");
        let _ = sys::recv(socket, &mut [0_u8], 0);
        sys::close(socket).expect("close");
        assert!(numbers.load(Ordering::Relaxed) > 0, "nothing was compared");
    });
    let mut random = Random::new(seed);
    let (mut rounds, mut words) = (0_u64, 0_u64);
    while Instant::now() < end && options.rounds.is_none_or(|most| rounds < most) {
        let draw = random.number();
        let written = Baton::new();
        let program = fork_child(|| misbehave(family, hostile_port, draw, written));
        words += written.receive();
        // The hostile program must not have crashed over its own writes either: its library reads them too.
        program.kill();
        written.close();
        rounds += 1;
    }
    neighbour.join();
    victim.join();
    println!("PASS hostile: seed {seed}, {rounds} programs, {words} words written");
}

fn port(baton: Baton) -> u16 {
    let port = u16::try_from(baton.receive()).expect("a port");
    baton.close();
    port
}

fn blocking_connect(family: Family, port: u16) -> sys::Outcome<Descriptor> {
    let socket = netchannel_testkit::support::tcp(family);
    match sys::connect(socket, family.loopback(port)) {
        Ok(()) => Ok(socket),
        Err(errno) => {
            sys::close(socket).expect("close");
            Err(errno)
        }
    }
}

/// The serving process: a listener for the honest program, and one for hostile programs.
fn serve(family: Family, seed: u64, honest: Baton, hostile: Baton) {
    let (compared, address) = listener_with(family, 64);
    crate::step::keep_urgent_bytes(compared);
    honest.send(u64::from(address.port()));
    let (open, address) = listener_with(family, 64);
    hostile.send(u64::from(address.port()));
    limit_waits(open);
    let done = Arc::new(AtomicBool::new(false));
    let taking = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let mut threads = Vec::new();
            while !done.load(Ordering::Relaxed) {
                if let Ok(socket) = sys::accept(open) {
                    threads.push(std::thread::spawn(move || endure(family, socket)));
                }
                threads.retain(|thread| !thread.is_finished());
            }
            threads
        })
    };
    blocking::serve(compared, seed);
    done.store(true, Ordering::Relaxed);
    let threads = taking.join().expect("a panic ends the process");
    for thread in threads {
        thread.join().expect("a panic ends the process");
    }
}

fn limit_waits(socket: Descriptor) {
    let limit = libc::timeval {
        tv_sec: 0,
        tv_usec: 100_000,
    };
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let _ = sys::set_option(socket, libc::SOL_SOCKET, name, limit);
    }
}

/// Talks with a hostile program until it ends, and connects to it.
fn endure(family: Family, socket: Descriptor) {
    limit_waits(socket);
    let mut number = [0_u8; 8];
    if let Ok(8) = sys::recv(socket, &mut number, libc::MSG_WAITALL)
        && let Ok(port) = u16::try_from(u64::from_be_bytes(number))
        && port != 0
        && let Ok(back) = blocking_connect(family, port)
    {
        limit_waits(back);
        let talking = std::thread::spawn(move || chat(back, Duration::from_secs(2)));
        chat(socket, Duration::from_secs(2));
        talking.join().expect("a panic ends the process");
        return;
    }
    chat(socket, Duration::from_secs(2));
}

/// Sends and receives, and accepts any result.
fn chat(socket: Descriptor, most: Duration) {
    let start = Instant::now();
    let mut buffer = vec![7_u8; 20_000];
    let mut failures = 0;
    while failures < 8 && start.elapsed() < most {
        let length = 1 + usize::try_from(start.elapsed().as_nanos()).unwrap_or(0) % buffer.len();
        let sent = sys::send(socket, &buffer[..length], libc::MSG_NOSIGNAL);
        let got = sys::recv(socket, &mut buffer, 0);
        failures = match (sent, got) {
            (Err(_), Err(_)) | (_, Ok(0)) => failures + 1,
            _ => 0,
        };
    }
    let _ = sys::close(socket);
}

/// A hostile program: it connects, accepts a connection, and writes into all shared memory.
fn misbehave(family: Family, port: u16, draw: u64, written: Baton) {
    let mut random = Random::new(draw);
    let (listening, own) = listener_with(family, 16);
    limit_waits(listening);
    for _ in 0..CONNECTIONS {
        let Ok(socket) = blocking_connect(family, port) else {
            continue;
        };
        limit_waits(socket);
        let _ = send_number(socket, u64::from(own.port()));
        std::thread::spawn(move || chat(socket, Duration::from_secs(20)));
        if let Ok(back) = sys::accept(listening) {
            limit_waits(back);
            std::thread::spawn(move || chat(back, Duration::from_secs(20)));
        }
    }
    let shared = shared_memory();
    let end = Instant::now() + Duration::from_millis(random.between(1, 120) as u64);
    let mut count = 0;
    while Instant::now() < end && !shared.is_empty() {
        for _ in 0..random.between(1, 400) {
            let words = shared[random.below(shared.len())];
            lie(words, &mut random);
            count += 1;
        }
        std::thread::sleep(Duration::from_micros(random.below(300) as u64));
    }
    written.send(count);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Writes one word: anywhere or among the words of connections, at random or near the true value.
pub fn lie(words: &[AtomicU64], random: &mut Random) {
    // Header, queues and cells take the first 208 KiB. Slots of 384 bytes each follow.
    const SLOTS: usize = 172_032 / 8;
    let index = match random.below(4) {
        0 => random.below(SLOTS),
        1 => random.below(words.len().min(1 << 21)),
        _ => SLOTS + random.below(24 * 48),
    };
    let Some(word) = words.get(index) else { return };
    let truth = word.load(Ordering::Relaxed);
    let value = match random.below(6) {
        0 => random.number(),
        1 => u64::MAX,
        2 => truth.wrapping_add(random.between(1, 70_000) as u64),
        3 => truth.wrapping_sub(random.between(1, 70_000) as u64),
        4 => truth ^ 1 << random.below(64),
        _ => random.below(70_000) as u64,
    };
    word.store(value, Ordering::Relaxed);
}

/// All links of this process, mapped a second time.
fn shared_memory() -> Vec<&'static [AtomicU64]> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let is_link = std::fs::read_link(&path)
            .is_ok_and(|target| target.to_string_lossy().contains("netchannel-link"));
        if !is_link {
            continue;
        }
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path);
        let Ok(file) = file else { continue };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let length = usize::try_from(length).unwrap_or(0);
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of a file of that length.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        if memory != libc::MAP_FAILED {
            // SAFETY: mapped for good, aligned to a page, and only used as atomics.
            found.push(unsafe { std::slice::from_raw_parts(memory.cast(), length / 8) });
        }
    }
    found
}
