//! Preparations of the sockets before another program begins in this process or as its child.

use crate::connections::connection::flags;
use crate::connections::connection::{self, Passing};
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, limits};
use crate::ground::sys;
use crate::processes::image::{Entries, Environment, InheritedState};
use crate::processes::in_transit::PreparedRecords;
use crate::processes::program::Verdict;
use crate::processes::pump::{self, Pump};
use crate::processes::{in_transit, passing};
use crate::sockets::listener::{self, Listener};
use crate::sockets::socket::{self, Socket};
use crate::waiting::epoll;

/// How the other program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecKind {
    /// In this process.
    Exec,
    /// As a child, which gets the descriptors that are not close-on-exec.
    Child,
    /// As a child, which may get any descriptor under another number.
    AnyChild,
    /// As a child that the C library starts itself, with this process's environment.
    Shell,
}

/// A socket that the other program gets.
struct PassedSocket {
    socket: Socket,
    /// Its descriptors that the program gets.
    descriptors: Vec<i32>,
    /// Number of all its descriptors in this process, once its reference was passed.
    descriptor_count: u32,
}

impl PassedSocket {
    fn descriptor(&self) -> i32 {
        self.descriptors.first().copied().unwrap_or(-1)
    }
}

/// The preparations, to be undone if the program does not begin.
pub struct ExecPreparation {
    /// For the other program.
    pub environment: Environment,
    deposited: Vec<PassedSocket>,
    diverted: Vec<PassedSocket>,
    pump: Option<Pump>,
    backups: Vec<(i32, i32, Word)>,
    in_transit: Option<PreparedRecords>,
    control: bool,
    inherits: bool,
    /// Epoll sets were prepared for the other program.
    prepared: bool,
    kind: ExecKind,
}

fn is_passed(fd: i32, kind: ExecKind) -> bool {
    kind == ExecKind::AnyChild || sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 == 0)
}

/// The virtual sockets that the program gets, and whether it gets listeners.
fn collect_passed(kind: ExecKind, verdict: Verdict) -> (Vec<PassedSocket>, bool) {
    connection::deferred::announce_all();
    let mut fresh = Vec::new();
    let mut passed: Vec<PassedSocket> = Vec::new();
    let mut listeners = false;
    table::for_each(|fd, word| match word.kind() {
        Kind::Fresh if is_passed(fd, kind) => fresh.push(fd),
        Kind::Listener if is_passed(fd, kind) => {
            listeners = true;
            if verdict != Verdict::CanLoad
                && let Some(socket) = socket::of_word(word)
            {
                flags::end_listening(fd, flags::of(&socket));
            }
        }
        Kind::Virtual => {
            let known = passed.iter_mut().find(|one| one.socket.word == word);
            let one = match known {
                Some(one) => one,
                None => {
                    let Some(socket) = socket::of_word(word) else {
                        return;
                    };
                    passed.push(PassedSocket {
                        socket,
                        descriptors: Vec::new(),
                        descriptor_count: 0,
                    });
                    let Some(one) = passed.last_mut() else {
                        return;
                    };
                    one
                }
            };
            if is_passed(fd, kind) {
                one.descriptors.push(fd);
            }
        }
        _ => {}
    });
    for fd in fresh {
        // The program gets a kernel socket, not a duplicate of the template. Where none can be made, it gets one that
        // the kernel can not connect.
        let _ = connection::before_kernel_use(fd);
    }
    passed.retain(|one| !one.descriptors.is_empty());
    (passed, listeners)
}

/// Whether the program would get any socket of the library.
pub fn passes_sockets(kind: ExecKind) -> bool {
    let mut any = false;
    if attach::current().is_some() {
        table::for_each(|fd, word| {
            // A deferred connection that the exec closes is announced before.
            any |= word.kind() == Kind::Deferred
                || matches!(word.kind(), Kind::Fresh | Kind::Virtual | Kind::Listener)
                    && is_passed(fd, kind);
        });
    }
    any
}

/// Called before a program is started as a child, after [`prepare`]: notes the sockets that are not virtual and that it
/// inherits. `loads`: it has the library. Returns what is to be undone if it does not start.
pub fn note_inherited(kind: ExecKind, loads: bool) -> Vec<Passing> {
    let mut inherited = Vec::new();
    table::for_each(|fd, word| {
        let is_given = || {
            let listener = socket::of_word(word).and_then(|socket| socket.listener());
            kind == ExecKind::AnyChild && listener.is_some_and(Listener::take_given)
        };
        let is_kernel = matches!(word.kind(), Kind::Kernel | Kind::Listener);
        let is_passed = is_kernel && (is_passed(fd, ExecKind::Child) || is_given());
        inherited.extend(is_passed.then_some(fd));
    });
    let before = |fd| connection::before_start(fd, loads);
    inherited.into_iter().filter_map(before).collect()
}

