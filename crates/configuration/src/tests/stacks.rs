//! `[[stacks]]`: what is read, shown and compared, and each mistake.

use super::Place;
use crate::{StackFairness, StackKind};

const EGRESS: &str = "[[stacks]]\nname = \"egress\"\n";
const WEB: &str = "[[tenants]]\nname = \"web\"\naddresses = \"10.88.0.2\"\nstack = \"egress\"\n";

fn egress(more: &str) -> String {
    format!("{EGRESS}{more}\n")
}

#[test]
fn a_table_is_read_shown_and_read_again() {
    let place = Place::new();
    let text = egress(
        "kind = \"kernel\"\nnamespace = \"wan\"\nuser = 1000\nprocessors = \"0-1,3\"\nmemory = \"256MiB\"\n\
         fairness = \"network\"\ncongestion-control = \"cubic\"",
    ) + WEB
        + "weight = 4\n";
    let read = place.parse(&text).unwrap();
    let stack = read.stack("egress").unwrap();
    assert_eq!(stack.namespace.as_deref(), Some("/run/netns/wan".as_ref()));
    assert_eq!(
        (stack.kind, stack.user, stack.starts),
        (StackKind::Kernel, Some(1000), true)
    );
    assert_eq!(stack.processors, [0, 1, 3]);
    assert_eq!(
        (stack.memory, stack.fairness),
        (Some(256 << 20), StackFairness::Network)
    );
    let tenant = read.tenant("web").unwrap();
    assert_eq!(
        (tenant.stack.as_deref(), tenant.weight),
        (Some("egress"), 4)
    );
    assert_eq!(tenant.congestion_control.as_deref(), Some("cubic"));
    let again = place.parse(&read.to_string()).unwrap();
    assert_eq!(
        (&again.stacks, &again.tenants),
        (&read.stacks, &read.tenants)
    );
    assert!(read.changes_to(&again).is_empty());
    let plain = place.parse(&(EGRESS.to_owned() + WEB)).unwrap();
    let changes: Vec<String> = plain
        .changes_to(&read)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        changes,
        ["tenant web has changed", "stack egress has changed"]
    );
}

#[test]
fn the_same_port_is_published_in_two_namespaces() {
    let place = Place::new();
    let publishes = "publish = \"8080:80\"\n";
    let other = WEB.replace("web", "db").replace("10.88.0.2", "10.88.0.3");
    let text = egress("namespace = \"wan\"") + WEB + publishes;
    let here = other.replace("stack = \"egress\"\n", "") + publishes;
    assert!(place.parse(&(text.clone() + &here)).is_ok());
    let wrong = place.wrong(&(text + &other + publishes));
    assert!(
        wrong.contains("tenant web publishes 0.0.0.0:8080 already"),
        "{wrong}"
    );
}

#[test]
fn each_mistake_is_told_with_what_to_do() {
    let place = Place::new();
    for (text, wanted) in [
        ("[[stacks]]\n".to_owned(), "a stack needs a name"),
        (format!("{EGRESS}{EGRESS}"), "another stack has this name"),
        (
            "[[stacks]]\nname = \"kernel\"\n".to_owned(),
            "is the stack within the daemon",
        ),
        (egress("kind = \"mtcp\""), "is not one of kernel"),
        (egress("start = \"soon\""), "is not one of daemon, manual"),
        (egress("namespace = \"a/b\""), "is no network namespace"),
        (egress("processors = \"3-1\""), "is no list of processors"),
        (egress("memory = \"1MiB\""), "is not 16MiB to"),
        (
            egress("fairness = \"all\""),
            "is not one of processor, network",
        ),
        (
            egress("start = \"manual\"\nmemory = \"64MiB\""),
            "is for whoever starts the stack to set",
        ),
        (WEB.to_owned(), "there is no stack egress"),
        (egress("") + WEB + "weight = 0\n", "0 is not 1 to 1000"),
    ] {
        let wrong = place.wrong(&text);
        assert!(wrong.contains(wanted), "{wanted}:\n{wrong}");
        assert!(wrong.ends_with("has 1 problem"), "{wrong}");
    }
}
