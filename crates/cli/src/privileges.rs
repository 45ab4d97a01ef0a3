//! The capabilities of the daemon: only those that it uses. The others are dropped before there is a second thread,
//! because capabilities belong to threads, and new threads inherit them.

use netchannel_configuration::Configuration;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// The capabilities that are always kept, if present. The same list is in `dist/netchannel.service` and
/// docs/operating.md.
const USED: [(CapabilitySet, &str); 3] = [
    // `/proc/PROCESS/ns/net` of other users' programs: whether they have the addresses of this host.
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
    // A configured port below 1024, for peers or metrics, also after the configuration is read again.
    (CapabilitySet::NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
    // Niceness of workers below 0 (`latency-priority`).
    (CapabilitySet::SYS_NICE, "CAP_SYS_NICE"),
];
/// Sockets of tenants and stacks belong to the users that their tables name.
const OWNING: (CapabilitySet, &str) = (CapabilitySet::CHOWN, "CAP_CHOWN");
/// A congestion control that the kernel does not allow to everybody.
const RESTRICTED: (CapabilitySet, &str) = (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN");
const ALLOWED_CONTROLS: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// More than the number of capabilities.
const MOST: u32 = 64;

/// Drops all capabilities that this daemon does not use. A failure is reported and ends nothing.
pub fn reduce(configuration: Option<&Configuration>) {
    let control = configuration.and_then(restricted_control);
    let mut wanted = USED.to_vec();
    wanted.extend(control.map(|_| RESTRICTED));
    let owns = configuration.is_some_and(|configuration| {
        let mut tenants = configuration.tenants.iter();
        let mut stacks = configuration.stacks.iter();
        tenants.any(|one| one.user.is_some()) || stacks.any(|one| one.user.is_some())
    });
    wanted.extend(owns.then_some(OWNING));
    match keep(&wanted) {
        Ok(kept) if kept.is_empty() => {}
        Ok(kept) => tracing::info!("keeps {} of its capabilities", kept.join(", ")),
        Err(error) => tracing::warn!("capabilities cannot be given up ({error})"),
    }
    if let Err(error) = set_no_new_privs(true) {
        tracing::warn!("no_new_privs cannot be set ({error})");
    }
    let is_missing = || capabilities(None).is_ok_and(|now| !now.effective.contains(RESTRICTED.0));
    if let Some(control) = control.filter(|_| is_missing()) {
        tracing::warn!(
            "the congestion control {control} needs {}, which this daemon was not given: \
             `sysctl -w net.ipv4.tcp_allowed_congestion_control='... {control}'` allows it to everybody",
            RESTRICTED.1
        );
    }
}

/// Drops all capabilities that a stack process does not use.
pub fn reduce_stack() {
    let wanted = [USED[1], RESTRICTED];
    if let Err(error) = keep(&wanted).and_then(|_| set_no_new_privs(true)) {
        tracing::warn!("capabilities cannot be given up ({error})");
    }
}

/// Keeps what is wanted and permitted, in no case more. Returns the names.
fn keep(wanted: &[(CapabilitySet, &'static str)]) -> Result<Vec<&'static str>, Errno> {
    let now = capabilities(None)?;
    let all = wanted
        .iter()
        .fold(CapabilitySet::empty(), |set, one| set | one.0);
    for bit in 0..MOST {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel ends the list with an error.
        if !capability_is_in_bounding_set(one).unwrap_or(false) || all.contains(one) {
            continue;
        }
        // Without CAP_SETPCAP, as in a container, the bound stays; nothing that is executed can gain by it.
        let _ = remove_capability_from_bounding_set(one);
    }
    // An older kernel has none.
    let _ = clear_ambient_capability_set();
    let kept = CapabilitySet::from_bits_retain(now.permitted.bits() & all.bits());
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    let names = wanted.iter().filter(|one| kept.contains(one.0));
    Ok(names.map(|one| one.1).collect())
}

/// A congestion control that is configured and not allowed to everybody.
fn restricted_control(configuration: &Configuration) -> Option<&str> {
    let allowed = std::fs::read_to_string(ALLOWED_CONTROLS).unwrap_or_default();
    let transport = &configuration.transport;
    let tenants = configuration.tenants.iter();
    let tenants = tenants.filter_map(|tenant| tenant.congestion_control.as_deref());
    [&transport.latency, &transport.throughput]
        .into_iter()
        .filter_map(|options| options.congestion_control.as_deref())
        .chain(tenants)
        .find(|control| !allowed.split_whitespace().any(|name| name == *control))
}
