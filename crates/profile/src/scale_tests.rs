//! A minute of a busy machine of 16 processors is classified in seconds and little memory.

use crate::events::{Record, Sample, What};
use crate::named::Named;
use crate::recording::{KernelSymbols, Pinned, Recording, UserSymbols};
use crate::tally::tally;
use netchannel_taxonomy::{Category, Taxonomy};
use perf_event_open_sys::bindings::PERF_CONTEXT_KERNEL;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::rc::Rc;

const CHAINS: &str = include_str!("../../taxonomy/tests/linux-6.18.txt");
const SAMPLES: u64 = 60 * 16 * 999;
/// So far the simulated functions lie apart.
const APART: u64 = 1 << 12;

/// Milliseconds of the processor that this thread has used: the machine may do other things meanwhile.
fn used() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    1000 * time.tv_sec + time.tv_nsec / 1_000_000
}

/// The most memory that this process ever had, in megabytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let words = line.unwrap().split_whitespace().nth(1);
    words.unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn a_minute_of_sixteen_busy_processors_takes_seconds() {
    let chains: Vec<Vec<&str>> = CHAINS
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(_, chain)| chain.split(" < ").collect())
        .collect();
    let names: BTreeSet<&str> = chains.iter().flatten().copied().collect();
    let address = |name: &str| {
        let place = names.iter().position(|known| *known == name).unwrap();
        (1 << 40) + APART * u64::try_from(place).unwrap()
    };
    // Of the size of a kernel's: the functions that were recorded, and a hundred thousand others.
    let mut text = String::new();
    for name in &names {
        writeln!(text, "{:x} T {name}", address(name)).unwrap();
    }
    for other in 0..100_000_u64 {
        writeln!(
            text,
            "{:x} t other_function_{other}",
            (1 << 41) + APART * other
        )
        .unwrap();
    }
    let addresses: Vec<Vec<u64>> = chains
        .iter()
        .map(|chain| chain.iter().map(|name| address(name)).collect())
        .collect();
    let before = (used(), peak());

    let symbols = Rc::new(KernelSymbols::parse(&text));
    let mut recording = Recording::new(symbols, Pinned::default());
    let mut random = 1_u64;
    for number in 0..SAMPLES {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // A chain of twice the depth, the way into the kernel included, at any instruction of its functions.
        let pick = |random: u64| {
            let place = usize::try_from(random >> 33).unwrap() % addresses.len();
            addresses[place]
                .iter()
                .map(move |start| start + 1 + (random >> 50) % (APART - 2))
        };
        let mut chain = vec![PERF_CONTEXT_KERNEL];
        chain.extend(pick(random));
        chain.extend(pick(random.rotate_left(17) % 64));
        recording.on_record(Record {
            time: number,
            what: What::Sample(Sample {
                pid: 0,
                tid: u32::try_from(number % 16).unwrap(),
                processor: 0,
                chain,
            }),
        });
    }
    let symbols = UserSymbols::of(&recording);
    let named = Named::new(&recording, &symbols, &Taxonomy::built_in().unwrap());
    let report = tally(&named);

    assert_eq!(report.categories.total() + report.idle, SAMPLES);
    assert!(report.categories.get(Category::TcpIp) > 0);
    let (milliseconds, megabytes) = (used() - before.0, peak());
    println!(
        "{SAMPLES} samples classified in {milliseconds} ms of a processor; at most {megabytes} MB, {} MB before",
        before.1
    );
    assert!(milliseconds < 5000, "{milliseconds} ms");
    assert!(megabytes < 200, "{megabytes} MB, {} MB before", before.1);
}
