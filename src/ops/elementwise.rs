//! Elementwise arithmetic, comparisons and functions.

use super::{Args, Out, Registry};
use crate::ir::V;

pub(super) fn register(r: &mut Registry) {
    r.op("aten::add.Tensor", |a| add(a, false));
    r.op("aten::sub.Tensor", |a| add(a, true));
    r.op("aten::mul.Tensor", |a| a.pointwise(&[0, 1], |x| x[0] * x[1]));
    r.op("aten::tanh", |a| a.float_unary(V::tanh));
}

/// self ± alpha · other.
fn add<'b>(a: &Args<'b>, subtract: bool) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    let alpha = a.num(2)?;
    let one = alpha.value.to_f64() == 1.0;
    // 1 is the default and worth a graph of its own; other values share one.
    if one {
        a.pin(alpha);
    }
    a.pointwise(&[0, 1], |x| {
        let y = if one { x[1] } else { x[1] * alpha.to(dtype.opmath()) };
        if subtract { x[0] - y } else { x[0] + y }
    })
}
