//! The daemon's end of a link, and one that plays the program, with good manners and with bad ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that can not go on fails"
)]

mod cells;
mod ends;
mod hostile;
mod lanes;
mod pairs;
mod returned;

use crate::anchor::Count;
use crate::lane::Lane;
use crate::link::LinkEnd;
use crate::played::*;
use netchannel_abi::link::{Layout, QUEUE_CAPACITY, Role};
use netchannel_shm::Run;
use netchannel_shm::run::transfer;
use std::sync::Arc;
