//! The shape and dtype rule of each primitive.

use smallvec::{SmallVec, smallvec};

use super::prim::{FftKind, Prim, UnaryOp};
use super::{BinaryOp, CompareDir, ConvAttrs, DType, GatherAttrs, Shape, TensorType, WindowAttrs};

type Types = SmallVec<[TensorType; 1]>;

/// The types of a primitive's results.
///
/// Errors: the reason why the operands don't fit, for a person.
pub fn infer(prim: &Prim, operands: &[&TensorType]) -> Result<Types, String> {
    let arity = |n: usize| {
        if operands.len() == n {
            Ok(())
        } else {
            Err(format!("{prim:?} takes {n} operands, not {}", operands.len()))
        }
    };
    let one = |ty: TensorType| Ok(smallvec![ty]);
    match prim {
        Prim::Input(_) | Prim::Scalar(_) | Prim::Constant(_) | Prim::Iota(_) => {
            Err(format!("{prim:?} is a leaf and has no operands to infer its type from"))
        }
        Prim::Unary(op) => {
            arity(1)?;
            let x = operands[0];
            if !applies(*op, x.dtype) {
                return Err(format!("{op:?} of {x}: not defined for {}", x.dtype));
            }
            one(match op {
                UnaryOp::IsFinite => x.with_dtype(DType::Bool),
                UnaryOp::Real | UnaryOp::Imag | UnaryOp::Abs => x.with_dtype(x.dtype.real()),
                _ => x.clone(),
            })
        }
        Prim::Binary(op) => {
            arity(2)?;
            equal(operands, prim)?;
            let x = operands[0];
            one(if *op == BinaryOp::Complex { x.with_dtype(x.dtype.complex()) } else { x.clone() })
        }
        Prim::Compare(dir) => {
            arity(2)?;
            equal(operands, prim)?;
            if operands[0].dtype.is_complex() && !matches!(dir, CompareDir::Eq | CompareDir::Ne) {
                return Err(format!("{dir:?} of {}: complex numbers have no order", operands[0]));
            }
            one(operands[0].with_dtype(DType::Bool))
        }
        Prim::Select => {
            arity(3)?;
            equal(&operands[1..], prim)?;
            if operands[0].dtype != DType::Bool || operands[0].dims != operands[1].dims {
                return Err(format!("select: predicate {} against {}", operands[0], operands[1]));
            }
            one(operands[1].clone())
        }
        Prim::Clamp => {
            arity(3)?;
            equal(operands, prim)?;
            one(operands[1].clone())
        }
        Prim::Convert(to) => {
            arity(1)?;
            one(operands[0].with_dtype(*to))
        }
        Prim::Bitcast(to) => {
            arity(1)?;
            bitcast(operands[0], *to).and_then(one)
        }
        Prim::Reshape(sizes) => {
            arity(1)?;
            let ty = TensorType::new(operands[0].dtype, sizes);
            if ty.numel() != operands[0].numel() {
                return Err(format!("reshape of {} to {:?}", operands[0], &sizes[..]));
            }
            one(ty)
        }
        Prim::Transpose(perm) => {
            arity(1)?;
            let x = operands[0];
            let mut seen: Shape = perm.clone();
            seen.sort_unstable();
            if seen.len() != x.rank() || seen.iter().enumerate().any(|(i, &p)| p != i as i64) {
                return Err(format!("transpose of {x} by {:?}", &perm[..]));
            }
            let dims = perm.iter().map(|&p| x.dims[p as usize]).collect();
            one(TensorType { dtype: x.dtype, dims })
        }
        Prim::Broadcast { sizes, dims } => {
            arity(1)?;
            let x = operands[0];
            let fits = dims.len() == x.rank()
                && dims.iter().enumerate().all(|(i, &d)| {
                    (d as usize) < sizes.len() && (x.size(i) == 1 || x.size(i) == sizes[d as usize])
                });
            if !fits {
                return Err(format!("broadcast of {x} to {:?} along {:?}", &sizes[..], &dims[..]));
            }
            one(TensorType::new(x.dtype, sizes))
        }
        Prim::Slice { starts, limits, strides } => {
            arity(1)?;
            let x = operands[0];
            let mut sizes = Shape::new();
            for i in 0..x.rank() {
                let (s, l, st) = (starts[i], limits[i], strides[i]);
                if s < 0 || l < s || l > x.size(i) || st < 1 {
                    return Err(format!("slice {s}:{l}:{st} of dimension {i} of {x}"));
                }
                sizes.push((l - s + st - 1) / st);
            }
            one(TensorType::new(x.dtype, &sizes))
        }
        Prim::Pad { low, high, interior } => {
            arity(2)?;
            let x = operands[0];
            let sizes: Shape = (0..x.rank())
                .map(|i| low[i] + high[i] + x.size(i) + (x.size(i) - 1).max(0) * interior[i])
                .collect();
            if sizes.iter().any(|&n| n < 0) || operands[1].dtype != x.dtype {
                return Err(format!("pad of {x} by {:?}, {:?}", &low[..], &high[..]));
            }
            one(TensorType::new(x.dtype, &sizes))
        }
        Prim::Concat(dim) => concat(operands, *dim as usize).and_then(one),
        Prim::Reverse(_) | Prim::Barrier => {
            arity(1)?;
            one(operands[0].clone())
        }
        Prim::DynamicSlice(sizes) => {
            arity(1 + sizes.len())?;
            one(TensorType::new(operands[0].dtype, sizes))
        }
        Prim::DynamicUpdateSlice => {
            let (x, update) = (operands[0], operands[1]);
            if x.dtype != update.dtype || x.rank() != update.rank() {
                return Err(format!("update of {x} by {update}"));
            }
            one(x.clone())
        }
        Prim::Gather(attrs) => {
            arity(2)?;
            one(gather(operands[0], operands[1], attrs))
        }
        Prim::Scatter(..) => {
            arity(3)?;
            if operands[0].dtype != operands[2].dtype {
                return Err(format!("scatter of {} into {}", operands[2], operands[0]));
            }
            one(operands[0].clone())
        }
        Prim::Dot(a) => {
            arity(2)?;
            let (l, r) = (operands[0], operands[1]);
            let agree = |ls: &Shape, rs: &Shape| {
                ls.len() == rs.len()
                    && ls.iter().zip(rs).all(|(&i, &j)| l.size(i as usize) == r.size(j as usize))
            };
            if !agree(&a.lhs_batch, &a.rhs_batch)
                || !agree(&a.lhs_contract, &a.rhs_contract)
                || l.dtype != r.dtype
            {
                return Err(format!("product of {l} and {r} ({a:?})"));
            }
            let mut dims: SmallVec<_> = a.lhs_batch.iter().map(|&i| l.dims[i as usize]).collect();
            let mut free = |t: &TensorType, batch: &Shape, contract: &Shape| {
                for i in 0..t.rank() as i64 {
                    if !batch.contains(&i) && !contract.contains(&i) {
                        dims.push(t.dims[i as usize]);
                    }
                }
            };
            free(l, &a.lhs_batch, &a.lhs_contract);
            free(r, &a.rhs_batch, &a.rhs_contract);
            one(TensorType { dtype: a.out, dims })
        }
        Prim::Conv(attrs) => {
            arity(2)?;
            conv(operands[0], operands[1], attrs).and_then(one)
        }
        Prim::Reduce(_, dims) => {
            arity(1)?;
            one(without(operands[0], dims))
        }
        Prim::ArgReduce { dim, .. } => {
            arity(1)?;
            let value = without(operands[0], &[i64::from(*dim)]);
            let index = value.with_dtype(DType::I64);
            Ok(smallvec![value, index])
        }
        Prim::ReduceWindow(_, w) => {
            arity(1)?;
            one(TensorType::new(operands[0].dtype, &window(operands[0], w)?))
        }
        Prim::Sort { dim, .. } => {
            if operands.iter().any(|t| t.dims != operands[0].dims)
                || *dim as usize >= operands[0].rank()
            {
                return Err(format!("sort along {dim} of {operands:?}"));
            }
            Ok(operands.iter().map(|&t| t.clone()).collect())
        }
        Prim::Cholesky { .. } => {
            arity(1)?;
            one(operands[0].clone())
        }
        Prim::TriangularSolve { .. } => {
            arity(2)?;
            one(operands[1].clone())
        }
        Prim::Fft { kind, lengths } => {
            arity(1)?;
            let x = operands[0];
            let mut sizes = x.sizes();
            let (last, n) = (x.rank() - 1, *lengths.last().ok_or("fft without lengths")?);
            match kind {
                FftKind::Fft | FftKind::Ifft => return one(x.clone()),
                FftKind::Rfft => sizes[last] = n / 2 + 1,
                FftKind::Irfft => sizes[last] = n,
            }
            let dtype = if *kind == FftKind::Rfft { x.dtype.complex() } else { x.dtype.real() };
            one(TensorType::new(dtype, &sizes))
        }
    }
}

