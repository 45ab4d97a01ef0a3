use super::*;

/// Two nodes of two groups of two physical cores with two threads each; numbered as Linux does, siblings far apart.
fn machine() -> Vec<Core> {
    (0..16)
        .map(|index| {
            let physical = index % 8;
            Core {
                id: CoreId(index),
                physical,
                group: physical / 2,
                node: physical / 4,
            }
        })
        .collect()
}

fn near(worker: u16, class: Class, cores: &[Core], occupied: &[Occupied]) -> Placed {
    let view = PlacementView {
        cores,
        occupied,
        device_node: None,
    };
    Near::default().place(WorkerId(worker), class, &view)
}

fn worker(core: u16, id: u16, class: Class) -> Occupied {
    (CoreId(core), Occupant::Worker(WorkerId(id), class))
}

fn program(core: u16, class: Class) -> Occupied {
    (CoreId(core), Occupant::Program(class))
}

/// Places workers one after the other.
fn place_all(policy: &mut dyn PlacementPolicy, cores: &[Core], classes: &[Class]) -> Vec<Occupied> {
    let mut occupied: Vec<Occupied> = Vec::new();
    for (id, class) in (0..).zip(classes) {
        let view = PlacementView {
            cores,
            occupied: &occupied,
            device_node: None,
        };
        let placed = policy.place(WorkerId(id), *class, &view);
        occupied.push(worker(placed.core.unwrap().0, id, *class));
    }
    occupied
}

const L: Class = Class::Latency;
const T: Class = Class::Throughput;

#[test]
fn a_latency_worker_has_a_core_of_its_own() {
    for policy in [
        &mut Near::default() as &mut dyn PlacementPolicy,
        &mut Spread::default(),
    ] {
        for classes in [[L, T, T, T, T], [T, T, T, T, L], [T, T, L, T, T]] {
            let placed = place_all(policy, &machine(), &classes);
            let mut physical: Vec<u16> = placed.iter().map(|(core, _)| core.0 % 8).collect();
            physical.sort_unstable();
            physical.dedup();
            assert_eq!(physical.len(), 5, "{placed:?}");
        }
    }
}

#[test]
fn classes_stay_apart_while_there_are_cores() {
    let cores = &machine()[..3];
    let placed = place_all(&mut Near::default(), cores, &[L, T, T, T, T, T, T]);
    assert!(
        placed[1..].iter().all(|(core, _)| *core != placed[0].0),
        "{placed:?}"
    );
}

#[test]
fn one_core_is_enough_to_run() {
    let cores = &machine()[..1];
    let placed = near(1, L, cores, &[worker(0, 0, T)]);
    assert_eq!(
        (placed.core, placed.reason),
        (Some(CoreId(0)), Reason::NoIsolation)
    );
    let placed = near(1, L, &[], &[]);
    assert_eq!((placed.core, placed.reason), (None, Reason::NotPinned));
}

#[test]
fn the_cores_of_programs_are_avoided() {
    let occupied: Vec<Occupied> = (0..5).map(|core| program(core, T)).collect();
    let placed = near(0, L, &machine()[..8], &occupied);
    assert_eq!(
        (placed.core, placed.reason),
        (Some(CoreId(5)), Reason::Free)
    );
    // All have programs: the one whose program it disturbs least.
    let mut occupied: Vec<Occupied> = (0..8).map(|core| program(core, T)).collect();
    occupied[6] = program(6, L);
    let placed = near(0, L, &machine()[..8], &occupied);
    assert_eq!(
        (placed.core, placed.reason),
        (Some(CoreId(6)), Reason::SharesCore)
    );
}

#[test]
fn workers_come_near_to_the_programs() {
    let placed = near(0, T, &machine(), &[program(6, T)]);
    assert_eq!(
        placed.core,
        Some(CoreId(7)),
        "the free core that shares its cache"
    );
}

#[test]
fn siblings_come_after_free_cores() {
    let occupied: Vec<Occupied> = (0..7).map(|id| worker(id, id, T)).collect();
    assert_eq!(near(9, L, &machine(), &occupied).core, Some(CoreId(7)));
    let occupied: Vec<Occupied> = (0..8).map(|id| worker(id, id, T)).collect();
    let placed = near(9, L, &machine(), &occupied);
    assert_eq!(placed.reason, Reason::SharesPhysicalCore);
}

#[test]
fn the_device_decides_where_nobody_else_does() {
    let cores = machine();
    let view = PlacementView {
        cores: &cores,
        occupied: &[],
        device_node: Some(1),
    };
    let placed = Near::default().place(WorkerId(0), T, &view);
    assert_eq!(placed.core, Some(CoreId(4)));
}

#[test]
fn a_worker_does_not_flee_from_itself() {
    let occupied = [worker(3, 0, L), program(2, T)];
    let again = near(0, L, &machine(), &occupied);
    assert_eq!(again, near(0, L, &machine(), &occupied[1..]));
}

#[test]
fn spread_uses_every_cache_before_any_twice() {
    let placed = place_all(&mut Spread::default(), &machine(), &[T; 4]);
    let mut groups: Vec<u16> = placed.iter().map(|(core, _)| core.0 % 8 / 2).collect();
    groups.sort_unstable();
    assert_eq!(groups, [0, 1, 2, 3]);
}

#[test]
fn latency_workers_are_urgent() {
    let urgency = Urgency {
        priority: 20,
        slice: 50_000,
    };
    let cores = machine();
    let view = PlacementView {
        cores: &cores,
        occupied: &[],
        device_node: None,
    };
    let placed = Anywhere::new(urgency).place(WorkerId(0), L, &view);
    assert_eq!(
        (placed.core, placed.nice, placed.slice),
        (None, -20, 50_000)
    );
    let placed = Anywhere::new(urgency).place(WorkerId(0), T, &view);
    assert_eq!((placed.nice, placed.slice), (0, 0));
}
