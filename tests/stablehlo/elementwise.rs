use defer_and_fuse::ir::{BinaryOp, CompareDir, DType, Number, Prim, UnaryOp};

use crate::harness::{
    FLOATS, INF, INTS, NAN, REALS, Tensor, c, client, close, decode, exact, run, run1, t,
};

fn unary(op: UnaryOp, x: &Tensor) -> Tensor {
    run1(std::slice::from_ref(x), |_, x| x[0].unary(op))
}

fn binary(op: BinaryOp, x: &Tensor, y: &Tensor) -> Tensor {
    run1(&[x.clone(), y.clone()], |_, x| x[0].binary(op, x[1]))
}

const EULER: f64 = 0.577_215_664_901_532_9;
const PI: f64 = std::f64::consts::PI;

/// Functions of floats, each with arguments exact in every dtype and the true values.
fn functions() -> Vec<(UnaryOp, Vec<f64>, Vec<f64>)> {
    let of = |op, f: fn(f64) -> f64, x: &[f64]| (op, x.to_vec(), x.iter().map(|&v| f(v)).collect());
    let wide = [0.0, -0.0, 0.5, -0.5, 1.5, -2.0, NAN];
    let ends = [0.5, -1.5, INF, -INF, NAN];
    let unit = [0.0, 0.5, -0.75, 1.0, 1.5, NAN];
    let positive = [0.25, 1.0, 2.0, 0.0, -1.0, INF, NAN];
    vec![
        of(UnaryOp::Abs, f64::abs, &wide),
        of(UnaryOp::Neg, |v| -v, &wide),
        of(UnaryOp::Floor, f64::floor, &[1.5, -1.5, -0.0, INF, NAN]),
        of(UnaryOp::Ceil, f64::ceil, &[1.5, -1.5, 2.0, -INF, NAN]),
        of(UnaryOp::RoundEven, f64::round_ties_even, &[0.5, 1.5, 2.5, -2.5, -0.5, NAN, INF]),
        of(UnaryOp::Exp, f64::exp, &ends),
        of(UnaryOp::Expm1, f64::exp_m1, &ends),
        of(UnaryOp::Log, f64::ln, &positive),
        of(UnaryOp::Log1p, f64::ln_1p, &[0.0, 0.5, -0.5, -1.0, -2.0, INF, NAN]),
        of(UnaryOp::Sqrt, f64::sqrt, &positive),
        of(UnaryOp::Rsqrt, |v| 1.0 / v.sqrt(), &positive),
        of(UnaryOp::Cbrt, f64::cbrt, &[8.0, -0.125, 1.5, 0.0, INF, NAN]),
        of(UnaryOp::Sin, f64::sin, &wide),
        of(UnaryOp::Cos, f64::cos, &wide),
        of(UnaryOp::Tan, f64::tan, &wide),
        of(UnaryOp::Asin, f64::asin, &unit),
        of(UnaryOp::Acos, f64::acos, &unit),
        of(UnaryOp::Atan, f64::atan, &ends),
        of(UnaryOp::Sinh, f64::sinh, &ends),
        of(UnaryOp::Cosh, f64::cosh, &ends),
        of(UnaryOp::Tanh, f64::tanh, &ends),
        of(UnaryOp::Asinh, f64::asinh, &ends),
        of(UnaryOp::Acosh, f64::acosh, &[1.0, 1.5, 0.5, INF, NAN]),
        of(UnaryOp::Atanh, f64::atanh, &[0.0, 0.5, -0.75, 1.0, -1.0, NAN]),
        of(UnaryOp::Logistic, |v| 1.0 / (1.0 + (-v).exp()), &ends),
        (UnaryOp::Sign, vec![2.0, -3.0, 0.0, INF, -INF, NAN], vec![1.0, -1.0, 0.0, 1.0, -1.0, NAN]),
        (
            UnaryOp::Erf,
            vec![0.0, 0.5, -1.0, INF, NAN],
            vec![0.0, 0.520_499_877_813_046_5, -0.842_700_792_949_714_9, 1.0, NAN],
        ),
        (
            UnaryOp::Erfc,
            vec![0.0, 0.5, -1.0, INF, NAN],
            vec![1.0, 0.479_500_122_186_953_5, 1.842_700_792_949_715, 0.0, NAN],
        ),
        (
            UnaryOp::ErfInv,
            vec![0.0, 0.5, -0.5, 1.0, -1.0, NAN],
            vec![0.0, 0.476_936_276_204_469_9, -0.476_936_276_204_469_9, INF, -INF, NAN],
        ),
        (
            UnaryOp::Lgamma,
            vec![1.0, 0.5, 4.0, 0.0, INF, NAN],
            vec![0.0, PI.sqrt().ln(), 6f64.ln(), INF, INF, NAN],
        ),
        (
            UnaryOp::Digamma,
            vec![1.0, 0.5, 2.0, NAN],
            vec![-EULER, -EULER - 4f64.ln(), 1.0 - EULER, NAN],
        ),
    ]
}