/// Whether a function has a meaning for a dtype.
fn applies(op: UnaryOp, dtype: DType) -> bool {
    use UnaryOp::*;
    match op {
        Abs | Neg | Sign | IsFinite | Real | Imag => true,
        Not | PopulationCount => dtype.is_integral(),
        Floor | Ceil | RoundEven => !dtype.is_complex(),
        Cbrt | Erf | Erfc | ErfInv | Lgamma | Digamma => dtype.is_float(),
        Exp | Expm1 | Log | Log1p | Sqrt | Rsqrt | Sin | Cos | Tan | Asin | Acos | Atan | Sinh
        | Cosh | Tanh | Asinh | Acosh | Atanh | Logistic => dtype.is_inexact(),
    }
}

fn equal(operands: &[&TensorType], prim: &Prim) -> Result<(), String> {
    if operands.iter().all(|t| *t == operands[0]) {
        Ok(())
    } else {
        Err(format!("{prim:?} of operands of different types {operands:?}"))
    }
}

fn without(x: &TensorType, dims: &[i64]) -> TensorType {
    TensorType {
        dtype: x.dtype,
        dims: (0..x.rank()).filter(|&i| !dims.contains(&(i as i64))).map(|i| x.dims[i]).collect(),
    }
}

fn bitcast(x: &TensorType, to: DType) -> Result<TensorType, String> {
    let (from, into) = (x.dtype.size(), to.size());
    let mut sizes = x.sizes();
    if from > into {
        sizes.push((from / into) as i64);
    } else if from < into && sizes.pop() != Some((into / from) as i64) {
        return Err(format!("bitcast of {x} to {to}"));
    }
    Ok(TensorType::new(to, &sizes))
}

