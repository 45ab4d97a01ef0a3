//! `netchannel guest`: a virtual machine as a tenant. `host` runs beside the machine, `inside` within it.
//!
//! ```text
//!  host:   finds the tenant --> leaves the host's network --> executes itself under the library (`attached`) --> guest-host
//!  inside: finds the region and the doorbell --> stack-guest waits for the host's word --> daemon
//! ```

mod device;

use crate::arguments::{Asking, Guest, GuestCommand, GuestHost, GuestInside, HostEnd};
use crate::daemon as serving;
use crate::executing::{self, FAILED};
use crate::log;
use crate::run;
use crate::show::complain;
use crate::tenants;
use netchannel_abi::address::Address;
use netchannel_configuration::Tenant;
use netchannel_control::path::SOCKET_VARIABLE;
use netchannel_daemon::{AlternateStack, Daemon, Limits, Options};
use netchannel_guest::{LEAST_SIZE, Welcome};
use netchannel_guest_host::{Bells, Host};
use netchannel_shm::Region;
use netchannel_stack_guest::{Bell, GuestStack, StartError};
use nix::sched::CloneFlags;
use std::ffi::{OsString, c_int};
use std::fs::{File, OpenOptions};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Connections that a guest may have at a time, whatever its tenant may.
const MOST_CONNECTIONS: u64 = 16_384;
/// Descriptors of the host's end beside those of connections and listeners.
const OTHER_DESCRIPTORS: u64 = 1280;

/// Runs the command.
pub fn guest(arguments: &Guest) -> c_int {
    let done = match &arguments.command {
        GuestCommand::Host(options) => host(options),
        GuestCommand::Attached(options) => attached(options),
        GuestCommand::Inside(options) => inside(options),
    };
    match done {
        Ok(code) => code,
        Err(sentence) => {
            complain(&sentence);
            FAILED
        }
    }
}

// ---- on the host ---------------------------------------------------------------------------------------------------

/// Becomes a program of the tenant, without a network of its own.
fn host(options: &GuestHost) -> Result<c_int, String> {
    let library = crate::library::find().map_err(|error| error.to_string())?;
    let asking = Asking {
        socket: options.socket.clone(),
        json: false,
    };
    let socket = tenants::socket_of(&asking, &options.tenant)?;
    let view = tenants::fetch(&asking)
        .ok()
        .and_then(|all| all.into_iter().find(|one| one.name == options.tenant));
    let addresses = match (&view, options.address.is_empty()) {
        (_, false) => options.address.iter().map(ToString::to_string).collect(),
        (Some(view), true) => view.addresses.clone(),
        (None, true) => {
            return Err(format!(
                "only the daemon's user may ask it for the addresses of tenant {:?}: name them with --address",
                options.tenant
            ));
        }
    };
    let permitted = view.map_or(MOST_CONNECTIONS, |view| view.most_connections);
    // Tells all that can be wrong with it while there is a terminal.
    drop(open_memory(&options.end.memory, options.end.size)?);
    leave_network()?;
    let mut program = vec![
        std::env::current_exe()
            .map_err(|error| error.to_string())?
            .into(),
    ];
    let mut say = |words: &[&OsString]| program.extend(words.iter().map(|word| (*word).clone()));
    say(&[&"guest".into(), &"attached".into()]);
    for address in addresses {
        say(&[&"--address".into(), &address.into()]);
    }
    say(&[&"--most".into(), &permitted.to_string().into()]);
    say(&[&"--memory".into(), &absolute(&options.end.memory)]);
    if let Some(size) = options.end.size {
        say(&[&"--size".into(), &size.to_string().into()]);
    }
    if let Some(bell) = &options.end.bell {
        say(&[&"--bell".into(), &absolute(bell)]);
    }
    if let Some(file) = &options.end.log {
        say(&[&"--log".into(), &absolute(file)]);
    }
    say(&[
        &"--log-level".into(),
        &options.end.log_level.to_string().into(),
    ]);
    let mut environment = std::env::vars_os().collect();
    run::preload(&mut environment, &library);
    run::set(&mut environment, SOCKET_VARIABLE, socket.into_os_string());
    Ok(executing::execute(&program, &environment))
}

