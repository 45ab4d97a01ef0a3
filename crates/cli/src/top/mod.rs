//! `netchannel top`: programs, peers, channels and sockets as they move, until `q`.

mod page;
mod rates;
mod screen;

use crate::arguments::{Asking, Top};
use crate::ask::{ask, finish, json, unexpected};
use netchannel_control::hosts::Hosts;
use netchannel_control::types::{Request, Response, Socket, Status};
use page::page;
use rates::SampleRates;
use screen::{Screen, Wake};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// The state of a daemon at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The time of the request.
    pub at: Instant,
    /// The daemon and its programs.
    pub status: Status,
    /// Sockets of programs.
    pub sockets: Vec<Socket>,
    /// Other hosts; empty where the daemon does not show them to this user.
    pub hosts: Hosts,
}

fn look(asking: &Asking) -> Result<Sample, String> {
    let at = Instant::now();
    let Response::Status(status) = ask(asking, Request::Status)? else {
        return Err(unexpected());
    };
    let Response::Sockets(sockets) = ask(asking, Request::Sockets)? else {
        return Err(unexpected());
    };
    let hosts = match ask(asking, Request::Hosts) {
        Ok(Response::Hosts(hosts)) => *hosts,
        // A user who may see only his own programs gets only those.
        Ok(_) | Err(_) => Hosts::default(),
    };
    Ok(Sample {
        at,
        status: *status,
        sockets: sockets.list,
        hosts,
    })
}

/// Runs the command.
pub fn top(arguments: &Top) -> c_int {
    let interval = Duration::from_secs_f64(arguments.interval);
    if arguments.once || arguments.asking.json || !screen::is_terminal() {
        return finish(once(arguments, interval));
    }
    match Screen::enter() {
        Ok(screen) => watch(screen, arguments, interval),
        Err(error) => finish(Err(format!(
            "cannot use this terminal ({error}); try netchannel top --once"
        ))),
    }
}

/// One page, from two samples.
fn once(arguments: &Top, interval: Duration) -> Result<String, String> {
    let before = look(&arguments.asking)?;
    std::thread::sleep(interval);
    let after = look(&arguments.asking)?;
    let moved = SampleRates::between(&before, &after);
    if arguments.asking.json {
        return json(&moved);
    }
    let lines = page(&after, &moved);
    Ok(lines.into_iter().map(|line| line.text + "\n").collect())
}

fn watch(mut screen: Screen, arguments: &Top, interval: Duration) -> c_int {
    let mut before: Option<Sample> = None;
    loop {
        let due = Instant::now() + interval;
        match look(&arguments.asking) {
            Ok(now) => {
                let moved = SampleRates::between(before.as_ref().unwrap_or(&now), &now);
                screen.show(page(&now, &moved));
                before = Some(now);
            }
            Err(sentence) => {
                screen.show(page::sorry(&sentence));
                before = None;
            }
        }
        loop {
            match screen.wait(due) {
                Wake::Due => break,
                Wake::Redraw => screen.draw(),
                Wake::End => return 0,
            }
        }
    }
}
