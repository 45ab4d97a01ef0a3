//! `torture calls`: random programs over kernel TCP and over NetChannel, and where a program can tell them apart.
//!
//! ```text
//!   seed, number -- generate --> Program --+--> runner over kernel TCP --+--> compare --> rules --> shrink --> a few lines
//!                                          +--> runner over NetChannel --+
//!   runner: a conductor and the program's actors, which share a board and nothing else
//! ```

mod act;
mod board;
mod c;
mod command;
mod compare;
mod conduct;
mod coverage;
mod difference;
mod draw;
mod ends;
mod far;
mod filling;
mod form;
mod generate;
mod judge;
mod look;
mod memory;
mod model;
mod network;
mod order;
mod passing;
mod place;
mod prepare;
mod program;
mod quoted;
mod report;
mod request;
mod rules;
mod runner;
mod settings;
mod shrink;
mod sources;
mod waits;
mod waking;
mod watch;
mod words;

/// Runs the judge, or a program that the judge starts. `None` if the word names neither.
pub fn run(word: &str, rest: &[String]) -> Option<i32> {
    Some(match word {
        "calls" => command::run(rest),
        runner::COMMAND => match runner::run() {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("torture {word}: {error}");
                1
            }
        },
        act::COMMAND => act::go_on(rest),
        far::COMMAND => far::run(rest),
        _ => return None,
    })
}
