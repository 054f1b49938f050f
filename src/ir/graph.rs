//! A hash-consed graph of primitives: equal work is one node, so common subexpressions never
//! exist twice. Nodes are in topological order by construction.

use std::collections::HashMap;

use ahash::RandomState;
use smallvec::SmallVec;

use super::{Prim, TensorType, infer};

pub type NodeId = u32;

/// One result of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ValueId {
    pub node: NodeId,
    pub output: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    pub prim: Prim,
    pub inputs: SmallVec<[ValueId; 3]>,
    pub types: SmallVec<[TensorType; 1]>,
}

#[derive(Clone, Default, Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    index: HashMap<u64, SmallVec<[NodeId; 1]>, RandomState>,
    pub outputs: Vec<ValueId>,
}

impl Graph {
    pub fn new() -> Graph {
        // Fixed seeds: the order of a bucket must not depend on the process.
        Graph { index: HashMap::with_hasher(seeded()), ..Graph::default() }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub fn ty(&self, v: ValueId) -> &TensorType {
        &self.nodes[v.node as usize].types[v.output as usize]
    }

    /// Adds a primitive whose type follows from its operands, or finds its equal.
    ///
    /// Errors: the reason why the operands don't fit.
    pub fn add(&mut self, prim: Prim, inputs: &[ValueId]) -> Result<ValueId, String> {
        if let Some(v) = self.fold(&prim, inputs) {
            return Ok(v);
        }
        let types = {
            let operands: SmallVec<[&TensorType; 4]> = inputs.iter().map(|&v| self.ty(v)).collect();
            infer::infer(&prim, &operands)?
        };
        Ok(self.intern(Node { prim, inputs: inputs.into(), types }))
    }

    /// Adds a leaf, whose type is given (inputs, scalars, constants, iota).
    pub fn leaf(&mut self, prim: Prim, ty: TensorType) -> ValueId {
        self.intern(Node { prim, inputs: SmallVec::new(), types: SmallVec::from_elem(ty, 1) })
    }

    fn intern(&mut self, node: Node) -> ValueId {
        let bucket = self.index.entry(seeded().hash_one(&node)).or_default();
        let id = match bucket.iter().find(|&&id| self.nodes[id as usize] == node) {
            Some(&id) => id,
            None => {
                let id = self.nodes.len() as NodeId;
                bucket.push(id);
                self.nodes.push(node);
                id
            }
        };
        ValueId { node: id, output: 0 }
    }

    /// Which nodes the outputs need.
    pub fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        for v in &self.outputs {
            live[v.node as usize] = true;
        }
        for id in (0..self.nodes.len()).rev() {
            if live[id] {
                for v in &self.nodes[id].inputs {
                    live[v.node as usize] = true;
                }
            }
        }
        live
    }
}

/// A hasher that gives the same hash in every process of one build.
pub fn seeded() -> RandomState {
    RandomState::with_seeds(0x9e37_79b9, 0x7f4a_7c15, 0xf39c_c060, 0x5ced_c834)
}
