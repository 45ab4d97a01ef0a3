//! Metrics of tenants.

use super::text::Kind::{self, Counter, Gauge};
use super::text::Text;
use netchannel_control::tenants::TenantView;

/// A metric of a tenant: its name, its type, its help and its value.
type Metric = (&'static str, Kind, &'static str, fn(&TenantView) -> u64);

const METRICS: [Metric; 15] = [
    (
        "netchannel_tenant_connections",
        Gauge,
        "Connections through the tenant's stack.",
        |tenant| tenant.connections,
    ),
    (
        "netchannel_tenant_dialed_total",
        Counter,
        "Connections that programs of the tenant made through its stack.",
        |tenant| tenant.dialed,
    ),
    (
        "netchannel_tenant_accepted_total",
        Counter,
        "Connections that came in at ports that the tenant publishes.",
        |tenant| tenant.accepted,
    ),
    (
        "netchannel_tenant_denied_total",
        Counter,
        "Connects to destinations that the tenant may not reach.",
        |tenant| tenant.denied,
    ),
    (
        "netchannel_tenant_over_limit_total",
        Counter,
        "Connects refused because the tenant had as many connections as it may.",
        |tenant| tenant.over_limit,
    ),
    (
        "netchannel_tenant_received_bytes_total",
        Counter,
        "Bytes from the network to the tenant.",
        |tenant| tenant.bytes_in,
    ),
    (
        "netchannel_tenant_sent_bytes_total",
        Counter,
        "Bytes from the tenant to the network.",
        |tenant| tenant.bytes_out,
    ),
    (
        "netchannel_tenant_turns_total",
        Counter,
        "Turns that the tenant's connections had at its stack.",
        |tenant| tenant.turns,
    ),
    (
        "netchannel_tenant_stack_nanoseconds_total",
        Counter,
        "Processor time of the stack on the tenant's behalf, in nanoseconds.",
        |tenant| tenant.processor_nanoseconds,
    ),
    (
        "netchannel_tenant_channels_connections",
        Gauge,
        "Of the tenant's connections, those over channels to other hosts.",
        |tenant| tenant.channels.connections,
    ),
    (
        "netchannel_tenant_channels_dialed_total",
        Counter,
        "Of the connections that programs of the tenant made, those over channels to other hosts.",
        |tenant| tenant.channels.dialed,
    ),
    (
        "netchannel_tenant_channels_accepted_total",
        Counter,
        "Of the connections that came in at published ports of the tenant, those over channels from other hosts.",
        |tenant| tenant.channels.accepted,
    ),
    (
        "netchannel_tenant_channels_fallbacks_total",
        Counter,
        "Connections that were to go over channels to other hosts, and went over kernel TCP.",
        |tenant| tenant.channels.fell_back,
    ),
    (
        "netchannel_tenant_channels_received_bytes_total",
        Counter,
        "Of the bytes to the tenant, those over channels to other hosts.",
        |tenant| tenant.channels.bytes_in,
    ),
    (
        "netchannel_tenant_channels_sent_bytes_total",
        Counter,
        "Of the bytes from the tenant, those over channels to other hosts.",
        |tenant| tenant.channels.bytes_out,
    ),
];

/// Writes what each tenant has moved.
pub fn tenants(text: &mut Text, tenants: &[TenantView]) {
    for (name, kind, help, value) in METRICS {
        let samples = tenants.iter();
        text.family(
            (name, kind, help),
            samples.map(|tenant| (vec![("tenant", tenant.name.as_str())], value(tenant))),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_a_sample_of_each_metric() {
        let tenant = |name: &str, denied| TenantView {
            name: name.to_owned(),
            denied,
            ..TenantView::default()
        };
        let mut text = Text::default();
        tenants(&mut text, &[tenant("web", 3), tenant("db", 0)]);
        let text = text.finish();
        assert!(
            text.contains("netchannel_tenant_denied_total{tenant=\"web\"} 3\n"),
            "{text}"
        );
        assert_eq!(text.matches("tenant=\"db\"").count(), METRICS.len());
        let mut none = Text::default();
        tenants(&mut none, &[]);
        assert_eq!(none.finish(), "");
    }
}
