//! `torture servers`: servers and clients of drawn shapes, families of processes and threads, whose connections pass
//! from hand to hand while signals interrupt them and processes are stopped. Nothing is ordered: what is judged holds
//! for TCP in any order. Every byte arrives at its own connection, each stream ends where its sender ended it, no call
//! fails, and everybody ends. Where servers are killed, no more connections break than they had.
//!
//! ```text
//!  round (a process, watched from outside)
//!    |-- server: accepts in one of the shapes of `shape`, conducts connections in the manners of `conduct`
//!    |-- clients: several processes, whose connections are numbered from one counter
//!    `-- pest: signals and stops any of them at drawn moments (`board` says who lives)
//! ```

mod accepting;
mod apart;
mod board;
mod clients;
mod conduct;
mod handed_on;
mod one;
mod pest;
mod shape;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use netchannel_testkit::support::{
    Child, Ended, Family, PATIENCE, Random, fork_child, listener_with, poll_one, tcp,
};
use netchannel_testkit::sys;

use crate::rounds::{LONGEST, await_end};
use crate::step::keep_urgent_bytes;
use crate::{Options, interrupter, rounds};
pub use apart::{drive, run as run_apart, serve};
use board::Board;
pub use handed_on::{HOLDS, RECEIVES, executed as executed_to_hold};
use shape::{Plan, Way};

/// Runs rounds until the time is over or `--rounds` rounds are done.
pub fn run(options: &Options) -> i32 {
    play_rounds(options, play)
}

fn play_rounds(options: &Options, play: impl Fn(&Plan)) -> i32 {
    let draw = |seed| draw(options, seed);
    let mut connections = 0_u64;
    let played = rounds::run(options, "servers", draw, play, |plan| {
        connections += plan.connections;
    });
    rounds::report(
        options,
        "servers",
        played,
        &format!("{connections} connections"),
    )
}

/// The plan of a seed, of a shape that the options name.
fn draw(options: &Options, seed: u64) -> Plan {
    let (only, except) = (&options.only, &options.except);
    Plan::draw(seed, options.family, |name| {
        name.contains(only) && !except.as_ref().is_some_and(|except| name.contains(except))
    })
}

/// Serves the connection that this program was executed on, by the plan of the round's seed.
pub fn executed(options: &Options) {
    sys::alarm(LONGEST);
    interrupter::prepare();
    let plan = Plan::draw(options.seed, options.family, |name| name == "ExecuteEach");
    accepting::serve_executed(&plan, &Board::new());
}

/// A child that the pest may find.
fn start(board: &Board, work: impl FnOnce()) -> Child {
    fork_child(|| {
        sys::alarm(LONGEST);
        board.enter();
        work();
        board.leave();
    })
}

/// One round.
fn play(plan: &Plan) {
    interrupter::prepare();
    let board = Board::new();
    let (listening, address) = listener_with(plan.family, 128);
    keep_urgent_bytes(listening);
    let server = start(&board, || {
        accepting::serve(listening, plan, &board);
        board.note_served();
    });
    sys::close(listening).expect("close");
    play_clients(plan, &board, address);
    assert_eq!(await_end(&server), Ended::Exit(0), "the server");
}

/// What the clients of a round do, and whoever disturbs it, until the server has ended.
fn play_clients(plan: &Plan, board: &Board, address: SocketAddr) {
    let drive = |way: &Way| start(board, || clients::drive(address, plan, board, *way));
    let clients: Vec<_> = plan.clients.iter().map(drive).collect();
    let pest = plan.pest.then(|| fork_child(|| pest::run(plan, board)));
    for client in &clients {
        assert_eq!(await_end(client), Ended::Exit(0), "a client");
    }
    board.be_quiet();
    pest.iter().for_each(Child::join);
    stop(board, plan.family, address);
    let (killed, broken) = board.killed_and_broken();
    assert!(
        broken <= killed,
        "{broken} connections broke, and {killed} servers that had one each were killed"
    );
}

/// Wakes whoever waits for a connection until the server has ended.
fn stop(board: &Board, family: Family, address: SocketAddr) {
    board.end();
    let start = Instant::now();
    while !board.has_served() {
        assert!(start.elapsed() < PATIENCE, "the server does not end");
        let socket = tcp(family);
        if sys::connect(socket, address).is_ok() {
            poll_one(socket, libc::POLLIN, 20);
        }
        sys::close(socket).expect("close");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A draw of its own for one process or thread of a round.
fn random_of(plan: &Plan, salt: u64) -> Random {
    Random::new(plan.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
