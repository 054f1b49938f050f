//! Elementwise arithmetic of two or more operands.

use super::{Args, Num, Out, Registry};
use crate::ensure;
use crate::error::{Error, ErrorKind, Result};
use crate::ir::dtype::Category;
use crate::ir::{DType, Number, V};

/// Bool and integers.
pub(super) const BITS: &[Category] = &[Category::Bool, Category::Int];
/// Integers and floats.
pub(super) const REAL: &[Category] = &[Category::Int, Category::Float];
/// All that has an order.
pub(super) const ORDERED: &[Category] = &[Category::Bool, Category::Int, Category::Float];
pub(super) const FLOAT: &[Category] = &[Category::Float];
pub(super) const INEXACT: &[Category] = &[Category::Float, Category::Complex];
/// All but bool.
pub(super) const NUMERIC: &[Category] = &[Category::Int, Category::Float, Category::Complex];
pub(super) const ANY: &[Category] =
    &[Category::Bool, Category::Int, Category::Float, Category::Complex];

pub(super) fn register(r: &mut Registry) {
    // A Scalar operand is a number of the call, as a wrapped number is: one definition each.
    for name in ["aten::add.Tensor", "aten::add.Scalar"] {
        r.op(name, |a| add(a, false));
    }
    for name in ["aten::sub.Tensor", "aten::sub.Scalar"] {
        r.op(name, |a| add(a, true));
    }
    for name in ["aten::rsub.Tensor", "aten::rsub.Scalar"] {
        r.op(name, rsub);
    }
    for name in ["aten::mul.Tensor", "aten::mul.Scalar"] {
        r.op(name, |a| a.pointwise(&[0, 1], |x| x[0] * x[1]));
    }
    for name in ["aten::div.Tensor", "aten::div.Scalar"] {
        r.op(name, |a| a.pointwise_float(&[0, 1], |x| x[0] / x[1]));
    }
    for name in ["aten::div.Tensor_mode", "aten::div.Scalar_mode"] {
        r.op(name, div_mode);
    }
    for name in ["aten::floor_divide", "aten::floor_divide.Scalar"] {
        r.op(name, |a| map(a, "div_floor_cpu", REAL, &[0, 1], |x| div_floor(x[0], x[1])));
    }
    for name in
        ["aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor"]
    {
        r.op(name, |a| map(a, "remainder_cpu", REAL, &[0, 1], |x| remainder(x[0], x[1])));
    }
    for name in ["aten::fmod.Tensor", "aten::fmod.Scalar"] {
        r.op(name, |a| map(a, "fmod_cpu", REAL, &[0, 1], |x| x[0].rem(x[1])));
    }
    r.op("aten::pow.Tensor_Tensor", |a| map(a, "pow", NUMERIC, &[0, 1], |x| pow(x[0], x[1])));
    r.op("aten::pow.Tensor_Scalar", pow_scalar);
    r.op("aten::pow.Scalar", scalar_pow);

    r.op("aten::atan2", |a| map_float(a, "atan2_cpu", ORDERED, &[0, 1], |x| x[0].atan2(x[1])));
    r.op("aten::hypot", |a| map(a, "hypot_cpu", FLOAT, &[0, 1], |x| hypot(x[0], x[1])));
    for name in ["aten::copysign.Tensor", "aten::copysign.Scalar"] {
        r.op(name, |a| map_float(a, "copysign_cpu", ORDERED, &[0, 1], |x| copysign(x[0], x[1])));
    }
    r.op("aten::nextafter", |a| {
        let dtype = a.result_type(&[0, 1])?;
        only("nextafter_cpu", dtype, FLOAT)?;
        // In its own type: the neighbour in a wider one is another number.
        a.to(0, dtype)?.next_after(a.to(1, dtype)?).out()
    });
    r.op("aten::logaddexp", |a| {
        map(a, "logaddexp", FLOAT, &[0, 1], |x| log_add(x[0], x[1], |d| d.exp().log1p()))
    });
    r.op("aten::logaddexp2", |a| {
        map(a, "logaddexp2", FLOAT, &[0, 1], |x| {
            log_add(x[0], x[1], |d| exp2(d).log1p() * std::f64::consts::LOG2_E)
        })
    });
    for name in ["aten::xlogy.Tensor", "aten::xlogy.Scalar_Other", "aten::xlogy.Scalar_Self"] {
        r.op(name, |a| {
            map_float(a, "xlogy_cpu", ORDERED, &[0, 1], |x| x_times(x[0], x[1], x[1].log()))
        });
    }
    for name in [
        "aten::special_xlog1py",
        "aten::special_xlog1py.other_scalar",
        "aten::special_xlog1py.self_scalar",
    ] {
        r.op(name, |a| {
            map_float(a, "xlog1py_cpu", ORDERED, &[0, 1], |x| x_times(x[0], x[1], x[1].log1p()))
        });
    }
    for name in
        ["aten::special_zeta", "aten::special_zeta.other_scalar", "aten::special_zeta.self_scalar"]
    {
        r.op(name, |a| map_float(a, "zeta", ORDERED, &[0, 1], |x| zeta(x[0], x[1])));
    }
    r.op("aten::heaviside", |a| {
        let (x, values) = (a.result_type(&[0])?, a.result_type(&[1])?);
        ensure!(x == values, "heaviside is not yet implemented for tensors with different dtypes.");
        map(a, "heaviside", ORDERED, &[0, 1], |x| {
            let (x, values, zero) = (x[0], x[1], Number::Int(0));
            x.eq(zero).select(values, x.gt(zero).convert(x.dtype()))
        })
    });
    r.op("aten::gcd", |a| map(a, "gcd_cpu", &[Category::Int], &[0, 1], |x| gcd(x[0], x[1])));
    r.op("aten::lcm", |a| {
        map(a, "lcm_cpu", &[Category::Int], &[0, 1], |x| {
            let g = gcd(x[0], x[1]);
            let lcm = abs_int(x[0] / g.max(1i64) * x[1]);
            g.eq(0i64).select(g, lcm)
        })
    });
    r.op("aten::lerp.Scalar", lerp);
    r.op("aten::lerp.Tensor", lerp);
    r.op("aten::addcmul", |a| addc(a, "addcmul_cpu_out", |x, t, u| x + t * u));
    r.op("aten::addcdiv", |a| {
        ensure!(
            !a.result_type(&[1, 2])?.is_integral(),
            "Integer division with addcdiv is no longer supported; use \
             (self + value * torch.trunc(tensor1 / tensor2)).to(self.dtype) for the historic \
             behaviour, or (self + value * tensor1 / tensor2) for a true division"
        );
        addc(a, "addcdiv_cpu_out", |x, t, u| x + t / u)
    });
    r.op("aten::complex", |a| parts(a, |re, im| re.complex(im)));
    r.op("aten::polar", |a| parts(a, |abs, angle| (abs * angle.cos()).complex(abs * angle.sin())));
}

