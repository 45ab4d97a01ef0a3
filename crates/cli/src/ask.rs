//! `netchannel status` and `netchannel ss`: ask the daemon and show the answer.

use crate::arguments::{Asking, PathChoice, Ss, Status};
use crate::show::{bytes, counted, duration, or_hyphen, print, table};
use crate::socket::socket_path;
use netchannel_control::types::{self, Path, Request, Response, Socket};
use std::ffi::c_int;
use std::time::Duration;

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the daemon; what went wrong is a sentence.
///
/// # Errors
/// When it does not answer, or refuses.
pub fn ask(asking: &Asking, request: Request) -> Result<Response, String> {
    let socket = socket_path(asking.socket.as_deref()).map_err(|error| error.to_string())?;
    netchannel_control::request(&socket, request, PATIENCE).map_err(|error| error.to_string())
}

/// Prints a text, or complains. Returns the exit code.
pub fn finish(result: Result<String, String>) -> c_int {
    match result {
        Ok(text) => print(&text),
        Err(sentence) => {
            crate::show::complain(&sentence);
            1
        }
    }
}

/// A value for scripts.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn json<T: serde::Serialize>(value: &T) -> Result<String, String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| error.to_string())
}

/// The message for an unexpected kind of answer.
pub fn unexpected() -> String {
    "the daemon answered something else; it may be of another version".to_owned()
}

/// `netchannel status`.
pub fn status(arguments: &Status) -> c_int {
    let asking = &arguments.asking;
    if arguments.shutdown {
        return stop(asking);
    }
    finish(
        ask(asking, Request::Status).and_then(|answer| match answer {
            Response::Status(status) if asking.json => json(&status),
            Response::Status(status) => Ok(shown_status(&status)),
            _ => Err(unexpected()),
        }),
    )
}

/// `netchannel stop`: also states how many connections end with the daemon.
pub fn stop(asking: &Asking) -> c_int {
    // Between programs of this host connections go on without a daemon; those with other hosts are its own.
    let of_peers: u64 = match ask(asking, Request::Hosts) {
        Ok(Response::Hosts(hosts)) => hosts.peers.iter().map(|peer| peer.sockets).sum(),
        _ => 0,
    };
    let of_tenants: u64 = match ask(asking, Request::Tenants) {
        Ok(Response::Tenants(tenants)) => tenants.iter().map(|one| one.connections).sum(),
        _ => 0,
    };
    let ending = of_peers + of_tenants;
    finish(match ask(asking, Request::Shutdown) {
        Ok(Response::Ended) if asking.json => json(&serde_json::json!({
            "stopping": true,
            "ending_connections": ending,
        })),
        Ok(Response::Ended) => Ok(stopping(ending)),
        Ok(_) => Err(unexpected()),
        Err(error) => Err(error),
    })
}

fn stopping(ending: u64) -> String {
    match ending {
        0 => "stopping; no connection ends with it\n".to_owned(),
        1 => "stopping; 1 connection with another host ends with it\n".to_owned(),
        count => format!("stopping; {count} connections with other hosts end with it\n"),
    }
}

fn shown_status(status: &types::Status) -> String {
    let lines = [
        (
            "daemon",
            format!("netchannel {}, process {}", status.version, status.process),
        ),
        ("socket", status.socket.clone()),
        ("up", duration(status.uptime_seconds)),
        ("namespace", format!("net:[{}]", status.network_namespace)),
        ("addresses", status.local_addresses.join(" ")),
        ("programs", status.programs.len().to_string()),
        ("listeners", status.listeners.to_string()),
        ("links", status.links.to_string()),
        ("parked", status.deposits.to_string()),
        ("faults", status.faults.to_string()),
        ("memory", bytes(status.memory_bytes)),
        (
            "descriptors",
            format!("at most {}", status.descriptor_limit),
        ),
    ];
    let mut text: String = lines
        .iter()
        .map(|(name, value)| format!("{name:<12} {value}\n"))
        .collect();
    let tables = [shown_users(&status.users), shown_programs(&status.programs)];
    for table in tables.into_iter().flatten() {
        text.push('\n');
        text.push_str(&table);
    }
    text
}

