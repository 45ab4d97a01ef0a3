//! The answers to commands.

use super::Daemon;
use crate::answering::{Answering, Progress};
use crate::view::{Host, Memory};
use netchannel_abi::LAYOUT_HASH;
use netchannel_control::path::network_namespace;
use netchannel_control::types::{Hello, Request, Response, Status};
use netchannel_engine::region::Copies;
use netchannel_engine::turn::Turn;
use netchannel_service::addresses::shown as shown_address;
use rustix::process::{Resource, getrlimit};
use std::time::Instant;

/// An answer that takes several turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// To a command.
    Command(u32),
    /// To all connections that fetch metrics.
    Metrics,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// The answer is complete.
    Now(Response),
    /// The answer takes several turns; this is its beginning.
    Long(Box<Answering>, Vec<u8>),
}

impl Daemon {
    /// Answers a command of `user`, who may see only his own programs.
    pub(super) fn respond(&mut self, request: Request, user: u32) -> Answer {
        let only = self.sees_only(user);
        let sees_all = only.is_none();
        let mut begun = Vec::new();
        let response = match request {
            Request::Status => {
                let long = self.with_host(|host, _| Answering::programs(host, only, &mut begun));
                return Answer::Long(Box::new(long), begun);
            }
            Request::Sockets => {
                let long = self.with_host(|host, _| Answering::sockets(host, only, &mut begun));
                return Answer::Long(Box::new(long), begun);
            }
            Request::Hello => Response::Hello(Hello {
                version: self.options.version.clone(),
                process: std::process::id(),
                layout: LAYOUT_HASH,
                network_namespace: network_namespace().unwrap_or(0),
                is_tenant: self.options.tenant.is_some(),
            }),
            Request::Hosts | Request::Tenants | Request::Reload | Request::SetScheduler(_)
                if !sees_all =>
            {
                Response::Error("only root and the daemon's own user may do that".to_owned())
            }
            Request::Hosts => Response::Hosts(Box::new(self.show_hosts())),
            Request::Tenants => Response::Tenants(self.tenants.show()),
            Request::Reload => self.reload(),
            Request::SetScheduler(text) => self.set_scheduler(text.as_deref()),
            Request::Shutdown if sees_all => {
                self.ending = true;
                Response::Ended
            }
            Request::Shutdown => {
                Response::Error("only root and the daemon's own user may end it".to_owned())
            }
        };
        Answer::Now(response)
    }

    /// Root and the daemon's own user see everything.
    fn sees_only(&self, user: u32) -> Option<u32> {
        let own = rustix::process::geteuid().as_raw();
        (user != 0 && user != own).then_some(user)
    }

    /// Calls `at` with the state of programs, links and other hosts.
    pub(super) fn with_host<T>(&mut self, at: impl FnOnce(&Host<'_>, &mut Copies) -> T) -> T {
        let host = Host {
            core: &self.core,
            stacks: &self.stacks,
        };
        at(&host, &mut self.copies)
    }

    /// Continues one of the answers that take several turns, each in its turn.
    pub(super) fn work(&mut self) {
        while let Some(work) = self.works.pop_front() {
            let was_done = match work {
                Work::Command(number) => self.continue_command(number),
                Work::Metrics => self.continue_metrics(),
            };
            if was_done {
                return;
            }
        }
    }

    /// Returns whether there was anything to do.
    fn continue_command(&mut self, number: u32) -> bool {
        let Some(command) = self.commands.get(number) else {
            return false;
        };
        command.is_listed = false;
        let user = command.user;
        let Some((mut more, mut bytes)) = command.take_more() else {
            return false;
        };
        let turn = Turn::begin();
        let progress =
            self.with_host(|host, copies| more.run_turn(host, copies, &turn, &mut bytes));
        let more = match progress {
            Progress::Later => Some(more),
            Progress::Done => None,
            Progress::Summary(memory) => {
                let only = self.sees_only(user);
                let summary = self.summary(only, &memory);
                bytes.extend_from_slice(&fields_after_programs(&summary));
                None
            }
        };
        let Some(command) = self.commands.get(number) else {
            return true;
        };
        let step = command.put_back(more, bytes, Instant::now());
        self.on_step(number, step);
        true
    }

    /// The status of the daemon without the programs.
    pub(super) fn summary(&mut self, only: Option<u32>, memory: &Memory) -> Status {
        let core = &self.core;
        let locals = core.directory().locals();
        Status {
            version: self.options.version.clone(),
            process: std::process::id(),
            layout: LAYOUT_HASH,
            socket: self.options.socket.display().to_string(),
            uptime_seconds: self.started.elapsed().as_secs(),
            network_namespace: network_namespace().unwrap_or(0),
            programs: Vec::new(),
            listeners: core.listeners().len() as u64,
            links: core.links().len() as u64,
            local_addresses: locals
                .iter()
                .map(|address| {
                    let shown = shown_address(address);
                    shown.trim_end_matches(":0").to_owned()
                })
                .collect(),
            deposits: self.core.deposits_mut().len() as u64,
            faults: self.faults.total(),
            memory_bytes: memory.bytes,
            users: self.users(only, &memory.by_user),
            descriptor_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        }
    }
}

/// The fields of a status that follow its list of programs, and the end of the answer.
fn fields_after_programs(summary: &Status) -> Vec<u8> {
    let mut fields = match serde_json::to_value(summary) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    fields.remove("programs");
    let mut bytes = Vec::new();
    for (name, value) in fields {
        let field = format!(",{}:{value}", serde_json::Value::String(name));
        bytes.extend_from_slice(field.as_bytes());
    }
    bytes.extend_from_slice(b"}}\n");
    bytes
}
