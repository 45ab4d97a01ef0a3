//! The server and the clients of a round as programs on two hosts, with one board.

use std::process::Command;
use std::time::{Duration, Instant};

use netchannel_testkit::two_hosts::{TwoHosts, Which};

use super::board::Board;
use super::shape::Plan;
use super::{accepting, draw, play_clients, play_rounds};
use crate::between::{Places, address_of, listen_at, make_hosts};
use crate::program::{Program, this_program};
use crate::rounds::LONGEST;
use crate::{Options, interrupter};

/// As [`super::run`], between two hosts.
pub fn run(options: &Options) -> i32 {
    let hosts = match make_hosts(options) {
        Ok(hosts) => hosts,
        Err(status) => return status,
    };
    let status = play_rounds(options, |plan| play(&hosts, options, plan));
    if status != 0 {
        println!("{}", hosts.logs());
    }
    status
}

fn play(hosts: &TwoHosts, options: &Options, plan: &Plan) {
    let places = Places::of(options);
    let file = Board::new().file();
    let start = |which: Which, word: &str, address: String| {
        let mut command = hosts.command(&this_program(), which, places.carrier);
        command.args([word, "--address", &address, "--only", &options.only]);
        say(&mut command, options, plan, file);
        Program::start(command)
    };
    let address = std::net::SocketAddr::new(address_of(hosts, places.server, plan.family), 0);
    let mut server = start(places.server, "servers-serve", address.to_string());
    let line = server.line();
    let Some(address) = line.strip_prefix("ready ") else {
        panic!("the server says {line:?}: {}", server.rest());
    };
    let mut clients = start(places.client, "servers-drive", address.to_owned());
    let end = Instant::now() + Duration::from_secs(u64::from(LONGEST));
    let ended = [clients.end(end), server.end(end)];
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
}

/// The words that both programs of a round are given.
fn say(command: &mut Command, options: &Options, plan: &Plan, board: i32) {
    command
        .args(["--seed", &plan.seed.to_string()])
        .args(["--board", &board.to_string()])
        .args(["--family", plan.family.name()]);
    if let Some(except) = &options.except {
        command.args(["--except", except]);
    }
}

/// The server of a round. It prints its address.
pub fn serve(options: &Options) {
    let (plan, board) = prepare(options);
    let listening = listen_at(options.address, 128);
    board.enter();
    accepting::serve(listening, &plan, &board);
    board.leave();
    board.note_served();
}

/// The clients of a round.
pub fn drive(options: &Options) {
    let (plan, board) = prepare(options);
    play_clients(&plan, &board, options.address);
}

fn prepare(options: &Options) -> (Plan, Board) {
    netchannel_testkit::sys::alarm(LONGEST);
    interrupter::prepare();
    let plan = draw(options, options.seed);
    (plan, Board::inherited(options.board))
}