/// The resources of each user, each as use/bound.
fn shown_users(users: &[types::User]) -> Option<String> {
    if users.is_empty() {
        return None;
    }
    let head = [
        "USER",
        "PROGRAMS",
        "LISTENERS",
        "LINKS",
        "PARKED",
        "PORTS",
        "DESCRIPTORS",
        "IN-FLIGHT",
        "HALF-OPEN",
        "MEMORY",
    ];
    let count = |share: &types::Share| format!("{}/{}", share.used, share.bound);
    let rows = users.iter().map(|one| {
        vec![
            one.user.to_string(),
            count(&one.programs),
            count(&one.listeners),
            count(&one.links),
            count(&one.deposits),
            count(&one.ports),
            count(&one.descriptors),
            count(&one.in_flight),
            count(&one.half_open),
            format!("{}/{}", bytes(one.memory.used), bytes(one.memory.bound)),
        ]
    });
    Some(table(&head, rows.collect()))
}

fn shown_programs(programs: &[types::Program]) -> Option<String> {
    if programs.is_empty() {
        return None;
    }
    let head = [
        "PROGRAM",
        "PID",
        "USER",
        "LISTENERS",
        "LINKS",
        "CONNECTS",
        "ACCEPTS",
        "FALLBACKS",
        "MEMORY",
    ];
    let rows = programs.iter().map(|program| {
        let fallbacks: Vec<String> = program
            .fallbacks
            .iter()
            .map(|fallback| format!("{}:{}", fallback.reason, fallback.count))
            .collect();
        let fallbacks = if fallbacks.is_empty() {
            "-".to_owned()
        } else {
            fallbacks.join(",")
        };
        let process = match program.process {
            0 => "-".to_owned(),
            number => number.to_string(),
        };
        vec![
            program.name.clone(),
            process,
            program.user.to_string(),
            program.listeners.to_string(),
            program.links.to_string(),
            program.connects.to_string(),
            program.accepts.to_string(),
            fallbacks,
            bytes(program.memory_bytes),
        ]
    });
    Some(table(&head, rows.collect()))
}

/// `netchannel config reload`.
pub fn reload(asking: &Asking) -> c_int {
    let told = ask(asking, Request::Reload).and_then(|answer| match answer {
        Response::Reloaded(told) => Ok(told),
        _ => Err(unexpected()),
    });
    let told = match told {
        Ok(told) => told,
        Err(sentence) => return finish(Err(sentence)),
    };
    let code = c_int::from(!told.problems.is_empty());
    if asking.json {
        return finish(json(&told)).max(code);
    }
    for problem in &told.problems {
        crate::show::complain(&problem.shown(&told.file));
    }
    if code != 0 {
        let count = told.problems.len();
        return finish(Err(format!(
            "{} has {}, and nothing has changed",
            told.file,
            counted(count, "problem")
        )));
    }
    for warning in &told.warnings {
        crate::show::complain(warning);
    }
    let mut text = format!("{} was read again", told.file);
    if told.changes.is_empty() {
        text.push_str("; it says what it said before");
    }
    for change in &told.changes {
        text.push_str("\n  ");
        text.push_str(change);
    }
    finish(Ok(text + "\n"))
}

/// `netchannel ss`.
pub fn sockets(arguments: &Ss) -> c_int {
    let asking = &arguments.asking;
    finish(
        ask(asking, Request::Sockets).and_then(|answer| match answer {
            Response::Sockets(found) => {
                if found.cut {
                    crate::show::complain(
                        "there are too many sockets: some of the user who has most of them are left out",
                    );
                }
                let mut sockets = found.list;
                sockets.retain(|socket| is_wanted(arguments, socket));
                sockets.sort_by_key(|socket| (socket.program, socket.descriptor));
                if asking.json {
                    json(&sockets.iter().map(for_scripts).collect::<Vec<_>>())
                } else {
                    Ok(shown_sockets(&sockets))
                }
            }
            _ => Err(unexpected()),
        }),
    )
}

