//! Fused recurrent cells and their gradients.
//!
//! The workspaces that forward passes leave for backward ones hold, side by side along the last
//! dimension: for an LSTM the gates i, f, g, o after their activation; for a GRU the gates r, z,
//! n, the old hidden state and the hidden part of n before the reset gate.

use super::args::opt_outs;
use super::{Args, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::V;

pub(super) fn register(r: &mut Registry) {
    r.op("aten::_thnn_fused_lstm_cell", lstm_cell);
    r.op("aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
    r.op("aten::_thnn_fused_gru_cell", gru_cell);
    r.op("aten::_thnn_fused_gru_cell_backward", gru_cell_backward);
}

/// The `n` equal parts of the last dimension, in opmath.
fn parts<'b>(v: V<'b>, n: i64) -> Result<Vec<V<'b>>> {
    ensure!(
        v.rank() > 0 && v.size(v.rank() - 1) % n == 0,
        "a fused cell's gates must be {n} equal parts, got {}",
        v.ty()
    );
    let v = v.convert(v.dtype().opmath());
    let last = v.rank() - 1;
    let width = v.size(last) / n;
    Ok((0..n).map(|i| v.slice(last, i * width, (i + 1) * width, 1)).collect())
}

fn join<'b>(parts: &[V<'b>]) -> V<'b> {
    parts[0].b.concat(parts, parts[0].rank() - 1)
}

/// Gates of the input (at 0) and the hidden state (at 1) with their biases (at 3 and 4).
fn gates<'b>(a: &Args<'b>) -> Result<(V<'b>, V<'b>)> {
    let (x, h) = (a.t(0)?, a.t(1)?);
    ensure!(
        x.sizes() == h.sizes() && x.dtype() == h.dtype(),
        "a fused cell's input and hidden gates must agree, got {} and {}",
        x.ty(),
        h.ty()
    );
    let with_bias = |gates: V<'b>, i| -> Result<V<'b>> {
        let gates = gates.convert(gates.dtype().opmath());
        Ok(match a.opt(i)? {
            Some(bias) => gates + bias.convert(gates.dtype()),
            None => gates,
        })
    };
    Ok((with_bias(x, 3)?, with_bias(h, 4)?))
}

/// (input_gates, hidden_gates, cx, input_bias, hidden_bias) → hy, cy, workspace
fn lstm_cell<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, h) = gates(a)?;
    let cx = a.t(2)?;
    let dtype = cx.dtype();
    let g = parts(x + h, 4)?;
    let (i, f, c, o) = (g[0].logistic(), g[1].logistic(), g[2].tanh(), g[3].logistic());
    let cy = f * cx.convert(f.dtype()) + i * c;
    let hy = o * cy.tanh();
    outs([hy, cy, join(&[i, f, c, o])].map(|v| v.convert(dtype)))
}

/// (grad_hy, grad_cy, cx, cy, workspace, has_bias) → grad_gates, grad_cx, grad_bias
fn lstm_cell_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let (grad_hy, grad_cy) = (a.opt(0)?, a.opt(1)?);
    if grad_hy.is_none() && grad_cy.is_none() {
        return opt_outs([None, None, None]);
    }
    let (cx, cy) = (a.t(2)?, a.t(3)?);
    let dtype = cx.dtype();
    let compute = dtype.opmath();
    let (cx, cy) = (cx.convert(compute), cy.convert(compute));
    let zeros = cx.full_like(0i64);
    let of = |grad: Option<V<'b>>| grad.map_or(zeros, |g| g.convert(compute));
    let (ghy, gcy) = (of(grad_hy), of(grad_cy));
    let g = parts(a.t(4)?, 4)?;
    let (i, f, c, o) = (g[0], g[1], g[2], g[3]);
    let t = cy.tanh();
    let gc = ghy * o * (1.0 - t * t) + gcy;
    let logistic = |grad: V<'b>, y: V<'b>| grad * y * (1.0 - y);
    let grad_gates = join(&[
        logistic(gc * c, i),
        logistic(gc * cx, f),
        gc * i * (1.0 - c * c),
        logistic(ghy * t, o),
    ]);
    let grad_bias = if a.bool(5)? { Some(grad_gates.sum(&[0], false)) } else { None };
    opt_outs([Some(grad_gates), Some(gc * f), grad_bias].map(|v| v.map(|v| v.convert(dtype))))
}

/// (input_gates, hidden_gates, hx, input_bias, hidden_bias) → hy, workspace
fn gru_cell<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, h) = gates(a)?;
    let (x, h) = (parts(x, 3)?, parts(h, 3)?);
    let hx = a.t(2)?;
    let dtype = hx.dtype();
    let hx = hx.convert(dtype.opmath());
    let (r, z) = ((x[0] + h[0]).logistic(), (x[1] + h[1]).logistic());
    let n = (x[2] + r * h[2]).tanh();
    let hy = n + z * (hx - n);
    outs([hy, join(&[r, z, n, hx, h[2]])].map(|v| v.convert(dtype)))
}

/// (grad_hy, workspace, has_bias) → grad_input_gates, grad_hidden_gates, grad_hx,
/// grad_input_bias, grad_hidden_bias
fn gru_cell_backward<'b>(a: &Args<'b>) -> Out<'b> {
    let grad = a.t(0)?;
    let dtype = grad.dtype();
    let w = parts(a.t(1)?, 5)?;
    let (r, z, n, hx, hn) = (w[0], w[1], w[2], w[3], w[4]);
    let grad = grad.convert(dtype.opmath());
    let gz = grad * (hx - n) * (1.0 - z) * z;
    let gn = grad * (1.0 - z) * (1.0 - n * n);
    let gr = gn * hn * (1.0 - r) * r;
    let (input, hidden) = (join(&[gr, gz, gn]), join(&[gr, gz, gn * r]));
    let bias = a.bool(2)?;
    let sum = |v: V<'b>| if bias { Some(v.sum(&[0], false)) } else { None };
    opt_outs(
        [Some(input), Some(hidden), Some(grad * z), sum(input), sum(hidden)]
            .map(|v| v.map(|v| v.convert(dtype))),
    )
}