/// Prepares for a program; `verdict` says whether it can load the library.
pub fn prepare(kind: ExecKind, verdict: Verdict, environment: Entries) -> ExecPreparation {
    let (mut deposited, mut diverted) = (Vec::new(), Vec::new());
    let mut inherited = InheritedState::default();
    let mut in_transit = None;
    if attach::current().is_some() {
        let (passed, listeners) = collect_passed(kind, verdict);
        let can_load = verdict == Verdict::CanLoad;
        if !can_load {
            diverted = passed;
        } else if kind == ExecKind::Exec {
            ([deposited, diverted], in_transit) = deposit(passed);
        } else {
            let mut records = Vec::new();
            for one in passed {
                if let Ok(record) = passing::deposit(one.descriptor(), &one.socket) {
                    records.extend(record);
                    deposited.push(one);
                }
            }
            if kind != ExecKind::Shell {
                // The program may begin after this process and the daemon have ended.
                in_transit = in_transit::prepare_exec(&records);
            }
        }
        inherited.any = can_load && (listeners || !deposited.is_empty());
        if kind == ExecKind::Exec {
            for one in &mut deposited {
                // The reference of this image becomes that of the passed descriptors.
                one.descriptor_count = one.socket.pass_all();
            }
            if listeners && can_load {
                listener::hand_over();
            }
            if can_load {
                inherited.sets = epoll::prepare_exec();
                inherited.any |= inherited.sets.is_some();
            }
            if inherited.any {
                inherited.control = keep_control(true);
            }
        } else {
            if can_load && kind != ExecKind::Shell {
                inherited.sets = epoll::prepare_start();
                inherited.any |= inherited.sets.is_some();
            }
            diverted.clear();
        }
    }
    inherited.in_transit = in_transit
        .as_ref()
        .map(|one: &PreparedRecords| one.description.clone());
    let prepared = match kind {
        ExecKind::Exec => verdict == Verdict::CanLoad && attach::current().is_some(),
        _ => inherited.sets.is_some(),
    };
    let mut made = ExecPreparation {
        environment: Environment::new(environment, verdict, &inherited),
        deposited,
        diverted,
        pump: None,
        backups: Vec::new(),
        in_transit,
        control: inherited.control.is_some(),
        inherits: inherited.any,
        prepared,
        kind,
    };
    made.divert();
    made
}

/// Prepares connections for the next image, with the daemon and with records that go along. Returns those that are
/// prepared, and those that can not be.
fn deposit(passed: Vec<PassedSocket>) -> ([Vec<PassedSocket>; 2], Option<PreparedRecords>) {
    let (mut ready, mut diverted) = (Vec::new(), Vec::new());
    let mut records = Vec::new();
    for one in passed {
        match passing::prepare(one.descriptor(), &one.socket) {
            Ok(made) => {
                ready.push((one, made.is_with_daemon, made.record.is_some()));
                records.extend(made.record);
            }
            Err(_) => diverted.push(one),
        }
    }
    let prepared = in_transit::prepare_exec(&records);
    let (deposited, unknown): (Vec<_>, Vec<_>) = ready
        .into_iter()
        .partition(|(_, left, recorded)| *left || *recorded && prepared.is_some());
    for (one, ..) in unknown {
        passing::withdraw(one.descriptor(), &one.socket);
        diverted.push(one);
    }
    let deposited = deposited.into_iter().map(|(one, ..)| one).collect();
    ([deposited, diverted], prepared)
}

/// Lets the control socket survive an exec, or not.
fn keep_control(on: bool) -> Option<(i32, u64)> {
    let fd = attach::control();
    let cookie = sys::cookie(fd).ok()?;
    let flags = if on { 0 } else { sys::int(libc::FD_CLOEXEC) };
    sys::fcntl(fd, libc::F_SETFD, flags).ok()?;
    Some((fd, cookie))
}

impl ExecPreparation {
    /// Replaces sockets by their pump's ends.
    fn divert(&mut self) {
        if self.diverted.is_empty() {
            return;
        }
        let sockets: Vec<(i32, Socket)> = self
            .diverted
            .iter()
            .filter_map(|one| Some((*one.descriptors.first()?, one.socket)))
            .collect();
        let Some(pump) = pump::start(&sockets) else {
            self.diverted.clear();
            return;
        };
        for (one, end) in self.diverted.iter_mut().zip(&pump.ends) {
            for fd in &one.descriptors {
                if let Ok(backup) = limits::for_library(|| {
                    sys::duplicate(*fd, limits::first_library_number(), true)
                }) {
                    table::set(backup, Word::new(Kind::Internal, 0, 0));
                    self.backups.push((backup, *fd, one.socket.word));
                }
                let _ = sys::replace(*end, *fd, false);
                table::set(*fd, Word::FOREIGN);
            }
            one.descriptor_count = one.socket.pass_all();
        }
        self.pump = Some(pump);
    }

    /// Whether the program has to look for sockets among its descriptors.
    pub const fn inherits(&self) -> bool {
        self.inherits
    }

    /// Called after a child was started, or could not be. `noted` is what [`note_inherited`] has.
    pub fn finish_start(self, has_begun: bool, noted: Vec<Passing>) {
        if !has_begun {
            noted.into_iter().for_each(Passing::undo);
            return self.undo();
        }
        if self.prepared {
            epoll::end_start();
        }
        if let Some(prepared) = &self.in_transit {
            prepared.undo();
        }
    }

    /// Undoes the preparations: the program did not begin.
    pub fn undo(self) {
        match (self.prepared, self.kind) {
            (false, _) => {}
            (true, ExecKind::Exec) => epoll::undo_exec(),
            (true, _) => epoll::end_start(),
        }
        if self.kind == ExecKind::Exec && attach::current().is_some() {
            listener::return_to_queues();
        }
        for one in &self.deposited {
            if self.kind == ExecKind::Exec {
                one.socket.undo_pass_all(one.descriptor_count);
            }
            passing::withdraw(one.descriptor(), &one.socket);
        }
        if let Some(prepared) = &self.in_transit {
            prepared.undo();
        }
        for one in &self.diverted {
            one.socket.undo_pass_all(one.descriptor_count);
        }
        for (backup, fd, word) in &self.backups {
            let _ = sys::replace(*backup, *fd, false);
            table::set(*fd, *word);
            attach::close_internal(*backup);
        }
        if let Some(pump) = &self.pump {
            pump.cancel();
        }
        if self.control {
            let _ = keep_control(false);
        }
    }
}