#[test]
fn functions_of_floats() {
    for dtype in FLOATS {
        // One module for all functions: compiling dominates.
        let inputs: Vec<Tensor> =
            functions().iter().map(|(_, x, _)| t(dtype, &[x.len() as i64], x)).collect();
        let outputs = run(&inputs, |_, x| {
            functions().iter().zip(x).map(|((op, ..), x)| x.unary(*op)).collect()
        });
        for ((op, x, want), got) in functions().iter().zip(&outputs) {
            // XLA's lgamma is off by a few roundings of 1 near its zeros.
            let got = if *op == UnaryOp::Lgamma {
                &run1(std::slice::from_ref(got), |_, x| x[0] + 1.0)
            } else {
                got
            };
            let want: Vec<f64> =
                want.iter().map(|v| if *op == UnaryOp::Lgamma { v + 1.0 } else { *v }).collect();
            close(got, &want, 8.0, &format!("{op:?} of {dtype} {x:?}"));
        }
    }
}

#[test]
fn functions_of_floats_refuse_integers() {
    for op in [UnaryOp::Exp, UnaryOp::Erf, UnaryOp::Sqrt] {
        let built = defer_and_fuse::ir::Builder::build(|b| {
            let x = b.iota(DType::I32, &[3], 0);
            Ok::<_, defer_and_fuse::ir::builder::IrError>(x.unary(op).id)
        });
        let message = built.expect_err("an integer has no such function").0;
        assert!(message.contains("int32[3]"), "{message}");
    }
}

#[test]
fn narrow_floats_add_and_keep_special_values() {
    for dtype in [DType::F8E5M2, DType::F8E4M3FN] {
        let x = t(dtype, &[4], &[1.0, -0.0, NAN, 0.5]);
        exact(&binary(BinaryOp::Add, &x, &x), &[2.0, -0.0, NAN, 1.0], "add");
        exact(&unary(UnaryOp::Neg, &x), &[-1.0, 0.0, NAN, -0.5], "neg");
        exact(&run1(&[x], |_, x| x[0].convert(DType::F32)), &[1.0, -0.0, NAN, 0.5], "convert");
    }
}

