//! `netchannel tenants`: shows them, and runs a program as one.

use crate::arguments::{Asking, StaticChoice, TenantProgram, Tenants, TenantsCommand};
use crate::ask::{ask, finish, json, unexpected};
use crate::containers::{self, Place};
use crate::executing::{self, FAILED, Host};
use crate::library;
use crate::show::{bytes, complain, or_hyphen, table};
use crate::socket::socket_path;
use crate::supervise;
use netchannel_control::path::{SOCKET_VARIABLE, library_folder};
use netchannel_control::tenants::TenantView;
use netchannel_control::types::{Request, Response};
use std::ffi::{OsString, c_int};
use std::path::{Path, PathBuf};

/// What is said where there are none.
const NONE: &str = "no tenant is configured: add [[tenants]] to netchannel.toml (docs/tenants.md)";

/// Names and values.
type Environment = Vec<(OsString, OsString)>;

/// Runs the command.
pub fn tenants(arguments: &Tenants) -> c_int {
    match &arguments.command {
        None => finish(fetch(&arguments.asking).and_then(|tenants| {
            match (arguments.asking.json, tenants.is_empty()) {
                (true, _) => json(&tenants),
                (false, true) => Ok(format!("{NONE}\n")),
                (false, false) => Ok(shown(&tenants)),
            }
        })),
        Some(TenantsCommand::Run(program)) => match prepare(&arguments.asking, program) {
            // What makes containers has a network of its own, which it needs.
            Ok((words, environment))
                if is_supervised(program) && containers::maker(&words).is_none() =>
            {
                supervise::execute(&words, &environment, Host::Tenant)
            }
            Ok((words, environment)) => executing::execute(&words, &environment),
            Err(sentence) => {
                complain(&sentence);
                FAILED
            }
        },
    }
}

/// Whether programs that the library can not enter get a supervisor.
fn is_supervised(program: &TenantProgram) -> bool {
    program.static_programs != Some(StaticChoice::Off)
}

/// Asks about programs of a tenant from now on, where one is named: of its own CoreEngine.
///
/// # Errors
/// The exit code, where there is no such tenant, which is said.
pub fn with_scope(asking: &mut Asking, tenant: Option<String>) -> Result<(), c_int> {
    if let Some(name) = tenant {
        let found = socket_of(asking, &name);
        asking.socket = Some(found.map_err(|sentence| finish(Err(sentence)))?);
    }
    Ok(())
}

/// What the daemon says of its tenants.
///
/// # Errors
/// Why it does not say it.
pub fn fetch(asking: &Asking) -> Result<Vec<TenantView>, String> {
    match ask(asking, Request::Tenants)? {
        Response::Tenants(tenants) => Ok(tenants),
        _ => Err(unexpected()),
    }
}

fn shown(tenants: &[TenantView]) -> String {
    let head = [
        "TENANT",
        "ADDRESSES",
        "STACK",
        "OPEN",
        "DIALED",
        "ACCEPTED",
        "DENIED",
        "IN",
        "OUT",
        "CAP IN",
        "CAP OUT",
        "PUBLISHED",
        "SOCKET",
    ];
    let cap = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), |rate| bytes(rate) + "/s");
    let row = |one: &TenantView| {
        vec![
            one.name.clone(),
            one.addresses.join(","),
            stacks(one),
            one.connections.to_string(),
            one.dialed.to_string(),
            one.accepted.to_string(),
            one.denied.to_string(),
            bytes(one.bytes_in),
            bytes(one.bytes_out),
            cap(one.rate_in),
            cap(one.rate_out),
            or_hyphen(&one.publish.join(",")),
            one.socket.clone(),
        ]
    };
    table(&head, tenants.iter().map(row).collect())
}

/// The stack of new connections, that of peers, and those of older ones.
fn stacks(tenant: &TenantView) -> String {
    let uses_channels = tenant.destinations.iter();
    let uses_channels = uses_channels.clone().any(|one| one.ends_with("channels"));
    let channels = match tenant.channels.connections {
        0 if !uses_channels => String::new(),
        count => format!(" +channels: {count}"),
    };
    let former = tenant.former_stacks.iter();
    let former = former.map(|one| format!(" ({}: {})", one.name, one.connections));
    tenant.stack.clone() + &channels + &former.collect::<String>()
}

