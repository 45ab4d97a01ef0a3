//! Stack processes: asked of the launcher, started again, and given a session for each tenant that they serve.
//!
//! ```text
//!  [[stacks]] --launcher--> netchannel stack KIND --attach--> stacks/NAME.sock --Hello, Welcome--> sessions
//!       ^                                                        |
//!       +------ a pause that grows <------ its end --------------+
//! ```

use crate::options::Launcher;
use netchannel_configuration::{StackFairness, StackTable, show_processors};
use netchannel_control::path;
use netchannel_service::packet;
use netchannel_stack_process::endpoint::Endpoint;
use netchannel_stack_process::launch::{Launch, LaunchEnd, OfLauncher, ToLauncher};
use netchannel_stack_process::process::{DaemonEnd, Fairness, ToProcess};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first pause before a stack that has ended is started again; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A stack that ran for so long is started again at once.
const LONG: Duration = Duration::from_secs(60);
/// Processes that have not said who they are.
const MOST_UNKNOWN: usize = 8;

/// All stack processes.
#[derive(Debug)]
pub struct Stacks {
    /// Where their sockets are.
    folder: PathBuf,
    /// Starts them, with rights that the daemon has not.
    launcher: Option<LaunchEnd>,
    /// Makes a launcher where there was none when the daemon began: it has no rights but the daemon's.
    start_launcher: Option<fn() -> Result<OwnedFd, String>>,
    is_late: bool,
    /// All descriptors that say that something has happened.
    watched: OwnedFd,
    all: Vec<StackProcess>,
    /// How often the launcher was asked for a stack.
    starts: u64,
}

/// One of them.
#[derive(Debug)]
struct StackProcess {
    table: StackTable,
    path: PathBuf,
    listener: OwnedFd,
    unknown: Vec<DaemonEnd>,
    process: Option<DaemonEnd>,
    /// The process is watched for room: it has not read all yet.
    waits_for_room: bool,
    /// The number by which the launcher was asked for it, until it has ended.
    running: Option<u64>,
    started: Instant,
    pause: Duration,
    next_start: Option<Instant>,
}

