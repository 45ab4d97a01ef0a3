//! `torture handed`: one connection whose ends go from process to process while bytes flow both ways. Who has an end
//! sends and receives for a while, and hands it on: to a thread, a child, the next image, a program that it starts, or
//! whoever receives its message. Former holders close their descriptor at once, later, or at the end, or end at once
//! themselves.
//!
//! ```text
//!  round (a process, watched from outside)
//!    |-- client: connects --> stage --hand-over--> stage --hand-over--> ... --> closes
//!    `-- server: accepts  --> stage --hand-over--> stage --hand-over--> ... --> closes
//! ```

mod end;
mod ends;
mod holder;
mod stages;
mod wait;

use netchannel_testkit::support::{Family, Random, listener, prepare_process, tcp};
use netchannel_testkit::sys;

use crate::rounds::{self, LONGEST};
use crate::script::{Role, Script};
use crate::step::keep_urgent_bytes;
use crate::{Options, interrupter, set_buffers};

use end::{End, script};
pub use ends::{drive, serve};
use stages::go_on;

/// The command of an image that goes on with an end.
pub const GOES_ON: &str = "handed-goes-on";

/// What is drawn for a round.
#[derive(Clone, Debug)]
struct Plan {
    family: Family,
    script: Script,
}

impl Plan {
    fn draw(seed: u64, family: Option<Family>) -> Self {
        let mut random = Random::new(seed ^ 0x4a4d_ed00);
        let families = [Family::V4, Family::V6];
        Self {
            family: family.unwrap_or(families[random.below(2)]),
            script: script(seed),
        }
    }
}

/// Runs rounds until the time is over or `--rounds` rounds are done.
pub fn run(options: &Options) -> i32 {
    let draw = |seed| Plan::draw(seed, options.family);
    let mut bytes = 0;
    let played = rounds::run(options, "handed", draw, play, |plan| {
        bytes += plan.script.to_server + plan.script.to_client;
    });
    let sum = format!("{} MB", bytes / 1_000_000);
    rounds::report(options, "handed", played, &sum)
}

/// One round.
fn play(plan: &Plan) {
    interrupter::prepare();
    sys::adopt_orphans();
    let (listening, address) = listener(plan.family);
    keep_urgent_bytes(listening);
    let seed = plan.script.seed;
    let client = rounds::start(|| {
        sys::close(listening).expect("close");
        let socket = tcp(plan.family);
        keep_urgent_bytes(socket);
        set_buffers(socket, &plan.script);
        sys::connect(socket, address).expect("connect");
        go_on(End::begin(seed, Role::Client, socket));
    });
    let server = rounds::start(|| {
        let socket = sys::accept(listening).expect("accept");
        sys::close(listening).expect("close");
        set_buffers(socket, &plan.script);
        go_on(End::begin(seed, Role::Server, socket));
    });
    sys::close(listening).expect("close");
    rounds::expect_end_or_kill(&client, "the client");
    rounds::expect_end_or_kill(&server, "the server");
    rounds::expect_all_end_or_kill(&[]);
}

/// Goes on with an end, in the image of a program that was executed for it.
pub fn executed(words: &[String]) {
    prepare_process();
    sys::alarm(LONGEST);
    sys::ignore_signal(libc::SIGPIPE).expect("sigaction");
    interrupter::prepare();
    go_on(holder::received(words));
}
