use super::*;
use crate::channel::Choice;
use crate::copy::CopyParameters;
use crate::order::FairParameters;
use crate::scale::HysteresisParameters;
use crate::view::{ChannelView, SocketView};

const PAGE: &str = include_str!("../../../../docs/scheduling.md");

#[test]
fn every_policy_reads_prints_and_can_be_made() {
    let registry = Registry::builtin();
    let mut seen = Vec::new();
    for kind in Kind::ALL {
        for description in registry.of_kind(kind) {
            assert!(!seen.contains(&description.name), "names are unique");
            seen.push(description.name);
            let setting: Setting = description.name.parse().unwrap();
            assert_eq!(setting.kind(), kind);
            assert_eq!(setting.to_string().parse(), Ok(setting.clone()));
            let made = match kind {
                Kind::Channel => registry.channel(&setting).err(),
                Kind::Order => registry.order(&setting).err(),
                Kind::Scale => registry.scale(&setting).err(),
                Kind::Placement => registry.placement(&setting).err(),
                Kind::Copy => registry.copy(&setting).err(),
            };
            assert_eq!(made, None);
        }
    }
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let told = rows.filter(|row| {
        seen.iter()
            .any(|name| row.starts_with(&format!("| `{name}` |")))
    });
    assert_eq!(
        seen.len(),
        told.count(),
        "docs/scheduling.md: each policy has one row in the table of its kind: {seen:?}"
    );
}

#[test]
fn parameters_have_sane_bounds_and_take_them() {
    let registry = Registry::builtin();
    for description in Kind::ALL.iter().flat_map(|kind| registry.of_kind(*kind)) {
        for parameter in description.parameters {
            assert!((parameter.least..=parameter.most).contains(&parameter.default));
            for value in [parameter.least, parameter.most] {
                let shown = parameter.unit.show(value);
                assert_eq!(parameter.unit.parse(&shown), Some(value), "{shown}");
                let text = format!("{} {}={shown}", description.name, parameter.name);
                match registry.parse(&text) {
                    Ok(setting) => {
                        assert_eq!(setting.values().get(parameter.name), value, "{text}");
                    }
                    // The others are at their defaults, and these do not go together with all.
                    Err(error) => assert!(matches!(error, SettingError::Inconsistent { .. })),
                }
            }
        }
    }
}

#[test]
fn the_page_tells_of_every_policy_and_parameter() {
    let registry = Registry::builtin();
    for kind in Kind::ALL {
        assert!(PAGE.contains(&format!("`{kind}`")));
    }
    for description in Kind::ALL.iter().flat_map(|kind| registry.of_kind(*kind)) {
        assert!(
            PAGE.lines()
                .any(|line| line.starts_with(&format!("| `{}` |", description.name))),
            "docs/scheduling.md: the table of its kind has no row for `{}`",
            description.name
        );
        for parameter in description.parameters {
            let default = parameter.unit.show(parameter.default);
            let text = format!("`{}={default}`", parameter.name);
            assert!(
                PAGE.contains(&text),
                "docs/scheduling.md: the row of `{}` does not name {text}",
                description.name
            );
        }
    }
}

#[test]
fn defaults_are_those_of_the_policies() {
    let registry = Registry::builtin();
    let values = |name: &str| registry.parse(name).unwrap();
    assert_eq!(
        builtin::fair(
            &values("weighted-tenants").values(),
            FairParameters::default().shares
        ),
        FairParameters::default()
    );
    assert_eq!(
        builtin::hysteresis(&values("hysteresis").values()),
        HysteresisParameters::default()
    );
    assert_eq!(
        builtin::copy(
            &values("copy-least-loaded").values(),
            CopyParameters::default().pick
        ),
        CopyParameters::default()
    );
}

#[test]
fn values_are_read_as_people_write_them() {
    let value = |text: &str, name: &str| text.parse::<Setting>().unwrap().values().get(name);
    assert_eq!(value("round-robin threshold=2MB", "threshold"), 2 << 20);
    assert_eq!(
        value("round-robin:stay=6,threshold=640KB", "threshold"),
        655_360
    );
    assert_eq!(value("round-robin, stay=6", "stay"), 6);
    assert_eq!(value("hysteresis busy=90% idle=20", "busy"), 90);
    assert_eq!(value("hysteresis busy-for=1s", "busy-for"), 1_000_000_000);
    assert_eq!(value("hysteresis busy-for=0", "busy-for"), 0);
    assert_eq!(
        value("shortest-queue congested-last=off", "congested-last"),
        0
    );
}