/// That an op has no kernel for `dtype`. The shim then asks PyTorch's CPU kernel, which raises
/// its own error if it has none either.
pub(super) fn unsupported(op: &str, dtype: DType) -> Error {
    let dtype = dtype.scalar_type_name();
    Error::new(ErrorKind::NotImplemented, format!("\"{op}\" not implemented for '{dtype}'"))
}

/// An error unless `dtype` is of one of these kinds.
pub(super) fn only(op: &str, dtype: DType, kinds: &[Category]) -> Result<()> {
    if kinds.contains(&dtype.category()) { Ok(()) } else { Err(unsupported(op, dtype)) }
}

/// Elementwise over the operands at `positions` in the opmath of their result type. Each operand
/// is first rounded to the result type, as PyTorch's kernels take a number.
pub(super) fn map<'b>(
    a: &Args<'b>,
    op: &str,
    kinds: &[Category],
    positions: &[usize],
    f: impl FnOnce(&[V<'b>]) -> V<'b>,
) -> Out<'b> {
    let dtype = a.result_type(positions)?;
    only(op, dtype, kinds)?;
    map_as(a, positions, dtype, f)
}

/// As `map`, but integers and bools compute in the default float type.
pub(super) fn map_float<'b>(
    a: &Args<'b>,
    op: &str,
    kinds: &[Category],
    positions: &[usize],
    f: impl FnOnce(&[V<'b>]) -> V<'b>,
) -> Out<'b> {
    let dtype = a.result_type(positions)?;
    only(op, dtype, kinds)?;
    map_as(a, positions, if dtype.is_inexact() { dtype } else { DType::F32 }, f)
}

/// As `map`, in a given result type.
pub(super) fn map_as<'b>(
    a: &Args<'b>,
    positions: &[usize],
    dtype: DType,
    f: impl FnOnce(&[V<'b>]) -> V<'b>,
) -> Out<'b> {
    let compute = dtype.opmath();
    let mut operands = Vec::with_capacity(positions.len());
    for &i in positions {
        operands.push(a.to(i, dtype)?.convert(compute));
    }
    let y = f(&operands);
    (if y.dtype() == compute { y.convert(dtype) } else { y }).out()
}

