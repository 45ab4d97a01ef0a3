//! Programs that begin: `exec`, `posix_spawn`, `system`, `popen`.

use core::ffi::CStr;
use core::ptr::null;
use std::ffi::CString;

use libc::{c_char, c_int, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::connections::connection;
use crate::descriptors::table::{self, Kind};
use crate::descriptors::{attach, limits, user};
use crate::ground::{addresses, real, sys};
use crate::processes::exec_preparation::{self, ExecKind};
use crate::processes::image::{self, Entries};
use crate::processes::program::{self, Verdict};
use crate::processes::vfork;

type Strings = *const *const c_char;

unsafe extern "C" {
    static mut environ: Strings;
}

/// The environment for `file`, where the program can begin as far as is known. Otherwise the kernel returns the error,
/// about the file or about memory that can not be read.
unsafe fn entries(file: &CStr, arguments: Strings, environment: Strings) -> Option<Entries> {
    if !program::is_executable(file) {
        return None;
    }
    // SAFETY: the program's lists and strings.
    unsafe {
        for argument in user::pointers(arguments).ok()? {
            user::string(argument).ok()?;
        }
        Entries::read(environment).ok()
    }
}

/// Whether the program in `file` can get its environment unchanged: no socket is passed, and the environment has what
/// it must. The commands of a shell begin so.
unsafe fn needs_no_change(file: *const c_char, environment: Strings) -> bool {
    // SAFETY: the program's arguments.
    attach::current().is_none()
        && unsafe { image::is_complete(environment) }
        && !program::would_fail(file)
}

/// Runs `call` while the limit of descriptors is the program's, not a raised one.
fn with_own_limit(call: impl FnOnce() -> c_int) -> c_int {
    limits::before_fork();
    let result = call();
    let error = real::errno();
    limits::after_fork();
    real::set_errno(error);
    result
}

/// As [`with_own_limit`], for a call that puts another program into this process, which has nothing of the library.
fn with_own_limits(call: impl FnOnce() -> c_int) -> c_int {
    with_own_limit(|| addresses::with_program_limit(call))
}

/// Runs `call`, which does not return when it succeeds, with the environment for the program in `file`. Where there is
/// no such program the call fails as it would.
unsafe fn become_program(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
    call: impl FnOnce(Strings) -> c_int,
) -> c_int {
    // SAFETY: the program's arguments.
    if unsafe { needs_no_change(file, environment) } {
        return with_own_limits(|| call(environment));
    }
    // SAFETY: what the program gave.
    let known = unsafe { text(file) }.and_then(|file| unsafe {
        let entries = entries(&file, arguments, environment)?;
        Some((program::judge(&file), entries))
    });
    let Some((verdict, entries)) = known else {
        return call(environment);
    };
    let environment =
        vfork::keep_preparation(exec_preparation::prepare(ExecKind::Exec, verdict, entries));
    let result = with_own_limits(|| call(environment));
    let error = real::errno();
    if let Some(preparation) = vfork::take_preparation() {
        preparation.undo();
    }
    if result < 0 {
        return real::fail(error);
    }
    result
}

/// A C string, or null where there is no file.
fn pointer(file: Option<&CStr>) -> *const c_char {
    file.map_or(null(), CStr::as_ptr)
}

unsafe fn text(pointer: *const c_char) -> Option<CString> {
    // SAFETY: the program's string.
    unsafe { user::string(pointer).ok() }
}

/// The path of an open file, or of a file relative to an open folder.
fn path_of(fd: c_int, below: &CStr) -> Option<CString> {
    let below = below.to_bytes();
    if below.first() == Some(&b'/') || fd == libc::AT_FDCWD {
        return CString::new(below).ok();
    }
    let mut path = format!("/proc/self/fd/{fd}").into_bytes();
    if !below.is_empty() {
        path.push(b'/');
        path.extend_from_slice(below);
    }
    CString::new(path).ok()
}

/// The address behind the null of a variadic list of arguments.
///
/// # Safety
/// The list ends with null.
unsafe fn behind_list(arguments: Strings) -> Strings {
    let mut end = arguments;
    // SAFETY: the caller's promise.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        end.add(1)
    }
}

