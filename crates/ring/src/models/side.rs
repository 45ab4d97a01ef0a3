//! A client that looks whether the server has closed a slot, while the server takes up the next connection of it.

use crate::side;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const CLOSED: u32 = 1;

/// Guards: the generation before the flags, release in `begin`, acquire of the generation in `flags_of`.
#[test]
fn the_end_of_a_former_connection_is_not_that_of_the_next() {
    loom::model(|| {
        let words = Arc::new([AtomicU32::new(CLOSED), AtomicU32::new(1)]);
        let server = Arc::clone(&words);
        let server = thread::spawn(move || {
            let [flags, generation] = &*server;
            side::begin(flags, generation, 2);
        });
        let [flags, generation] = &*words;
        assert_eq!(side::flags_of(flags, generation, 2), 0);
        server.join().unwrap();
    });
}

/// Guards: release of the flags, acquire of the flags in `flags_of`.
#[test]
fn who_sees_an_end_sees_what_was_done_before() {
    loom::model(|| {
        let words = Arc::new([(); 3].map(|()| AtomicU32::new(0)));
        let server = Arc::clone(&words);
        let server = thread::spawn(move || {
            let [flags, generation, pool] = &*server;
            side::begin(flags, generation, 2);
            pool.store(1, Ordering::Relaxed);
            flags.fetch_or(CLOSED, Ordering::Release);
        });
        let [flags, generation, pool] = &*words;
        if side::flags_of(flags, generation, 2) == CLOSED {
            assert_eq!(pool.load(Ordering::Relaxed), 1);
        }
        server.join().unwrap();
    });
}