#[test]
fn unary_of_integers_and_bool() {
    for dtype in INTS {
        let signed = !dtype.is_unsigned();
        let x = t(dtype, &[3], if signed { &[-3.0, 0.0, 5.0] } else { &[3.0, 0.0, 5.0] });
        let s = if signed { -1.0 } else { 1.0 };
        exact(&unary(UnaryOp::Abs, &x), &[3.0, 0.0, 5.0], "abs");
        exact(&unary(UnaryOp::Sign, &x), &[s, 0.0, 1.0], "sign");
        exact(&unary(UnaryOp::Floor, &x), &[3.0 * s, 0.0, 5.0], "floor");
        exact(&unary(UnaryOp::IsFinite, &x), &[1.0; 3], "isfinite");
        exact(
            &unary(UnaryOp::PopulationCount, &t(dtype, &[2], &[5.0, 127.0])),
            &[2.0, 7.0],
            "popcnt",
        );
        let not = unary(UnaryOp::Not, &unary(UnaryOp::Not, &x));
        assert_eq!(not, x, "not not");
        let negative = unary(UnaryOp::Neg, &unary(UnaryOp::Neg, &x));
        assert_eq!(negative, x, "neg neg");
    }
    let x = t(DType::Bool, &[2], &[0.0, 1.0]);
    exact(&unary(UnaryOp::Not, &x), &[1.0, 0.0], "not");
    exact(&unary(UnaryOp::Abs, &x), &[0.0, 1.0], "abs");
    exact(&unary(UnaryOp::Sign, &x), &[0.0, 1.0], "sign");
    exact(&unary(UnaryOp::Neg, &x), &[0.0, 1.0], "neg");
}

#[test]
fn finiteness_and_parts() {
    for dtype in FLOATS {
        let x = t(dtype, &[4], &[1.0, INF, -INF, NAN]);
        exact(&unary(UnaryOp::IsFinite, &x), &[1.0, 0.0, 0.0, 0.0], "isfinite");
        exact(&unary(UnaryOp::Real, &x), &[1.0, INF, -INF, NAN], "real");
        exact(&unary(UnaryOp::Imag, &x), &[0.0; 4], "imag");
    }
    for dtype in [DType::C64, DType::C128] {
        let x = c(dtype, &[3], &[(3.0, -4.0), (INF, 1.0), (0.0, NAN)]);
        exact(&unary(UnaryOp::IsFinite, &x), &[1.0, 0.0, 0.0], "isfinite");
        exact(&unary(UnaryOp::Real, &x), &[3.0, INF, 0.0], "real");
        exact(&unary(UnaryOp::Imag, &x), &[-4.0, 1.0, NAN], "imag");
        exact(&unary(UnaryOp::Abs, &c(dtype, &[1], &[(3.0, -4.0)])), &[5.0], "abs");
        let z = c(dtype, &[1], &[(0.0, PI)]);
        let got = unary(UnaryOp::Exp, &z).values();
        assert!((got[0] + 1.0).abs() < 1e-6 && got[1].abs() < 1e-6, "exp(iπ) = {got:?}");
        let w =
            binary(BinaryOp::Mul, &c(dtype, &[1], &[(1.0, 2.0)]), &c(dtype, &[1], &[(3.0, -1.0)]));
        exact(&w, &[5.0, 5.0], "complex product");
        let pair = [t(dtype.real(), &[1], &[2.0]), t(dtype.real(), &[1], &[-0.0])];
        exact(&binary(BinaryOp::Complex, &pair[0], &pair[1]), &[2.0, -0.0], "complex");
    }
    for op in [
        UnaryOp::Sqrt,
        UnaryOp::Log,
        UnaryOp::Sin,
        UnaryOp::Tan,
        UnaryOp::Asin,
        UnaryOp::Acos,
        UnaryOp::Atan,
        UnaryOp::Sinh,
        UnaryOp::Cosh,
        UnaryOp::Tanh,
        UnaryOp::Asinh,
        UnaryOp::Acosh,
        UnaryOp::Atanh,
        UnaryOp::Sign,
        UnaryOp::Expm1,
        UnaryOp::Log1p,
        UnaryOp::Rsqrt,
        UnaryOp::Cos,
        UnaryOp::Logistic,
        UnaryOp::Neg,
    ] {
        // On the real axis a complex function is the real one.
        let z = unary(op, &c(DType::C128, &[1], &[(0.5, 0.0)])).values();
        if op == UnaryOp::Acosh {
            assert!((z[1].abs() - 0.5f64.acos()).abs() < 1e-12, "{op:?}: {z:?}");
            continue;
        }
        let real = unary(op, &t(DType::F64, &[1], &[0.5])).values()[0];
        assert!((z[0] - real).abs() < 1e-12 && z[1].abs() < 1e-12, "{op:?}: {z:?} and {real}");
    }
}

