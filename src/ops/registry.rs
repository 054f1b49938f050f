//! The table of op definitions.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::args::{Args, Out};
use crate::error::Result;
use crate::ir::V;

/// A handle to an op definition; 0 is none.
pub type OpId = u32;

type Body = Box<dyn for<'b> Fn(&Args<'b>) -> Out<'b> + Send + Sync>;
type Count = Box<dyn for<'b> Fn(&Args<'b>) -> Result<Option<V<'b>>> + Send + Sync>;

pub struct OpDef {
    /// The schema name of the functional overload, as in `aten::add.Tensor`.
    pub name: &'static str,
    pub body: Body,
    /// For an op whose result size depends on its data: the graph of that size, an i64 scalar
    /// that the host reads before the body is recorded (`Args::count`). `None` from it: these
    /// arguments need no size.
    pub count: Option<Count>,
    /// Draws random numbers.
    pub random: bool,
}

#[derive(Default)]
pub struct Registry {
    ops: Vec<OpDef>,
    by_name: HashMap<&'static str, OpId>,
}

impl Registry {
    /// Defines an op.
    pub fn op(
        &mut self,
        name: &'static str,
        body: impl for<'b> Fn(&Args<'b>) -> Out<'b> + Send + Sync + 'static,
    ) {
        self.insert(OpDef { name, body: Box::new(body), count: None, random: false });
    }

    /// Defines an op that draws random numbers: `Args::rng` is its generator.
    pub fn random(
        &mut self,
        name: &'static str,
        body: impl for<'b> Fn(&Args<'b>) -> Out<'b> + Send + Sync + 'static,
    ) {
        self.insert(OpDef { name, body: Box::new(body), count: None, random: true });
    }

    /// Defines an op whose result size depends on its data: `count` builds the size (an i64
    /// scalar, or `None` if these arguments don't need it), `body` uses it (`Args::count`).
    pub fn sized(
        &mut self,
        name: &'static str,
        count: impl for<'b> Fn(&Args<'b>) -> Result<Option<V<'b>>> + Send + Sync + 'static,
        body: impl for<'b> Fn(&Args<'b>) -> Out<'b> + Send + Sync + 'static,
    ) {
        let count: Count = Box::new(count);
        self.insert(OpDef { name, body: Box::new(body), count: Some(count), random: false });
    }

    fn insert(&mut self, def: OpDef) {
        let id = self.ops.len() as OpId + 1;
        let twice = self.by_name.insert(def.name, id);
        assert!(twice.is_none(), "{} is defined twice", def.name);
        self.ops.push(def);
    }

    pub fn find(&self, name: &str) -> Option<OpId> {
        self.by_name.get(name).copied()
    }

    pub fn get(&self, id: OpId) -> &OpDef {
        &self.ops[id as usize - 1]
    }

    pub fn iter(&self) -> impl Iterator<Item = &OpDef> {
        self.ops.iter()
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// Every op the engine defines.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut registry = Registry::default();
        for family in super::FAMILIES {
            family(&mut registry);
        }
        registry
    })
}