fn absolute(path: &Path) -> OsString {
    let absolute = std::path::absolute(path);
    absolute.map_or_else(|_| path.into(), Into::into)
}

/// From now on this process has a network namespace of its own, with nothing in it: the ports of the guest are not the host's, and what the
/// tenant's stack does not reach nothing reaches.
fn leave_network() -> Result<(), String> {
    let fail = |what: &str, error: &dyn std::fmt::Display| {
        format!("cannot leave the host's network: {what} ({error}); run it as root")
    };
    if nix::unistd::geteuid().is_root() {
        return nix::sched::unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|errno| fail("no network namespace can be made", &errno));
    }
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|errno| fail("no user namespace can be made", &errno))?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ] {
        std::fs::write(file, text).map_err(|error| fail(file, &error))?;
    }
    Ok(())
}

/// Opens the file that is the region, and makes it where it is not there. Returns it with its size.
fn open_memory(path: &Path, size: Option<u64>) -> Result<(File, usize), String> {
    let shown = path.display();
    let fail = |error: std::io::Error| format!("cannot use {shown} as memory ({error})");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(fail)?;
    let has = file.metadata().map_err(fail)?.len();
    let wanted = match (has, size) {
        (0, size) => size.unwrap_or(crate::arguments::GUEST_MEMORY),
        (has, Some(size)) if has != size => {
            return Err(format!(
                "{shown} has {has} bytes already: remove it, or leave --size out"
            ));
        }
        (has, _) => has,
    };
    if !wanted.is_power_of_two() || wanted < LEAST_SIZE as u64 {
        return Err(format!(
            "{shown} would have {wanted} bytes: a power of two from 64K on is needed"
        ));
    }
    if has == 0 {
        file.set_len(wanted).map_err(fail)?;
    }
    let size = usize::try_from(wanted).map_err(|_| format!("{shown} is too large"))?;
    Ok((file, size))
}

/// Is the host's end, as a program of the tenant.
fn attached(options: &HostEnd) -> Result<c_int, String> {
    log::start(options.end.log.as_deref(), options.end.log_level);
    let (file, size) = open_memory(&options.end.memory, options.end.size)?;
    let shown = options.end.memory.display();
    let region = Region::map_unsealed(file.as_raw_fd(), size)
        .map_err(|error| format!("cannot map {shown} ({error})"))?;
    let bells = match &options.end.bell {
        Some(path) => Some(
            Bells::bind(path)
                .map_err(|error| format!("cannot listen at {} ({error})", path.display()))?,
        ),
        None => None,
    };
    let left = descriptors().saturating_sub(OTHER_DESCRIPTORS).max(64);
    let most = options.most.min(MOST_CONNECTIONS).min(left);
    let welcome = Welcome {
        addresses: options.address.iter().map(plain_address).collect(),
        most: u32::try_from(most).unwrap_or(u32::MAX),
    };
    let stop = stop_by_signals().map_err(|error| format!("signals are not heard ({error})"))?;
    let failed = |errno: nix::errno::Errno| format!("cannot wait for events ({errno})");
    let host = Host::new(Arc::new(region), bells, welcome, stop).map_err(failed)?;
    let host = host.ok_or_else(|| format!("{shown} is too small"))?;
    tracing::info!(process = std::process::id(), "waits for a guest at {shown}");
    host.serve().map_err(failed)?;
    Ok(serving::ENDED)
}

fn plain_address(address: &IpAddr) -> Address {
    match address {
        IpAddr::V4(v4) => Address::v4(v4.octets(), 0),
        IpAddr::V6(v6) => Address::v6(v6.octets(), 0, 0),
    }
}