#[test]
fn binary_of_floats() {
    for dtype in FLOATS {
        let x = t(dtype, &[6], &[1.5, -2.0, 0.0, NAN, INF, -3.5]);
        let y = t(dtype, &[6], &[0.5, 3.0, -0.0, 1.0, INF, 2.0]);
        let cases: [(BinaryOp, [f64; 6]); 9] = [
            (BinaryOp::Add, [2.0, 1.0, 0.0, NAN, INF, -1.5]),
            (BinaryOp::Sub, [1.0, -5.0, 0.0, NAN, NAN, -5.5]),
            (BinaryOp::Mul, [0.75, -6.0, -0.0, NAN, INF, -7.0]),
            (BinaryOp::Div, [3.0, -2.0 / 3.0, NAN, NAN, NAN, -1.75]),
            (BinaryOp::Rem, [0.0, -2.0, NAN, NAN, NAN, -1.5]),
            (BinaryOp::Pow, [1.5f64.sqrt(), -8.0, 1.0, NAN, INF, 12.25]),
            (
                BinaryOp::Atan2,
                [1.5f64.atan2(0.5), (-2f64).atan2(3.0), PI, NAN, PI / 4.0, (-3.5f64).atan2(2.0)],
            ),
            (BinaryOp::Max, [1.5, 3.0, 0.0, NAN, INF, 2.0]),
            (BinaryOp::Min, [0.5, -2.0, 0.0, NAN, INF, -3.5]),
        ];
        let outputs =
            run(&[x, y], |_, x| cases.iter().map(|(op, _)| x[0].binary(*op, x[1])).collect());
        for ((op, want), got) in cases.iter().zip(&outputs) {
            close(got, want, 4.0, &format!("{op:?} of {dtype}"));
        }
    }
    // NaN wins on either side.
    for dtype in REALS {
        let (x, y) = (t(dtype, &[2], &[NAN, 1.0]), t(dtype, &[2], &[1.0, NAN]));
        exact(&binary(BinaryOp::Max, &x, &y), &[NAN, NAN], "max");
        exact(&binary(BinaryOp::Min, &x, &y), &[NAN, NAN], "min");
    }
}

#[test]
fn special_functions_of_two_operands() {
    for dtype in [DType::F32, DType::F64] {
        let (x, y) = (t(dtype, &[3], &[0.0, 1.0, -0.0]), t(dtype, &[3], &[1.0, -INF, 0.0]));
        let (tiny, below) = match dtype {
            DType::F32 => (f64::from(f32::from_bits(1)), f64::from(1f32.next_down())),
            _ => (f64::from_bits(1), 1f64.next_down()),
        };
        exact(&binary(BinaryOp::NextAfter, &x, &y), &[tiny, below, 0.0], "nextafter");
        let (n, x) = (t(dtype, &[2], &[1.0, 0.0]), t(dtype, &[2], &[1.0, 1.0]));
        close(&binary(BinaryOp::Polygamma, &n, &x), &[PI * PI / 6.0, -EULER], 16.0, "polygamma");
        let (s, q) = (t(dtype, &[2], &[2.0, 4.0]), t(dtype, &[2], &[1.0, 1.0]));
        close(&binary(BinaryOp::Zeta, &s, &q), &[PI * PI / 6.0, PI.powi(4) / 90.0], 16.0, "zeta");
    }
}

