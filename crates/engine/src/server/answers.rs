//! What commands are told.

use super::Daemon;
use crate::{memory, view};
use netchannel_abi::LAYOUT_HASH;
use netchannel_control::path::network_namespace;
use netchannel_control::types::{Hello, Request, Response, Status};
use rustix::process::{Resource, getrlimit};

impl Daemon {
    /// Answers a command of `user`: root and the daemon's own user see everything, others
    /// themselves.
    pub(super) fn respond(&mut self, request: Request, user: u32) -> Response {
        let own = rustix::process::geteuid().as_raw();
        let sees_all = user == 0 || user == own;
        let only = if sees_all { None } else { Some(user) };
        match request {
            Request::Hello => Response::Hello(Hello {
                version: self.options.version.clone(),
                process: std::process::id(),
                layout: LAYOUT_HASH,
                network_namespace: network_namespace().unwrap_or(0),
            }),
            Request::Status => Response::Status(Box::new(self.status(only))),
            Request::Sockets => {
                let mut sockets = view::sockets(&self.core, only);
                for part in self.parts() {
                    part.show_sockets(&mut sockets);
                }
                Response::Sockets(sockets)
            }
            Request::Hosts | Request::Reload | Request::SetScheduler(_) if !sees_all => {
                Response::Error("only root and the daemon's own user may do that".to_owned())
            }
            Request::Hosts => Response::Hosts(Box::new(self.show_hosts())),
            Request::Reload => self.reload(),
            Request::SetScheduler(text) => self.set_scheduler(text.as_deref()),
            Request::Shutdown if sees_all => {
                self.ending = true;
                Response::Ended
            }
            Request::Shutdown => {
                Response::Error("only root and the daemon's own user may end it".to_owned())
            }
        }
    }

    pub(super) fn status(&mut self, only: Option<u32>) -> Status {
        let core = &self.core;
        let estates = view::estates(core, only);
        let mut programs: Vec<_> = core
            .programs()
            .iter()
            .filter(|(_, program)| program.is_shown())
            .filter(|(_, program)| only.is_none_or(|user| program.credentials.user == user))
            .map(|(number, program)| view::program(core, *number, program, &estates))
            .collect();
        programs.sort_by_key(|program| program.program);
        let regions: u64 = core
            .programs()
            .values()
            .filter_map(|program| program.estate.as_ref())
            .map(|estate| memory::occupied(&estate.region))
            .sum();
        let links: u64 = core
            .links()
            .values()
            .map(|link| memory::occupied(&link.memory))
            .sum();
        let locals = core.directory().locals();
        Status {
            version: self.options.version.clone(),
            process: std::process::id(),
            layout: LAYOUT_HASH,
            socket: self.options.socket.display().to_string(),
            uptime_seconds: self.started.elapsed().as_secs(),
            network_namespace: network_namespace().unwrap_or(0),
            programs,
            listeners: core.listeners().len() as u64,
            links: core.links().len() as u64,
            local_addresses: locals
                .iter()
                .map(|address| {
                    let shown = view::shown_address(address);
                    shown.trim_end_matches(":0").to_owned()
                })
                .collect(),
            deposits: self.core.deposits_mut().len() as u64,
            faults: self.faults.total(),
            memory_bytes: regions + links,
            descriptor_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        }
    }
}