/// self ± alpha · other.
fn add<'b>(a: &Args<'b>, subtract: bool) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    if subtract {
        check_sub(a)?;
    }
    let alpha = alpha(a, dtype)?;
    a.pointwise(&[0, 1], |x| {
        let y = alpha.map_or(x[1], |n| x[1] * n.to(dtype.opmath()));
        if subtract { x[0] - y } else { x[0] + y }
    })
}

/// other − alpha · self.
fn rsub<'b>(a: &Args<'b>) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    check_sub(a)?;
    let alpha = alpha(a, dtype)?;
    a.pointwise(&[0, 1], |x| x[1] - alpha.map_or(x[0], |n| x[0] * n.to(dtype.opmath())))
}

/// The factor of the second operand, `None` if it is 1: that is the default and worth a graph of
/// its own; other values share one.
fn alpha<'b>(a: &Args<'b>, dtype: DType) -> Result<Option<Num<'b>>> {
    let alpha = a.num(2)?;
    let category = alpha.category();
    ensure!(
        category != Category::Bool || dtype.is_bool(),
        "Boolean alpha only supported for Boolean results."
    );
    ensure!(
        !dtype.is_integral() || category <= Category::Int,
        "For integral input tensors, argument alpha must not be a floating point number."
    );
    ensure!(
        dtype.is_complex() || category != Category::Complex,
        "For non-complex input tensors, argument alpha must not be a complex number."
    );
    Ok(unless_one(a, alpha))
}

/// The number, or nothing (and it is fixed) if it is 1.
fn unless_one<'b>(a: &Args<'b>, n: Num<'b>) -> Option<Num<'b>> {
    if n.value.to_f64() == 1.0 && n.value.imag() == 0.0 {
        a.pin(n);
        return None;
    }
    Some(n)
}

fn check_sub(a: &Args<'_>) -> Result<()> {
    let (x, y) = (a.result_type(&[0])?.is_bool(), a.result_type(&[1])?.is_bool());
    ensure!(
        !(x && y),
        NotImplemented,
        "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or \
         `logical_xor()` operator instead."
    );
    ensure!(
        !(x || y),
        NotImplemented,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to \
         invert a mask, use the `~` or `logical_not()` operator instead."
    );
    Ok(())
}

fn div_mode<'b>(a: &Args<'b>) -> Out<'b> {
    match a.opt_str(2)? {
        None => a.pointwise_float(&[0, 1], |x| x[0] / x[1]),
        Some("trunc") => map(a, "div_trunc_cpu", REAL, &[0, 1], |x| {
            let q = x[0] / x[1];
            if q.dtype().is_float() { trunc(q) } else { q }
        }),
        Some("floor") => map(a, "div_floor_cpu", REAL, &[0, 1], |x| div_floor(x[0], x[1])),
        Some(other) => Err(Error::runtime(format!(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'"
        ))),
    }
}

/// Toward zero.
pub(super) fn trunc(x: V<'_>) -> V<'_> {
    x.lt(0.0).select(x.ceil(), x.floor())
}

/// Whether a C remainder has to move by one divisor to have the divisor's sign.
fn crosses<'b>(rem: V<'b>, divisor: V<'b>) -> V<'b> {
    let zero = Number::Int(0);
    rem.ne(zero).and(divisor.lt(zero).ne(rem.lt(zero)))
}

/// Python's `//`.
fn div_floor<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let dtype = x.dtype();
    let rem = x.rem(y);
    if dtype.is_int() {
        let q = x / y;
        return if dtype.is_unsigned() { q } else { q - crosses(rem, y).convert(dtype) };
    }
    // The quotient of what divides evenly, rounded to the whole number it stands for: x / y may
    // round up past it.
    let q = (x - rem) / y - crosses(rem, y).convert(dtype);
    let floor = q.floor();
    let floor = floor + (q - floor).gt(0.5).convert(dtype);
    let plain = x / y;
    let zero = copysign(x.full_like(0.0), plain);
    y.eq(0.0).select(plain, q.ne(0.0).select(floor, zero))
}

/// Python's `%`.
fn remainder<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let rem = x.rem(y);
    if x.dtype().is_unsigned() { rem } else { crosses(rem, y).select(rem + y, rem) }
}

