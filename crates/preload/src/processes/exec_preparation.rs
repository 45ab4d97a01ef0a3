//! Before another program begins in this process or as a child of it: its sockets are made ready
//! for that.

use crate::connections::connection;
use crate::connections::connection::flags;
use crate::descriptors::table::{self, Kind, Word};
use crate::descriptors::{attach, limits};
use crate::ground::sys;
use crate::processes::image::{Entries, Environment, Inherited};
use crate::processes::in_transit::Packed;
use crate::processes::program::Verdict;
use crate::processes::pump::{self, Pump};
use crate::processes::{in_transit, passing};
use crate::sockets::listener;
use crate::sockets::socket::{self, Socket};
use crate::waiting::epoll;

/// How the other program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// In this process.
    Exec,
    /// As a child, which gets the descriptors that are not close-on-exec.
    Child,
    /// As a child, which may get any descriptor under another number.
    AnyChild,
}

/// A socket that goes.
struct Traveller {
    socket: Socket,
    /// Its descriptors that go.
    descriptors: Vec<i32>,
    /// All its descriptors in this process, once they were surrendered.
    held: u32,
}

impl Traveller {
    fn descriptor(&self) -> i32 {
        self.descriptors.first().copied().unwrap_or(-1)
    }
}

/// What was done, to be undone if the program does not begin.
pub struct ExecPreparation {
    /// For the new program.
    pub environment: Environment,
    deposited: Vec<Traveller>,
    diverted: Vec<Traveller>,
    pump: Option<Pump>,
    backups: Vec<(i32, i32, Word)>,
    in_transit: Option<Packed>,
    control: bool,
    inherits: bool,
    /// The kernel was told of the members of sets.
    packed: bool,
    how: How,
}

fn goes(fd: i32, how: How) -> bool {
    how == How::AnyChild || sys::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 == 0)
}

/// The virtual sockets that go, and whether listeners do.
fn gather(how: How, verdict: Verdict) -> (Vec<Traveller>, bool) {
    connection::deferred::announce_all();
    let mut fresh = Vec::new();
    let mut travellers: Vec<Traveller> = Vec::new();
    let mut listeners = false;
    table::for_each(|fd, word| match word.kind() {
        Kind::Fresh if goes(fd, how) => fresh.push(fd),
        Kind::Listener if goes(fd, how) => {
            listeners = true;
            if verdict != Verdict::Takes
                && let Some(socket) = socket::of_word(word)
            {
                flags::end_listening(fd, flags::of(&socket));
            }
        }
        Kind::Virtual => {
            let known = travellers.iter_mut().find(|one| one.socket.word == word);
            let one = match known {
                Some(one) => one,
                None => {
                    let Some(socket) = socket::of_word(word) else {
                        return;
                    };
                    travellers.push(Traveller {
                        socket,
                        descriptors: Vec::new(),
                        held: 0,
                    });
                    let Some(one) = travellers.last_mut() else {
                        return;
                    };
                    one
                }
            };
            if goes(fd, how) {
                one.descriptors.push(fd);
            }
        }
        _ => {}
    });
    for fd in fresh {
        // A socket of the kernel's own, not a duplicate of the one all fresh sockets share.
        // Where none can be made, the other program gets one that the kernel connects to nothing.
        let _ = connection::before_kernel_use(fd);
    }
    travellers.retain(|one| !one.descriptors.is_empty());
    (travellers, listeners)
}

/// Whether any socket of ours would go.
pub fn concerns(how: How) -> bool {
    let mut any = false;
    if attach::current().is_some() {
        table::for_each(|fd, word| {
            // What is closed by it is announced before.
            any |= word.kind() == Kind::Deferred
                || matches!(word.kind(), Kind::Fresh | Kind::Virtual | Kind::Listener)
                    && goes(fd, how);
        });
    }
    any
}

