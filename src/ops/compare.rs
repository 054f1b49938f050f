//! Comparisons, logic and bit operations.

use super::Registry;

pub(super) fn register(_: &mut Registry) {}