#[test]
fn binary_of_integers_and_bool() {
    for dtype in INTS {
        let signed = !dtype.is_unsigned();
        let first = if signed { -7.0 } else { 7.0 };
        let x = t(dtype, &[3], &[first, 6.0, 1.0]);
        let y = t(dtype, &[3], &[2.0, 3.0, 1.0]);
        let s = if signed { -1.0 } else { 1.0 };
        let cases: [(BinaryOp, [f64; 3]); 8] = [
            (BinaryOp::Mul, [14.0 * s, 18.0, 1.0]),
            (BinaryOp::Div, [3.0 * s, 2.0, 1.0]),
            (BinaryOp::Rem, [s, 0.0, 0.0]),
            (
                BinaryOp::Pow,
                [49.0, 216.0_f64.min(if dtype == DType::I8 { -40.0 } else { 216.0 }), 1.0],
            ),
            (BinaryOp::Max, [if signed { 2.0 } else { 7.0 }, 6.0, 1.0]),
            (BinaryOp::Min, [if signed { -7.0 } else { 2.0 }, 3.0, 1.0]),
            (BinaryOp::ShiftRightArithmetic, [if signed { -2.0 } else { 1.0 }, 0.0, 0.0]),
            (BinaryOp::ShiftLeft, [28.0 * s, 48.0, 2.0]),
        ];
        let outputs =
            run(&[x, y], |_, x| cases.iter().map(|(op, _)| x[0].binary(*op, x[1])).collect());
        for ((op, want), got) in cases.iter().zip(&outputs) {
            exact(got, want, &format!("{op:?} of {dtype}"));
        }
    }
    exact(
        &binary(
            BinaryOp::ShiftRightLogical,
            &t(DType::I8, &[1], &[-2.0]),
            &t(DType::I8, &[1], &[1.0]),
        ),
        &[127.0],
        "logical shift",
    );
    let (x, y) =
        (t(DType::Bool, &[4], &[0.0, 0.0, 1.0, 1.0]), t(DType::Bool, &[4], &[0.0, 1.0, 0.0, 1.0]));
    for (op, want) in [
        (BinaryOp::Add, [0.0, 1.0, 1.0, 1.0]),
        (BinaryOp::Sub, [0.0, 1.0, 1.0, 0.0]),
        (BinaryOp::Mul, [0.0, 0.0, 0.0, 1.0]),
        (BinaryOp::Max, [0.0, 1.0, 1.0, 1.0]),
        (BinaryOp::Min, [0.0, 0.0, 0.0, 1.0]),
        (BinaryOp::And, [0.0, 0.0, 0.0, 1.0]),
        (BinaryOp::Or, [0.0, 1.0, 1.0, 1.0]),
        (BinaryOp::Xor, [0.0, 1.0, 1.0, 0.0]),
        (BinaryOp::Pow, [1.0, 0.0, 1.0, 1.0]),
        (BinaryOp::Rem, [0.0, 0.0, 1.0, 0.0]),
    ] {
        exact(&binary(op, &x, &y), &want, &format!("{op:?} of bool"));
    }
}

#[test]
fn comparisons() {
    use CompareDir::{Eq, Ge, Gt, Le, Lt, Ne};
    let compare =
        |dir, x: &Tensor, y: &Tensor| run1(&[x.clone(), y.clone()], |_, x| x[0].compare(dir, x[1]));
    for dtype in REALS {
        let (x, y) =
            (t(dtype, &[4], &[1.0, -0.0, NAN, 2.0]), t(dtype, &[4], &[2.0, 0.0, NAN, 1.0]));
        for (dir, want) in [
            (Eq, [0.0, 1.0, 0.0, 0.0]),
            (Ne, [1.0, 0.0, 1.0, 1.0]),
            (Lt, [1.0, 0.0, 0.0, 0.0]),
            (Le, [1.0, 1.0, 0.0, 0.0]),
            (Gt, [0.0, 0.0, 0.0, 1.0]),
            (Ge, [0.0, 1.0, 0.0, 1.0]),
        ] {
            exact(&compare(dir, &x, &y), &want, &format!("{dir:?} of {dtype}"));
        }
    }
    // The top bit is a sign or not.
    exact(
        &compare(Lt, &t(DType::I8, &[1], &[-1.0]), &t(DType::I8, &[1], &[1.0])),
        &[1.0],
        "signed",
    );
    exact(
        &compare(Lt, &t(DType::U8, &[1], &[255.0]), &t(DType::U8, &[1], &[1.0])),
        &[0.0],
        "unsigned",
    );
    exact(
        &compare(Lt, &t(DType::Bool, &[1], &[0.0]), &t(DType::Bool, &[1], &[1.0])),
        &[1.0],
        "bool",
    );
    let z = c(DType::C64, &[3], &[(1.0, 2.0), (1.0, 2.0), (NAN, 0.0)]);
    let w = c(DType::C64, &[3], &[(1.0, 2.0), (1.0, 3.0), (NAN, 0.0)]);
    exact(&compare(Eq, &z, &w), &[1.0, 0.0, 0.0], "complex equality");
    exact(&compare(Ne, &z, &w), &[0.0, 1.0, 1.0], "complex inequality");
}

