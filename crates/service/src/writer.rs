//! Where writing into this end's transmit ring has come to.

use netchannel_abi::link::Geometry;

/// Where writing has come to. Private: never read back from shared memory.
#[derive(Debug)]
pub(super) struct Writer {
    /// Sequence up to which bytes were published.
    pub tail: u64,
    /// Highest sequence up to which bytes were placed; at least `tail`.
    pub placed: u64,
    /// Last checked index of the program.
    pub head: u64,
    pub ring: Geometry,
    /// The ring before, while the program still reads from it.
    pub former: Option<Geometry>,
    /// Sequence of the last move.
    pub switched: u64,
    /// No larger ring can be had.
    pub stuck: bool,
    /// The program's index when the ring was last found full, plus one.
    pub full_at: u64,
}

impl Writer {
    pub const fn new(ring: Geometry) -> Self {
        Self {
            tail: 0,
            placed: 0,
            head: 0,
            ring,
            former: None,
            switched: 0,
            stuck: false,
            full_at: 0,
        }
    }

    #[inline]
    pub const fn ring(&self) -> Geometry {
        self.ring
    }

    /// The rings that the program may still read.
    #[inline]
    pub const fn rings(&self) -> [Option<Geometry>; 2] {
        [Some(self.ring), self.former]
    }

    /// Until the program has come to the present ring, all that fits is what that ring holds.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.head.max(self.switched) + self.ring.size()
    }
}
