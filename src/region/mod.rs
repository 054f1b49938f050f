//! From a trace to regions: what must run, on which buffers, and as what program.
//!
//! [`cut`] looks at a trace each time it is flushed, and is cheap: it finds the steps that live
//! values need and describes them by a key. [`build`] makes the program of a key that wasn't seen
//! before.

mod build;
mod cut;

pub use build::{Program, Source, build};
pub use cut::{Cut, Operand, cut};