#[test]
fn errors_list_what_there_is() {
    let error = |text: &str| text.parse::<Setting>().unwrap_err().to_string();
    let registry = Registry::builtin();
    let kinds = Kind::ALL.map(|kind| {
        let names: Vec<&str> = registry.of_kind(kind).map(|one| one.name).collect();
        format!("{kind}: {}", names.join(", "))
    });
    let known = kinds.join("; ");
    assert!(known.starts_with("channel: round-robin, shortest-queue, sticky, socket-hash"));
    assert_eq!(
        error("robin"),
        format!("there is no policy \"robin\"; there are {known}")
    );
    assert_eq!(
        error("sticky spil=1MB"),
        "sticky has no parameter \"spil\"; it has threshold, spill"
    );
    assert_eq!(
        error("copy-local x=1"),
        "copy-local has no parameters, not \"x\""
    );
    assert_eq!(
        error("round-robin stay=0"),
        "round-robin: stay=0 is not 1 to 1024"
    );
    assert_eq!(
        error("round-robin threshold=9TB"),
        "round-robin: threshold=9TB is not 4KiB to 1GiB"
    );
    assert_eq!(
        error("hysteresis pause=5"),
        "hysteresis: pause=5 is not 0ns to 600s"
    );
    assert_eq!(
        error("weighted-tenants classes=none"),
        "weighted-tenants: classes=none is not strict or equal"
    );
    assert_eq!(error("round-robin stay"), "\"stay\" is not parameter=value");
    assert_eq!(
        error("sticky spill=4MB"),
        "sticky: spill must not be above threshold"
    );
    assert_eq!(
        error("hysteresis least=5"),
        "hysteresis: least must not be above most"
    );
    assert_eq!(
        error("hysteresis latency-least=2"),
        "hysteresis: latency-least must not be above latency-most"
    );
    assert_eq!(
        error("hysteresis idle=90"),
        "hysteresis: idle must be below busy"
    );
    assert!(
        "hysteresis idle=90 busy=95 least=5 most=5"
            .parse::<Setting>()
            .is_ok()
    );
    assert_eq!(error("  "), "a policy is wanted");
    assert_eq!(
        error("round-robin threshold=99999999999999999999999GiB"),
        "round-robin: threshold=99999999999999999999999GiB is not 4KiB to 1GiB"
    );
}

#[test]
fn settings_hold_one_of_each_kind() {
    let registry = Registry::builtin();
    let mut settings = Settings::default();
    assert_eq!(settings.get(Kind::Channel).name(), "round-robin");
    settings.set("sticky".parse().unwrap());
    assert_eq!(settings.get(Kind::Channel).name(), "sticky");
    settings
        .set_entry(&registry, "scale", "fixed throughput=2")
        .unwrap();
    assert_eq!(settings.get(Kind::Scale).name(), "fixed");
    let error = |settings: &mut Settings, kind: &str, text: &str| {
        settings
            .set_entry(&registry, kind, text)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&mut settings, "order", "sticky"),
        "sticky is a policy for channel, and one for order is wanted"
    );
    assert_eq!(
        error(&mut settings, "colour", "sticky"),
        "there is no policy for \"colour\"; there are channel, order, scale, placement, copy"
    );
    assert!(
        settings
            .to_string()
            .starts_with("channel = \"sticky threshold=2MiB spill=512KiB\"\n")
    );
    assert!(settings.iter().map(Setting::kind).eq(Kind::ALL));
}

static MINE: Description = Description {
    name: "always-first",
    summary: "for this test",
    parameters: &[],
    check: independent,
};

struct AlwaysFirst;

impl ChannelPolicy for AlwaysFirst {
    fn choose(&mut self, _: &SocketView, _: u32, _: &[ChannelView], _: u64) -> Choice {
        Choice::Send(0)
    }
}

#[test]
fn a_program_adds_its_own() {
    let mut registry = Registry::builtin();
    let maker = Maker::Channel(|_| Box::new(AlwaysFirst));
    registry.add(&MINE, maker).unwrap();
    assert_eq!(
        registry.add(&MINE, maker),
        Err(SettingError::NameTaken("always-first".to_owned()))
    );
    let setting = registry.parse("always-first").unwrap();
    assert!(registry.channel(&setting).is_ok());
    assert!(registry.order(&setting).is_err(), "of another kind");
    assert!(
        Registry::builtin().channel(&setting).is_err(),
        "not known there"
    );
}
