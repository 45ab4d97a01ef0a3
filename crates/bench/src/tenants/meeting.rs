//! Tenants that meet, and that trust each other: both ends are programs of tenants of one daemon, which has the processors of both hosts.

use super::served::serve;
use super::{ADDRESS, NAME, TenantsOptions};
use crate::case::Case;
use crate::ends::Ends;
use crate::error::BenchError;
use crate::experiment::builtin;
use crate::options::Transport;
use crate::plan::Run;
use crate::session::Session;
use netchannel_namespaces::{Host, Hosts};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// The tenant that it meets.
const MET: &str = "met";
/// The address of that.
const MET_ADDRESS: &str = "10.88.0.3";
/// The tenant that it trusts.
const TRUSTED: &str = "trusted";
/// The address of that.
const TRUSTED_ADDRESS: &str = "10.88.0.4";
/// A cap that is looked at, and never reached.
const MET_CAP: &str = "rate-in = \"400Gbit/s\"\n";

/// A daemon that serves both.
pub struct Meeting<'a> {
    /// Clients, servers of a tenant that they meet, servers of one that they trust.
    sessions: [Session<'a>; 3],
    address: IpAddr,
}

impl<'a> Meeting<'a> {
    /// `None` where it is not asked for.
    pub fn start(
        options: &'a TenantsOptions,
        hosts: &Hosts,
        directory: &Path,
    ) -> Result<Option<Self>, BenchError> {
        let mut experiments = options.experiments.iter();
        if !experiments.any(|one| one.is_between_tenants()) {
            return Ok(None);
        }
        let folder = directory.join("meet");
        fs::create_dir_all(&folder).map_err(BenchError::Directory)?;
        let table = |name: &str, address: &str, meets: &[&str], more: &str| {
            format!(
                "[[tenants]]\nname = \"{name}\"\naddresses = [\"{address}\"]\nmeets = {meets:?}\n{more}"
            )
        };
        let trusts = |name: &str| format!("trusts = [\"{name}\"]\n");
        let tables = "[host]\nname = \"a\"\n".to_owned()
            + &table(NAME, ADDRESS, &[MET, TRUSTED], &trusts(TRUSTED))
            + &table(MET, MET_ADDRESS, &[NAME], MET_CAP)
            + &table(TRUSTED, TRUSTED_ADDRESS, &[NAME], &trusts(NAME));
        let daemon = serve(&options.netchannel, None, &folder, &tables);
        let beside = |name: &str| match &daemon {
            Ok(daemon) => Ok(daemon.beside(name).uncounted()),
            Err(problem) => Err(problem.clone()),
        };
        let (met, trusted) = (beside(MET), beside(TRUSTED));
        let daemon = daemon.map(|daemon| daemon.of_tenant(NAME));
        let session = |host: &Host, netchannel| {
            Session::on(
                host,
                options.plan.seconds,
                &folder,
                &options.worker,
                netchannel,
            )
        };
        Ok(Some(Meeting {
            sessions: [
                session(&hosts.a, daemon),
                session(&hosts.b, met),
                session(&hosts.b, trusted),
            ],
            address: hosts.b.address(),
        }))
    }

    pub fn run(&self, cases: &[Case]) -> Run {
        let [client, met, trusted] = &self.sessions;
        let [met_address, trusted_address] =
            [MET_ADDRESS, TRUSTED_ADDRESS].map(|address| address.parse().unwrap_or(self.address));
        let mut all = Vec::new();
        for case in cases {
            let (server, address) = match case {
                Case::MeetDirectly | Case::ColocatedDirectly => (trusted, trusted_address),
                _ => (met, met_address),
            };
            let ends = Ends::of_tenants((server, client), self.address, address);
            match builtin::streams(&ends, Transport::Netchannel, *case) {
                Ok(figures) => all.extend(figures),
                Err(error) => return Run::from(Err(error)),
            }
        }
        Run::from(Ok(all))
    }
}
