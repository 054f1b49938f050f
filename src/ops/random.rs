//! Random numbers: a counter-based generator and the distributions drawn from it.
//!
//! A number is a function of the generator's seed, its call counter and the element's index
//! alone, so it depends neither on the mode nor on what it is fused with. The function is
//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
//! SC 2011).

use std::f64::consts::{PI, SQRT_2};

use super::elementwise::{FLOAT, map_as, only, unsupported};
use super::{Args, Num, Out, Registry, outs};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.random("aten::uniform", uniform_between);
    normals(r);
    bernoullis(r);
    integers(r);
    transformed(r);
    permutations(r);
    r.random("aten::native_dropout", dropout);
    r.op("aten::native_dropout_backward", |a| {
        let scale = a.num(2)?;
        let dtype = a.result_type(&[0])?;
        map_as(a, &[0, 1], dtype, |x| x[0] * x[1] * scale.to(x[0].dtype()))
    });
    r.random("aten::rrelu_with_noise", rrelu);
}

/// The multipliers and key increments of Philox4x32.
const MULTIPLIERS: [i64; 2] = [0xd251_1f53, 0xcd9e_8d57];
const INCREMENTS: [i64; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// The four random words of each block. `blocks`: u32 or u64 block numbers.
fn philox<'b>(a: &Args<'b>, blocks: V<'b>) -> Result<[V<'b>; 4]> {
    let (seed, counter) = a.rng()?;
    let (mut key, call) = (split(seed), split(counter));
    let [b0, b1] = if blocks.dtype() == DType::U64 {
        split(blocks)
    } else {
        [blocks, a.b.full(0i64, DType::U32, &[])]
    };
    let mut c = [b0, b1, call[0], call[1]];
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0] + INCREMENTS[0], key[1] + INCREMENTS[1]];
        }
        let [low0, high0] = split(c[0].convert(DType::U64) * MULTIPLIERS[0]);
        let [low1, high1] = split(c[2].convert(DType::U64) * MULTIPLIERS[1]);
        c = [high1.xor(c[1]).xor(key[0]), low1, high0.xor(c[3]).xor(key[1]), low0];
    }
    Ok(c)
}

/// The low and the high half of 64-bit words.
fn split(words: V<'_>) -> [V<'_>; 2] {
    let half = |w: V<'_>| w.convert(DType::U32).id;
    let (low, high) = (half(words), half(words.shift_right(32i64)));
    [V { b: words.b, id: low }, V { b: words.b, id: high }]
}

/// Element numbers `0..n`, as blocks of `2^bits` elements: block, place in the block.
fn blocks<'b>(a: &Args<'b>, n: i64, bits: i64) -> (V<'b>, V<'b>) {
    let wide = n > i64::from(u32::MAX);
    let index = a.b.iota(if wide { DType::U64 } else { DType::U32 }, &[n], 0);
    let place = index.and((1i64 << bits) - 1).convert(DType::U32);
    (index.shift_right(bits), place)
}

/// A u32 an element: word i mod 4 of block ⌊i/4⌋.
fn words<'b>(a: &Args<'b>, n: i64) -> Result<V<'b>> {
    let (block, place) = blocks(a, n, 2);
    let w = philox(a, block)?;
    let odd = place.and(1i64).ne(0i64);
    Ok(place.lt(2i64).select(odd.select(w[1], w[0]), odd.select(w[3], w[2])))
}

/// Two u32 an element: words 2i mod 4 and 2i + 1 mod 4 of block ⌊i/2⌋.
fn word_pairs<'b>(a: &Args<'b>, n: i64) -> Result<[V<'b>; 2]> {
    let (block, place) = blocks(a, n, 1);
    let w = philox(a, block)?;
    let first = place.eq(0i64);
    Ok([first.select(w[0], w[2]), first.select(w[1], w[3])])
}

/// 64 random bits of two words.
fn join<'b>(w: [V<'b>; 2]) -> V<'b> {
    w[1].convert(DType::U64).shift_left(32i64).or(w[0].convert(DType::U64))
}

/// The bits of precision that a uniform number of a type has.
fn digits(dtype: DType) -> i64 {
    match dtype {
        DType::F64 => 53,
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F8E4M3FN => 4,
        DType::F8E5M2 => 3,
        _ => 24,
    }
}

