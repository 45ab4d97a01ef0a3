//! `[[tenants]]`.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use netchannel_scheduler::Rate;

use super::destinations::{self, Surroundings};
use super::host::is_name;
use super::meetings::{self, Wanted};
use super::path_from;
use super::table::{Item, Section};
use super::transport::{Refusal, congestion_control};
use super::trust;
use crate::stack::StackTable;
use crate::tenant::{MOST_WEIGHT, Publish, Reach, TENANT_CONNECTIONS, Tenant};
use crate::types::Host;

/// Keys of a tenant.
const TENANT: [&str; 17] = [
    "name",
    "socket",
    "user",
    "mode",
    "addresses",
    "reach",
    "publish",
    "resolver",
    "congestion-control",
    "rate-in",
    "rate-out",
    "connections",
    "stack",
    "weight",
    "meets",
    trust::KEY,
    destinations::KEY,
];
/// A socket is opened by writing to it: the other bits of a mode have no effect.
const MODES: [&str; 3] = ["0600", "0660", "0666"];
/// The kernel has no user of the highest number.
const MOST_USER: u64 = 4_294_967_294;
/// The port of DNS.
const DNS: u16 = 53;

pub fn tenants(
    root: &Section<'_>,
    around: Surroundings<'_>,
    metrics: Option<SocketAddr>,
    (file, refusal): (&Path, Refusal<'_>),
) -> Vec<Tenant> {
    let Surroundings { host, stacks, .. } = around;
    let mut tenants: Vec<Tenant> = Vec::new();
    let mut wanted = Vec::new();
    for section in root.sections("tenants") {
        let name = section.string("name");
        if name.is_none() && !section.has("name") {
            let sentence = "a tenant needs a name: add name = \"...\"";
            section.report(section.span(), "", sentence);
        }
        let name = name.filter(|name| is_name(&section, name));
        let section = match &name {
            Some(name) => section.named(format!("tenants.{}", name.value)),
            None => section,
        };
        section.known(&TENANT);
        if let Some(name) = &name
            && tenants.iter().any(|other| other.name == name.value)
        {
            let sentence = "another tenant has this name: write another one";
            section.report(&name.span, "name", sentence);
        }
        let addresses = addresses(&section);
        let stack = stack(&section, stacks);
        let others = Others {
            tenants: &tenants,
            stacks,
            namespace: namespace_of(stacks, stack.as_deref()),
            host,
            metrics,
        };
        let tenant = Tenant {
            name: name.map(|name| name.value).unwrap_or_default(),
            socket: socket(&section, file, &tenants),
            user: section
                .count("user", 0..=MOST_USER)
                .and_then(|item| u32::try_from(item.value).ok()),
            mode: mode(&section),
            reach: parsed(&section, "reach", Reach::from_str),
            publish: publish(&section, &addresses, &others),
            addresses,
            resolver: resolver(&section),
            congestion_control: congestion_control(&section, refusal).or_else(|| {
                let stack = stacks
                    .iter()
                    .find(|one| Some(&one.name) == stack.as_ref())?;
                stack.congestion_control.clone()
            }),
            rate_in: rate(&section, "rate-in"),
            rate_out: rate(&section, "rate-out"),
            connections: section
                .count("connections", 1..=1 << 20)
                .map_or(TENANT_CONNECTIONS, |item| {
                    u32::try_from(item.value).unwrap_or(u32::MAX)
                }),
            weight: section
                .count("weight", 1..=u64::from(MOST_WEIGHT))
                .map_or(1, |item| u16::try_from(item.value).unwrap_or(MOST_WEIGHT)),
            stack,
            meets: Vec::new(),
            trusts: Vec::new(),
            destinations: Vec::new(),
        };
        tenants.push(tenant);
        wanted.push(Wanted {
            names: section.strings("meets"),
            section,
        });
    }
    let tenants = meetings::meet(tenants, &wanted);
    let sections: Vec<Section<'_>> = wanted.into_iter().map(|one| one.section).collect();
    let tenants = trust::trust(tenants, &sections);
    destinations::lead(tenants, &sections, around)
}

fn socket(section: &Section<'_>, file: &Path, others: &[Tenant]) -> Option<std::path::PathBuf> {
    let item = section.string("socket")?;
    let path = super::absolute(&path_from(file, &item.value));
    if let Some(other) = others.iter().find(|one| one.socket.as_ref() == Some(&path)) {
        let sentence = format!("tenant {} has this socket: write another path", other.name);
        section.report(&item.span, "socket", sentence);
    }
    Some(path)
}

fn mode(section: &Section<'_>) -> u32 {
    let Some(item) = section.string("mode") else {
        return 0o600;
    };
    if !MODES.contains(&item.value.as_str()) {
        let text = &item.value;
        let sentence = format!(
            "{text:?} is not one of {}: write one of these",
            MODES.join(", ")
        );
        section.report(&item.span, "mode", sentence);
    }
    u32::from_str_radix(&item.value, 8).unwrap_or(0o600)
}

/// Each entry of a list, or its mistake.
fn parsed<T, E: std::fmt::Display>(
    section: &Section<'_>,
    key: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Vec<T> {
    let items = section.strings(key).into_iter();
    items
        .filter_map(|item| {
            let parsed = parse(&item.value);
            if let Err(error) = &parsed {
                section.report(&item.span, key, format!("{:?} {error}", item.value));
            }
            parsed.ok()
        })
        .collect()
}

fn addresses(section: &Section<'_>) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for item in section.strings("addresses") {
        let text = &item.value;
        let problem = match text.parse::<IpAddr>() {
            Err(_) => format!("{text:?} is not an address: write one like 10.88.0.2 or fd00:88::2"),
            Ok(address)
                if address.is_loopback() || address.is_multicast() || address.is_unspecified() =>
            {
                format!("{text:?} is no address that a host has: write one like 10.88.0.2")
            }
            Ok(address) if found.iter().any(|one| one.is_ipv4() == address.is_ipv4()) => {
                "a tenant has one address of each family: remove the others".to_owned()
            }
            Ok(address) => {
                found.push(address);
                continue;
            }
        };
        section.report(&item.span, "addresses", problem);
    }
    if !section.has("addresses") || section.is_empty_list("addresses") {
        let sentence = "its programs need an address: add addresses = [\"10.88.0.2\"]";
        section.report(section.span(), "addresses", sentence);
    }
    found
}

/// The stack that serves a tenant; `None` for one of its own within the daemon.
fn stack(section: &Section<'_>, stacks: &[StackTable]) -> Option<String> {
    let item = section.string("stack")?;
    let text = item.value;
    if text == "kernel" {
        return None;
    }
    if !stacks.iter().any(|stack| stack.name == text) {
        let sentence = format!("there is no stack {text}: add a table [[stacks]] with this name");
        section.report(&item.span, "stack", sentence);
    }
    Some(text)
}

/// What a published port may be in the way of.
struct Others<'a> {
    tenants: &'a [Tenant],
    stacks: &'a [StackTable],
    /// The network namespace of the tenant's stack.
    namespace: Option<&'a Path>,
    host: &'a Host,
    metrics: Option<SocketAddr>,
}

