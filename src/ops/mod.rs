//! Each ATen op, once: a function that composes primitives with a builder.
//!
//! A definition is registered under the schema name of its functional overload, beside it. Its
//! in-place and `out=` variants, reading and writing through views, dtype conversion of what is
//! written and memoisation are generic and happen elsewhere (`crate::trace`).
//!
//! ```ignore
//! r.op("aten::rsqrt", |a| a.float_unary(V::rsqrt));
//! ```

pub mod args;
pub mod promote;
pub mod registry;

mod activation;
mod compare;
mod conv;
mod elementwise;
mod factory;
mod index;
mod loss;
mod matmul;
mod norm;
mod optim;
mod pad;
mod pool;
mod random;
mod reduce;
mod rnn;
mod scatter;
mod shape;
mod softmax;
mod sort;

pub use args::{Arg, Args, Num, Out, Outputs, TensorArg, outs};
pub use registry::{OpDef, OpId, Registry, registry};

/// All families, in the order in which their ops get their handles.
pub(crate) const FAMILIES: &[fn(&mut Registry)] = &[
    elementwise::register,
    compare::register,
    activation::register,
    random::register,
    loss::register,
    matmul::register,
    reduce::register,
    sort::register,
    softmax::register,
    norm::register,
    shape::register,
    factory::register,
    index::register,
    scatter::register,
    pad::register,
    conv::register,
    pool::register,
    rnn::register,
    optim::register,
];
