//! Every primitive, printed as StableHLO and run by a real PJRT plugin (see
//! `defer_and_fuse::pjrt::discover`), against values worked out by plain Rust. Without a plugin
//! these tests fail, saying how to get one.

mod elementwise;
mod harness;
mod linalg;
mod module;
mod structure;
