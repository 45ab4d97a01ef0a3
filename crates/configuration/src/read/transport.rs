//! `[transport]` and `[times]`.

use core::ops::RangeInclusive;
use core::time::Duration;

use netchannel_driver::TRANSPORTS;
use netchannel_scheduler::Class;
use netchannel_scheduler::registry::Unit;
use netchannel_scheduler::time::{MILLISECOND, SECOND};

use super::table::{Item, Section};
use crate::types::{ChannelOptions, PerClass, Times};

/// Keys of `[transport]`.
const TRANSPORT: [&str; 6] = [
    "name",
    "congestion-control",
    "send-buffer",
    "receive-buffer",
    "priority",
    "dscp",
];
/// The keys of a value that is given for each class.
pub const CLASSES: [&str; 2] = ["latency", "throughput"];
/// Keys of `[times]`.
const TIMES: [&str; 7] = [
    "dial",
    "handshake",
    "silence",
    "retry-least",
    "retry-most",
    "unreachable",
    "connect",
];

/// Reads a value that is one for both classes, or a table with one for each.
fn per_class<T>(
    section: &Section<'_>,
    key: &str,
    read: impl Fn(&Section<'_>, &str) -> Option<T>,
    mut set: impl FnMut(Class, T),
) {
    if section.is_section(key) {
        if let Some(table) = section.section(key) {
            table.known(&CLASSES);
            for (class, name) in Class::ALL.into_iter().zip(CLASSES) {
                if let Some(value) = read(&table, name) {
                    set(class, value);
                }
            }
        }
    } else if section.has(key) {
        for class in Class::ALL {
            // The second time what is wrong is known.
            match read(section, key) {
                Some(value) => set(class, value),
                None => return,
            }
        }
    }
}

/// The transport of channels.
pub fn carrier(root: &Section<'_>) -> String {
    let names = TRANSPORTS.iter().map(|(name, _)| *name);
    let default = names.clone().next().unwrap_or_default().to_owned();
    let Some(section) = root.section("transport") else {
        return default;
    };
    let Some(said) = section.string("name") else {
        return default;
    };
    if names.clone().any(|name| name == said.value) {
        return said.value;
    }
    let (text, names) = (&said.value, names.collect::<Vec<_>>().join(", "));
    let sentence = format!("there is no transport {text:?}: write one of {names}");
    section.report(&said.span, "name", sentence);
    default
}

/// Why this kernel does not have a congestion control, if it does not.
pub type Refusal<'a> = &'a dyn Fn(&str) -> Option<String>;

pub fn transport(root: &Section<'_>, refusal: Refusal<'_>) -> PerClass<ChannelOptions> {
    let mut options = PerClass::<ChannelOptions>::default();
    // Only within the host: the queue of its network device.
    options.latency.priority = Some(6);
    let Some(section) = root.section("transport") else {
        return options;
    };
    section.known(&TRANSPORT);
    let algorithm = |section: &Section<'_>, key: &str| algorithm(section, key, refusal);
    per_class(&section, "congestion-control", algorithm, |class, name| {
        options.get_mut(class).congestion_control = Some(name);
    });
    per_class(&section, "send-buffer", buffer, |class, bytes| {
        options.get_mut(class).send_buffer = Some(bytes);
    });
    per_class(&section, "receive-buffer", buffer, |class, bytes| {
        options.get_mut(class).receive_buffer = Some(bytes);
    });
    let small = |bounds: RangeInclusive<u64>| {
        move |section: &Section<'_>, key: &str| {
            let item = section.count(key, bounds.clone())?;
            u8::try_from(item.value).ok()
        }
    };
    per_class(&section, "priority", small(0..=6), |class, priority| {
        options.get_mut(class).priority = Some(priority);
    });
    per_class(&section, "dscp", small(0..=63), |class, dscp| {
        options.get_mut(class).dscp = Some(dscp);
    });
    options
}

/// The one congestion control of a table.
pub fn congestion_control(section: &Section<'_>, refusal: Refusal<'_>) -> Option<String> {
    algorithm(section, "congestion-control", refusal)
}

fn algorithm(section: &Section<'_>, key: &str, refusal: Refusal<'_>) -> Option<String> {
    let name = section.string(key)?;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    // TCP_CA_NAME_MAX of the kernel, with the zero at the end.
    if (1..16).contains(&name.value.len()) && name.value.bytes().all(letter) {
        let Some(sentence) = refusal(&name.value) else {
            return Some(name.value);
        };
        section.report(&name.span, key, sentence);
        return None;
    }
    let text = name.value;
    section.report(
        &name.span,
        key,
        format!(
            "{text:?} is not a name of a congestion control: write one of those in \
             /proc/sys/net/ipv4/tcp_available_congestion_control"
        ),
    );
    None
}

fn buffer(section: &Section<'_>, key: &str) -> Option<u32> {
    let bytes = section.quantity(key, Unit::Bytes, 4 << 10..=1 << 30)?;
    u32::try_from(bytes.value).ok()
}

pub fn times(root: &Section<'_>) -> Times {
    let mut times = Times::default();
    let Some(section) = root.section("times") else {
        return times;
    };
    section.known(&TIMES);
    let read = |key: &str, least: u64, most: u64| section.quantity(key, Unit::Time, least..=most);
    let set = |time: &mut Duration, item: &Option<Item<u64>>| {
        if let Some(item) = item {
            *time = Duration::from_nanos(item.value);
        }
    };
    let (minute, hour) = (60 * SECOND, 3600 * SECOND);
    let (tenth, hundredth) = (100 * MILLISECOND, 10 * MILLISECOND);
    set(&mut times.dial, &read("dial", hundredth, 5 * minute));
    set(
        &mut times.handshake,
        &read("handshake", hundredth, 5 * minute),
    );
    set(&mut times.silence, &read("silence", tenth, hour));
    set(
        &mut times.unreachable,
        &read("unreachable", tenth, 24 * hour),
    );
    set(&mut times.connect, &read("connect", tenth, hour));
    let least = read("retry-least", MILLISECOND, hour);
    let most = read("retry-most", MILLISECOND, hour);
    set(&mut times.retry_least, &least);
    set(&mut times.retry_most, &most);
    if times.retry_least > times.retry_most
        && let Some(item) = least.or(most)
    {
        let show = |time: Duration| Unit::Time.show(u64::try_from(time.as_nanos()).unwrap_or(0));
        section.report(
            &item.span,
            "retry-least",
            format!(
                "{} is more than retry-most = {}: exchange them",
                show(times.retry_least),
                show(times.retry_most)
            ),
        );
    }
    times
}
