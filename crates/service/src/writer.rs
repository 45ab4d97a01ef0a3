//! The write position in this end's transmit ring.

use netchannel_abi::link::Geometry;

/// The write position. It is private: never read back from shared memory.
#[derive(Debug)]
pub(super) struct Writer {
    /// The sequence up to which bytes were published.
    pub tail: u64,
    /// The highest sequence up to which bytes were placed; at least `tail`.
    pub placed: u64,
    /// The last checked index of the program.
    pub head: u64,
    pub ring: Geometry,
    /// The former ring, while the program still reads from it.
    pub former: Option<Geometry>,
    /// The sequence of the last move.
    pub switched: u64,
    /// No larger ring can be allocated.
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

    /// Until the program has reached the present ring, the room is the size of that ring.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.head.max(self.switched) + self.ring.size()
    }
}
