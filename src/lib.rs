//! DeferAndFuse: a lazy-tensor deferral and fusion engine for PyTorch.

pub mod error;
pub mod ir;
pub mod ops;
