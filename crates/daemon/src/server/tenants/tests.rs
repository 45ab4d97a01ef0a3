//! Tenants that come, change and go, without programs.

use super::*;
use netchannel_configuration::Met;

fn tenant() -> Tenant {
    Tenant::new("web", vec![[10, 88, 0, 2].into()])
}

fn tenants(place: &Path) -> Tenants {
    Tenants {
        daemon_socket: place.join("nc.sock"),
        limits: Limits::default(),
        version: "test".to_owned(),
        stacks: Stacks::new(&place.join("nc.sock"), None).unwrap(),
        files: Files::new(None, place),
        crossing: None,
        served: Vec::new(),
    }
}

#[test]
fn tenants_come_change_and_go() {
    let place = tempfile::tempdir().unwrap();
    let mut tenants = tenants(place.path());
    let nothing = Vec::<String>::new();
    assert_eq!(tenants.configure(&[tenant()], &[], &[]), nothing);
    let socket = place.path().join("tenants/web/nc.sock");
    assert!(socket.exists());
    let mut changed = tenant();
    changed.reach = vec!["10.0.0.0/8".parse().unwrap()];
    assert_eq!(tenants.configure(&[changed.clone()], &[], &[]), nothing);
    let shown = tenants.show();
    assert_eq!(
        (shown.len(), &shown[0].reach[..]),
        (1, &["10.0.0.0/8".to_owned()][..])
    );
    changed.addresses = vec![[10, 88, 0, 3].into()];
    assert_eq!(tenants.configure(&[changed], &[], &[]), nothing);
    assert_eq!(tenants.show()[0].addresses, ["10.88.0.3"]);
    assert_eq!(tenants.configure(&[], &[], &[]), nothing);
    assert!(!socket.exists() && tenants.show().is_empty());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn tenants_that_meet_have_one_stack_and_others_their_own() {
    let place = tempfile::tempdir().unwrap();
    let mut tenants = tenants(place.path());
    let table = |name: &str, last: u8, meets: &[&str]| {
        let met = |name: &&str| Met {
            name: (*name).to_owned(),
            addresses: Vec::new(),
        };
        Tenant {
            meets: meets.iter().map(met).collect(),
            ..Tenant::new(name, vec![[10, 88, 0, last].into()])
        }
    };
    let mut stacks = |tables: [Tenant; 3]| {
        assert_eq!(tenants.configure(&tables, &[], &[]), Vec::<String>::new());
        let own = tenants
            .served
            .iter()
            .map(|one| Arc::as_ptr(one.own_in_use().unwrap()));
        let own: Vec<_> = own.collect();
        [own[0] == own[1], own[1] == own[2], own[0] == own[2]]
    };
    let alone = || [table("a", 1, &[]), table("b", 2, &[]), table("c", 3, &[])];
    let all = || {
        [
            table("a", 1, &["b"]),
            table("b", 2, &["a", "c"]),
            table("c", 3, &["b"]),
        ]
    };
    let two = [
        table("a", 1, &[]),
        table("b", 2, &["c"]),
        table("c", 3, &["b"]),
    ];
    assert_eq!(stacks(alone()), [false; 3]);
    assert_eq!(stacks(all()), [true; 3]);
    assert_eq!(stacks(all()), [true; 3]);
    assert_eq!(stacks(two), [false, true, false]);
    assert_eq!(stacks(alone()), [false; 3]);
}

#[test]
fn what_can_not_be_done_is_told_and_the_rest_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let mut tenants = tenants(place.path());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut web = tenant();
    web.publish = vec![format!("127.0.0.1:{port}:80").parse().unwrap()];
    let mut other = tenant();
    other.name = "other".to_owned();
    other.socket = Some("/proc/no/such.sock".into());
    let problems = tenants.configure(&[other, web], &[], &[]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("tenant other is not served: "),
        "{problems:?}"
    );
    assert!(
        problems[1].contains("another program has the port"),
        "{problems:?}"
    );
    assert_eq!(tenants.show().len(), 1);
}
