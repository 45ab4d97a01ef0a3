//! Programs played by the test, and what is between them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that can not go on fails"
)]

mod claims;

use netchannel_service::anchor::Count;
use netchannel_service::lane::Lane;
use netchannel_service::link::LinkEnd;
use netchannel_service::played::*;
use std::sync::Arc;