#[test]
fn select_and_clamp() {
    let p = t(DType::Bool, &[3], &[1.0, 0.0, 1.0]);
    for dtype in [DType::F32, DType::BF16, DType::I64, DType::Bool, DType::U8] {
        let (x, y) = (t(dtype, &[3], &[1.0, 1.0, 0.0]), t(dtype, &[3], &[0.0, 0.0, 1.0]));
        exact(
            &run1(&[p.clone(), x, y], |_, x| x[0].select(x[1], x[2])),
            &[1.0, 0.0, 0.0],
            "select",
        );
    }
    for dtype in FLOATS {
        let x = t(dtype, &[5], &[-3.0, 0.5, 7.0, NAN, INF]);
        exact(&run1(&[x], |_, x| x[0].clamp(-1.0, 2.0)), &[-1.0, 0.5, 2.0, NAN, 2.0], "clamp");
    }
    exact(
        &run1(&[t(DType::I16, &[3], &[-3.0, 1.0, 7.0])], |_, x| x[0].clamp(-1i64, 2i64)),
        &[-1.0, 1.0, 2.0],
        "clamp",
    );
    exact(
        &run1(&[t(DType::Bool, &[2], &[0.0, 1.0])], |_, x| x[0].clamp(true, true)),
        &[1.0, 1.0],
        "clamp",
    );
}

#[test]
fn every_dtype_converts_to_every_other() {
    for from in DType::ALL {
        let values = [0.0, 1.0, if from.is_bool() { 1.0 } else { 3.0 }];
        let x = if from.is_complex() {
            c(from, &[3], &values.map(|v| (v, 1.0)))
        } else {
            t(from, &[3], &values)
        };
        let outputs = run(&[x], |b, x| {
            DType::ALL.iter().map(|&to| b.add(Prim::Convert(to), &[x[0]])).collect()
        });
        for (got, to) in outputs.iter().zip(DType::ALL) {
            let want: Vec<f64> = match to {
                DType::Bool => {
                    values.iter().map(|&v| f64::from(v != 0.0 || from.is_complex())).collect()
                }
                _ if to.is_complex() => {
                    let imag = if from.is_complex() { 1.0 } else { 0.0 };
                    values.iter().flat_map(|&v| [v, imag]).collect()
                }
                _ => values.to_vec(),
            };
            exact(got, &want, &format!("{from} to {to}"));
        }
    }
    // Out of range saturates, NaN is 0; truncation goes towards zero.
    let x = t(DType::F32, &[5], &[-1.75, 1e10, -1e10, NAN, 2.5]);
    exact(
        &run1(std::slice::from_ref(&x), |_, x| x[0].convert(DType::I32)),
        &[-1.0, 2147483647.0, -2147483648.0, 0.0, 2.0],
        "to int",
    );
    let bits = t(DType::F32, &[4], &[0.25, -0.0, NAN, 0.0]);
    exact(&run1(&[bits], |_, x| x[0].convert(DType::Bool)), &[1.0, 0.0, 1.0, 0.0], "to bool");
    exact(
        &run1(&[t(DType::I32, &[2], &[300.0, -1.0])], |_, x| x[0].convert(DType::U8)),
        &[44.0, 255.0],
        "wraps",
    );
}