fn pow_scalar<'b>(a: &Args<'b>) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    let exponent = a.num(1)?;
    let real = exponent.value.imag() == 0.0;
    let value = exponent.value.to_f64();
    if real && (value == 0.0 || value == 1.0) {
        a.pin(exponent);
        let x = a.to(0, dtype)?;
        return if value == 0.0 { x.full_like(1i64).out() } else { x.out() };
    }
    only("pow", dtype, NUMERIC)?;
    if dtype.is_int() {
        a.pin(exponent);
        ensure!(
            exponent.value.to_i64() >= 0,
            "Integers to negative integer powers are not allowed."
        );
        let n = exponent.value.to_i64();
        return map_as(a, &[0], dtype, |x| int_pow(x[0], n));
    }
    let simple: Option<fn(V<'_>) -> V<'_>> = match value {
        _ if !real => None,
        2.0 => Some(|x| x * x),
        3.0 => Some(|x| x * x * x),
        0.5 => Some(|x| x.sqrt()),
        -0.5 => Some(|x| x.rsqrt()),
        -1.0 => Some(|x| 1.0 / x),
        -2.0 => Some(|x| 1.0 / (x * x)),
        _ => None,
    };
    map_as(a, &[0], dtype, |x| match simple {
        Some(f) => {
            a.pin(exponent);
            f(x[0])
        }
        None => x[0].pow(exponent.to(dtype).convert(dtype.opmath())),
    })
}

/// Repeated squaring; wraps around as integer products do.
fn int_pow(x: V<'_>, mut n: i64) -> V<'_> {
    let (mut square, mut product) = (x, None);
    while n > 0 {
        if n & 1 == 1 {
            product = Some(product.map_or(square, |p: V<'_>| p * square));
        }
        n >>= 1;
        if n > 0 {
            square = square * square;
        }
    }
    product.unwrap_or_else(|| x.full_like(1i64))
}

fn scalar_pow<'b>(a: &Args<'b>) -> Out<'b> {
    let dtype = a.result_type(&[0, 1])?;
    let base = a.num(0)?;
    if unless_one(a, base).is_none() {
        return a.to(1, dtype)?.full_like(1i64).out();
    }
    map(a, "pow", NUMERIC, &[0, 1], |x| pow(x[0], x[1]))
}

fn pow<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let dtype = x.dtype();
    if dtype.is_int() {
        return int_pow_by(x, y);
    }
    let power = x.pow(y);
    if !dtype.is_complex() {
        return power;
    }
    // By logarithms, 0 to a power would be NaN.
    let vanishes = x.eq(0.0).and(y.real().gt(0.0));
    y.eq(0.0).select(power.full_like(1.0), vanishes.select(power.full_like(0.0), power))
}

/// Repeated squaring by the bits of an integer exponent. Negative powers round to 0, but for
/// those of 1 and −1.
fn int_pow_by<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let (x, y) = x.broadcast_with(y);
    let (signed, width) = (!x.dtype().is_unsigned(), x.dtype().size() * 8);
    let (mut square, mut product) = (x, x.full_like(1i64));
    for bit in 0..width - usize::from(signed) {
        let set = y.and(1i64 << bit).ne(0i64);
        product = set.select(product * square, product);
        square = square * square;
    }
    if !signed {
        return product;
    }
    let odd = y.and(1i64).ne(0i64);
    let minus = odd.select(x, x * x);
    let unit = x.eq(1i64).or(x.eq(-1i64));
    y.lt(0i64).select(unit.select(minus, x.full_like(0i64)), product)
}

/// √(x² + y²) without overflow in between.
fn hypot<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let (x, y) = (x.abs(), y.abs());
    let (high, low) = (x.max(y), x.min(y));
    let ratio = low / high;
    let length = high * (ratio * ratio + 1.0).sqrt();
    let inf = f64::INFINITY;
    // An infinite side wins over a NaN one; 0/0 is no ratio.
    let length = high.eq(0.0).select(high, length);
    x.eq(inf).or(y.eq(inf)).select(x.full_like(inf), length)
}

/// Whether the sign is negative, −0 and −NaN included.
pub(super) fn sign_bit(x: V<'_>) -> V<'_> {
    let dtype = x.dtype();
    if !dtype.is_float() {
        return if dtype.is_unsigned() {
            x.b.full(false, DType::Bool, &x.sizes())
        } else {
            x.lt(0i64)
        };
    }
    let bits = match dtype.size() {
        1 => DType::I8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    };
    x.bitcast(bits).lt(0i64)
}

fn copysign<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let magnitude = x.abs();
    sign_bit(y).select(-magnitude, magnitude)
}

