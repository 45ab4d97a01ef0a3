//! `trusts` of `[[tenants]]`: what is read and shown, and each mistake.

use super::Place;

const WEB: &str = "meets = \"db\"\n";
const DB: &str = "meets = \"web\"\n";

fn two(web: &str, db: &str) -> String {
    let table = |name, address, more| {
        format!("[[tenants]]\nname = \"{name}\"\naddresses = \"{address}\"\n{more}\n")
    };
    table("web", "10.88.0.2", web) + &table("db", "10.88.0.3", db)
}

fn trusting(web: &str, db: &str) -> String {
    two(
        &format!("{WEB}trusts = [\"db\"]\n{web}"),
        &format!("{DB}trusts = \"web\"\n{db}"),
    )
}

#[test]
fn tables_that_trust_each_other_are_read_shown_and_read_again() {
    let place = Place::new();
    let read = place.parse(&trusting("", "")).unwrap();
    let [web, db] = ["web", "db"].map(|name| read.tenant(name).unwrap());
    assert!(web.does_trust("db") && db.does_trust("web") && !web.does_trust("web"));
    let again = place.parse(&read.to_string()).unwrap();
    assert_eq!(again.tenants, read.tenants);
    let met = place.parse(&two(WEB, DB)).unwrap();
    assert!(met.tenants.iter().all(|one| one.trusts.is_empty()));
    let same = place.parse(&trusting("user = 7", "user = 7")).unwrap();
    assert!(same.tenant("web").unwrap().does_trust("db"));
}

#[test]
fn each_mistake_says_what_to_do() {
    let place = Place::new();
    let twice = format!("{WEB}trusts = [\"db\", \"db\"]");
    let back = format!("{DB}trusts = \"web\"");
    for (text, wanted) in [
        (two(&twice, &back), "db is named twice: remove one"),
        (
            two("trusts = \"db\"", ""),
            "this tenant does not meet db: add meets = [\"db\"], or remove it here",
        ),
        (
            two(WEB, &back),
            "tenant web does not trust db in turn: add trusts = [\"db\"] to its table, or remove it here",
        ),
        (
            trusting("rate-out = \"1Gbit/s\"", ""),
            "so rate-out would not hold: remove one of the two",
        ),
        (
            trusting("", "rate-in = \"1Gbit/s\""),
            "so rate-in would not hold",
        ),
        (
            trusting("", "connections = 7"),
            "so connections would not hold",
        ),
        (
            trusting("user = 7", "user = 8"),
            "tenant web is of another user, and programs of two users share no memory",
        ),
        (two(&format!("{WEB}trusts = 3"), DB), "a text in quotes"),
    ] {
        let wrong = place.wrong(&text);
        assert!(wrong.contains(wanted), "{wanted}:\n{wrong}");
        assert!(wrong.ends_with("has 1 problem"), "{wrong}");
    }
}
