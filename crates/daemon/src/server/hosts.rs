//! Other hosts, as far as the daemon's loop is concerned: views and the configuration.

use super::Daemon;
use crate::configured::{Configured, refusal, scheduler};
use crate::copying;
use crate::threads;
use netchannel_configuration::Change;
use netchannel_control::configuration::{Problem, Reload};
use netchannel_control::hosts::{Hosts, Policy, SchedulerView};
use netchannel_control::types::Response;
use netchannel_scheduler::registry::Kind;
use netchannel_scheduler::{Registry, Settings};

impl Daemon {
    /// The view of other hosts; empty without a configuration.
    pub(super) fn show_hosts(&mut self) -> Hosts {
        let mut hosts = Hosts {
            taken_nanoseconds: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            ..Hosts::default()
        };
        if let Some(configured) = &self.configured {
            configured.show(&mut hosts);
        }
        for stack in &self.stacks {
            stack.show(&mut hosts);
        }
        threads::show(&mut hosts);
        hosts.sort();
        hosts
    }

    /// Reads the configuration again, and reports the result.
    pub(super) fn reload(&mut self) -> Response {
        let Some(configured) = &self.configured else {
            return Response::Error(refusal());
        };
        let mut report = Reload {
            file: configured.current().file.display().to_string(),
            ..Reload::default()
        };
        match configured.read_again() {
            Ok((read, changes)) => match self.serve_metrics(read.current().metrics) {
                Ok(()) => {
                    report.warnings = self.configure(read, &changes);
                    report.changes = changes.iter().map(ToString::to_string).collect();
                }
                Err(sentence) => report.problems.push(Problem {
                    line: 0,
                    column: 0,
                    key: "metrics.listen".to_owned(),
                    sentence,
                }),
            },
            Err(problems) => report.problems = problems.problems,
        }
        let [taken, refused] = &mut self.reloads;
        let count = if report.problems.is_empty() {
            taken
        } else {
            refused
        };
        *count += 1;
        Response::Reloaded(report)
    }

    /// Reads the configuration again on SIGHUP, and writes the report into the log.
    pub(super) fn reload_on_signal(&mut self) {
        let Response::Reloaded(report) = self.reload() else {
            return;
        };
        let Reload {
            file,
            problems,
            changes,
            warnings,
        } = report;
        if problems.is_empty() {
            let count = changes.len();
            tracing::info!("{file} was read again, {count} things have changed");
        } else {
            tracing::error!("{file} has mistakes, and nothing has changed");
        }
        for problem in problems {
            tracing::error!("{}", problem.shown(&file));
        }
        for change in changes {
            tracing::info!("{change}");
        }
        for warning in warnings {
            tracing::warn!("{warning}");
        }
    }

    /// Sets a policy in the place of the one of its kind, or returns the present policies.
    pub(super) fn set_scheduler(&mut self, text: Option<&str>) -> Response {
        let Some(configured) = &self.configured else {
            return self.set_copying(text);
        };
        let Some(text) = text else {
            return Response::Scheduler(scheduler(configured));
        };
        match configured.with_policy(text) {
            Ok(changed) => {
                let shown = scheduler(&changed);
                let changes = configured.current().changes_to(changed.current());
                for warning in self.configure(changed, &changes) {
                    tracing::warn!("{warning}");
                }
                tracing::info!("policy set: {text}");
                Response::Scheduler(shown)
            }
            Err(sentence) => Response::Error(sentence),
        }
    }

    /// Without a configuration only the copy policy is used, by programs of this host.
    fn set_copying(&mut self, text: Option<&str>) -> Response {
        if let Some(text) = text {
            match Registry::builtin().parse(text) {
                Ok(setting) if setting.kind() == Kind::Copy => {
                    self.unconfigured.set(setting);
                    self.publish_copy_rules();
                    tracing::info!("policy set: {text}");
                }
                Ok(_) => return Response::Error(refusal()),
                Err(error) => return Response::Error(error.to_string()),
            }
        }
        let setting = self.unconfigured.get(Kind::Copy);
        Response::Scheduler(SchedulerView {
            policies: vec![Policy {
                kind: Kind::Copy.name().to_owned(),
                setting: setting.to_string(),
                set: setting != Settings::default().get(Kind::Copy),
            }],
            ..SchedulerView::default()
        })
    }

    /// Applies a configuration. Returns a sentence for each setting that can not be applied.
    fn configure(&mut self, configured: Configured, changes: &[Change]) -> Vec<String> {
        let mut warnings = Vec::new();
        if !changes.is_empty() {
            let current = configured.current();
            for stack in &mut self.stacks {
                warnings.extend(stack.configure(current));
            }
            warnings.extend(self.tenants.configure(
                &current.tenants,
                &current.stacks,
                &current.peers,
            ));
        }
        self.configured = Some(configured);
        self.publish_copy_rules();
        warnings
    }

    /// Publishes the copy policy for programs: the default where there is no configuration.
    pub(super) fn publish_copy_rules(&mut self) {
        let rules = match &self.configured {
            Some(configured) => copying::rules(&configured.current().scheduler),
            None => copying::rules(&self.unconfigured),
        };
        self.core.directory_mut().set_copying(&rules);
    }
}
