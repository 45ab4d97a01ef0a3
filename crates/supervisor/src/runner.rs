//! The runner: the process that the user started. It makes the supervisor, which makes the program; it stands for the program
//! (signals, stops, exit status), and answers the kernel's questions when the supervisor is gone.
//!
//! ```text
//!  runner --clone, with the same descriptors--> supervisor --fork--> program
//!    |  <------------- reports --------------------'  answers           | asks
//!    '- keeps the descriptor of the filter; answers when the supervisor was killed
//! ```
//!
//! The supervisor is an ancestor of the program, since the kernel may let ancestors only look into it (Yama).

use std::ffi::{CString, OsStr, OsString, c_int};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

use crate::filter;
use crate::keeper;
use crate::namespace;
use crate::processes::{
    Children, REPORT, Report, block, next_change, next_signal, signal, signal_descriptor, signals,
};
use crate::serving::Supervisor;
use crate::system::{Sys, errno};

/// What is run, and how.
#[derive(Debug)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// It is a tenant's: the network around it is not its own. Its ports are those of an empty network namespace, and names are
    /// served.
    pub is_tenant: bool,
}

/// How it ended.
#[derive(Debug)]
pub enum End {
    /// The program's status.
    Status(ExitStatus),
    /// It could not be executed.
    NotExecuted(io::Error),
}

/// What a shell calls this status.
#[must_use]
pub fn exit_code(status: ExitStatus) -> Option<u8> {
    let of_signal = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(of_signal)?).ok()
}

/// Runs a program under a supervisor.
///
/// # Errors
/// Where there can be no supervisor; nothing was run.
pub fn run(options: &Options) -> io::Result<End> {
    let error = io::Error::from_raw_os_error;
    let (reports, reporting) = pipe().map_err(error)?;
    let runner = process_descriptor(c_int::try_from(std::process::id()).unwrap_or(0));
    let runner = runner.map_err(error)?;
    let before = block(&signals(None));
    be_subreaper();
    match clone_with_descriptors() {
        Err(errno) => Err(error(errno)),
        Ok(0) => {
            let code = supervise(options, reporting, runner.as_fd(), &before);
            // SAFETY: ends this process; what the runner registered is the runner's to do.
            unsafe { libc::_exit(code) }
        }
        Ok(supervisor) => {
            // They are in the supervisor's table, too: what is closed here is closed there.
            let _ = (reporting.into_raw_fd(), runner.into_raw_fd());
            let reports = ManuallyDrop::new(reports);
            stand_for_program(supervisor, reports.as_fd(), &before).map_err(error)
        }
    }
}