/// Uniform in [0, 1), exact in `dtype`, given in its opmath; one-dimensional.
fn uniform<'b>(a: &Args<'b>, dtype: DType, n: i64) -> Result<V<'b>> {
    let digits = digits(dtype);
    let (bits, width) =
        if dtype == DType::F64 { (join(word_pairs(a, n)?), 64) } else { (words(a, n)?, 32) };
    Ok(bits.shift_right(width - digits).convert(dtype.opmath()) * 2f64.powi(-digits as i32))
}

/// Uniform in (0, 1] out of a whole word, with small values as finely spaced as 2⁻³³ (2⁻⁵⁴).
fn to_open(w: V<'_>) -> V<'_> {
    if w.dtype() == DType::U64 {
        (w.shift_right(11i64).convert(DType::F64) + 0.5) * 2f64.powi(-53)
    } else {
        (w.convert(DType::F32) + 0.5) * 2f64.powi(-32)
    }
}

/// As `to_open`, of `n` fresh elements, in `compute` (f32 or f64).
fn open_uniform<'b>(a: &Args<'b>, compute: DType, n: i64) -> Result<V<'b>> {
    Ok(to_open(if compute == DType::F64 { join(word_pairs(a, n)?) } else { words(a, n)? }))
}

/// Standard normal by Box and Muller, in `compute` (f32 or f64); one-dimensional.
fn gaussian<'b>(a: &Args<'b>, compute: DType, n: i64) -> Result<V<'b>> {
    let (radius, turn) = if compute == DType::F64 {
        let w = philox(a, a.b.iota(DType::U64, &[n], 0))?;
        (to_open(join([w[0], w[1]])), to_open(join([w[2], w[3]])))
    } else {
        // Elements 2k and 2k + 1 are the cosine and the sine of one angle.
        let (block, place) = blocks(a, n, 2);
        let w = philox(a, block)?;
        let first = place.lt(2i64);
        let quarter = place.and(1i64).convert(compute) * 0.25;
        (to_open(first.select(w[0], w[2])), to_open(first.select(w[1], w[3])) - quarter)
    };
    Ok((radius.log() * -2.0).sqrt() * (turn * (2.0 * PI)).cos())
}

/// Standard normal values of `dtype`'s opmath. Real and imaginary part of a complex one have
/// half its variance each.
fn normal<'b>(a: &Args<'b>, dtype: DType, sizes: &[i64]) -> Result<V<'b>> {
    let n: i64 = sizes.iter().product();
    if dtype.is_complex() {
        let z = (gaussian(a, dtype.real(), 2 * n)? / SQRT_2).reshape(&[n, 2]);
        return Ok(z.at(1, 0).complex(z.at(1, 1)).reshape(sizes));
    }
    only("normal_", dtype, FLOAT)?;
    Ok(gaussian(a, dtype.opmath(), n)?.reshape(sizes))
}

/// The type that draws for a tensor of `dtype` are made in: f64 or f32.
fn draw_type(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

fn uniform_between<'b>(a: &Args<'b>) -> Out<'b> {
    let (t, low, high) = (a.t(0)?, a.num(1)?, a.num(2)?);
    let dtype = t.dtype();
    only("uniform", dtype, FLOAT)?;
    let (from, to) = (low.value.to_f64(), high.value.to_f64());
    let ordered = from <= to;
    ensure!(
        ordered,
        "uniform_ expects to return a [from, to) range, but found from={from} > to={to}"
    );
    let compute = dtype.opmath();
    let u = uniform(a, dtype, t.numel())?.reshape(&t.sizes());
    let (low, high) = (low.to(compute), high.to(compute));
    let y = (u * (high - low) + low).convert(dtype);
    // Rounding may reach the excluded end.
    y.ge(high.convert(dtype)).select(low.convert(dtype).broadcast_to(&y.sizes()), y).out()
}

