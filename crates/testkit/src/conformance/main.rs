//! `conformance`: the behaviour of TCP sockets, as cases that pass or fail.
//!
//! An ordinary socket program that knows nothing of NetChannel. Each case asserts the behaviour of kernel TCP. Running
//! the case over another transport shows where that transport differs.

mod asked;
mod between;
mod compare;
mod held;
mod held_and_full;
mod held_and_lost;
mod helpers;
mod registry;
mod room;

mod case;
mod corner_01_dup2;
mod corner_02_close;
mod corner_02_shared;
mod corner_03_fork;
mod corner_03_left;
mod corner_04_killed_loops;
mod corner_04_leavers;
mod corner_04_one_queue;
mod corner_04_prefork;
mod corner_04_queue;
mod corner_04_sole_acceptor;
mod corner_05_exec;
mod corner_06_rights;
mod corner_06_unconnected;
mod corner_07_epoll_sets;
mod corner_07_relatives;
mod corner_07_shared_sets;
mod corner_08_nested;
mod corner_09_edges;
mod corner_10_deaf;
mod corner_10_half_close;
mod corner_11_linger;
mod corner_12_again;
mod corner_12_connect;
mod corner_12_connecting;
mod corner_12_dissolve;
mod corner_12_former;
mod corner_13_handlers;
mod corner_13_signals;
mod corner_13_timeouts;
mod corner_14_arguments;
mod corner_14_beside;
mod corner_14_calls;
mod corner_14_ended;
mod corner_14_faults;
mod corner_14_peeking;
mod corner_14_programs;
mod corner_14_resets;
mod corner_14_splicing;
mod corner_14_states;
mod corner_14_told;
mod corner_14_vectors;
mod corner_14_waits;
mod corner_15_addresses;
mod corner_15_limits;
mod corner_15_vfork;
mod corner_16_confined;
mod corner_17_dissolved;
mod corner_17_fresh;
mod corner_17_held;
mod corner_17_names;
mod corner_17_sets;
mod corner_17_waits;
mod deferred;
mod deferred_repeated;
mod deferred_shared;
mod deferred_silent;
mod descriptors;
mod dual_stack;
mod executed;
mod foreign_calls;
mod fresh;
mod listeners;
mod low_water;
mod ltp;
mod numbers;
mod options;
mod streams;
mod urgent;
mod urgent_heard;
mod urgent_inline;

use std::path::Path;

use netchannel_testkit::{far_process, support};

const USAGE: &str = "usage:
  conformance list [WORD...]
  conformance run CASE...                 exit status: 0 pass, 1 fail, 77 skipped
  conformance repeat TIMES [WORD...]      over kernel TCP, to find unsteady cases
  conformance compare --netchannel PROGRAM [--jobs N] [--limit SECONDS] [--only] [--relay] [WORD...]
                                          both ways, with a table of the differences;
                                          --only leaves out the run over kernel TCP,
                                          --relay leads through the daemon
  conformance compare --hosts [--netchannel PROGRAM] [--jobs N] [--limit SECONDS] [--within] [--only] [WORD...]
                                          between two hosts, each end of a connection on either once; what cannot be
                                          is listed, and with --within run on one of them;
                                          --only runs over kernel TCP only what does not pass over NetChannel
  conformance compare --tenant [--netchannel PROGRAM] [--jobs N] [--limit SECONDS] [--only] [WORD...]
                                          the same with one end as a program of a tenant, and kernel TCP at the other end;
                                          --tenant-out: it connects only, --tenant-in: it listens at published ports only,
                                          --tenant-channels: it connects over channels to NetChannel at the other end
A WORD selects the cases whose names contain it.";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    match arguments.first().map(String::as_str) {
        Some("list") => {
            for case in registry::select(rest) {
                println!("{}", case.name);
            }
        }
        Some("run") if !rest.is_empty() => run(rest),
        Some("far") if rest.len() == 1 => {
            if let Err(error) = far_process::serve(Path::new(&rest[0])) {
                eprintln!("far: {error}");
                std::process::exit(1);
            }
        }
        Some("helper") if !rest.is_empty() => executed::run(rest),
        Some("repeat") => std::process::exit(compare::repeat(rest)),
        Some("compare") => std::process::exit(compare::compare(rest)),
        _ => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
    }
}

fn run(names: &[String]) {
    for name in names {
        let Some(case) = registry::find(name) else {
            eprintln!("no case is named {name}");
            std::process::exit(2);
        };
        support::prepare_process();
        (case.run)();
        println!("PASS {name}");
    }
}
