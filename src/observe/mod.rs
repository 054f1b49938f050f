//! What the engine tells of itself. It hears of events and decides nothing.

pub mod ledger;
pub mod stats;

pub use ledger::Ledger;
pub use stats::{Locations, Stats};