fn normals(r: &mut Registry) {
    r.random("aten::normal", |a| {
        let (t, mean, std) = (a.t(0)?, a.num(1)?, a.num(2)?);
        check_std(std)?;
        let dtype = t.dtype();
        let z = normal(a, dtype, &t.sizes())?;
        (z * std.to(z.dtype()) + mean.to(z.dtype())).convert(dtype).out()
    });
    r.random("aten::normal.Tensor_float", |a| {
        check_std(a.num(1)?)?;
        normal_of(a, a.t(0)?.dtype())
    });
    r.random("aten::normal.float_Tensor", |a| normal_of(a, a.t(1)?.dtype()));
    r.random("aten::normal.Tensor_Tensor", |a| normal_of(a, a.t(0)?.dtype()));
}

fn check_std(std: Num<'_>) -> Result<()> {
    let std = std.value.to_f64();
    let valid = std >= 0.0;
    ensure!(valid, "normal expects std >= 0.0, but found std {std}");
    Ok(())
}

/// Normal with the mean and standard deviation at positions 0 and 1.
fn normal_of<'b>(a: &Args<'b>, dtype: DType) -> Out<'b> {
    only("normal_", dtype, FLOAT)?;
    let compute = dtype.opmath();
    let (mean, std) = a.to(0, compute)?.broadcast_with(a.to(1, compute)?);
    let z = normal(a, dtype, &mean.sizes())?;
    (z * std + mean).convert(dtype).out()
}

/// True with probability `p` (a scalar, or of the shape `sizes`).
fn chance<'b>(a: &Args<'b>, p: V<'b>, sizes: &[i64]) -> Result<V<'b>> {
    let compute = draw_type(p.dtype());
    let u = uniform(a, compute, sizes.iter().product())?.reshape(sizes);
    Ok(u.lt(p.convert(compute)))
}

fn bernoullis(r: &mut Registry) {
    r.random("aten::bernoulli", |a| {
        let p = a.t(0)?;
        only("bernoulli_tensor_cpu_p_", p.dtype(), FLOAT)?;
        chance(a, p, &p.sizes())?.convert(p.dtype()).out()
    });
    for name in ["aten::bernoulli.p", "aten::bernoulli.float"] {
        r.random(name, |a| {
            let (t, p) = (a.t(0)?, a.num(1)?);
            check_probability(p, "bernoulli_")?;
            chance(a, p.to(draw_type(t.dtype())), &t.sizes())?.convert(t.dtype()).out()
        });
    }
    r.random("aten::bernoulli.Tensor", |a| {
        let (t, p) = (a.t(0)?, a.t(1)?);
        only("bernoulli_tensor_cpu_p_", p.dtype(), FLOAT)?;
        chance(a, p, &t.sizes())?.convert(t.dtype()).out()
    });
}

fn check_probability(p: Num<'_>, op: &str) -> Result<()> {
    let p = p.value.to_f64();
    ensure!((0.0..=1.0).contains(&p), "{op} expects p to be in [0, 1], but got p={p}");
    Ok(())
}

/// The integers that `random_` draws for a type by default are `0..=highest`.
fn highest(dtype: DType) -> i64 {
    match dtype {
        DType::Bool => 1,
        DType::U64 => i64::MAX,
        d if d.is_float() => 1 << digits(d),
        d => d.max_value().to_i64(),
    }
}

fn integers(r: &mut Registry) {
    r.random("aten::random", |a| {
        let t = a.t(0)?;
        random_integers(a, t, 0, i128::from(highest(t.dtype())) + 1)
    });
    r.random("aten::random.to", |a| random_integers(a, a.t(0)?, 0, a.int(1)?.into()));
    r.random("aten::random.from", |a| {
        let t = a.t(0)?;
        let to = a.opt_int(2)?.map_or(i128::from(highest(t.dtype())) + 1, i128::from);
        random_integers(a, t, a.int(1)?, to)
    });
}

