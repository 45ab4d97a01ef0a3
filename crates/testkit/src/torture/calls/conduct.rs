//! Conducts one case: makes its first actor, lets one actor act at a time, sees which actors wait and which die, and
//! ends them all.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::act::{Actor, INTERRUPT};
use super::board::{Board, END};
use super::memory::first;
use super::network::Network;
use super::program::{MOST_ACTORS, Program, Step};
use super::request::request;
use super::settings::RunSettings;
use super::waits;
use super::watch::{State, Watch, state};

/// The path of a runner's board, by its process id.
pub fn board_path(process: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/torture-calls-{process}"))
}

/// Runs cases one after the other.
pub struct Conductor {
    board: Board,
    path: PathBuf,
    /// Number of requests for actors to the other host's runner.
    asked: AtomicU32,
}

/// How long a call may run, neither returning nor waiting, until it counts as stuck.
const STUCK: Duration = Duration::from_secs(3);
/// The time between two checks for the end of a step.
const SLICE: Duration = Duration::from_millis(2);
/// The time before the first check.
const MOMENT: Duration = Duration::from_micros(300);

impl Conductor {
    pub fn new() -> std::io::Result<Self> {
        // SAFETY: takes integers: orphans of actors are ours to reap.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let path = board_path(std::process::id());
        Ok(Self {
            board: Board::map(&path, true)?,
            path,
            asked: AtomicU32::new(0),
        })
    }

    /// Runs a program. Returns a line for each step.
    pub fn run(&self, program: &Program, settings: RunSettings) -> Vec<String> {
        if !self.board.reset(&program.to_string()) {
            return vec!["too long".to_owned()];
        }
        self.board.set_settling(settings.settling);
        let program: &'static Program = Box::leak(Box::new(program.clone()));
        let root = self.begin(program, settings);
        let mut case = Case {
            board: self.board,
            settings,
            waits: [None; MOST_ACTORS],
            waited: vec![false; program.steps.len()],
            dead: [false; MOST_ACTORS],
            watches: [const { None }; MOST_ACTORS],
            patience: waits::patience(program, settings),
        };
        let came = root > 0 && case.await_first_actor(root);
        // Actors that are made before all other steps live on the other host.
        let before = program.steps.iter();
        let before = before.take_while(|step| step.form.name == "fork").count();
        let far = if Network::get().is_between() {
            before
        } else {
            0
        };
        if came {
            for (place, step) in program.steps.iter().enumerate() {
                if place < far {
                    self.make_far(&case, place, step, settings);
                    continue;
                }
                case.step(place, step.actor);
                if step.form.name == "end" {
                    case.await_end(
                        step.arguments
                            .first()
                            .and_then(|argument| argument.first())
                            .copied(),
                    );
                }
            }
            case.finish();
        }
        let mut processes: Vec<i32> = (0..MOST_ACTORS)
            .filter_map(|actor| self.board.thread_of(actor))
            .map(|(process, _)| process)
            .collect();
        processes.push(root);
        reap(&processes);
        // SAFETY: made by `leak` above; actors were processes of their own.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(program).cast_mut()) });
        let notes = (0..case.waited.len()).map(|place| {
            let mark = if case.waited[place] { "waited " } else { "" };
            format!("{mark}{}", self.board.noted(place))
        });
        if came {
            notes.collect()
        } else {
            vec!["the first actor does not come".to_owned()]
        }
    }

    /// Asks the other host's runner for an actor.
    fn make_far(&self, case: &Case, place: usize, step: &Step, settings: RunSettings) {
        let actor = step.arguments.first().map_or(0, first);
        let actor = usize::try_from(actor).unwrap_or(0).min(MOST_ACTORS - 1);
        if self.board.thread_of(actor).is_some() {
            return case.board.note(place, "there is one");
        }
        self.board.introduce(actor, step.actor, true);
        let count = self.asked.fetch_add(1, Ordering::Relaxed);
        let asked = request(count, actor, settings.fresh);
        self.board.command(MOST_ACTORS, asked);
        let start = Instant::now();
        while !self.board.wait_for(actor, SLICE) && start.elapsed() < STUCK {}
        let came = self.board.thread_of(actor).is_some();
        self.board
            .note(place, if came { "made" } else { "does not come" });
    }