fn pipe() -> Sys<(OwnedFd, OwnedFd)> {
    let mut made = [-1; 2];
    // SAFETY: two numbers are written.
    if unsafe { libc::pipe2(made.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(errno());
    }
    // SAFETY: the kernel made them for us.
    Ok(unsafe { (OwnedFd::from_raw_fd(made[0]), OwnedFd::from_raw_fd(made[1])) })
}

fn process_descriptor(process: c_int) -> Sys<OwnedFd> {
    // SAFETY: no pointers.
    let made = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    match c_int::try_from(made) {
        // SAFETY: the kernel made it for us.
        Ok(made) if made >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
        _ => Err(errno()),
    }
}

/// Orphans of the program become children of this process, and it stays their ancestor.
fn be_subreaper() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// A child with the same table of descriptors: what the supervisor has open does not close when it is killed, so that the
/// program's connections can be reset rather than ended.
fn clone_with_descriptors() -> Sys<c_int> {
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: as fork, in a process with one thread.
    let made = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match c_int::try_from(made) {
        Ok(made) if made >= 0 => Ok(made),
        _ => Err(errno()),
    }
}

// ---- the supervisor -------------------------------------------------------------------------------------------------

fn supervise(
    options: &Options,
    reporting: OwnedFd,
    runner: BorrowedFd<'_>,
    mask: &libc::sigset_t,
) -> c_int {
    be_subreaper();
    let reports = reporting.as_raw_fd();
    let tell = |report: Report| {
        let bytes = report.encode();
        // SAFETY: the bytes are read for their length.
        unsafe { libc::write(reports, bytes.as_ptr().cast(), REPORT) };
    };
    let (program, notify) = match start(options, *mask) {
        Ok(started) => started,
        Err(error) => {
            tell(Report::NotStarted(
                error.raw_os_error().unwrap_or(libc::EIO),
            ));
            return 1;
        }
    };
    let number = notify.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    tell(Report::Started(program, number));
    // Signals of a terminal are the program's.
    // SAFETY: no pointers.
    unsafe { libc::setsid() };
    name_after(options.program.first().map_or(OsStr::new(""), |name| name));
    raise_limit();
    if options.is_tenant {
        namespace::enter_own();
    }
    let Ok(children) = Children::new(program, reporting) else {
        return 1;
    };
    let Some(notify) = notify else {
        // A supervisor around this one serves.
        return wait_only(children);
    };
    match Supervisor::new(notify, children, runner, options.is_tenant) {
        Ok(supervisor) => {
            // What it has open is in the runner's table, too, and goes with that.
            ManuallyDrop::new(supervisor).serve(runner);
            0
        }
        Err(_) => 1,
    }
}

/// Starts the program, and gets the descriptor of its filter.
fn start(options: &Options, mask: libc::sigset_t) -> io::Result<(c_int, Option<OwnedFd>)> {
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    let error = io::Error::from_raw_os_error;
    let (ours, theirs) = crate::system::pair(0).map_err(error)?;
    let (sending, with_names) = (theirs.as_raw_fd(), options.is_tenant);
    let mut command = Command::new(name);
    command.args(arguments).env_clear();
    command.envs(
        options
            .environment
            .iter()
            .map(|(name, value)| (name, value)),
    );
    // SAFETY: this process has one thread; the child makes system calls only.
    unsafe {
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            let notify = filter::set(with_names)?;
            send_descriptor(sending, notify.as_ref().map(AsRawFd::as_raw_fd))
        });
    }
    let child = command.spawn()?;
    drop(theirs);
    let program = c_int::try_from(child.id()).unwrap_or(0);
    Ok((program, receive_descriptor(ours.as_fd())))
}

/// Room for one descriptor beside a message.
#[repr(C, align(8))]
struct Ancillary([u8; 32]);

fn with_message<T>(descriptor: Option<c_int>, act: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let mut byte = 0_u8;
    let mut bytes = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut room = Ancillary([0; 32]);
    // SAFETY: a structure of numbers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut bytes;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = room.0.len();
    let size = u32::try_from(size_of::<c_int>()).unwrap_or(4);
    if let Some(descriptor) = descriptor {
        // SAFETY: the room is large enough for one descriptor and aligned.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as usize;
            libc::CMSG_DATA(header)
                .cast::<c_int>()
                .write_unaligned(descriptor);
        }
    }
    act(&mut message)
}

fn send_descriptor(to: c_int, descriptor: Option<c_int>) -> io::Result<()> {
    let sent = with_message(descriptor, |message| {
        if descriptor.is_none() {
            message.msg_controllen = 0;
        }
        // SAFETY: the message is read.
        unsafe { libc::sendmsg(to, message, libc::MSG_NOSIGNAL) }
    });
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn receive_descriptor(from: BorrowedFd<'_>) -> Option<OwnedFd> {
    with_message(None, |message| {
        // SAFETY: the message's parts are written.
        let got = unsafe {
            libc::recvmsg(
                from.as_raw_fd(),
                message,
                libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT,
            )
        };
        if got < 0 {
            return None;
        }
        // SAFETY: the kernel wrote what it says it wrote.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(message);
            if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
                return None;
            }
            let descriptor = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
            (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor))
        }
    })
}