fn concat(operands: &[&TensorType], dim: usize) -> Result<TensorType, String> {
    let mut sizes = operands.first().ok_or("concatenation of nothing")?.sizes();
    sizes[dim] = 0;
    for t in operands {
        let fits = t.rank() == sizes.len()
            && t.dtype == operands[0].dtype
            && (0..sizes.len()).all(|i| i == dim || t.size(i) == sizes[i]);
        if !fits {
            return Err(format!("concatenation of {operands:?} along {dim}"));
        }
        sizes[dim] += t.size(dim);
    }
    Ok(TensorType::new(operands[0].dtype, &sizes))
}

fn gather(x: &TensorType, starts: &TensorType, a: &GatherAttrs) -> TensorType {
    let batch: Shape = (0..starts.rank() as i64)
        .filter(|&i| i != a.index_vector_dim)
        .map(|i| starts.size(i as usize))
        .collect();
    let offsets: Shape = (0..x.rank() as i64)
        .filter(|i| !a.collapsed_slice_dims.contains(i) && !a.operand_batching_dims.contains(i))
        .map(|i| a.slice_sizes[i as usize])
        .collect();
    let (mut b, mut o) = (batch.into_iter(), offsets.into_iter());
    let rank = b.len() + o.len();
    let sizes: Shape = (0..rank as i64)
        .map(|i| if a.offset_dims.contains(&i) { o.next() } else { b.next() }.unwrap_or(1))
        .collect();
    TensorType::new(x.dtype, &sizes)
}

fn dilated(n: i64, dilation: i64) -> i64 {
    if n == 0 { 0 } else { (n - 1) * dilation + 1 }
}

fn windows(n: i64, size: i64, stride: i64) -> i64 {
    if n < size { 0 } else { (n - size) / stride + 1 }
}

fn window(x: &TensorType, w: &WindowAttrs) -> Result<Shape, String> {
    if w.sizes.len() != x.rank() {
        return Err(format!("window {w:?} over {x}"));
    }
    Ok((0..x.rank())
        .map(|i| {
            let n = dilated(x.size(i), w.base_dilation[i]) + w.pad_low[i] + w.pad_high[i];
            windows(n, dilated(w.sizes[i], w.window_dilation[i]), w.strides[i])
        })
        .collect())
}

fn conv(x: &TensorType, k: &TensorType, a: &ConvAttrs) -> Result<TensorType, String> {
    let at = |t: &TensorType, dims: &Shape, i: usize| t.size(dims[i] as usize);
    let spatial = a.strides.len();
    if x.rank() != spatial + 2 || k.rank() != spatial + 2 || x.dtype != k.dtype {
        return Err(format!("convolution of {x} by {k}"));
    }
    if at(x, &a.lhs_dims, 1) != at(k, &a.rhs_dims, 1) * a.feature_groups {
        return Err(format!(
            "convolution of {x} by {k}: {} input features for {} groups of {}",
            at(x, &a.lhs_dims, 1),
            a.feature_groups,
            at(k, &a.rhs_dims, 1)
        ));
    }
    let mut sizes: Shape = smallvec![0; spatial + 2];
    sizes[a.out_dims[0] as usize] = at(x, &a.lhs_dims, 0) / a.batch_groups;
    sizes[a.out_dims[1] as usize] = at(k, &a.rhs_dims, 0);
    for i in 0..spatial {
        let n =
            dilated(at(x, &a.lhs_dims, i + 2), a.lhs_dilation[i]) + a.pad_low[i] + a.pad_high[i];
        let size = dilated(at(k, &a.rhs_dims, i + 2), a.rhs_dilation[i]);
        sizes[a.out_dims[i + 2] as usize] = windows(n, size, a.strides[i]);
    }
    Ok(TensorType::new(x.dtype, &sizes))
}