pub(super) fn exp2(x: V<'_>) -> V<'_> {
    x.full_like(2.0).pow(x)
}

/// log(bˣ + bʸ), given log_b(1 + bᵈ) for d ≤ 0.
fn log_add<'b>(x: V<'b>, y: V<'b>, tail: impl FnOnce(V<'b>) -> V<'b>) -> V<'b> {
    let sum = x.max(y) + tail(-(x - y).abs());
    // Equal infinities have no difference.
    x.eq(y).and(x.is_inf()).select(x, sum)
}

/// The Hurwitz zeta function ζ(x, q), with its poles at 1 and the whole numbers q ≤ 0.
pub(super) fn zeta<'b>(x: V<'b>, q: V<'b>) -> V<'b> {
    let value = x.zeta(q);
    let (inf, nan) = (value.full_like(f64::INFINITY), value.full_like(f64::NAN));
    let pole = x.eq(1.0).or(x.gt(1.0).and(q.le(0.0)).and(q.eq(q.floor())));
    pole.select(inf, x.lt(1.0).select(nan, value))
}

/// x · f(y), where 0 times anything but NaN is 0.
fn x_times<'b>(x: V<'b>, y: V<'b>, f: V<'b>) -> V<'b> {
    let product = x.eq(0.0).select(x.full_like(0.0), x * f);
    y.is_nan().select(y, product)
}

/// Euclid's algorithm for as many steps as the type can need (its worst case are neighbouring
/// Fibonacci numbers: 1.45 steps a bit).
fn gcd<'b>(x: V<'b>, y: V<'b>) -> V<'b> {
    let steps = (x.dtype().size() as f64 * 8.0 * 1.45).ceil() as usize;
    let (x, y) = x.broadcast_with(y);
    let (mut high, mut low) = (abs_int(x), abs_int(y));
    for _ in 0..steps {
        let done = low.eq(0i64);
        let rem = high.rem(low.max(1i64));
        (high, low) = (done.select(high, low), done.select(low, rem));
    }
    high
}

/// |x|; an unsigned value is its own.
pub(super) fn abs_int(x: V<'_>) -> V<'_> {
    if x.dtype().is_unsigned() { x } else { x.abs() }
}

/// self + weight · (end − self), reckoned from the nearer end, so that weight 1 gives `end`.
fn lerp<'b>(a: &Args<'b>) -> Out<'b> {
    let (dtype, end) = (a.result_type(&[0])?, a.result_type(&[1])?);
    ensure!(dtype == end, "expected dtype {dtype} for `end` but got dtype {end}");
    if let Some(w) = a.opt(2)?.filter(|w| w.rank() > 0) {
        let w = w.dtype();
        ensure!(dtype == w, "expected dtype {dtype} for `weight` but got dtype {w}");
    }
    only("lerp_kernel_scalar", dtype, INEXACT)?;
    let compute = dtype.opmath();
    let w = a.to(2, compute)?;
    map_as(a, &[0, 1], dtype, |x| {
        let (start, end) = (x[0], x[1]);
        let size = if compute.is_complex() { w.abs() } else { w };
        let near = size.lt(0.5);
        let (base, w) = (near.select(start, end), near.select(w, w - 1.0));
        base + w * (end - start)
    })
}

/// self + value · tensor1 ∘ tensor2; `f` combines self, value · tensor1 and tensor2.
fn addc<'b>(a: &Args<'b>, op: &str, f: impl FnOnce(V<'b>, V<'b>, V<'b>) -> V<'b>) -> Out<'b> {
    let value = unless_one(a, a.num(3)?);
    map(a, op, NUMERIC, &[0, 1, 2], |x| {
        let t = value.map_or(x[1], |n| x[1] * n.to(x[1].dtype()));
        f(x[0], t, x[2])
    })
}

/// A complex tensor of two float ones.
fn parts<'b>(a: &Args<'b>, f: impl FnOnce(V<'b>, V<'b>) -> V<'b>) -> Out<'b> {
    let (x, y) = (a.t(0)?, a.t(1)?);
    let (p, q) = (x.dtype(), y.dtype());
    if !matches!(p, DType::F32 | DType::F64) {
        return Err(unsupported("complex", p));
    }
    ensure!(
        p == q,
        "Expected object of scalar type {} but got scalar type {} for second argument",
        p.scalar_type_name(),
        q.scalar_type_name()
    );
    f(x, y).out()
}
