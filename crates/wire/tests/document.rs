//! The tables of `docs/wire-format.md` against what the crate encodes.
//!
//! Each table that is compared stands under a heading of four `#`. Its rows must be all there is, in
//! that order, and there must be no table that is not compared.

use netchannel_wire::kind::{Kind, Payload};
use netchannel_wire::layout::{self, Field};
use netchannel_wire::{
    Class, GoAwayReason, HEADER, LEAST_PAYLOAD, MOST_ADDRESSES, MOST_CONTROL_PAYLOAD,
    MOST_FIXED_FRAME, MOST_PAYLOAD, Parser, Refusal, ResetReason, VERSION,
};

const DOCUMENT: &str = include_str!("../../../docs/wire-format.md");

/// The cells of the rows that begin with a number, under each heading of four `#`.
fn tables() -> Vec<(&'static str, Vec<Vec<&'static str>>)> {
    let mut tables: Vec<(&str, Vec<Vec<&str>>)> = Vec::new();
    let mut within = false;
    for line in DOCUMENT.lines() {
        if let Some(heading) = line.strip_prefix("#### ") {
            tables.push((heading, Vec::new()));
            within = true;
        } else if line.starts_with('#') {
            within = false;
        } else if let Some((_, rows)) = tables.last_mut().filter(|_| within)
            && let Some(row) = line.strip_prefix("| ")
        {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            if cells[0].parse::<u64>().is_ok() {
                rows.push(cells);
            }
        }
    }
    tables
}

/// What must stand in the first columns of a table.
fn expected() -> Vec<(String, Vec<Vec<String>>)> {
    let mut all = Vec::new();
    let mut fields = |name: &str, size: usize, fields: &[Field]| {
        let row = |(field, offset, size): &Field| {
            let name = format!("`{}`", field.to_lowercase());
            vec![offset.to_string(), size.to_string(), name]
        };
        let heading = format!("{name}: {size} bytes");
        all.push((heading, fields.iter().map(row).collect::<Vec<_>>()));
    };
    fields("header", HEADER, layout::header::FIELDS);
    fields("address", layout::address::SIZE, layout::address::FIELDS);
    for (kind, table) in [
        (Kind::Hello, layout::hello::FIELDS),
        (Kind::HelloAnswer, layout::hello_answer::FIELDS),
        (Kind::HelloProof, layout::hello_proof::FIELDS),
        (Kind::GoAway, layout::goaway::FIELDS),
        (Kind::NcSyn, layout::ncsyn::FIELDS),
        (Kind::NcSynAck, layout::ncsyn_ack::FIELDS),
        (Kind::NcRst, layout::ncrst::FIELDS),
        (Kind::Window, layout::window::FIELDS),
        (Kind::Rst, layout::rst::FIELDS),
        (Kind::Urgent, layout::urgent::FIELDS),
        (Kind::Listen, layout::listen::FIELDS),
        (Kind::Unlisten, layout::unlisten::FIELDS),
        (Kind::ListenEnd, layout::listen_end::FIELDS),
    ] {
        let Payload::Exactly(size) = kind.rules().payload else {
            panic!("{kind} has no fields");
        };
        fields(kind.name(), size, table);
    }
    all.push(("limits".to_owned(), limits()));
    let code = |code: u32, name: String, text: &str| {
        vec![code.to_string(), format!("`{name}`"), text.to_owned()]
    };
    let classes = Class::ALL.iter().map(|it| {
        let mut row = code(u32::from(it.code()), format!("{it:?}"), "");
        row.pop();
        row
    });
    all.push(("class".to_owned(), classes.collect()));
    let refusals = Refusal::ALL.iter();
    all.push((
        "reasons of NCRST".to_owned(),
        refusals
            .map(|it| code(it.code(), format!("{it:?}"), it.text()))
            .collect(),
    ));
    let resets = ResetReason::ALL.iter();
    all.push((
        "reasons of RST".to_owned(),
        resets
            .map(|it| code(it.code(), format!("{it:?}"), it.text()))
            .collect(),
    ));
    let ends = GoAwayReason::ALL.iter();
    all.push((
        "reasons of GOAWAY".to_owned(),
        ends.map(|it| code(it.code(), format!("{it:?}"), it.text()))
            .collect(),
    ));
    all
}

fn limits() -> Vec<Vec<String>> {
    let size = |value: u32| usize::try_from(value).unwrap();
    let rows = [
        (size(VERSION), "VERSION"),
        (HEADER, "HEADER"),
        (size(MOST_PAYLOAD), "MOST_PAYLOAD"),
        (size(LEAST_PAYLOAD), "LEAST_PAYLOAD"),
        (MOST_ADDRESSES, "MOST_ADDRESSES"),
        (MOST_CONTROL_PAYLOAD, "MOST_CONTROL_PAYLOAD"),
        (MOST_FIXED_FRAME, "MOST_FIXED_FRAME"),
        (Parser::LEAST_BUFFER, "LEAST_BUFFER"),
    ];
    rows.into_iter()
        .map(|(value, name)| vec![value.to_string(), format!("`{name}`")])
        .collect()
}

#[test]
fn tables_say_what_is_encoded() {
    let expected = expected();
    let tables = tables();
    for (heading, rows) in &expected {
        let Some((_, documented)) = tables.iter().find(|(found, _)| found == heading) else {
            panic!("no table {heading:?} in the document");
        };
        let columns = rows[0].len();
        let documented: Vec<_> = documented.iter().map(|row| &row[..columns]).collect();
        assert_eq!(documented, *rows, "{heading}");
    }
    // And the table of kinds, which has a test of its own.
    assert_eq!(tables.len(), expected.len() + 1);
}

#[test]
fn kinds_use_what_the_document_says() {
    let tables = tables();
    let (_, rows) = tables.iter().find(|(found, _)| *found == "kinds").unwrap();
    assert_eq!(rows.len(), Kind::ALL.len());
    for (row, kind) in rows.iter().zip(Kind::ALL) {
        let rules = kind.rules();
        let payload = match rules.payload {
            Payload::Exactly(size) => size.to_string(),
            Payload::List { size } => format!("list of {size}"),
            Payload::Stream => "stream".to_owned(),
        };
        let flags = rules.flags.to_string();
        assert_eq!(row[0], (*kind as u8).to_string(), "{kind}");
        assert_eq!(row[1], format!("`{kind}`"));
        assert_eq!(!row[2].is_empty(), rules.handle, "{kind}");
        assert_eq!(!row[3].is_empty(), rules.sequence, "{kind}");
        assert_eq!(row[4..6], [flags, payload], "{kind}");
    }
}
