//! The table of a tenant, and where it leaves its host, as messages have them.

use netchannel_configuration::{Destination, Met, Prefix, Publish, Tenant};
use netchannel_scheduler::Rate;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// What a stack has to know of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantTable {
    name: String,
    addresses: Vec<IpAddr>,
    reach: Vec<String>,
    publish: Vec<String>,
    resolver: Option<SocketAddr>,
    congestion_control: Option<String>,
    rate_in: Option<(u64, u64)>,
    rate_out: Option<(u64, u64)>,
    connections: u32,
    weight: u16,
    /// Names and addresses of tenants that it may meet.
    meets: Vec<(String, Vec<IpAddr>)>,
    /// Prefixes, the ways to them, and the peers there.
    destinations: Vec<(IpAddr, u8, String, Option<String>)>,
}

impl From<&Tenant> for TenantTable {
    fn from(tenant: &Tenant) -> Self {
        let rate = |rate: Option<Rate>| rate.map(|rate| (rate.per_second(), rate.burst()));
        Self {
            name: tenant.name.clone(),
            addresses: tenant.addresses.clone(),
            reach: tenant.reach.iter().map(ToString::to_string).collect(),
            publish: tenant.publish.iter().map(Publish::to_string).collect(),
            resolver: tenant.resolver,
            congestion_control: tenant.congestion_control.clone(),
            rate_in: rate(tenant.rate_in),
            rate_out: rate(tenant.rate_out),
            connections: tenant.connections,
            weight: tenant.weight,
            meets: tenant
                .meets
                .iter()
                .map(|one| (one.name.clone(), one.addresses.clone()))
                .collect(),
            destinations: tenant
                .destinations
                .iter()
                .map(|one| {
                    let prefix = (one.prefix.address(), one.prefix.length());
                    let way = one.way.name().to_owned();
                    (prefix.0, prefix.1, way, one.peer.clone())
                })
                .collect(),
        }
    }
}

impl TenantTable {
    /// The tenant. `None` where an entry can not be read, which CoreEngine never sends.
    #[must_use]
    pub fn into_tenant(self) -> Option<Tenant> {
        let rate = |rate: Option<(u64, u64)>| rate.map(|(rate, burst)| Rate::new(rate, burst));
        Some(Tenant {
            reach: all(&self.reach)?,
            publish: all(&self.publish)?,
            resolver: self.resolver,
            congestion_control: self.congestion_control,
            rate_in: rate(self.rate_in),
            rate_out: rate(self.rate_out),
            connections: self.connections,
            weight: self.weight,
            meets: self
                .meets
                .into_iter()
                .map(|(name, addresses)| Met { name, addresses })
                .collect(),
            destinations: self
                .destinations
                .into_iter()
                .map(|(address, length, way, peer)| {
                    Some(Destination {
                        prefix: Prefix::of_any(address, length).ok()?,
                        way: way.parse().ok()?,
                        peer,
                    })
                })
                .collect::<Option<_>>()?,
            ..Tenant::new(&self.name, self.addresses)
        })
    }
}

fn all<T: FromStr>(texts: &[String]) -> Option<Vec<T>> {
    texts.iter().map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchannel_configuration::Way;

    #[test]
    fn a_tenant_is_the_same_on_the_other_side() {
        let tenant = Tenant {
            reach: vec![
                "10.0.0.0/8:80-90".parse().unwrap(),
                "[fd00::]/8".parse().unwrap(),
            ],
            publish: vec!["127.0.0.1:8080:80".parse().unwrap()],
            resolver: Some("10.0.0.53:53".parse().unwrap()),
            congestion_control: Some("cubic".to_owned()),
            rate_in: Some(Rate::new(1000, 77)),
            connections: 12,
            weight: 3,
            meets: vec![Met {
                name: "db".to_owned(),
                addresses: vec![[10, 88, 0, 3].into()],
            }],
            destinations: vec![
                Destination {
                    prefix: "10.0.0.2/32".parse().unwrap(),
                    way: Way::Channels,
                    peer: Some("beta".to_owned()),
                },
                Destination {
                    prefix: "0.0.0.0/0".parse().unwrap(),
                    way: Way::None,
                    peer: None,
                },
            ],
            ..Tenant::new("web", vec![[10, 88, 0, 2].into()])
        };
        let table = TenantTable::from(&tenant);
        let text = serde_json::to_string(&table).unwrap();
        let read: TenantTable = serde_json::from_str(&text).unwrap();
        assert_eq!(read.into_tenant(), Some(tenant));
        let mut broken = table;
        broken.reach.push("everywhere".to_owned());
        assert_eq!(broken.into_tenant(), None);
    }
}
