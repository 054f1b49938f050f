//! Matrix products.

use super::Registry;

pub(super) fn register(_: &mut Registry) {}