/// The supervisor's sockets are the program's: they are listed under its name.
fn name_after(program: &OsStr) {
    let name = Path::new(program).file_name().unwrap_or(program);
    if let Ok(name) = CString::new(name.as_bytes()) {
        // SAFETY: a C string, of which the kernel takes 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// Each socket takes two descriptors here.
fn raise_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is written, then read.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Waits for the program, and does nothing else.
fn wait_only(mut children: Children) -> c_int {
    while !children.are_gone() {
        crate::system::wait_for([children.signals()]);
        children.look();
    }
    0
}

// ---- the runner -----------------------------------------------------------------------------------------------------

fn stand_for_program(
    supervisor: c_int,
    reports: BorrowedFd<'_>,
    before: &libc::sigset_t,
) -> Sys<End> {
    // Not closed: whoever stays has the same table.
    let all = ManuallyDrop::new(signal_descriptor(&signals(None))?);
    let watched = ManuallyDrop::new(process_descriptor(supervisor)?);
    let (mut program, mut notify) = (0, -1);
    loop {
        let ready = crate::system::wait_for([reports, all.as_fd(), watched.as_fd()]);
        if ready[0] {
            match next_report(reports) {
                Some(Report::Started(process, number)) => (program, notify) = (process, number),
                Some(Report::NotStarted(errno)) => {
                    return Ok(End::NotExecuted(io::Error::from_raw_os_error(errno)));
                }
                Some(Report::Stopped) => {
                    // SAFETY: no pointers. The shell sees this process stop, and lets it go on.
                    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
                    signal(program, libc::SIGCONT);
                }
                Some(Report::Ended(status)) => {
                    let_go_of_streams();
                    leave_keeper(supervisor, &watched, notify, &all);
                    return Ok(ended(status, before));
                }
                None => {}
            }
            continue;
        }
        if ready[1]
            && let Some((number, is_sent)) = next_signal(all.as_fd())
            && is_sent
            && number != libc::SIGCHLD
        {
            signal(program, number);
        }
        if ready[2] {
            let _ = next_change(supervisor);
            let keep = [reports.as_raw_fd(), all.as_raw_fd(), notify];
            let status = keeper::keep(supervisor, program, notify, all.as_fd(), &keep);
            return Ok(ended(status, before));
        }
    }
}

/// Whoever reads what the program writes waits for the end of all who could write: those who stay have the same table.
fn let_go_of_streams() {
    // SAFETY: a C string; the rest has no pointers.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for stream in 0..=libc::STDERR_FILENO {
            libc::dup2(null, stream);
        }
    }
}

/// Where the program leaves others behind, they ask still, and somebody must answer also when the supervisor is killed.
fn leave_keeper(supervisor: c_int, watched: &OwnedFd, notify: c_int, signals: &OwnedFd) {
    // SAFETY: the supervisor's, which is in both tables, and is not closed as long as it is there.
    let asked = (notify >= 0).then(|| unsafe { BorrowedFd::borrow_raw(notify) });
    if asked.is_none_or(|asked| crate::system::is_readable(asked).1) {
        return;
    }
    if clone_with_descriptors() != Ok(0) {
        return;
    }
    // SAFETY: no pointers.
    unsafe { libc::setsid() };
    crate::system::wait_for([watched.as_fd()]);
    keeper::keep(
        supervisor,
        0,
        notify,
        signals.as_fd(),
        &[signals.as_raw_fd(), notify],
    );
    // SAFETY: ends this process; what the runner registered is the runner's to do.
    unsafe { libc::_exit(0) }
}

fn next_report(reports: BorrowedFd<'_>) -> Option<Report> {
    let mut bytes = [0_u8; REPORT];
    // SAFETY: at most the room's length is written.
    let got = unsafe { libc::read(reports.as_raw_fd(), bytes.as_mut_ptr().cast(), REPORT) };
    if usize::try_from(got) == Ok(REPORT) {
        Report::decode(&bytes)
    } else {
        None
    }
}

/// The program's end; where a signal ended it, the runner's caller is to see that, too.
fn ended(status: c_int, before: &libc::sigset_t) -> End {
    let status = ExitStatus::from_raw(status);
    if let Some(number) = status.signal() {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the limit is read; the rest has no pointers.
        unsafe {
            // The program has left its own core.
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            libc::signal(number, libc::SIG_DFL);
            libc::kill(libc::getpid(), number);
        }
    }
    let _ = block(before);
    End::Status(status)
}
