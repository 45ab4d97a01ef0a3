//! Every structure against its model, with arbitrary operations from arbitrary start indices.

mod model;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn queue(data in vec(any::<u8>(), 0..400)) {
        model::queue::run(&data);
    }

    #[test]
    fn bytes(data in vec(any::<u8>(), 0..400)) {
        model::bytes::run(&data);
    }

    #[test]
    fn cell(data in vec(any::<u8>(), 0..400)) {
        model::cell::run(&data);
    }
}
