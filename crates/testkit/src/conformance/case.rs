//! The type of a case, and the macro with which a file lists its cases.

/// A named case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, unique.
    pub name: &'static str,
    /// Returns if the case passes. Panics or exits if it does not.
    pub run: fn(),
}

/// Makes the list of a file's cases. A case under `families` takes a `Family` and is named with `_v4` and `_v6`. A case
/// under `places` also takes a `Place`, and runs with two processes and with two threads.
macro_rules! cases {
    (
        $(plain: [$($plain:ident),* $(,)?];)?
        $(families: [$($family:ident),* $(,)?];)?
        $(places: [$($place:ident),* $(,)?];)?
    ) => {
        /// The cases of this file.
        pub const CASES: &[$crate::case::Case] = &[
            $($($crate::case::Case { name: stringify!($plain), run: $plain },)*)?
            $($(
                $crate::case::Case {
                    name: concat!(stringify!($family), "_v4"),
                    run: || $family(netchannel_testkit::support::Family::V4),
                },
                $crate::case::Case {
                    name: concat!(stringify!($family), "_v6"),
                    run: || $family(netchannel_testkit::support::Family::V6),
                },
            )*)?
            $($(
                $crate::case::Case {
                    name: concat!(stringify!($place), "_v4_processes"),
                    run: || $place(
                        netchannel_testkit::support::Family::V4,
                        netchannel_testkit::support::Place::Processes,
                    ),
                },
                $crate::case::Case {
                    name: concat!(stringify!($place), "_v4_threads"),
                    run: || $place(
                        netchannel_testkit::support::Family::V4,
                        netchannel_testkit::support::Place::Threads,
                    ),
                },
                $crate::case::Case {
                    name: concat!(stringify!($place), "_v6_processes"),
                    run: || $place(
                        netchannel_testkit::support::Family::V6,
                        netchannel_testkit::support::Place::Processes,
                    ),
                },
                $crate::case::Case {
                    name: concat!(stringify!($place), "_v6_threads"),
                    run: || $place(
                        netchannel_testkit::support::Family::V6,
                        netchannel_testkit::support::Place::Threads,
                    ),
                },
            )*)?
        ];
    };
}
pub(crate) use cases;