/// The program with what makes it the tenant's, and its environment.
fn prepare(
    asking: &Asking,
    program: &TenantProgram,
) -> Result<(Vec<OsString>, Environment), String> {
    let socket = socket_of(asking, &program.tenant)?;
    let library = match placed_library(&socket) {
        Some(library) => library,
        None => library::find().map_err(|error| error.to_string())?,
    };
    let words = &program.program;
    if let Some((maker, at)) = containers::maker(words) {
        let place = Place {
            folder: socket.parent().unwrap_or(Path::new("/")),
            socket: &socket,
            library: &library,
        };
        let mut options = containers::options(&place, words);
        if is_supervised(program) {
            match containers::supervise(maker, &place, words) {
                Ok(more) => options.extend(more),
                Err(sentence) if program.static_programs.is_some() => {
                    return Err(format!("{sentence}; not run"));
                }
                Err(sentence) => complain(&sentence),
            }
        }
        let mut words = words.clone();
        words.splice(at..at, options);
        return Ok((words, std::env::vars_os().collect()));
    }
    let mut environment: Environment = std::env::vars_os().collect();
    executing::preload(&mut environment, &library);
    executing::set(&mut environment, SOCKET_VARIABLE, socket.into_os_string());
    Ok((words.clone(), environment))
}

/// Where the tenant's programs attach: as the daemon says, or where only its user may ask that, at the usual place.
///
/// # Errors
/// Where there is no such tenant, or nothing serves it.
pub fn socket_of(asking: &Asking, name: &str) -> Result<PathBuf, String> {
    let socket = match fetch(asking) {
        Ok(tenants) => match tenants.iter().find(|one| one.name == name) {
            Some(found) => PathBuf::from(&found.socket),
            None => {
                let names: Vec<&str> = tenants.iter().map(|one| one.name.as_str()).collect();
                return Err(match names[..] {
                    [] => NONE.to_owned(),
                    _ => format!(
                        "there is no tenant {name:?}; there are {}",
                        names.join(", ")
                    ),
                });
            }
        },
        Err(_) => {
            let daemon =
                socket_path(asking.socket.as_deref()).map_err(|error| error.to_string())?;
            let folder = daemon.parent().unwrap_or(Path::new("/"));
            folder.join("tenants").join(name).join("nc.sock")
        }
    };
    match socket.try_exists() {
        Ok(true) => Ok(socket),
        _ => Err(format!(
            "nothing serves tenant {name:?} at {}: is the daemon running, with [[tenants]] in its configuration?",
            socket.display()
        )),
    }
}

/// The library beside the tenant's socket, in a form that linkers of glibc alone find, so that programs of musl start without it. `None`
/// where the daemon could not put it there, or its path can not be preloaded.
fn placed_library(socket: &Path) -> Option<PathBuf> {
    let folder = library_folder(socket);
    let bytes = folder.as_os_str().as_encoded_bytes();
    let is_usable = !bytes
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || b":$".contains(byte));
    (is_usable && folder.join(library::NAME).is_file())
        .then(|| folder.join("$LIB").join(library::NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_new_and_old_connections_are_told() {
        let mut view = TenantView {
            stack: "two".to_owned(),
            ..TenantView::default()
        };
        assert_eq!(stacks(&view), "two");
        view.destinations = vec!["10.0.0.0/8 = none".to_owned()];
        assert_eq!(stacks(&view), "two");
        view.destinations.push("10.0.0.2/32 = channels".to_owned());
        assert_eq!(stacks(&view), "two +channels: 0");
        // Those that began before the table changed.
        (view.channels.connections, view.destinations) = (3, Vec::new());
        view.former_stacks
            .push(netchannel_control::tenants::FormerStack {
                name: "one".to_owned(),
                connections: 2,
            });
        assert_eq!(stacks(&view), "two +channels: 3 (one: 2)");
    }

    #[test]
    fn a_table_has_a_line_for_each_tenant() {
        let view = TenantView {
            name: "web".to_owned(),
            addresses: vec!["10.88.0.2".to_owned()],
            stack: "kernel".to_owned(),
            rate_out: Some(1 << 20),
            bytes_in: 5,
            ..TenantView::default()
        };
        let text = shown(&[view]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[1].starts_with("web") && lines[1].contains("1.0 MiB/s"),
            "{text}"
        );
    }
}
