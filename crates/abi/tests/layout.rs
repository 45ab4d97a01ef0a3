//! The layouts against the tables of `docs/shared-memory.md`, and the bytes that words become.
//!
//! Each table of the document stands under a heading that names a structure with its size and
//! alignment; each row begins with offset, size and field. A field that is not in the document, or
//! elsewhere than it says, fails.

use core::mem::{align_of, offset_of, size_of};

use netchannel_abi::address::{Address, SharedAddress};
use netchannel_abi::handle::Handle;
use netchannel_abi::link::{self, Geometry, Layout, Role};
use netchannel_abi::message::{Message, Operation};
use netchannel_abi::nqe::Nqe;
use netchannel_abi::{copying, directory, program};

const DOCUMENT: &str = include_str!("../../../docs/shared-memory.md");

/// The layout that the compiler chose.
struct Structure {
    name: &'static str,
    size: usize,
    align: usize,
    fields: Vec<(&'static str, usize, usize)>,
}

/// The size of the field that `_` gives a pointer to.
fn size_behind<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! structure {
    ($($module:ident)::+, $type:ident { $($field:ident),* $(,)? }) => {{
        use $($module)::+::$type as Type;
        Structure {
            name: stringify!($type),
            size: size_of::<Type>(),
            align: align_of::<Type>(),
            fields: vec![$((
                stringify!($field),
                offset_of!(Type, $field),
                size_behind(|whole: &Type| &whole.$field),
            )),*],
        }
    }};
}

/// All structures, in the order of the document; both headers are told apart by their order.
fn structures() -> Vec<Structure> {
    vec![
        structure!(
            link,
            Header {
                magic,
                version,
                slots,
                layout_hash,
                arena,
                link
            }
        ),
        structure!(
            link,
            QueueIndices {
                tail,
                head,
                asleep,
                departure,
                looked
            }
        ),
        structure!(
            netchannel_abi::nqe,
            Nqe {
                operation,
                flags,
                tenant,
                queue_set,
                handle,
                data,
                offset,
                length
            }
        ),
        structure!(
            link,
            Cell {
                asleep,
                summary,
                ready
            }
        ),
        structure!(
            link,
            Slot {
                client,
                server,
                meta
            }
        ),
        structure!(
            link,
            Side {
                tail,
                head,
                geometry,
                switch_sequence,
                flags,
                generation,
                tokens,
                error,
                held,
                urgent,
                waiter,
                hints,
                passed,
                wanted_ring,
                row,
                liveness,
                asked,
                congestion
            }
        ),
        structure!(netchannel_abi::answer, Answer { question, words }),
        structure!(
            link,
            Meta {
                client,
                server,
                generation,
                listener,
                anchor,
                queued
            }
        ),
        structure!(
            program,
            Header {
                magic,
                layout_hash,
                entries,
                high_water,
                free,
                connects,
                accepts,
                fallbacks,
                tokens,
                sleeps,
                faults,
                holders
            }
        ),
        structure!(
            program,
            SocketEntry {
                state,
                reason,
                references,
                status,
                descriptor,
                process,
                role,
                slot,
                link,
                generation,
                listener,
                local,
                peer,
                next_free,
                error,
                anchor_lock,
                low_water,
                receive_timeout,
                send_timeout,
                linger,
                flags,
                hints,
                peek_offset,
                urgent_sent,
                urgent_passed,
                urgent_taken,
                held,
                pump,
                waits_for_pump,
                caught_up,
                urgent_row,
                transmit,
                receive,
                options_lock,
                option_words,
                travels,
                life,
                options
            }
        ),
        structure!(
            program,
            Direction {
                lock,
                sleepers,
                own,
                noted,
                geometry,
                former_geometry,
                switch_sequence,
                limit,
                flags,
                news
            }
        ),
        structure!(program, Holder { process }),
        structure!(
            directory,
            Header {
                magic,
                sequence,
                locals,
                ended,
                networks,
                gateway,
                copying,
                local,
                network
            }
        ),
        structure!(
            copying,
            SharedRules {
                workers,
                least,
                local,
                part,
                threshold,
                in_flight_send,
                in_flight_receive
            }
        ),
        structure!(directory, Network { address, bits, up }),
        structure!(
            directory,
            Entry {
                listener,
                flags,
                address,
                program,
                queue_user,
                queue
            }
        ),
    ]
}

/// The tables of the document: heading, and the first three columns of each row.
fn tables() -> Vec<(&'static str, Vec<[&'static str; 3]>)> {
    let mut tables = Vec::new();
    for line in DOCUMENT.lines() {
        if let Some(heading) = line.strip_prefix("#### ") {
            tables.push((heading, Vec::new()));
        } else if let Some((_, rows)) = tables.last_mut()
            && line.starts_with("| ")
        {
            let mut cells = line.split('|').skip(1).map(str::trim);
            let mut cell = || cells.next().unwrap_or_default();
            let row = [cell(), cell(), cell()];
            if row[0].parse::<usize>().is_ok() && row[2].starts_with('`') {
                rows.push(row);
            }
        }
    }
    tables
}

