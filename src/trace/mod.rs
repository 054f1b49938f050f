//! The recorder: what has been asked for and not yet run.
//!
//! - [`view`]: strided windows on a storage as graphs,
//! - [`types`]: interned tensor types,
//! - [`template`]: memoised expansions of op calls,
//! - [`store`]: storage cells and the values they hold,
//! - [`recorder`]: the pending steps.

pub mod recorder;
pub mod store;
pub mod template;
pub mod types;
pub mod view;

pub use recorder::{Recorded, Recorder, Step, Trace};
pub use store::{CellId, Store, ValueId};
pub use template::{Return, Sizing, Template, TemplateId, Templates};
pub use types::{Ty, intern};