/// Integers in `from..to`, of the shape and dtype of `t`.
fn random_integers<'b>(a: &Args<'b>, t: V<'b>, from: i64, to: i128) -> Out<'b> {
    let dtype = t.dtype();
    if dtype.is_complex() {
        return Err(unsupported("random_", dtype));
    }
    ensure!(
        i128::from(from) < to,
        "random_ expects 'from' to be less than 'to', but got from={from} >= to={to}"
    );
    if dtype.is_integral() {
        let (low, high) = (i128::from(dtype.min_value().to_i64()), i128::from(highest(dtype)));
        ensure!((low..=high).contains(&from.into()), "from is out of bounds for {dtype}");
        ensure!(to - 1 <= high, "to - 1 is out of bounds for {dtype}");
    }
    let (n, range) = (t.numel(), to - i128::from(from));
    let offset = if range <= 1 << 16 {
        // The high part of word · range: no division, and a bias below 2⁻¹⁶.
        (words(a, n)?.convert(DType::U64) * range as i64).shift_right(32i64)
    } else if range < 1 << 64 {
        // A u64 literal is written as two's complement.
        join(word_pairs(a, n)?).rem(range as u64 as i64)
    } else {
        join(word_pairs(a, n)?)
    };
    (offset.convert(DType::I64) + from).reshape(&t.sizes()).convert(dtype).out()
}

/// Draws transformed from uniform or normal ones, for float tensors (`ints`: integers too).
fn transformed(r: &mut Registry) {
    r.random("aten::exponential", |a| {
        let rate = a.num(1)?;
        let value = rate.value.to_f64();
        let valid = value > 0.0;
        ensure!(valid, "exponential_ expects lambda > 0.0, but found lambda={value}");
        drawn(a, "exponential_", |u| exponential(u) / rate.to(u.dtype()))
    });
    r.random("aten::cauchy", |a| {
        let (median, sigma) = (a.num(1)?, a.num(2)?);
        let value = sigma.value.to_f64();
        let valid = value > 0.0;
        ensure!(valid, "cauchy_ expects sigma > 0.0, but found sigma={value}");
        drawn(a, "cauchy_", |u| {
            let (median, sigma) = (median.to(u.dtype()), sigma.to(u.dtype()));
            median + sigma * ((u - 0.5) * PI).tan()
        })
    });
    r.random("aten::log_normal", |a| {
        let (t, mean, std) = (a.t(0)?, a.num(1)?, a.num(2)?);
        let value = std.value.to_f64();
        let valid = value > 0.0;
        ensure!(valid, "log_normal_ expects std > 0.0, but found std={value}");
        only("log_normal_", t.dtype(), FLOAT)?;
        let z = normal(a, t.dtype(), &t.sizes())?;
        (z * std.to(z.dtype()) + mean.to(z.dtype())).exp().convert(t.dtype()).out()
    });
    r.random("aten::geometric", |a| {
        let (t, p) = (a.t(0)?, a.num(1)?);
        let value = p.value.to_f64();
        ensure!(
            0.0 < value && value < 1.0,
            "geometric_ expects p to be in (0, 1), but got p={value}"
        );
        if t.dtype().is_complex() {
            return Err(unsupported("geometric_", t.dtype()));
        }
        let u = open_uniform(a, draw_type(t.dtype()), t.numel())?;
        let trials = (u.log() / (-p.to(u.dtype())).log1p()).ceil().max(1.0);
        trials.reshape(&t.sizes()).convert(t.dtype()).out()
    });
}

/// A float tensor like the first argument, each element `f` of a uniform number in (0, 1].
fn drawn<'b>(a: &Args<'b>, op: &str, f: impl FnOnce(V<'b>) -> V<'b>) -> Out<'b> {
    let t = a.t(0)?;
    only(op, t.dtype(), FLOAT)?;
    let u = open_uniform(a, t.dtype().opmath(), t.numel())?;
    f(u).reshape(&t.sizes()).convert(t.dtype()).out()
}

/// Exponential with rate 1, never 0 (a divisor it may be).
fn exponential(u: V<'_>) -> V<'_> {
    (-u.log()).max(u.dtype().epsilon() / 2.0)
}

fn permutations(r: &mut Registry) {
    r.random("aten::randperm", |a| randperm(a, 1));
    r.random("aten::randperm.generator", |a| randperm(a, 2));
    r.random("aten::multinomial", multinomial);
}

/// The order in which random keys sort.
fn randperm<'b>(a: &Args<'b>, dtype: usize) -> Out<'b> {
    let n = a.int(0)?;
    ensure!(n >= 0, "n must be non-negative, got {n}");
    // Under out= there is no dtype argument; the result is converted to the tensor's.
    let dtype = a.opt_dtype(dtype).ok().flatten().unwrap_or(DType::I64);
    let keys = join(word_pairs(a, n)?);
    a.b.sort(&[keys, a.b.iota(DType::I64, &[n], 0)], 0, false)[1].convert(dtype).out()
}

