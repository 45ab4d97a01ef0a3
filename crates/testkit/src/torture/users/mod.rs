//! Several users under root's daemon, one of them hostile. Programs of two honest users exchange bytes, which are all
//! compared, and authenticate each other with a secret. The hostile user knows the source: its programs send every
//! request with every kind of descriptor, write untrue values into all shared words, and use as many resources as they
//! can. Some start as root. Daemons are killed meanwhile.
//!
//! ```text
//!   torture users (root, judge) --- board: ports, heartbeats, times --+------------------+
//!     | starts, watches             |                                 |                  |
//!   daemon (root)      serve, drive, visits (61001)        serve, drive, visits (61003)  hostile parts (61002)
//!     all on a host of their own; honest programs under `netchannel run`, hostile ones by system calls only
//! ```
//!
//! The run fails if the daemon ends or does not return to its former usage, if an honest program ends or stands still,
//! if a byte is wrong, if a connection reaches the wrong server, or if it shows an address that is not its own. Times
//! are printed, and judged only if a program makes no progress at all.

mod board;
mod drive;
mod hello;
pub mod hostile;
mod memory;
mod place;
mod serve;
mod usage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netchannel_testkit::support::{Random, SKIPPED};
use netchannel_testkit::sys;

use crate::Options;
use crate::between::make_hosts;
use board::{Board, Counter, Measure, Stage};
use place::{HONEST, Place, Program, words};
use usage::Usage;

pub use drive::{run as drive, visit};
pub use serve::run as serve;

/// The longest time that a worker may make no progress, however many programs wait for a processor. The longest such
/// time is printed.
const STARVED: Duration = Duration::from_secs(60);
/// Hostile programs that run at a time.
const AT_ONCE: usize = 5;
/// Short-lived honest programs that run at a time.
const VISITS: usize = 3;
/// How long hostile programs run before they pause.
const ROUND: Duration = Duration::from_secs(120);

/// The exit status of `netchannel run --require` where no daemon answers.
const NOT_RUN: i32 = 125;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Runs until the time is over or a check fails. Returns the exit status.
pub fn run(options: &Options) -> i32 {
    // SAFETY: no argument, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: several users need root");
        return SKIPPED;
    }
    // Programs start in another folder.
    let netchannel = options.netchannel.as_ref();
    let netchannel = netchannel.map(|path| std::path::absolute(path).unwrap_or(path.clone()));
    let hosts = match make_hosts(&Options {
        netchannel: None,
        ..options.clone()
    }) {
        Ok(hosts) => hosts,
        Err(status) => return status,
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        sys::handle_signal(signal, on_interrupt, 0).expect("sigaction");
    }
    let (board, file) = Board::make();
    let place = match Place::make(hosts, netchannel, file, options.seed) {
        Ok(place) => place,
        Err(error) => {
            println!("FAIL users: seed {}: {error}", options.seed);
            return 1;
        }
    };
    println!("users: seed {}, {} seconds", options.seed, options.seconds);
    let mut judge = Judge {
        board,
        place,
        random: Random::new(options.seed),
        options: options.clone(),
        start: Instant::now(),
        hostile: Vec::new(),
        visiting: Vec::new(),
        next_part: 0,
        visits: 0,
        last_end: None,
        refused: 0,
        longest: Duration::ZERO,
        not_run: 0,
    };
    let outcome = judge.run();
    judge.report();
    match outcome {
        Ok(()) => {
            println!("PASS users: seed {}", options.seed);
            0
        }
        Err(text) => {
            let passed = judge.start.elapsed().as_secs();
            let seed = options.seed;
            println!("FAIL users: seed {seed}, after {passed} s: {text}");
            1
        }
    }
}

/// The process that watches a run.
struct Judge {
    board: Board,
    place: Place,
    random: Random,
    options: Options,
    start: Instant,
    hostile: Vec<Program>,
    visiting: Vec<(Program, Instant)>,
    next_part: usize,
    visits: u64,
    last_end: Option<Instant>,
    refused: u64,
    longest: Duration,
    not_run: u64,
}