impl Stacks {
    /// None yet. Their sockets are in the folder `stacks` beside the daemon's.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new(daemon_socket: &Path, launcher: Option<Launcher>) -> Result<Self, Errno> {
        let beside = daemon_socket.parent().unwrap_or(Path::new("."));
        let start_launcher = launcher.as_ref().map(|one| one.start);
        let started = launcher.and_then(|one| one.started);
        let stacks = Self {
            folder: beside.join("stacks"),
            is_late: started.is_none(),
            launcher: started.map(LaunchEnd::new),
            start_launcher,
            watched: epoll::create(CreateFlags::CLOEXEC)?,
            all: Vec::new(),
            starts: 0,
        };
        if let Some(launcher) = &stacks.launcher {
            stacks.watch(launcher)?;
        }
        Ok(stacks)
    }

    /// A descriptor that is readable when something has happened.
    pub fn watched(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }

    /// These stacks and no others are wanted. One whose table has changed is started again, unless all that has changed is for its
    /// tenants. Returns a sentence for each that can not be had.
    pub fn configure(&mut self, tables: &[StackTable]) -> Vec<String> {
        let mut problems = Vec::new();
        let launcher = &mut self.launcher;
        self.all.retain(|one| {
            let now = tables.iter().find(|table| table.name == one.table.name);
            let stays = now.is_some_and(|now| is_same_process(&one.table, now));
            if let Some(number) = one.running.filter(|_| !stays) {
                end(launcher, number);
            }
            stays
        });
        for table in tables {
            let known = self.all.iter_mut().find(|one| one.table.name == table.name);
            if let Some(known) = known {
                known.table = table.clone();
                if let Some(process) = &mut known.process {
                    // A process that does not read has ended, or will be found out by its sessions.
                    let _ = process.tell(&ToProcess::Welcome(fairness(table)), None);
                }
                continue;
            }
            match self.prepare(table) {
                Ok(mut process) => {
                    if let Err(sentence) = self.may_start(table) {
                        process.next_start = None;
                        problems.push(sentence);
                    }
                    self.all.push(process);
                }
                Err(sentence) => problems.push(sentence),
            }
        }
        self.start_due(Instant::now());
        problems
    }

    /// Whether the launcher can start a stack of that table; where there is none, it is made now.
    ///
    /// # Errors
    /// Why it can not, and what to do, in a sentence.
    fn may_start(&mut self, table: &StackTable) -> Result<(), String> {
        let name = &table.name;
        if !table.starts {
            return Ok(());
        }
        let own = rustix::process::geteuid().as_raw();
        let needs = match (&table.namespace, table.user) {
            (Some(_), _) => Some("a namespace"),
            (None, Some(user)) if user != own => Some("another user"),
            _ => None,
        };
        if let Some(needs) = needs.filter(|_| self.is_late) {
            return Err(format!(
                "stack {name} is not started: it has {needs}, and the daemon began without [[stacks]] and has given up the rights for that; start the daemon again, or write start = \"manual\" and start it by `netchannel stack kernel --name {name}`"
            ));
        }
        if self.launcher.is_none()
            && let Some(start) = self.start_launcher
        {
            let fail = |why: String| format!("stack {name} is not started: no launcher ({why})");
            let launcher = start().map(LaunchEnd::new).map_err(fail)?;
            self.watch(&launcher)
                .map_err(|errno| fail(errno.to_string()))?;
            self.launcher = Some(launcher);
        }
        Ok(())
    }

    fn prepare(&self, table: &StackTable) -> Result<StackProcess, String> {
        let name = &table.name;
        let path = self.folder.join(name).join("stack.sock");
        let fail = |error: String| format!("stack {name} can not be had: {error}");
        path::prepare_directory(&path).map_err(|error| fail(error.to_string()))?;
        let listener = listen(&path, table.user).map_err(|errno| fail(errno.to_string()))?;
        self.watch(&listener)
            .map_err(|errno| fail(errno.to_string()))?;
        Ok(StackProcess {
            table: table.clone(),
            path,
            listener,
            unknown: Vec::new(),
            process: None,
            waits_for_room: false,
            running: None,
            started: Instant::now(),
            pause: FIRST_PAUSE,
            next_start: table.starts.then(Instant::now),
        })
    }

    fn watch(&self, descriptor: impl AsFd) -> Result<(), Errno> {
        epoll::add(
            &self.watched,
            descriptor,
            EventData::new_u64(0),
            EventFlags::IN,
        )
    }

    /// Starts what is due.
    pub fn start_due(&mut self, now: Instant) {
        for one in &mut self.all {
            if one.next_start.is_none_or(|at| at > now) {
                continue;
            }
            one.next_start = None;
            let name = &one.table.name;
            let Some(launcher) = &mut self.launcher else {
                tracing::error!("stack {name} is not started: there is no launcher");
                continue;
            };
            self.starts += 1;
            match launcher.send(&ToLauncher::Start(one.launch(self.starts))) {
                Ok(()) => {
                    one.running = Some(self.starts);
                    one.started = now;
                }
                Err(errno) => tracing::error!("stack {name} is not started: no launcher ({errno})"),
            }
        }
    }

    /// What the launcher says.
    fn hear_launcher(&mut self, now: Instant) {
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        loop {
            match launcher.receive() {
                Ok(Some(OfLauncher::Ended(number, how))) => {
                    let mut all = self.all.iter_mut();
                    if let Some(one) = all.find(|one| one.running == Some(number)) {
                        let name = &one.table.name;
                        tracing::error!("the process of stack {name} has ended {how}");
                        one.running = None;
                        one.process = None;
                        one.start_later(now);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    tracing::error!("the launcher of stacks has ended: none is started any more");
                    self.launcher = None;
                    self.start_launcher = None;
                    return;
                }
            }
        }
    }

    /// When something is to be started.
    pub fn deadline(&self) -> Option<Instant> {
        self.all.iter().filter_map(|one| one.next_start).min()
    }

    /// Something has happened. Returns the names of stacks that are ready for sessions.
    pub fn look(&mut self, now: Instant) -> Vec<String> {
        let mut ready = Vec::new();
        // First: it knows how a process has ended.
        self.hear_launcher(now);
        for place in 0..self.all.len() {
            let Some(one) = self.all.get_mut(place) else {
                break;
            };
            let mut came = Vec::new();
            while let Ok(socket) = rustix::net::accept_with(
                &one.listener,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            ) {
                came.push(DaemonEnd::new(socket));
            }
            for end in came {
                if self.watch(&end).is_ok()
                    && let Some(one) = self.all.get_mut(place)
                {
                    one.unknown.truncate(MOST_UNKNOWN - 1);
                    one.unknown.insert(0, end);
                }
            }
            if let Some(one) = self.all.get_mut(place) {
                if one.greet() {
                    ready.push(one.table.name.clone());
                }
                if one.notice_end() {
                    if let Some(number) = one.running.take() {
                        // It may live, and serves nobody any more.
                        end(&mut self.launcher, number);
                    }
                    one.start_later(now);
                }
            }
        }
        self.start_due(now);
        self.watch_for_room();
        ready
    }

    /// Sends what is kept for processes, and watches for room as long as more is.
    fn watch_for_room(&mut self) {
        for one in &mut self.all {
            let Some(process) = &mut one.process else {
                one.waits_for_room = false;
                continue;
            };
            // That a process has ended is told by its socket.
            let _ = process.flush();
            let waits = process.is_blocked();
            if waits != std::mem::replace(&mut one.waits_for_room, waits) {
                let flags = if waits {
                    EventFlags::IN | EventFlags::OUT
                } else {
                    EventFlags::IN
                };
                // It fails only for a socket that is not watched.
                let _ = epoll::modify(&self.watched, &*process, EventData::new_u64(0), flags);
            }
        }
    }

    /// A session of a stack: CoreEngine's end, and whether the stack binds published ports itself. `None` where no process is attached.
    pub fn session(&mut self, name: &str) -> Option<(OwnedFd, bool)> {
        let one = self.all.iter_mut().find(|one| one.table.name == name)?;
        let (own, other) = Endpoint::pair().ok()?;
        let told = one.process.as_mut()?.tell(&ToProcess::Session, Some(other));
        let session = told.ok().map(|()| (own, one.table.namespace.is_some()));
        self.watch_for_room();
        session
    }

    /// The table of a stack.
    pub fn table(&self, name: &str) -> Option<&StackTable> {
        let one = self.all.iter().find(|one| one.table.name == name)?;
        Some(&one.table)
    }

    /// Why a stack has no process now, in a sentence.
    pub fn absence(&self, name: &str) -> Option<String> {
        let one = self.all.iter().find(|one| one.table.name == name)?;
        let path = one.path.display();
        match (&one.process, one.table.starts) {
            (Some(_), _) => None,
            (None, true) => Some(format!("stack {name} is being started")),
            (None, false) => Some(format!(
                "stack {name} is awaited: start it with `netchannel stack kernel --name {name} --socket {path}`"
            )),
        }
    }
}

