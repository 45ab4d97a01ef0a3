//! A connection that is withdrawn while it is accepted, and the next one in its slot.

use crate::admission;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

/// Guards: the generation in the word, acquire and release in `decide`.
#[test]
fn each_connection_of_a_slot_goes_one_way() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        admission::wait(&word, 1);
        let servers = [1, 2].map(|generation| {
            let word = Arc::clone(&word);
            thread::spawn(move || admission::accept(&word, generation))
        });
        let withdrawn = admission::withdraw(&word, 1).then(|| {
            admission::wait(&word, 2);
            admission::withdraw(&word, 2)
        });
        let [first, second] = servers.map(|server| server.join().unwrap());
        assert_eq!(first, withdrawn.is_none());
        assert!(!second || withdrawn == Some(false));
        // A later accept finds the second connection, unless it was taken or withdrawn.
        assert!(withdrawn != Some(false) || second);
    });
}
