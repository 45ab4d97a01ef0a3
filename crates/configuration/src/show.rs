//! The configuration as TOML, with everything that is a default.

use core::fmt;
use core::time::Duration;

use netchannel_scheduler::registry::Unit;
use netchannel_scheduler::{Class, Rate};

use crate::stack::{StackTable, show_processors};
use crate::tenant::Tenant;
use crate::types::{Bounds, ChannelOptions, Configuration, Limits, Peer, PerClass, Times};

/// A text in quotes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            letter if letter.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(&item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

pub(crate) fn time(time: Duration) -> String {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Unit::Time.show(nanoseconds)
}

fn bytes(count: u32) -> String {
    quoted(&Unit::Bytes.show(u64::from(count)))
}

impl fmt::Display for Bounds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{{ least = {}, most = {} }}",
            self.least, self.most
        )
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "[[peers]]")?;
        writeln!(formatter, "name = {}", quoted(&self.name))?;
        writeln!(formatter, "addresses = {}", list(&self.addresses))?;
        writeln!(formatter, "prefixes = {}", list(&self.prefixes))?;
        let file = quoted(&self.key_file.to_string_lossy());
        writeln!(formatter, "key-file = {file}")?;
        let PerClass {
            latency,
            throughput,
        } = &self.channels;
        writeln!(
            formatter,
            "channels = {{ latency = {latency}, throughput = {throughput} }}"
        )
    }
}

impl fmt::Display for StackTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "[[stacks]]")?;
        writeln!(formatter, "name = {}", quoted(&self.name))?;
        writeln!(formatter, "kind = {}", quoted(self.kind.name()))?;
        let start = if self.starts { "daemon" } else { "manual" };
        writeln!(formatter, "start = {}", quoted(start))?;
        if let Some(namespace) = &self.namespace {
            writeln!(
                formatter,
                "namespace = {}",
                quoted(&namespace.to_string_lossy())
            )?;
        }
        if let Some(user) = self.user {
            writeln!(formatter, "user = {user}")?;
        }
        if !self.processors.is_empty() {
            let processors = show_processors(&self.processors);
            writeln!(formatter, "processors = {}", quoted(&processors))?;
        }
        if let Some(memory) = self.memory {
            writeln!(formatter, "memory = {memory}")?;
        }
        writeln!(formatter, "fairness = {}", quoted(self.fairness.name()))?;
        if let Some(name) = &self.congestion_control {
            writeln!(formatter, "congestion-control = {}", quoted(name))?;
        }
        Ok(())
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "[[tenants]]")?;
        writeln!(formatter, "name = {}", quoted(&self.name))?;
        if let Some(socket) = &self.socket {
            writeln!(formatter, "socket = {}", quoted(&socket.to_string_lossy()))?;
        }
        if let Some(user) = self.user {
            writeln!(formatter, "user = {user}")?;
        }
        writeln!(formatter, "mode = \"{:04o}\"", self.mode)?;
        writeln!(formatter, "addresses = {}", list(&self.addresses))?;
        writeln!(formatter, "reach = {}", list(&self.reach))?;
        writeln!(formatter, "publish = {}", list(&self.publish))?;
        if let Some(resolver) = &self.resolver {
            let resolver = quoted(&resolver.to_string());
            writeln!(formatter, "resolver = {resolver}")?;
        }
        if let Some(name) = &self.congestion_control {
            writeln!(formatter, "congestion-control = {}", quoted(name))?;
        }
        for (key, rate) in [("rate-in", self.rate_in), ("rate-out", self.rate_out)] {
            if let Some(rate) = rate {
                writeln!(formatter, "{key} = {}", quoted(&rate_text(rate)))?;
            }
        }
        writeln!(formatter, "connections = {}", self.connections)?;
        if let Some(stack) = &self.stack {
            writeln!(formatter, "stack = {}", quoted(stack))?;
        }
        writeln!(formatter, "weight = {}", self.weight)?;
        let met = self.meets.iter().map(|one| &one.name);
        writeln!(formatter, "meets = {}", list(&met.collect::<Vec<_>>()))?;
        writeln!(formatter, "trusts = {}", list(&self.trusts))?;
        let ways = self.destinations.iter().map(|one| {
            let prefix = quoted(&one.prefix.to_string());
            format!("{prefix} = {}", quoted(one.way.name()))
        });
        match ways.collect::<Vec<_>>().join(", ").as_str() {
            "" => Ok(()),
            ways => writeln!(formatter, "destinations = {{ {ways} }}"),
        }
    }
}

