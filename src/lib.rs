//! DeferAndFuse: a lazy-tensor deferral and fusion engine for PyTorch.
//!
//! The way of the data, in the order of the modules; each imports only from those before it:
//!
//! 1. [`ir`]: tensor primitives in a hash-consed graph, and the builder that makes them;
//! 2. [`ops`]: each ATen op, once, as a function over that builder;
//! 3. [`trace`]: the recorder: storages, views, values, and the steps that are pending;
//! 4. [`policy`]: Strict, Debug, DeferAndFuse: given the trace, flush or keep;
//! 5. [`region`]: a flushed trace becomes a program: what is alive, what is donated;
//! 6. [`rewrite`]: the program is made cheaper by the rules of `fusion-rules/`;
//! 7. [`stablehlo`]: the program as text;
//! 8. [`pjrt`]: compiled and run by a plugin: libtpu, XLA:CPU, CUDA;
//! 9. [`observe`]: counters, source lines, the memory ledger; decides nothing;
//! 10. [`engine`]: the stages joined: one lock to record under, one thread to execute on.
//!
//! `python-bindings/` puts a PyTorch device on top.

pub mod error;

pub mod ir;
pub mod ops;
pub mod trace;

pub mod policy;
pub mod region;
pub mod rewrite;
pub mod stablehlo;

pub mod pjrt;

pub mod observe;

pub mod engine;
