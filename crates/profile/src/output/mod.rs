//! A profile as a table, as folded chains, as a picture; the difference of two.

mod bars;
mod cost;
mod diff;
mod flame;
mod folded;
mod table;

pub use bars::bars;
pub use diff::diff;
pub use flame::flame;
pub use folded::{Folded, fold};
pub use table::{functions, table, unclassified};
