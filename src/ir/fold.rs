//! Structural identities applied while a graph is built: those that only ever remove nodes and
//! hold bit for bit on every value. Everything that needs a judgement is a rule in
//! `fusion-rules/`.

use smallvec::SmallVec;

use super::{BinaryOp, DType, Graph, Node, Number, Prim, Shape, TensorType, ValueId};

impl Graph {
    /// A value equal to `prim(inputs)` that is cheaper than adding the node, if one is known.
    pub(super) fn fold(&mut self, prim: &Prim, inputs: &[ValueId]) -> Option<ValueId> {
        let &x = inputs.first()?;
        let ty = self.ty(x).clone();
        let node = self.node(x.node);
        match prim {
            Prim::Reshape(sizes) => {
                if ty.same_sizes(sizes) {
                    return Some(x);
                }
                match &node.prim {
                    Prim::Reshape(_) => {
                        let inner = node.inputs[0];
                        self.add(prim.clone(), &[inner]).ok()
                    }
                    Prim::Constant(n) if valid(&ty, sizes) => {
                        let n = Prim::Constant(*n);
                        Some(self.leaf(n, TensorType::new(ty.dtype, sizes)))
                    }
                    _ => None,
                }
            }
            Prim::Transpose(perm) => {
                if perm.iter().enumerate().all(|(i, &p)| p == i as i64) {
                    return Some(x);
                }
                match &node.prim {
                    Prim::Transpose(inner) => {
                        let composed: Shape = perm.iter().map(|&p| inner[p as usize]).collect();
                        let operand = node.inputs[0];
                        self.add(Prim::Transpose(composed), &[operand]).ok()
                    }
                    Prim::Constant(n) => {
                        let n = Prim::Constant(*n);
                        let sizes: Shape = perm.iter().map(|&p| ty.size(p as usize)).collect();
                        Some(self.leaf(n, TensorType::new(ty.dtype, &sizes)))
                    }
                    _ => None,
                }
            }
            Prim::Broadcast { sizes, dims } => {
                if ty.same_sizes(sizes) && dims.iter().enumerate().all(|(i, &d)| d == i as i64) {
                    return Some(x);
                }
                let Prim::Constant(n) = node.prim else { return None };
                Some(self.leaf(Prim::Constant(n), TensorType::new(ty.dtype, sizes)))
            }
            Prim::Convert(to) => {
                if ty.dtype == *to {
                    return Some(x);
                }
                let Prim::Constant(n) = node.prim else { return None };
                Some(self.leaf(Prim::Constant(n.cast(*to)), ty.with_dtype(*to)))
            }
            Prim::Bitcast(to) if ty.dtype == *to => Some(x),
            Prim::Slice { starts, limits, strides } => {
                let whole = (0..ty.rank())
                    .all(|i| starts[i] == 0 && limits[i] == ty.size(i) && strides[i] == 1);
                whole.then_some(x)
            }
            Prim::Binary(op) if ty.dtype == DType::I64 => self.fold_integers(*op, x, inputs[1]),
            Prim::DynamicSlice(sizes) => self.fold_slice(sizes, &ty, inputs),
            Prim::Pad { low, high, interior } => {
                let nothing = |s: &Shape| s.iter().all(|&n| n == 0);
                (nothing(low) && nothing(high) && nothing(interior)).then_some(x)
            }
            Prim::Concat(_) if inputs.len() == 1 => Some(x),
            Prim::Reduce(_, dims) if dims.is_empty() => Some(x),
            Prim::Reverse(dims) if dims.iter().all(|&d| ty.size(d as usize) == 1) => Some(x),
            _ => None,
        }
    }

    /// Positions are computed from sizes and offsets that are often constants.
    fn fold_integers(&mut self, op: BinaryOp, x: ValueId, y: ValueId) -> Option<ValueId> {
        let b = self.integer(y)?;
        match (op, b) {
            (BinaryOp::Add, 0) | (BinaryOp::Div, 1) => return Some(x),
            (BinaryOp::Rem, 1) => {
                let ty = self.ty(x).clone();
                return Some(self.leaf(Prim::Constant(Number::Int(0)), ty));
            }
            _ => {}
        }
        let a = self.integer(x)?;
        let value = match op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Div => a.checked_div(b)?,
            BinaryOp::Rem => a.checked_rem(b)?,
            _ => return None,
        };
        let ty = self.ty(x).clone();
        Some(self.leaf(Prim::Constant(Number::Int(value)), ty))
    }

    /// A slice at constant positions is a slice, and one of everything is the whole.
    fn fold_slice(
        &mut self,
        sizes: &[i64],
        ty: &TensorType,
        inputs: &[ValueId],
    ) -> Option<ValueId> {
        let x = inputs[0];
        if ty.same_sizes(sizes) {
            return Some(x);
        }
        if let Prim::Constant(n) = self.node(x.node).prim {
            return Some(self.leaf(Prim::Constant(n), TensorType::new(ty.dtype, sizes)));
        }
        // Starts are clamped so that the slice fits (StableHLO, dynamic_slice).
        let starts: Shape = inputs[1..]
            .iter()
            .enumerate()
            .map(|(i, &start)| Some(self.integer(start)?.min(ty.size(i) - sizes[i]).max(0)))
            .collect::<Option<_>>()?;
        let limits = starts.iter().zip(sizes).map(|(start, n)| start + n).collect();
        let strides = Shape::from_elem(1, sizes.len());
        self.add(Prim::Slice { starts, limits, strides }, &[x]).ok()
    }

    /// The number that every element of an integer value is, if that is known.
    fn integer(&self, v: ValueId) -> Option<i64> {
        match self.node(v.node).prim {
            Prim::Constant(Number::Int(n)) => Some(n),
            _ => None,
        }
    }

    /// Copies the live part of `other` into this graph, its inputs and scalars replaced by
    /// `leaf`. Returns the images of `other`'s outputs.
    pub fn inline(
        &mut self,
        other: &Graph,
        live: &[bool],
        mut leaf: impl FnMut(&mut Graph, &Node) -> Option<ValueId>,
    ) -> Vec<ValueId> {
        let mut image: Vec<ValueId> = vec![ValueId { node: 0, output: 0 }; other.nodes().len()];
        for (i, node) in other.nodes().iter().enumerate() {
            if !live[i] {
                continue;
            }
            image[i] = if let Some(v) = leaf(self, node) {
                v
            } else if node.inputs.is_empty() {
                self.leaf(node.prim.clone(), node.types[0].clone())
            } else {
                let inputs: SmallVec<[ValueId; 4]> =
                    node.inputs.iter().map(|&v| place(&image, v)).collect();
                // The operands have the types they had in `other`, so the primitive still fits.
                match self.add(node.prim.clone(), &inputs) {
                    Ok(v) => v,
                    Err(e) => unreachable!("inlining {:?}: {e}", node.prim),
                }
            };
        }
        other.outputs.iter().map(|&v| place(&image, v)).collect()
    }
}

/// A multi-output node keeps its outputs; a folded single-output node may be any output.
fn place(image: &[ValueId], v: ValueId) -> ValueId {
    let at = image[v.node as usize];
    if v.output == 0 { at } else { ValueId { node: at.node, output: v.output } }
}

fn valid(ty: &TensorType, sizes: &[i64]) -> bool {
    ty.numel() == sizes.iter().product::<i64>()
}