impl Judge {
    fn run(&mut self) -> Result<(), String> {
        let whole = Duration::from_secs(self.options.seconds.max(6));
        self.place.start_daemon()?;
        let started = |error: std::io::Error| format!("a program cannot be started: {error}");
        for command in ["users-serve", "users-drive"] {
            for (index, user) in HONEST.into_iter().enumerate() {
                let (seed, index) = (self.options.seed.to_string(), index.to_string());
                let name = format!("{command}-{}", user.0);
                let arguments = [command, "--seed", &seed, "--index", &index];
                let arguments = words(&arguments);
                self.place
                    .start_honest(user, &name, &arguments)
                    .map_err(started)?;
            }
        }
        self.watch(
            Instant::now() + (whole / 5).min(Duration::from_secs(60)),
            None,
        )?;
        let before = self.usage();
        if let Some(before) = before {
            println!("alone: the daemon uses {}", before.line());
        }
        let mut round = 0;
        let end = self.start + whole;
        while Instant::now() < end && !INTERRUPTED.load(Ordering::Relaxed) {
            // A short run has two rounds, the second with restarts.
            let length = ROUND.min(whole / 5 * 2).max(Duration::from_secs(2));
            self.run_hostile(Instant::now() + length, round % 2 == 1)?;
            self.check_return(before, round % 2 == 1)?;
            round += 1;
        }
        self.place.finish(&self.board)?;
        self.place.end_daemon(false)?;
        self.place.broken().map_or(Ok(()), Err)
    }

    fn usage(&self) -> Option<Usage> {
        self.place.daemon_process().map(Usage::of)
    }

    /// Runs hostile programs. With `restarts`, daemons end and others follow.
    fn run_hostile(&mut self, end: Instant, restarts: bool) -> Result<(), String> {
        self.board.enter(Stage::Beside);
        let span = end.saturating_duration_since(Instant::now());
        // Every 20 to 60 seconds, and once in a short round.
        while Instant::now() < end && !INTERRUPTED.load(Ordering::Relaxed) {
            let some = Duration::from_secs(self.random.between(20, 60) as u64);
            let pause = if restarts { some.min(span / 2) } else { span };
            self.watch(end.min(Instant::now() + pause), Some(()))?;
            if restarts && Instant::now() < end {
                let killed = self.random.once_in(2);
                self.board.count(Counter::Ends, 1);
                self.last_end = Some(Instant::now());
                self.place.end_daemon(killed)?;
                std::thread::sleep(Duration::from_millis(self.random.below(300) as u64));
                self.place.start_daemon()?;
                // A program that counted meanwhile sees that the daemon has ended.
                self.board.count(Counter::Ends, 1);
            }
        }
        self.hostile.clear();
        Ok(())
    }

    /// The hostile programs have ended: the daemon's usage must return to its former values.
    fn check_return(&mut self, before: Option<Usage>, restarted: bool) -> Result<(), String> {
        self.board.enter(Stage::After);
        self.watch(Instant::now() + Duration::from_secs(1), None)?;
        let (Some(before), Some(process)) = (before, self.place.daemon_process()) else {
            return Ok(());
        };
        let now = usage::await_return(process, &before)?;
        println!("after: the daemon uses {}", now.line());
        self.check()?;
        let running = usage::refusals(&self.place.socket())?;
        let refused = running.count() + self.board.counted(Counter::Refused);
        let more = refused.saturating_sub(std::mem::replace(&mut self.refused, refused));
        // After a restart programs ask for much at once, and the daemon may refuse some of it for a moment.
        if more > 0 && !restarted {
            return Err(format!(
                "{more} sockets of honest programs were sent to kernel TCP by bounds that others had used up\n{}\n{}\n{}",
                running.shown(),
                self.place.log("visit"),
                self.place.log("daemon")
            ));
        }
        Ok(())
    }

