//! `[scheduler]`: a policy of each kind, by the scheduler's own registry.

use netchannel_scheduler::registry::Kind;
use netchannel_scheduler::{Registry, Settings};

use super::table::Section;

pub fn scheduler(root: &Section<'_>) -> Settings {
    let mut settings = Settings::default();
    let Some(section) = root.section("scheduler") else {
        return settings;
    };
    section.known(&Kind::ALL.map(Kind::name));
    let registry = Registry::builtin();
    for kind in Kind::ALL {
        let Some(text) = section.string(kind.name()) else {
            continue;
        };
        if let Err(error) = settings.set_entry(&registry, kind.name(), &text.value) {
            section.report(&text.span, kind.name(), error.to_string());
        }
    }
    settings
}
