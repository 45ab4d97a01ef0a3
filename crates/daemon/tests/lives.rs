//! The bodies of the fuzz targets `attach` and `control` with bytes from seeds, for some seconds.

mod life;

use life::support::{Served, small};
use std::time::{Duration, Instant};

/// How long each is tried.
const TIME: Duration = Duration::from_secs(4);

fn for_a_while(run: impl Fn(&[u8])) {
    let end = Instant::now() + TIME;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while Instant::now() < end {
        let mut bytes = Vec::new();
        for _ in 0..96 {
            // A xorshift: bytes need not be good, only always the same.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        run(&bytes);
    }
}

#[test]
fn any_life_of_a_program_is_answered() {
    let served = Served::new(small(), None);
    for_a_while(|bytes| life::attach(&served, bytes));
    served.await_status(|status| status.programs.is_empty() && status.listeners == 0);
}

#[test]
fn any_request_of_a_command_is_answered() {
    let served = Served::new(small(), None);
    for_a_while(|bytes| life::control(&served, bytes));
}