    /// Watches until a time, with hostile programs or without.
    fn watch(&mut self, end: Instant, hostile: Option<()>) -> Result<(), String> {
        while Instant::now() < end && !INTERRUPTED.load(Ordering::Relaxed) {
            if hostile.is_some() {
                self.start_hostile()?;
            }
            self.check()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Checks that no failure has occurred.
    fn check(&mut self) -> Result<(), String> {
        if let Some(status) = self.place.daemon_ended() {
            let log = self.place.log("daemon");
            return Err(format!("the daemon ended: {status}\n{log}"));
        }
        if let Some(text) = self.place.report_ended() {
            return Err(text);
        }
        let (worker, time) = self.board.slowest();
        self.longest = self.longest.max(time);
        if time > STARVED {
            let socket = self.place.socket();
            let shown = |process| usage::sockets(&socket, process);
            return Err(format!(
                "worker {worker} of the honest stands still for {} s\n{}",
                time.as_secs(),
                self.place.whereabouts(shown)
            ));
        }
        self.start_visits()
    }

    /// Starts short-lived programs of honest users all the time.
    fn start_visits(&mut self) -> Result<(), String> {
        let mut waiting = Vec::new();
        for (mut program, since) in std::mem::take(&mut self.visiting) {
            match program.ended() {
                Some(status) if status.success() => {}
                // The program asked a daemon that ended just then, and its options require a daemon.
                Some(_) if self.last_end.is_some_and(|end| end > since) => {}
                // `netchannel run` waits for 5 seconds, which is short where dozens of programs wait for two
                // processors.
                Some(status) if status.code() == Some(NOT_RUN) => self.not_run += 1,
                Some(status) => {
                    let log = self.place.log("visit");
                    return Err(format!("a visit ended: {status}\n{log}"));
                }
                None if since.elapsed() > STARVED => {
                    let log = self.place.log("visit");
                    let shown = usage::sockets(&self.place.socket(), program.process());
                    let at = program.whereabouts();
                    return Err(format!("a visit stands still\n{at}{shown}{log}"));
                }
                None => waiting.push((program, since)),
            }
        }
        self.visiting = waiting;
        if self.not_run > 2 + self.visits / 100 {
            let log = self.place.log("visit");
            return Err(format!(
                "the daemon did not answer {} visits\n{log}",
                self.not_run
            ));
        }
        if self.visiting.len() < VISITS {
            let user = HONEST[self.random.below(HONEST.len())];
            let seed = self.options.seed.to_string();
            let arguments = words(&["users-visit", "--seed", &seed]);
            let program = self.place.start_honest_once(user, "visit", &arguments);
            let program = program.map_err(|error| error.to_string())?;
            self.visiting.push((program, Instant::now()));
            self.visits += 1;
        }
        Ok(())
    }

    /// Starts hostile programs in the place of those that have ended.
    fn start_hostile(&mut self) -> Result<(), String> {
        self.hostile.retain_mut(|program| program.ended().is_none());
        while self.hostile.len() < AT_ONCE {
            let parts: Vec<&str> = hostile::PARTS
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| self.options.only.split(",").any(|one| name.contains(one)))
                .collect();
            if parts.is_empty() {
                return Err(format!("no part is named {}", self.options.only));
            }
            // Each part in turn, then at random.
            let turn = self.next_part % parts.len();
            let drawn = self.random.below(parts.len());
            let part = parts[if self.next_part < parts.len() {
                turn
            } else {
                drawn
            }];
            self.next_part += 1;
            let (seed, life) = (self.random.number(), self.random.between(200, 3000));
            let (seed, life) = (seed.to_string(), life.to_string());
            let arguments = ["users-hostile", "--seed", &seed, "--only", part];
            let mut arguments = words(&arguments);
            arguments.extend(words(&["--milliseconds", &life]));
            let as_root = part == "former-root";
            let program = self.place.hostile("hostile", as_root, &arguments);
            self.hostile
                .push(program.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Prints the observations.
    fn report(&self) {
        let counted = |counter| self.board.counted(counter);
        println!(
            "honest: {} connections by script, {} round trips, {} programs that came and went, {} connections passed on in messages",
            counted(Counter::Connections),
            counted(Counter::RoundTrips),
            self.visits,
            counted(Counter::Passed)
        );
        println!(
            "hostile: {} programs, {} requests, {} words, {} listeners announced, {} links offered to it, {} connections announced by \
             hand; {} of its connections were accepted; {} restarts of the daemon",
            counted(Counter::Programs),
            counted(Counter::Requests),
            counted(Counter::Words),
            counted(Counter::Squats),
            counted(Counter::Offers),
            counted(Counter::Announced),
            counted(Counter::Intruders),
            counted(Counter::Ends) / 2
        );
        let measures = [
            (Measure::Connect, "connect"),
            (Measure::First, "first connect"),
            (Measure::RoundTrip, "round trip"),
        ];
        for (measure, name) in measures {
            for percent in [50, 99] {
                let of = |stage| self.board.percentile(stage, measure, percent);
                let ((alone, _), (beside, count)) = (of(Stage::Alone), of(Stage::Beside));
                let ratio = beside.as_secs_f64() / alone.as_secs_f64().max(1e-9);
                println!(
                    "{name} P{percent}: alone {alone:.1?}, beside {beside:.1?}, ratio {ratio:.2} ({count} beside)"
                );
            }
        }
        println!(
            "an honest worker stood still for {:.1?} at most; {} visits were not answered within 5 s",
            self.longest, self.not_run
        );
        for line in self.place.log("hostile").lines().take(3) {
            println!("hostile programs said: {line}");
        }
    }
}