    fn begin(&self, program: &'static Program, settings: RunSettings) -> i32 {
        // SAFETY: this process has one thread; the child acts and never returns.
        let child = unsafe { libc::fork() };
        if child != 0 {
            return child;
        }
        leave_the_runner();
        if settings.fresh {
            execute_actor(&self.path, 0);
        }
        let path: &'static Path = Box::leak(self.path.clone().into_boxed_path());
        Actor::first(self.board, program, path).work(0)
    }
}

/// Closes the runner's descriptors in a child, which also ends with the runner.
pub fn leave_the_runner() {
    // SAFETY: takes integers and a path.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::dup2(null, 0);
        libc::dup2(null, 1);
        libc::dup2(null, 2);
        for other in 3..16 {
            libc::close(other);
        }
    }
}

/// Executes this program as an actor, in a child.
pub fn execute_actor(path: &Path, actor: usize) -> ! {
    let words = [
        "torture".to_owned(),
        super::act::COMMAND.to_owned(),
        path.display().to_string(),
        actor.to_string(),
        "0".to_owned(),
    ];
    let words = words.into_iter().map(CString::new);
    let words: Vec<_> = words.filter_map(Result::ok).collect();
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: a path and words that end with a null.
    unsafe {
        libc::execv(c"/proc/self/exe".as_ptr(), pointers.as_ptr());
        libc::_exit(1)
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Case {
    board: Board,
    settings: RunSettings,
    /// The step in which an actor waits, and how often its thread had gone to sleep by then.
    waits: [Option<(usize, u64)>; MOST_ACTORS],
    waited: Vec<bool>,
    dead: [bool; MOST_ACTORS],
    watches: [Option<Watch>; MOST_ACTORS],
    /// The patience of each step.
    patience: Vec<Duration>,
}

fn command(place: usize) -> u32 {
    u32::try_from(place + 1).unwrap_or(0)
}

impl Case {
    /// Waits until the first actor is registered.
    fn await_first_actor(&self, process: i32) -> bool {
        let start = Instant::now();
        while !self.board.wait_for(0, SLICE) {
            if start.elapsed() > STUCK * 3 || matches!(state(process), State::Dead(_)) {
                return false;
            }
        }
        true
    }

    /// The state of a registered actor's thread.
    fn state(&mut self, actor: usize, thread: (i32, i32)) -> State {
        let watch = &mut self.watches[actor];
        if !watch.as_ref().is_some_and(|watch| watch.is_of(thread)) {
            *watch = Some(Watch::new(thread.0, thread.1));
        }
        watch.as_ref().map_or(State::Dead(0), Watch::state)
    }

    fn step(&mut self, place: usize, actor: usize) {
        if self.board.thread_of(actor).is_none() || self.dead[actor] {
            return self.board.note(place, "nobody");
        }
        self.interrupt(actor);
        if self.dead[actor] {
            return self.board.note(place, "nobody");
        }
        self.board.command(actor, command(place));
        self.await_step(actor, place, self.patience[place], true);
        if !self.settings.settling.is_zero() {
            std::thread::sleep(self.settings.settling);
        }
        self.await_woken_actors(actor);
    }

    /// Waits for the end of a step, or until its actor waits.
    fn await_step(&mut self, actor: usize, place: usize, patience: Duration, is_new: bool) {
        let start = Instant::now();
        let mut asleep: Option<(u64, Instant)> = None;
        let mut first: Option<(u64, Instant)> = None;
        let mut slice = MOMENT;
        loop {
            if self.board.wait_until_done(actor, command(place), slice) {
                self.waits[actor] = None;
                return;
            }
            // An actor that executes another program registers again.
            let Some(thread) = self.board.thread_of(actor) else {
                return;
            };
            slice = SLICE;
            match self.state(actor, thread) {
                State::Dead(status) => {
                    // The actor's last command may have been done all the same.
                    if !self.board.has_begun(actor, command(place)) {
                        self.board.note(place, "nobody");
                    } else if !self.board.is_done(actor, command(place)) {
                        self.board.note(place, &format!("dies with {status:x}"));
                    }
                    self.dead[actor] = true;
                    self.waits[actor] = None;
                    return;
                }
                State::Asleep(count) if self.board.has_begun(actor, command(place)) => {
                    let since = match asleep {
                        Some((same, since)) if same == count => since,
                        _ => Instant::now(),
                    };
                    asleep = Some((count, since));
                    let (before, began) = *first.get_or_insert((count, Instant::now()));
                    if since.elapsed() >= patience || only_looks(count - before, began, patience) {
                        self.waited[place] |= is_new;
                        self.waits[actor] = Some((place, count));
                        return;
                    }
                    slice = slice.min(patience.saturating_sub(since.elapsed()));
                }
                _ => asleep = None,
            }
            if start.elapsed() > STUCK {
                self.board.note(place, "goes on for ever");
                self.waits[actor] = Some((place, 0));
                return;
            }
        }
    }

    /// After a step, lets the actors that it woke go on until they are done or wait again.
    fn await_woken_actors(&mut self, but: usize) {
        for actor in 0..MOST_ACTORS {
            let Some((place, times)) = self.waits[actor].filter(|_| actor != but) else {
                continue;
            };
            let Some(thread) = self.board.thread_of(actor).filter(|_| !self.dead[actor]) else {
                continue;
            };
            // A call that wakes a thread has made the thread ready to run before the call returns.
            let sleeps_on = self.state(actor, thread) == State::Asleep(times);
            let is_patient = self.settings.haste == self.settings.patience;
            if !sleeps_on || is_patient {
                // Who was woken may sleep on until the daemon has answered.
                let patience = if is_patient && !sleeps_on {
                    self.settings.patience
                } else {
                    Duration::from_millis(1)
                };
                self.await_step(actor, place, patience, false);
            }
        }
    }

    /// Waits until a killed process has ended.
    fn await_end(&mut self, actor: Option<i64>) {
        let actor = actor
            .and_then(|actor| usize::try_from(actor).ok())
            .filter(|actor| *actor < MOST_ACTORS);
        let Some((process, _)) = actor.and_then(|actor| self.board.thread_of(actor)) else {
            return;
        };
        let start = Instant::now();
        while !matches!(state(process), State::Dead(_)) && start.elapsed() < STUCK {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Interrupts the call in which an actor waits.
    fn interrupt(&mut self, actor: usize) {
        let Some((place, _)) = self.waits[actor] else {
            return;
        };
        let Some((process, thread)) = self.board.thread_of(actor) else {
            return;
        };
        let start = Instant::now();
        while start.elapsed() < STUCK {
            // SAFETY: takes integers.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, INTERRUPT) };
            if self
                .board
                .wait_until_done(actor, command(place), Duration::from_millis(20))
            {
                self.waits[actor] = None;
                let text = self.board.noted(place);
                return self.board.note(place, &format!("interrupted {text}"));
            }
            if matches!(self.state(actor, (process, thread)), State::Dead(_)) {
                self.dead[actor] = true;
                self.waits[actor] = None;
                return;
            }
        }
        self.board.note(place, "cannot be interrupted");
        self.dead[actor] = true;
        self.waits[actor] = None;
        // SAFETY: takes integers.
        unsafe { libc::kill(process, libc::SIGKILL) };
    }

    fn finish(&mut self) {
        for actor in 0..MOST_ACTORS {
            self.interrupt(actor);
        }
        for actor in 0..MOST_ACTORS {
            if self.board.thread_of(actor).is_some() && !self.dead[actor] {
                self.board.command(actor, END);
            }
        }
    }
}

/// Whether a thread that has gone to sleep `times` more times since then counts as waiting with a look now and then.
fn only_looks(times: u64, since: Instant, patience: Duration) -> bool {
    const OFTEN: u128 = 2;
    let elapsed = since.elapsed();
    elapsed >= patience * 4 && u128::from(times) <= elapsed.as_millis() * OFTEN
}

/// Waits a little for processes to end by themselves, kills the others, and reaps those that can be reaped.
fn reap(processes: &[i32]) {
    let start = Instant::now();
    loop {
        let mut alive = false;
        for process in processes.iter().filter(|process| **process > 0) {
            // SAFETY: only own children are waited for; others are looked at.
            unsafe {
                libc::waitpid(*process, std::ptr::null_mut(), libc::WNOHANG);
                let lives =
                    libc::kill(*process, 0) == 0 && !matches!(state(*process), State::Dead(_));
                if lives && start.elapsed() > Duration::from_millis(500) {
                    libc::kill(*process, libc::SIGKILL);
                }
                alive |= lives;
            }
        }
        if !alive || start.elapsed() > STUCK {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    // Orphans that were re-parented to this process.
    // SAFETY: no pointer.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}