/// The network namespace of a stack; `None` for the daemon's.
fn namespace_of<'a>(stacks: &'a [StackTable], name: Option<&str>) -> Option<&'a Path> {
    let stack = stacks.iter().find(|one| Some(one.name.as_str()) == name)?;
    stack.namespace.as_deref()
}

fn publish(section: &Section<'_>, addresses: &[IpAddr], others: &Others<'_>) -> Vec<Publish> {
    let mut found: Vec<Publish> = Vec::new();
    for item in section.strings("publish") {
        let text = &item.value;
        let Ok(one) = text.parse::<Publish>() else {
            let sentence = format!(
                "{text:?} is no port to publish: write the host's address and port and the tenant's port, like 0.0.0.0:8080:80"
            );
            section.report(&item.span, "publish", sentence);
            continue;
        };
        if let Some(problem) = conflict(one, &found, addresses, others) {
            section.report(&item.span, "publish", problem);
            continue;
        }
        found.push(one);
    }
    found
}

/// Why a port can not be published.
fn conflict(
    one: Publish,
    found: &[Publish],
    addresses: &[IpAddr],
    others: &Others<'_>,
) -> Option<String> {
    let own = one.host;
    let family = if own.is_ipv4() { "IPv4" } else { "IPv6" };
    if !addresses.is_empty() && !addresses.iter().any(|one| one.is_ipv4() == own.is_ipv4()) {
        return Some(format!(
            "{own} is of {family}, and the tenant has no address of that family: add one to addresses"
        ));
    }
    if found.iter().any(|other| one.meets(other.host)) {
        return Some(format!("{own} is published twice: remove one"));
    }
    // Ports of another network namespace are other ports.
    let mut tenants = others
        .tenants
        .iter()
        .filter(|tenant| namespace_of(others.stacks, tenant.stack.as_deref()) == others.namespace);
    let other = tenants.find(|tenant| tenant.publish.iter().any(|other| one.meets(other.host)));
    if let Some(other) = other {
        let name = &other.name;
        return Some(format!(
            "tenant {name} publishes {own} already: write another port"
        ));
    }
    if others.namespace.is_some() {
        return None;
    }
    if others.host.listen.iter().any(|listen| one.meets(*listen)) {
        return Some(format!(
            "{own} is where other hosts dial (host.listen): write another port"
        ));
    }
    others
        .metrics
        .filter(|metrics| one.meets(*metrics))
        .map(|_| format!("metrics are served at {own}: write another port"))
}

fn resolver(section: &Section<'_>) -> Option<SocketAddr> {
    let item = section.string("resolver")?;
    let text = &item.value;
    let with_port = text.parse::<SocketAddr>();
    let address = with_port.or_else(|_| text.parse().map(|ip: IpAddr| (ip, DNS).into()));
    let problem = match address {
        Err(_) => format!(
            "{text:?} is not an address: write that of a DNS server, like 10.0.0.53 or [fd00::53]:53"
        ),
        Ok(address) if address.ip().is_unspecified() || address.ip().is_multicast() => {
            format!("{text:?} is no address that a server has: write one like 10.0.0.53")
        }
        Ok(address) if address.port() == 0 => {
            format!("{text:?} has no port: leave it out for port {DNS}")
        }
        Ok(address) => return Some(address),
    };
    section.report(&item.span, "resolver", problem);
    None
}

fn rate(section: &Section<'_>, key: &str) -> Option<Rate> {
    let item: Item<String> = section.string(key)?;
    match Rate::parse_bytes(&item.value) {
        Ok(rate) => Some(rate),
        Err(error) => {
            section.report(&item.span, key, error.to_string());
            None
        }
    }
}