#[test]
fn bits_are_reinterpreted() {
    let x = t(DType::F32, &[2, 2], &[1.0, -0.0, NAN, INF]);
    for to in [
        DType::I32,
        DType::U8,
        DType::I16,
        DType::BF16,
        DType::F32,
        DType::I64,
        DType::C64,
        DType::F64,
    ] {
        let got = run1(std::slice::from_ref(&x), |_, x| x[0].bitcast(to));
        assert_eq!(got.bytes, x.bytes, "float32 as {to}");
        let back = run1(&[got], |_, x| x[0].bitcast(DType::F32));
        assert_eq!(back, x, "and back");
    }
    let z = c(DType::C64, &[2, 2], &[(1.0, 2.0), (3.0, 4.0), (-0.0, INF), (5.0, 6.0)]);
    for to in [DType::F32, DType::I64, DType::F64, DType::U8, DType::C128, DType::I32, DType::U16] {
        let got = run1(std::slice::from_ref(&z), |_, x| x[0].bitcast(to));
        assert_eq!(got.bytes, z.bytes, "complex64 as {to}");
        assert_eq!(run1(&[got], |_, x| x[0].bitcast(DType::C64)), z, "and back");
    }
    let b = t(DType::Bool, &[4], &[1.0, 0.0, 1.0, 1.0]);
    for to in [DType::U8, DType::I8, DType::I32] {
        let got = run1(std::slice::from_ref(&b), |_, x| x[0].bitcast(to));
        assert_eq!(got.bytes, b.bytes, "bool as {to}");
        assert_eq!(run1(&[got], |_, x| x[0].bitcast(DType::Bool)), b, "and back");
    }
}

#[test]
fn constants_are_exact() {
    let numbers = [
        0.0, -0.0, 1.0, -1.5, 0.1, 1e-30, 12345.678, 1e300, NAN, INF, -INF, 2.5e-7, 448.0, 57344.0,
    ]
    .map(Number::float);
    for dtype in DType::ALL {
        let numbers: Vec<Number> = match dtype {
            DType::Bool => vec![Number::Bool(false), Number::Bool(true)],
            _ if dtype.is_int() => {
                vec![Number::Int(0), Number::Int(1), dtype.max_value(), dtype.min_value()]
            }
            _ if dtype.is_complex() => {
                numbers.iter().map(|&n| Number::complex(n.to_f64(), -n.to_f64())).collect()
            }
            _ => numbers.to_vec(),
        };
        let constants = run(&[], |b, _| numbers.iter().map(|&n| b.full(n, dtype, &[2])).collect());
        // What XLA's own conversion of the same number gives.
        let converted = run(&[], |b, _| {
            let wide = if dtype.is_complex() { DType::C128 } else { dtype };
            let wide = if dtype.is_float() { DType::F32 } else { wide };
            let wide = if dtype == DType::F64 { DType::F64 } else { wide };
            (numbers.iter())
                .map(|&n| {
                    let n = if wide == DType::C128 && dtype == DType::C64 {
                        Number::complex(n.to_f64() as f32 as f64, n.imag() as f32 as f64)
                    } else {
                        n
                    };
                    b.leaf(
                        Prim::Constant(n.cast(wide)),
                        defer_and_fuse::ir::TensorType::new(wide, &[2]),
                    )
                    .convert(dtype)
                })
                .collect()
        });
        for (i, n) in numbers.iter().enumerate() {
            let want: Vec<f64> = match n {
                Number::Int(v) if dtype == DType::U64 => vec![*v as u64 as f64; 2],
                Number::Int(v) => vec![*v as f64; 2],
                Number::Bool(v) => vec![f64::from(*v); 2],
                _ if dtype == DType::F64 => vec![n.to_f64(); 2],
                _ if dtype == DType::F32 => vec![f64::from(n.to_f64() as f32); 2],
                _ => converted[i].values(),
            };
            exact(&constants[i], &want, &format!("{n} as {dtype}"));
        }
        assert!(decode(DType::F16, &[0, 0x7c]).is_infinite());
    }
    assert!(!client().platform_name().is_empty());
}
