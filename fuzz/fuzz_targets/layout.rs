//! Rings that a peer names: what is accepted lies where only that peer writes.
#![no_main]

use netchannel_abi::link::{Geometry, Layout, MOST_RING_LOG2, Role, SMALL_RING};

libfuzzer_sys::fuzz_target!(|input: (u16, u8, u16, bool, u64, u16)| {
    let (slots, arenas, slot, client, word, near) = input;
    let layout = Layout {
        slots: usize::from(slots),
        arena: usize::from(arenas) << MOST_RING_LOG2,
    };
    if !layout.is_valid() {
        return;
    }
    let slot = usize::from(slot) % layout.slots;
    let producer = if client { Role::Client } else { Role::Server };
    check(layout, producer, slot, Geometry::from_word(word));
    // The same close to the edges of what may be accepted.
    let small = layout.small_ring(producer, slot).offset;
    let start = layout.arena_start(producer) as u64;
    for base in [small, start, start + layout.arena as u64] {
        for step in 0..=24 {
            let offset = (base + (u64::from(near) << step)).wrapping_sub(1 << (step + 3));
            let log2 = u32::from(word.to_le_bytes()[7]);
            check(layout, producer, slot, Geometry { offset, log2 });
        }
    }
});

fn check(layout: Layout, producer: Role, slot: usize, geometry: Geometry) {
    assert_eq!(Geometry::from_word(geometry.to_word()).log2, geometry.log2);
    if !layout.accepts(producer, slot, geometry) {
        return;
    }
    let end = geometry
        .offset
        .checked_add(geometry.size())
        .expect("no overflow");
    assert!(end <= layout.size() as u64);
    let within = |start: u64, length: u64| start <= geometry.offset && end <= start + length;
    let own_small = within(layout.small_ring(producer, slot).offset, SMALL_RING as u64);
    let own_arena = within(layout.arena_start(producer) as u64, layout.arena as u64);
    assert!(own_small || own_arena);
    assert!(!layout.accepts(producer.other(), slot, geometry));
}