/// A rate as it may be written.
fn rate_text(rate: Rate) -> String {
    let show = |count| Unit::Bytes.show(count);
    format!("{}/s burst={}", show(rate.per_second()), show(rate.burst()))
}

impl fmt::Display for PerClass<ChannelOptions> {
    /// The lines of `[transport]` but for its name.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in Class::ALL {
            if self.get(class).congestion_control.is_none() {
                let name = netchannel_driver::default_congestion_control();
                writeln!(
                    formatter,
                    "# congestion-control of {class}: {name}, by this kernel"
                )?;
            }
        }
        let mut line = |key: &str, show: &dyn Fn(&ChannelOptions) -> Option<String>| {
            let both = [
                ("latency", show(&self.latency)),
                ("throughput", show(&self.throughput)),
            ];
            let said: Vec<String> = both
                .into_iter()
                .filter_map(|(class, value)| Some(format!("{class} = {}", value?)))
                .collect();
            if said.is_empty() {
                return Ok(());
            }
            writeln!(formatter, "{key} = {{ {} }}", said.join(", "))
        };
        line("congestion-control", &|options| {
            options.congestion_control.as_deref().map(quoted)
        })?;
        line("send-buffer", &|options| options.send_buffer.map(bytes))?;
        line("receive-buffer", &|options| {
            options.receive_buffer.map(bytes)
        })?;
        line("priority", &|options| {
            options.priority.map(|number| number.to_string())
        })?;
        line("dscp", &|options| {
            options.dscp.map(|number| number.to_string())
        })
    }
}

impl fmt::Display for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "[times]")?;
        for (key, value) in [
            ("dial", self.dial),
            ("handshake", self.handshake),
            ("silence", self.silence),
            ("retry-least", self.retry_least),
            ("retry-most", self.retry_most),
            ("unreachable", self.unreachable),
            ("connect", self.connect),
        ] {
            writeln!(formatter, "{key} = {}", quoted(&time(value)))?;
        }
        Ok(())
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "[limits]")?;
        writeln!(formatter, "sockets-per-peer = {}", self.sockets_per_peer)?;
        writeln!(
            formatter,
            "listeners-per-peer = {}",
            self.listeners_per_peer
        )?;
        writeln!(formatter, "half-open = {}", self.half_open)?;
        writeln!(formatter, "segment = {}", bytes(self.segment))?;
        match self.workers {
            // The number of processors decides, for which there is no value.
            0 => writeln!(
                formatter,
                "# workers: one for each processor that the daemon may use, 2 to 9"
            ),
            workers => writeln!(formatter, "workers = {workers}"),
        }
    }
}

impl fmt::Display for Configuration {
    /// A file with the same configuration that relies on no default.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "[host]")?;
        writeln!(formatter, "name = {}", quoted(&self.host.name))?;
        writeln!(formatter, "listen = {}", list(&self.host.listen))?;
        for peer in &self.peers {
            write!(formatter, "\n{peer}")?;
        }
        for tenant in &self.tenants {
            write!(formatter, "\n{tenant}")?;
        }
        for stack in &self.stacks {
            write!(formatter, "\n{stack}")?;
        }
        write!(formatter, "\n[scheduler]\n{}", self.scheduler)?;
        let name = quoted(&self.carrier);
        write!(
            formatter,
            "\n[transport]\nname = {name}\n{}",
            self.transport
        )?;
        write!(formatter, "\n{}", self.times)?;
        write!(formatter, "\n{}", self.limits)?;
        if let Some(metrics) = &self.metrics {
            let address = quoted(&metrics.to_string());
            write!(formatter, "\n[metrics]\nlisten = {address}\n")?;
        }
        Ok(())
    }
}