/// A socket in the form for scripts: null for missing values, and addresses also in their two parts.
fn for_scripts(socket: &Socket) -> serde_json::Value {
    let mut value = serde_json::to_value(socket).unwrap_or_default();
    let Some(fields) = value.as_object_mut() else {
        return value;
    };
    for (key, text) in [("local", &socket.local), ("peer", &socket.peer)] {
        let address: Option<std::net::SocketAddr> = text.parse().ok();
        let (ip, port) = (
            address.map(|address| address.ip().to_string()),
            address.map(|address| address.port()),
        );
        fields.insert(format!("{key}_address"), ip.into());
        fields.insert(format!("{key}_port"), port.into());
    }
    for field in fields.values_mut() {
        if field == "-" || field == "" {
            *field = serde_json::Value::Null;
        }
    }
    value
}

fn is_wanted(arguments: &Ss, socket: &Socket) -> bool {
    let named = |wanted: &String| {
        socket.name == *wanted
            || wanted
                .parse()
                .is_ok_and(|process: u32| process == socket.process)
    };
    let path = match arguments.path {
        None => true,
        Some(PathChoice::Virtual) => socket.path == Path::Virtual,
        Some(PathChoice::Channel) => socket.path == Path::Channel,
        Some(PathChoice::Kernel) => socket.path == Path::Kernel,
        Some(PathChoice::Listener) => socket.path == Path::Listener,
        Some(PathChoice::Fresh) => socket.path == Path::Fresh,
    };
    path && arguments.program.as_ref().is_none_or(named)
        && (!arguments.listening || socket.path == Path::Listener)
}

fn shown_sockets(sockets: &[Socket]) -> String {
    let head = [
        "STATE", "PATH", "RECV-Q", "SEND-Q", "LOCAL", "PEER", "PROGRAM", "PID", "FD", "REASON",
        "RECEIVED", "SENT", "CLASS", "HOST", "CHANNELS", "STACK",
    ];
    // Of a tenant's programs only.
    let has_stacks = sockets
        .iter()
        .any(|socket| !matches!(&*socket.stack, "" | "-"));
    let shown = head.len() - usize::from(!has_stacks);
    let rows = sockets.iter().map(|socket| {
        // As in ss of iproute2, the first queue of a listener is what waits to be accepted.
        let first = match socket.path {
            Path::Listener => socket.pending,
            _ => socket.receive_queue,
        };
        let mut row = vec![
            socket.state.clone(),
            socket.path.name().to_owned(),
            first.to_string(),
            socket.send_queue.to_string(),
            socket.local.clone(),
            socket.peer.clone(),
            socket.name.clone(),
            socket.process.to_string(),
            socket.descriptor.to_string(),
            socket.reason.clone(),
            bytes(socket.received),
            bytes(socket.sent),
            match socket.class_source.as_str() {
                "-" => socket.class.clone(),
                source => format!("{} ({source})", socket.class),
            },
            or_hyphen(&socket.host),
            or_hyphen(&socket.channels),
            or_hyphen(&socket.stack),
        ];
        row.truncate(shown);
        row
    });
    table(head.get(..shown).unwrap_or(&head), rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_told_of_nothing_by_null() {
        let socket: Socket = serde_json::from_value(serde_json::json!({
            "program": 1, "process": 2, "name": "redis", "descriptor": 3, "path": "listener", "state": "LISTEN",
            "local": "[::1]:80", "peer": "-", "host": "", "channels": "-", "reason": "-", "send_queue": 0, "receive_queue": 0,
            "sent": 0, "received": 0, "pending": 0, "class": "-", "class_source": "-", "link": 0, "slot": 0
        }))
        .unwrap();
        let value = for_scripts(&socket);
        assert_eq!(value["local"], "[::1]:80");
        assert_eq!(value["local_address"], "::1");
        assert_eq!(value["local_port"], 80);
        for key in [
            "peer",
            "peer_address",
            "peer_port",
            "host",
            "reason",
            "class",
        ] {
            assert!(value[key].is_null(), "{key}");
        }
    }

    #[test]
    fn what_ends_with_the_daemon_is_said() {
        assert!(stopping(0).contains("no connection ends"));
        assert!(stopping(3).contains("3 connections with other hosts end"));
    }
}
