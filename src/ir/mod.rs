//! The intermediate representation: typed, pure tensor primitives in a hash-consed graph.
//!
//! The primitives are the StableHLO op set with its shape and type rules
//! (<https://openxla.org/stablehlo/spec>). An ATen op becomes a handful of them through the
//! [`Builder`]; a region is a graph of them; the StableHLO printer writes each as one operation.
//!
//! - [`dtype`]: element types and host numbers,
//! - [`types`]: dimensions and tensor types,
//! - [`prim`]: the primitives and their attributes,
//! - [`infer`]: each primitive's shape and dtype rule,
//! - [`cost`]: each primitive's FLOPs and bytes,
//! - [`graph`]: the hash-consed graph,
//! - [`builder`]: the typed surface that op definitions are written against.

pub mod builder;
mod builder_shape;
pub mod cost;
pub mod dtype;
mod fold;
pub mod graph;
pub mod infer;
pub mod prim;
pub mod types;

pub use builder::{Builder, V};
pub use dtype::{DType, Number};
pub use graph::{Graph, Node, NodeId, ValueId};
pub use prim::{
    BinaryOp, CompareDir, ConvAttrs, DotAttrs, GatherAttrs, Prim, ReduceKind, ScatterAttrs,
    ScatterKind, UnaryOp, WindowAttrs,
};
pub use types::{Dim, Shape, TensorType};