unsafe extern "C" fn execl_list(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the arguments of the variadic function.
    unsafe { execve(path, arguments, environ) }
}

unsafe extern "C" fn execlp_list(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: what the variadic function was given.
    unsafe { execvpe(file, arguments, environ) }
}

unsafe extern "C" fn execle_list(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the arguments of the variadic function: an environment follows the arguments.
    unsafe { execve(path, arguments, behind_list(arguments).read().cast()) }
}

/// Defines a variadic function that calls another with its variadic arguments as an array: those
/// in registers are stored right below those on the stack.
macro_rules! variadic {
    ($($name:ident => $target:ident;)*) => {
        $(
            /// Takes the place of the C function of this name.
            ///
            /// # Safety
            /// As the C function.
            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "pop rax",
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "push rax",
                    "call {target}",
                    "pop rcx",
                    "add rsp, 40",
                    "push rcx",
                    "ret",
                    target = sym $target,
                )
            }

            /// Takes the place of the C function of this name.
            ///
            /// # Safety
            /// As the C function.
            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "sub sp, sp, #80",
                    "stp x29, x30, [sp]",
                    "str x1, [sp, #24]",
                    "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]",
                    "stp x6, x7, [sp, #64]",
                    "add x1, sp, #24",
                    "bl {target}",
                    "ldp x29, x30, [sp]",
                    "add sp, sp, #80",
                    "ret",
                    target = sym $target,
                )
            }
        )*
    };
}

variadic! {
    execl => execl_list;
    execlp => execlp_list;
    execle => execle_list;
}

/// How a child gets its descriptors.
fn child(actions: *const posix_spawn_file_actions_t) -> ExecKind {
    if actions.is_null() {
        ExecKind::Child
    } else {
        ExecKind::AnyChild
    }
}

struct Spawn {
    process: *mut pid_t,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    arguments: Strings,
    environment: Strings,
}

/// Spawns the program in `file`, which `call` starts.
unsafe fn spawn(file: *const c_char, spawn: &Spawn, call: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: the program's arguments.
    if unsafe { needs_no_change(file, spawn.environment) } {
        return with_own_limit(|| call(spawn.environment));
    }
    let kind = child(spawn.actions);
    // SAFETY: what the program gave.
    let known = unsafe { text(file) }.and_then(|file| unsafe {
        let entries = entries(&file, spawn.arguments, spawn.environment)?;
        Some((file, entries))
    });
    let Some((file, entries)) = known else {
        return call(spawn.environment);
    };
    let verdict = program::judge(&file);
    if verdict != Verdict::CanLoad && exec_preparation::passes_sockets(kind) {
        // SAFETY: the program's arguments.
        return unsafe { spawn_by_shell(&file, spawn, entries) };
    }
    let preparation = exec_preparation::prepare(kind, verdict, entries);
    let noted = exec_preparation::note_inherited(kind, verdict == Verdict::CanLoad);
    let result = with_own_limit(|| call(preparation.environment.pointer()));
    preparation.finish_start(result == 0, noted);
    result
}

/// Starts a program that can not load the library by a shell that can, and that executes the program: then the sockets
/// have their final numbers, and a pump can take their place.
unsafe fn spawn_by_shell(file: &CStr, spawn: &Spawn, entries: Entries) -> c_int {
    let shell = c"/bin/sh";
    let mut arguments = vec![
        c"sh".as_ptr(),
        c"-c".as_ptr(),
        c"exec \"$0\" \"$@\"".as_ptr(),
        file.as_ptr(),
    ];
    // SAFETY: the program's arguments.
    unsafe {
        let given = user::pointers(spawn.arguments).unwrap_or_default();
        arguments.extend(given.into_iter().skip(1));
        arguments.push(null());
        let kind = child(spawn.actions);
        let preparation = exec_preparation::prepare(kind, Verdict::CanLoad, entries);
        let noted = exec_preparation::note_inherited(kind, true);
        let environment = preparation.environment.pointer();
        let result = real::posix_spawn(
            spawn.process,
            shell.as_ptr(),
            spawn.actions,
            spawn.attributes,
            arguments.as_ptr(),
            environment,
        );
        preparation.finish_start(result == 0, noted);
        result
    }
}