impl StackProcess {
    fn launch(&self, start: u64) -> Launch {
        let table = &self.table;
        Launch {
            kind: table.kind.name().to_owned(),
            name: table.name.clone(),
            start,
            socket: self.path.clone(),
            namespace: table.namespace.clone(),
            user: table.user,
            processors: show_processors(&table.processors),
            memory: table.memory,
        }
    }

    fn start_later(&mut self, now: Instant) {
        if !self.table.starts {
            return;
        }
        if now.duration_since(self.started) >= LONG {
            self.pause = FIRST_PAUSE;
        }
        self.next_start = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Hears who those are that have come. True where the process of this stack is among them.
    fn greet(&mut self) -> bool {
        let mut is_ready = false;
        for mut end in std::mem::take(&mut self.unknown) {
            match end.hear() {
                Ok(None) => self.unknown.push(end),
                Err(_) => {}
                Ok(Some(hello)) => {
                    let mut checked = hello.check(self.table.kind.name(), &self.table.name);
                    let process = self.process.as_ref();
                    let is_served = process.is_some_and(|one| !packet::is_hung_up(one));
                    if checked.is_ok() && is_served {
                        checked = Err("another process serves it".to_owned());
                    }
                    let answer = match &checked {
                        Ok(()) => ToProcess::Welcome(fairness(&self.table)),
                        Err(why) => ToProcess::Refused(why.clone()),
                    };
                    let told = end.tell(&answer, None);
                    match (checked, told) {
                        (Ok(()), Ok(())) => {
                            tracing::info!("stack {} is attached", self.table.name);
                            self.process = Some(end);
                            self.waits_for_room = false;
                            is_ready = true;
                        }
                        (Err(why), _) => {
                            tracing::error!(
                                "a process is refused as stack {}: {why}",
                                self.table.name
                            );
                        }
                        (Ok(()), Err(_)) => {}
                    }
                }
            }
        }
        is_ready
    }

    /// Whether the process has closed its connection: then it is ended.
    fn notice_end(&mut self) -> bool {
        let has_ended = self
            .process
            .as_mut()
            .is_some_and(|process| process.hear().is_err());
        if has_ended {
            let name = &self.table.name;
            tracing::error!("stack {name} has ended; the connections that it had are reset");
            self.process = None;
        }
        has_ended
    }
}

impl Drop for StackProcess {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let mut folders = self.path.ancestors().skip(1).take(2);
        // Where nothing else lies in them.
        let _ = folders.try_for_each(std::fs::remove_dir);
    }
}

/// Asks the launcher to end a stack.
fn end(launcher: &mut Option<LaunchEnd>, number: u64) {
    if let Some(launcher) = launcher {
        // A launcher that has ended has ended its stacks.
        let _ = launcher.send(&ToLauncher::End(number));
    }
}

fn fairness(table: &StackTable) -> Fairness {
    match table.fairness {
        StackFairness::Processor => Fairness::Processor,
        StackFairness::Network => Fairness::Network,
    }
}

/// Whether a process of one table is as one of the other.
fn is_same_process(old: &StackTable, new: &StackTable) -> bool {
    let process = |table: &StackTable| StackTable {
        fairness: StackFairness::Processor,
        congestion_control: None,
        ..table.clone()
    };
    process(old) == process(new)
}

fn listen(path: &Path, user: Option<u32>) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    crate::bind::remove_socket(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(0o600))?;
    if let Some(user) = user {
        rustix::fs::chown(path, Some(Uid::from_raw(user)), None)?;
    }
    rustix::net::listen(&socket, 8)?;
    Ok(socket)
}