fn multinomial<'b>(a: &Args<'b>) -> Out<'b> {
    let (p, k, replacement) = (a.t(0)?, a.int(1)?, a.bool(2)?);
    let dtype = p.dtype();
    ensure!(
        dtype.is_float(),
        "multinomial only supports floating-point dtypes for input, got: {}",
        dtype.scalar_type_name()
    );
    let rank = p.rank();
    ensure!(rank == 1 || rank == 2, "prob_dist must be 1 or 2 dim");
    let n = p.size(rank - 1);
    ensure!(k > 0, "cannot sample n_sample <= 0 samples");
    ensure!(
        replacement || k <= n,
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
    );
    let rows = if rank == 2 { p.size(0) } else { 1 };
    let p = p.convert(draw_type(dtype)).reshape(&[rows, n]);
    let drawn = if k == 1 || !replacement {
        // The largest of p / Exp(1): the first to arrive of n Poisson processes.
        let e = exponential(open_uniform(a, p.dtype(), rows * n)?).reshape(&[rows, n]);
        let keys = p / e;
        if k == 1 {
            keys.arg_reduce(true, 1, true).1
        } else {
            let index = a.b.iota(DType::I64, &[rows, n], 1);
            a.b.sort(&[keys, index], 1, true)[1].slice(1, 0, k, 1)
        }
    } else {
        // How many of the cumulated probabilities a uniform number has passed.
        let sums = p.cumulative(crate::ir::ReduceKind::Sum, 1);
        let total = sums.slice(1, n - 1, n, 1);
        let u = uniform(a, p.dtype(), rows * k)?.reshape(&[rows, k]) * total;
        let passed = sums.unsqueeze(1).le(u.unsqueeze(2)).convert(DType::I64);
        // u · total may round up to the total.
        passed.sum(&[2], false).min(n - 1)
    };
    let sizes: Shape = if rank == 2 { [rows, k].as_slice().into() } else { [k].as_slice().into() };
    drawn.reshape(&sizes).out()
}

/// (input with elements zeroed with probability p and the others scaled up, which were kept)
fn dropout<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, p) = (a.t(0)?, a.num(1)?);
    only("native_dropout", x.dtype(), FLOAT)?;
    if a.opt_bool(2)? == Some(false) {
        return outs([x, a.b.full(true, DType::Bool, &x.sizes())]);
    }
    check_probability(p, "dropout")?;
    let compute = x.dtype().opmath();
    let keep = 1.0 - p.to(compute);
    let scale = keep.eq(0.0).select(keep, 1.0 / keep);
    let mask = chance(a, keep, &x.sizes())?;
    let y = x.convert(compute) * mask.convert(compute) * scale;
    outs([y.convert(x.dtype()), mask])
}

/// Leaky ReLU with a random slope an element while training; the slopes go to `noise`.
fn rrelu<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, low, high) = (a.t(0)?, a.num(2)?, a.num(3)?);
    let dtype = x.dtype();
    only("rrelu_with_noise_out_cpu", dtype, FLOAT)?;
    let ordered = low.value.to_f64() <= high.value.to_f64();
    ensure!(ordered, "Lower bound should be less than or equal to the upper bound");
    let compute = dtype.opmath();
    let (x, low, high) = (x.convert(compute), low.to(compute), high.to(compute));
    if !a.bool(4)? {
        let slope = (low + high) * 0.5;
        return x.gt(0.0).select(x, x * slope).convert(dtype).out();
    }
    let slope = uniform(a, dtype, x.numel())?.reshape(&x.sizes()) * (high - low) + low;
    let negative = x.le(0.0);
    let noise = negative.select(slope, 1.0);
    let mut out = outs([negative.select(x * slope, x).convert(dtype)])?;
    out.writes.push((1, noise.convert(dtype)));
    Ok(out)
}
