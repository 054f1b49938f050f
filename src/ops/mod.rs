//! Each ATen op, once: a function that composes primitives with a builder.
//!
//! A definition is registered under the schema name of its functional overload, beside it. Its
//! in-place and `out=` variants, reading and writing through views, dtype conversion of what is
//! written and memoisation are generic and happen elsewhere (`crate::trace`).
//!
//! ```text
//! r.op("aten::rsqrt", |a| a.float_unary(V::rsqrt));
//! ```

pub mod args;
pub mod promote;
pub mod registry;

mod activation;
mod batch_norm;
mod compare;
mod conv;
mod elementwise;
mod embedding_bag;
mod factory;
mod grid_sample;
mod index;
mod linalg;
mod loss;
mod matmul;
mod norm;
mod optim;
mod pad;
mod pool;
mod random;
mod reduce;
mod rnn;
mod scan;
mod scatter;
mod search;
mod shape;
mod softmax;
mod sort;
mod statistics;
mod unary;
mod unique;
mod upsample;
mod vector_norm;

pub use args::{Arg, Args, Num, Out, Outputs, TensorArg, outs};
pub use registry::{OpDef, OpId, Registry, registry};

/// All families, in the order in which their ops get their handles.
pub(crate) const FAMILIES: &[fn(&mut Registry)] = &[
    elementwise::register,
    unary::register,
    compare::register,
    activation::register,
    random::register,
    loss::register,
    matmul::register,
    linalg::register,
    reduce::register,
    statistics::register,
    vector_norm::register,
    sort::register,
    scan::register,
    search::register,
    softmax::register,
    norm::register,
    batch_norm::register,
    shape::register,
    factory::register,
    index::register,
    embedding_bag::register,
    grid_sample::register,
    unique::register,
    scatter::register,
    pad::register,
    upsample::register,
    conv::register,
    pool::register,
    rnn::register,
    optim::register,
];