/// Called before the C library itself spawns a shell with this process's environment.
unsafe fn before_shell() {
    if !exec_preparation::passes_sockets(ExecKind::Child) {
        exec_preparation::note_inherited(ExecKind::Shell, false);
        return;
    }
    let preparation =
        exec_preparation::prepare(ExecKind::Shell, Verdict::CanLoad, Entries::default());
    // Whoever has called waits for the shell, and is not told whether it has begun.
    exec_preparation::note_inherited(ExecKind::Shell, false);
    if preparation.inherits() {
        // SAFETY: C strings.
        unsafe { libc::setenv(c"NETCHANNEL_INHERIT".as_ptr(), c"1".as_ptr(), 1) };
    }
}

hook! {
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        become_program(path, arguments, environment, |environment| {
            real::execve(path, arguments, environment)
        })
    }

    fn execv(path: *const c_char, arguments: Strings) -> c_int {
        execve(path, arguments, environ)
    }

    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        let mut room = [0; libc::PATH_MAX as usize];
        let found = text(file).and_then(|file| program::resolve(&file, &mut room));
        become_program(pointer(found), arguments, environment, |environment| {
            real::execvpe(file, arguments, environment)
        })
    }

    fn execvp(file: *const c_char, arguments: Strings) -> c_int {
        execvpe(file, arguments, environ)
    }

    fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
        let file = path_of(fd, c"");
        become_program(pointer(file.as_deref()), arguments, environment, |environment| {
            real::fexecve(fd, arguments, environment)
        })
    }

    fn execveat(
        fd: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int,
    ) -> c_int {
        let file = text(path).and_then(|path| path_of(fd, &path));
        become_program(pointer(file.as_deref()), arguments, environment, |environment| {
            let (path, list) = (path.expose_provenance(), arguments.expose_provenance());
            let words = [sys::int(fd), path, list, environment.expose_provenance(), sys::int(flags), 0];
            match sys::raw(libc::SYS_execveat, words) {
                Ok(_) => 0,
                Err(error) => real::fail(error),
            }
        })
    }

    fn posix_spawn(
        process: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings,
    ) -> c_int {
        let spawn_call = Spawn { process, actions, attributes, arguments, environment };
        spawn(path, &spawn_call, |environment| {
            real::posix_spawn(process, path, actions, attributes, arguments, environment)
        })
    }

    fn posix_spawnp(
        process: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings,
    ) -> c_int {
        let mut room = [0; libc::PATH_MAX as usize];
        let found = text(file).and_then(|file| program::resolve(&file, &mut room));
        let spawn_call = Spawn { process, actions, attributes, arguments, environment };
        spawn(pointer(found), &spawn_call, |environment| {
            real::posix_spawnp(process, file, actions, attributes, arguments, environment)
        })
    }

    fn posix_spawn_file_actions_adddup2(
        actions: *mut posix_spawn_file_actions_t, fd: c_int, to: c_int,
    ) -> c_int {
        // It may be closed when another program begins: only this says that the program gets it.
        if matches!(table::get(fd).kind(), Kind::Fresh | Kind::Kernel | Kind::Listener) {
            connection::give_to_start(fd);
        }
        real::posix_spawn_file_actions_adddup2(actions, fd, to)
    }

    fn system(command: *const c_char) -> c_int {
        if !command.is_null() {
            before_shell();
        }
        real::system(command)
    }

    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        before_shell();
        real::popen(command, mode)
    }
}