/// Makes ready for a program of which `verdict` says whether the library will be in it.
pub fn prepare(how: How, verdict: Verdict, environment: Entries) -> ExecPreparation {
    let (mut deposited, mut diverted) = (Vec::new(), Vec::new());
    let mut inherited = Inherited::default();
    let mut in_transit = None;
    if attach::current().is_some() {
        let (travellers, listeners) = gather(how, verdict);
        let takes = verdict == Verdict::Takes;
        if !takes {
            diverted = travellers;
        } else if how == How::Exec {
            ([deposited, diverted], in_transit) = deposit(travellers);
        } else {
            let leave = |one: &Traveller| passing::deposit(one.descriptor(), &one.socket).is_ok();
            deposited = travellers.into_iter().filter(leave).collect();
        }
        inherited.any = takes && (listeners || !deposited.is_empty());
        if how == How::Exec {
            for one in &mut deposited {
                // The descriptors of this image become the one that is on its way.
                one.held = one.socket.pass_all();
            }
            if listeners && takes {
                listener::hand_over();
            }
            if takes {
                inherited.sets = epoll::prepare_exec();
                inherited.any |= inherited.sets.is_some();
            }
            if inherited.any {
                inherited.control = keep_control(true);
            }
        } else {
            diverted.clear();
        }
    }
    inherited.in_transit = in_transit.as_ref().map(|one: &Packed| one.told.clone());
    let mut made = ExecPreparation {
        environment: Environment::new(environment, verdict, &inherited),
        deposited,
        diverted,
        pump: None,
        backups: Vec::new(),
        in_transit,
        control: inherited.control.is_some(),
        inherits: inherited.any,
        packed: how == How::Exec && verdict == Verdict::Takes && attach::current().is_some(),
        how,
    };
    made.divert();
    made
}

/// Makes connections ready for the next image: with the daemon, and with what goes along. Those that are, and those that can not be.
fn deposit(travellers: Vec<Traveller>) -> ([Vec<Traveller>; 2], Option<Packed>) {
    let (mut ready, mut diverted) = (Vec::new(), Vec::new());
    let mut records = Vec::new();
    for one in travellers {
        match passing::prepare(one.descriptor(), &one.socket) {
            Ok(made) => {
                ready.push((one, made.left, made.record.is_some()));
                records.extend(made.record);
            }
            Err(_) => diverted.push(one),
        }
    }
    let packed = in_transit::pack(&records);
    let (deposited, unknown): (Vec<_>, Vec<_>) = ready
        .into_iter()
        .partition(|(_, left, recorded)| *left || *recorded && packed.is_some());
    for (one, ..) in unknown {
        passing::withdraw(one.descriptor(), &one.socket);
        diverted.push(one);
    }
    let deposited = deposited.into_iter().map(|(one, ..)| one).collect();
    ([deposited, diverted], packed)
}

/// Lets the control socket outlive an exec, or no longer.
fn keep_control(on: bool) -> Option<(i32, u64)> {
    let fd = attach::control();
    let cookie = sys::cookie(fd).ok()?;
    let flags = if on { 0 } else { sys::int(libc::FD_CLOEXEC) };
    sys::fcntl(fd, libc::F_SETFD, flags).ok()?;
    Some((fd, cookie))
}

impl ExecPreparation {
    /// Puts the pump's ends in the place of the sockets it serves.
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
            one.held = one.socket.pass_all();
        }
        self.pump = Some(pump);
    }

    /// Whether the program has to look for sockets among its descriptors.
    pub const fn inherits(&self) -> bool {
        self.inherits
    }

    /// The program did not begin.
    pub fn undo(self) {
        if self.packed {
            epoll::undo_exec();
        }
        if self.how == How::Exec && attach::current().is_some() {
            listener::return_to_queues();
        }
        for one in &self.deposited {
            if self.how == How::Exec {
                one.socket.undo_pass_all(one.held);
            }
            passing::withdraw(one.descriptor(), &one.socket);
        }
        if let Some(packed) = &self.in_transit {
            packed.undo();
        }
        for one in &self.diverted {
            one.socket.undo_pass_all(one.held);
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
