//! Linear algebra that XLA has a primitive for; decompositions are left to the CPU.

use super::matmul::conj;
use super::reduce::{accumulated, unsupported};
use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::types::broadcast_shapes;
use crate::ir::{DType, Prim, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::linalg_cross", cross);
    r.op("aten::trace", trace);
    r.op("aten::linalg_solve_triangular", |a| {
        let (matrix, rhs) = (a.t(0)?, a.t(1)?);
        let t = Triangle { upper: a.bool(2)?, unit_diagonal: a.bool(4)?, transpose: 0 };
        let (matrix, rhs) = batched("linalg.solve_triangular", matrix, rhs, a.bool(3)?)?;
        solve(matrix, rhs, a.bool(3)?, t).out()
    });
    r.op("aten::triangular_solve", |a| {
        let (rhs, matrix) = (a.t(0)?, a.t(1)?);
        let t = Triangle {
            upper: a.bool(2)?,
            unit_diagonal: a.bool(4)?,
            transpose: u8::from(a.bool(3)?),
        };
        let (matrix, rhs) = batched("triangular_solve", matrix, rhs, true)?;
        outs([solve(matrix, rhs, true, t), matrix])
    });
    r.op("aten::_cholesky_solve_helper", |a| {
        let (matrix, rhs) = batched("cholesky_solve", a.t(1)?, a.t(0)?, true)?;
        cholesky_solve(matrix, rhs, a.bool(2)?).out()
    });
    r.op("aten::cholesky_inverse", |a| {
        let factor = a.t(0)?;
        let sizes = factor.sizes();
        let rank = sizes.len();
        square("cholesky_inverse", factor)?;
        let iota = |dim| a.b.iota(DType::I64, &sizes, dim);
        let identity = iota(rank - 2).eq(iota(rank - 1)).convert(factor.dtype());
        cholesky_solve(factor, identity, a.bool(1)?).out()
    });
}

fn cross<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, y) = (a.t(0)?, a.t(1)?);
    ensure!(x.rank() == y.rank(), "linalg.cross: inputs must have the same number of dimensions.");
    let given = a.int(2)?;
    let dim = a.dim(2, x.rank())?;
    ensure!(
        x.rank() > 0 && x.size(dim) == 3 && y.size(dim) == 3,
        "linalg.cross: inputs dimension {given} must have length 3. Got {} and {}",
        x.sizes().get(dim).unwrap_or(&1),
        y.sizes().get(dim).unwrap_or(&1)
    );
    ensure!(
        x.dtype() == y.dtype(),
        "linalg.cross: expected inputs of the same dtype, but got {} and {}",
        x.dtype().scalar_type_name(),
        y.dtype().scalar_type_name()
    );
    if x.dtype().is_bool() {
        return Err(unsupported("cross", x.dtype()));
    }
    let compute = x.dtype().opmath();
    let (u, v) = x.convert(compute).broadcast_with(y.convert(compute));
    // u × v = rotate(u, 1)·rotate(v, 2) − rotate(u, 2)·rotate(v, 1) along the dimension.
    let rotate =
        |t: V<'b>, by: i64| a.b.concat(&[t.slice(dim, by, 3, 1), t.slice(dim, 0, by, 1)], dim);
    (rotate(u, 1) * rotate(v, 2) - rotate(u, 2) * rotate(v, 1)).convert(x.dtype()).out()
}

fn trace<'b>(a: &Args<'b>) -> Out<'b> {
    let x = a.t(0)?;
    ensure!(x.rank() == 2, "trace: expected a matrix, but got tensor with dim {}", x.rank());
    if x.dtype().is_bool() {
        return Err(unsupported("trace", x.dtype()));
    }
    let dtype = accumulated(x.dtype());
    let (rows, columns) = (x.size(0), x.size(1));
    let n = rows.min(columns);
    // The diagonal is every (columns + 1)-th element.
    let end = if n == 0 { 0 } else { (n - 1) * (columns + 1) + 1 };
    let diagonal = x.flatten().slice(0, 0, end, columns + 1);
    diagonal.convert(dtype.opmath()).sum(&[0], false).convert(dtype).out()
}

#[derive(Clone, Copy)]
struct Triangle {
    upper: bool,
    unit_diagonal: bool,
    /// As `Prim::TriangularSolve` has it.
    transpose: u8,
}

fn square(op: &str, x: V<'_>) -> Result<()> {
    let rank = x.rank();
    ensure!(rank >= 2, "{op}: The input tensor A must have at least 2 dimensions.");
    ensure!(
        x.size(rank - 1) == x.size(rank - 2),
        "{op}: A must be batches of square matrices, but they are {} by {} matrices",
        x.size(rank - 2),
        x.size(rank - 1)
    );
    match x.dtype() {
        DType::F32 | DType::F64 | DType::C64 | DType::C128 => Ok(()),
        other => Err(unsupported(op, other)),
    }
}

/// Both operands with their batch dimensions broadcast.
fn batched<'b>(op: &str, matrix: V<'b>, rhs: V<'b>, left: bool) -> Result<(V<'b>, V<'b>)> {
    square(op, matrix)?;
    let (m, r) = (matrix.sizes(), rhs.sizes());
    ensure!(r.len() >= 2, "{op}: The input tensor B must have at least 2 dimensions.");
    ensure!(
        matrix.dtype() == rhs.dtype(),
        "{op}: Expected A and B to have the same dtype, but found A of type {} and B of type {} \
         instead",
        matrix.dtype().scalar_type_name(),
        rhs.dtype().scalar_type_name()
    );
    let (mb, rb) = (m.len() - 2, r.len() - 2);
    let shared = if left { r[rb] } else { r[rb + 1] };
    ensure!(
        m[mb] == shared,
        "{op}: Incompatible shapes of A and B for the equation {} ({}x{} and {}x{})",
        if left { "AX = B" } else { "XA = B" },
        m[mb],
        m[mb + 1],
        r[rb],
        r[rb + 1]
    );
    let batch = broadcast_shapes(&m[..mb], &r[..rb]).map_err(crate::error::Error::runtime)?;
    let full =
        |own: &Shape, n: usize| -> Shape { batch.iter().chain(&own[n..]).copied().collect() };
    Ok((matrix.broadcast_to(&full(&m, mb)), rhs.broadcast_to(&full(&r, rb))))
}

fn solve<'b>(matrix: V<'b>, rhs: V<'b>, left: bool, t: Triangle) -> V<'b> {
    if rhs.numel() == 0 {
        return rhs;
    }
    let prim = Prim::TriangularSolve {
        left,
        lower: !t.upper,
        unit_diagonal: t.unit_diagonal,
        transpose: t.transpose,
    };
    matrix.b.add(prim, &[matrix, rhs])
}

/// Solves L·Lᴴ·x = b, or Uᴴ·U·x = b.
fn cholesky_solve<'b>(factor: V<'b>, rhs: V<'b>, upper: bool) -> V<'b> {
    // With U = Lᴴ both are one problem.
    let lower = if upper { conj(factor.t()) } else { factor };
    let t = Triangle { upper: false, unit_diagonal: false, transpose: 0 };
    let y = solve(lower, rhs, true, t);
    solve(lower, y, true, Triangle { transpose: 2, ..t })
}