/// Descriptors of this process, from now on as many as may be.
fn descriptors() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It never fails for an own limit that is lower.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A byte comes where this process is to end.
fn stop_by_signals() -> std::io::Result<UnixStream> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
    let (here, there) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, there.try_clone()?)?;
    }
    signal_hook::flag::register(SIGPIPE, Arc::default())?;
    Ok(here)
}

// ---- in the guest --------------------------------------------------------------------------------------------------

fn inside(options: &GuestInside) -> Result<c_int, String> {
    let socket = crate::socket::socket_path(options.socket.as_deref());
    let socket = socket.map_err(|error| error.to_string())?;
    log::start(options.log.as_deref(), options.log_level);
    let memory = match &options.memory {
        Some(path) => path.clone(),
        None => device::find()?,
    };
    let region = device::map(&memory)?;
    let bell = match &options.bell {
        Some(path) => Some(
            Bell::open(path)
                .map_err(|errno| format!("cannot use {} as doorbell ({errno})", path.display()))?,
        ),
        None => device::bell(),
    };
    let how = if bell.is_some() {
        "a doorbell"
    } else {
        "no doorbell: it looks again and again"
    };
    let _stack = AlternateStack::new();
    let limits = Limits::default();
    let anchors = usize::try_from(descriptors() / 2).unwrap_or(usize::MAX);
    let started = GuestStack::start(Arc::new(region), bell, anchors);
    let (stack, first) = started.map_err(|error| match error {
        StartError::TooSmall => format!("{} is too small", memory.display()),
        StartError::System(errno) => format!("cannot start a thread ({errno})"),
    })?;
    tracing::info!("waits for the host at {} with {how}", memory.display());
    let welcome = first.recv().map_err(|_| "the stack has ended".to_owned())?;
    let addresses = welcome.addresses.iter().filter_map(address_of).collect();
    let tenant = Tenant {
        // Whoever may run programs in the machine is the tenant.
        mode: if nix::unistd::geteuid().is_root() {
            0o666
        } else {
            0o600
        },
        ..Tenant::new("guest", addresses)
    };
    let shown = format!("{} as {}", socket.display(), strings(&tenant.addresses));
    let bound = Daemon::bind_with(
        Options {
            socket,
            idle_exit: None,
            limits,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            relay_local: false,
            configuration: None,
            tenant: Some(Arc::new(tenant)),
            library: None,
        },
        |_| vec![Box::new(stack)],
    );
    let served = bound.and_then(|daemon| serving::serve_bound(daemon, &shown, false, || {}));
    served.map_err(|error| error.to_string())?;
    Ok(serving::ENDED)
}

fn address_of(address: &Address) -> Option<IpAddr> {
    use netchannel_abi::address::{INET, INET6};
    match address.family {
        INET => {
            let [a, b, c, d, ..] = address.bytes;
            Some(IpAddr::from([a, b, c, d]))
        }
        INET6 => Some(IpAddr::from(address.bytes)),
        _ => None,
    }
}

fn strings(addresses: &[IpAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_made_once_and_has_a_size_that_a_machine_takes() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("web.shm");
        assert!(
            open_memory(&file, Some(100_000))
                .unwrap_err()
                .contains("power of two")
        );
        assert!(
            open_memory(&file, Some(4096))
                .unwrap_err()
                .contains("from 64K on")
        );
        assert_eq!(open_memory(&file, Some(1 << 20)).unwrap().1, 1 << 20);
        assert_eq!(open_memory(&file, None).unwrap().1, 1 << 20);
        let other = open_memory(&file, Some(1 << 21)).unwrap_err();
        assert!(other.contains("has 1048576 bytes already"), "{other}");
    }

    #[test]
    fn addresses_stay_what_they_are() {
        for text in ["10.88.0.2", "2001:db8::7"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_of(&plain_address(&address)), Some(address));
        }
    }
}