#[test]
fn the_document_says_where_every_field_lies() {
    let tables = tables();
    let structures = structures();
    assert_eq!(tables.len(), structures.len());
    for (structure, (heading, rows)) in structures.iter().zip(&tables) {
        let name = structure.name;
        let wanted = format!(
            "`{name}`: {} bytes, aligned to {}",
            structure.size, structure.align
        );
        assert!(
            heading.ends_with(&wanted),
            "{heading:?} instead of {wanted:?}"
        );
        let documented: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        let laid_out: Vec<String> = structure
            .fields
            .iter()
            .map(|(field, offset, size)| format!("{offset} {size} `{field}`"))
            .collect();
        assert_eq!(documented, laid_out, "{heading}");
    }
}

#[test]
fn fields_fill_their_lines_without_overlap() {
    for structure in structures() {
        let mut end = 0;
        for (field, offset, size) in structure.fields {
            assert!(offset >= end, "{}.{field}", structure.name);
            end = offset + size;
        }
        assert!(end <= structure.size);
    }
}

#[test]
fn what_each_side_writes_shares_no_line() {
    let line = 64;
    assert_ne!(
        offset_of!(link::QueueIndices, tail) / line,
        offset_of!(link::QueueIndices, head) / line
    );
    assert!(offset_of!(link::Slot, server).is_multiple_of(2 * line));
    assert!(offset_of!(link::Slot, meta).is_multiple_of(2 * line));
    assert_ne!(
        offset_of!(link::Side, tail) / line,
        offset_of!(link::Side, waiter) / line
    );
    assert_ne!(
        offset_of!(link::Cell, asleep) / line,
        offset_of!(link::Cell, summary) / line
    );
    assert_ne!(
        offset_of!(link::Cell, summary) / line,
        offset_of!(link::Cell, ready) / line
    );
}

/// The offsets of the smallest link, as the document lists them.
#[test]
fn parts_of_a_link_lie_where_the_document_says() {
    let layout = Layout {
        slots: 1,
        arena: 1 << 22,
    };
    let parts = [
        layout.job_queue(),
        layout.cell(Role::Client, 0),
        layout.cell(Role::Server, 0),
        layout.slot(0),
    ];
    assert_eq!(parts, [4096, 40960, 106_496, 172_032]);
    for part in parts {
        assert!(DOCUMENT.contains(&format!("| {part} |")), "{part}");
    }
    assert_eq!(directory::ENTRIES_OFFSET, 10304);
    assert!(DOCUMENT.contains("| 10304 |"));
    assert_eq!(size_of::<SharedAddress>(), 24);
}

#[test]
fn golden_words() {
    let nqe = Nqe {
        operation: 1,
        flags: 2,
        tenant: 0x0403,
        queue_set: 0x0807_0605,
        handle: 0x100f_0e0d_0c0b_0a09,
        data: 0x1817_1615_1413_1211,
        offset: 0x1c1b_1a19,
        length: 0x201f_1e1d,
    };
    let bytes: Vec<u8> = nqe
        .to_words()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(bytes, (1..=32).collect::<Vec<u8>>());

    let handle = Handle {
        index: 0x0403_0201,
        generation: 0x0807_0605,
    };
    assert_eq!(handle.to_word().to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);

    let geometry = Geometry {
        offset: 0x0007_0605_0403_0201,
        log2: 22,
    };
    assert_eq!(geometry.to_word().to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 22]);

    let address = Address::v4([127, 0, 0, 1], 0x1f90);
    assert_eq!(address.to_words(), [0x1f90_0002, 0x7f00_0001_0000_0000, 0]);

    let message = Message::new(
        Operation::Listen,
        0x0d0c_0b0a,
        core::array::from_fn(|at| at as u64),
    );
    let bytes = message.to_bytes();
    assert_eq!(&bytes[..16], b"NCA1\x03\0\0\0\0\0\0\0\x0a\x0b\x0c\x0d");
    for (at, word) in bytes[16..].chunks(8).enumerate() {
        assert_eq!(word, (at as u64).to_le_bytes());
    }
}

#[test]
fn golden_magics() {
    assert_eq!(&link::MAGIC.to_le_bytes(), b"NCLINK01");
    assert_eq!(&program::MAGIC.to_le_bytes(), b"NCPROGR1");
    assert_eq!(&directory::MAGIC.to_le_bytes(), b"NCDIREC1");
}
