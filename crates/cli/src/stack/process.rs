//! The process of a stack. It takes its place first - namespace, processors, memory, user - and has no rights beyond those of its work when
//! it serves.

use crate::arguments::{StackKind, StackProcess};
use crate::log;
use crate::privileges;
use netchannel_configuration::parse_processors;
use netchannel_control::path;
use netchannel_stack_process::process::{Hello, ProcessEnd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, Gid, LinkNameSpaceType, Uid};
use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Runs a stack until its daemon ends. Returns the exit code.
pub fn stack(kind: &StackKind) -> c_int {
    let StackKind::Kernel(options) = kind;
    log::start(None, options.log_level);
    match serve(options) {
        Ok(()) => 0,
        Err(sentence) => {
            eprintln!("netchannel: stack {}: {sentence}", options.name);
            1
        }
    }
}

fn serve(options: &StackProcess) -> Result<(), String> {
    let socket = match &options.socket {
        Some(socket) => socket.clone(),
        None => usual_socket(&options.name)?,
    };
    let connected = connect(&socket)?;
    take_place(options)?;
    let daemon = ProcessEnd::begin(connected, &Hello::new("kernel", &options.name));
    let daemon = daemon.map_err(|errno| format!("the daemon does not listen ({errno})"))?;
    netchannel_stack_kernel::run_process(&options.name, daemon)
}

fn usual_socket(name: &str) -> Result<PathBuf, String> {
    let daemon = path::default_socket().map_err(|error| error.to_string())?;
    let folder = daemon.parent().unwrap_or(Path::new("."));
    Ok(folder.join("stacks").join(name).join("stack.sock"))
}

fn connect(path: &Path) -> Result<OwnedFd, String> {
    let shown = path.display();
    let address = SocketAddrUnix::new(path)
        .map_err(|errno| format!("{shown} is no path of a socket ({errno})"))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.map_err(|errno| format!("no socket can be had ({errno})"))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket),
        Err(Errno::ACCESS) => Err(format!(
            "{shown} may not be opened: run it as root, or name this user in the stack's table of netchannel.toml"
        )),
        Err(errno) => Err(format!(
            "no daemon awaits it at {shown} ({errno}): is one running, with this stack in [[stacks]] of its configuration?"
        )),
    }
}

/// Goes where the options say, and gives up what it does not need.
fn take_place(options: &StackProcess) -> Result<(), String> {
    if let Some(namespace) = &options.namespace {
        enter(namespace)?;
    }
    if let Some(list) = &options.processors {
        let processors = parse_processors(list)
            .ok_or_else(|| format!("{list:?} is no list of processors: write one like 0-3,6"))?;
        let mut set = CpuSet::new();
        processors.iter().for_each(|one| set.set(*one));
        rustix::thread::sched_setaffinity(None, &set).map_err(|errno| {
            format!("it can not run on processors {list} ({errno}): name some that this host has")
        })?;
    }
    let open = getrlimit(Resource::Nofile);
    // Each connection needs two descriptors; fewer serve fewer.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: open.maximum,
            ..open
        },
    );
    if let Some(memory) = options.memory {
        let limit = Rlimit {
            current: Some(memory),
            maximum: Some(memory),
        };
        setrlimit(Resource::Data, limit)
            .map_err(|errno| format!("its memory can not be limited ({errno})"))?;
    }
    if let Some(user) = options.user {
        become_user(user).map_err(|errno| {
            format!("it can not become user {user} ({errno}): start it as root")
        })?;
    }
    privileges::reduce_stack();
    Ok(())
}

fn enter(namespace: &Path) -> Result<(), String> {
    let shown = namespace.display();
    let file = std::fs::File::open(namespace).map_err(|error| {
        format!(
            "there is no network namespace at {shown} ({error}): make it with `ip netns add NAME`"
        )
    })?;
    let kind = Some(LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(file.as_fd(), kind)
        .map_err(|errno| format!("the network namespace at {shown} can not be entered ({errno})"))
}

/// The user, and the group of the same number. There is one thread yet.
fn become_user(user: u32) -> Result<(), Errno> {
    let group = Gid::from_raw(user);
    let owner = Uid::from_raw(user);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(owner, owner, owner)
}
