//! The number of channels to a peer: its section, within the policy for all.

use netchannel_scheduler::registry::Kind;
use netchannel_scheduler::{Class, Setting, Settings};

use crate::types::{AskedBounds, Bounds, Configuration, MOST_CHANNELS, PerClass};

/// Parameters of `hysteresis` that bound a class.
const fn parameters(class: Class) -> [&'static str; 2] {
    match class {
        Class::Latency => ["latency-least", "latency-most"],
        Class::Throughput => ["least", "most"],
    }
}

/// The parameter of `fixed` for a class.
const fn parameter(class: Class) -> &'static str {
    match class {
        Class::Latency => "latency",
        Class::Throughput => "throughput",
    }
}

/// The bounds of each class, and the policy within them; or which class contradicts the policy, and how.
pub(crate) fn of_peer(
    scheduler: &Settings,
    asked: &PerClass<AskedBounds>,
) -> Result<(PerClass<Bounds>, Setting), (Class, String)> {
    let mut setting = scheduler.get(Kind::Scale).clone();
    let mut bounds = PerClass {
        latency: Bounds { least: 1, most: 1 },
        throughput: Bounds { least: 1, most: 1 },
    };
    for class in Class::ALL {
        let (found, assignments) = of_class(&setting, class, asked.get(class));
        if found.least > found.most {
            let (said, other) = match asked.get(class).least {
                Some(least) => (format!("least = {least}"), format!("most = {}", found.most)),
                None => (
                    format!("most = {}", found.most),
                    format!("least = {}", found.least),
                ),
            };
            let sentence = format!(
                "{said} contradicts {other} of scheduler.scale ({}): set both here",
                setting.name()
            );
            return Err((class, sentence));
        }
        for assignment in assignments {
            let set = setting.set(&assignment);
            set.map_err(|error| (class, error.to_string()))?;
        }
        *bounds.get_mut(class) = found;
    }
    Ok((bounds, setting))
}

fn of_class(setting: &Setting, class: Class, asked: &AskedBounds) -> (Bounds, Vec<String>) {
    let values = setting.values();
    match setting.name() {
        "hysteresis" => {
            let [least_name, most_name] = parameters(class);
            let least = asked.least.unwrap_or_else(|| values.get_u16(least_name));
            let most = asked.most.unwrap_or_else(|| values.get_u16(most_name));
            let assignments = vec![
                format!("{least_name}={least}"),
                format!("{most_name}={most}"),
            ];
            (Bounds { least, most }, assignments)
        }
        "fixed" => {
            let name = parameter(class);
            let wanted = values.get_u16(name);
            let bounds = Bounds {
                least: asked.least.unwrap_or(1),
                most: asked.most.unwrap_or(MOST_CHANNELS),
            };
            let count = wanted.clamp(bounds.least, bounds.most);
            let bounds = Bounds {
                least: count,
                most: count,
            };
            (bounds, vec![format!("{name}={count}")])
        }
        _ => {
            let bounds = Bounds {
                least: asked.least.unwrap_or(1),
                most: asked.most.unwrap_or(MOST_CHANNELS),
            };
            (bounds, Vec::new())
        }
    }
}

impl Configuration {
    /// A copy with another policy in the place of the one of its kind.
    ///
    /// # Errors
    /// A sentence: the policy contradicts a peer's section.
    pub fn with_policy(&self, setting: Setting) -> Result<Self, String> {
        let mut changed = self.clone();
        changed.scheduler.set(setting);
        for peer in &mut changed.peers {
            let made = of_peer(&changed.scheduler, &peer.asked);
            let (channels, scale) = made.map_err(|(class, sentence)| {
                format!("peers.{}.channels.{class}: {sentence}", peer.name)
            })?;
            peer.channels = channels;
            peer.scale = scale;
        }
        Ok(changed)
    }
}
