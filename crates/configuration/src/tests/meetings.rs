//! `meets` of `[[tenants]]`: what is read, shown and compared, and each mistake.

use super::Place;
use crate::Met;

fn tenant(name: &str, address: &str, more: &str) -> String {
    format!("[[tenants]]\nname = \"{name}\"\naddresses = \"{address}\"\n{more}\n")
}

fn two(web: &str, db: &str) -> String {
    tenant("web", "10.88.0.2", web) + &tenant("db", "10.88.0.3", db)
}

#[test]
fn tables_that_name_each_other_are_read_shown_and_read_again() {
    let place = Place::new();
    let read = place
        .parse(&two("meets = [\"db\"]", "meets = \"web\""))
        .unwrap();
    let db = Met {
        name: "db".to_owned(),
        addresses: vec![[10, 88, 0, 3].into()],
    };
    let web = read.tenant("web").unwrap();
    assert_eq!(web.met_at([10, 88, 0, 3].into()), Some(&db));
    assert_eq!(
        web.met_at("::ffff:10.88.0.3".parse().unwrap()).unwrap(),
        &db
    );
    assert_eq!(web.met_at([10, 88, 0, 2].into()), None);
    assert!(read.tenant("db").unwrap().may_meet("web") && !web.may_meet("web"));
    let again = place.parse(&read.to_string()).unwrap();
    assert_eq!(again.tenants, read.tenants);
    let changes = |from: &str, to: &str| {
        let (from, to) = (place.parse(from).unwrap(), place.parse(to).unwrap());
        let changes = from.changes_to(&to);
        changes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        changes(&two("", ""), &two("meets = \"db\"", "meets = \"web\"")),
        ["tenant web has changed", "tenant db has changed"]
    );
}

#[test]
fn each_mistake_says_what_to_do() {
    let place = Place::new();
    let both = ("meets = \"db\"\n", "meets = \"web\"\n");
    let stacks = "[[stacks]]\nname = \"one\"\n[[stacks]]\nname = \"two\"\n";
    for (text, wanted) in [
        (
            two("meets = \"dc\"", ""),
            "there is no tenant dc: write the name of another one, or add its table",
        ),
        (
            two("meets = \"web\"", ""),
            "the programs of one tenant reach each other anyway: remove it",
        ),
        (
            two("meets = [\"db\", \"db\"]", both.1),
            "db is named twice: remove one",
        ),
        (
            two(both.0, ""),
            "tenant db does not name web in turn: add meets = [\"web\"] to its table, or remove it here",
        ),
        (
            two("", both.1),
            "tenant web does not name db in turn: add meets = [\"db\"]",
        ),
        (
            stacks.to_owned()
                + &two(
                    &format!("{}stack = \"one\"", both.0),
                    &format!("{}stack = \"two\"", both.1),
                ),
            "tenant web has the stack one and this one two: give both the same",
        ),
        (
            stacks.to_owned() + &two(both.0, &format!("{}stack = \"two\"", both.1)),
            "tenant web has the stack kernel and this one two",
        ),
        (
            tenant("web", "10.88.0.2", both.0) + &tenant("db", "10.88.0.2", both.1),
            "tenant web has the address 10.88.0.2, too: tenants that meet need different ones",
        ),
        (
            tenant("web", "10.88.0.2", "meets = [\"db\", \"dc\"]")
                + &tenant("db", "10.88.0.3", both.1)
                + &tenant("dc", "10.88.0.3", both.1),
            "tenants db and dc have the same address: give one of them another",
        ),
        (two("meets = 3", ""), "a text in quotes"),
    ] {
        let wrong = place.wrong(&text);
        assert!(wrong.contains(wanted), "{wanted}:\n{wrong}");
        assert!(wrong.ends_with("has 1 problem"), "{wrong}");
    }
    // Tenants that do not meet may have the same address.
    let twins = tenant("web", "10.88.0.2", "") + &tenant("db", "10.88.0.2", "");
    place.parse(&twins).unwrap();
}
