use defer_and_fuse::ir::{
    DType, GatherAttrs, Prim, ReduceKind, ScatterAttrs, ScatterKind, Shape, WindowAttrs,
};

use crate::harness::{FLOATS, INF, INTS, NAN, Tensor, c, exact, run, run1, t};

fn s(dims: &[i64]) -> Shape {
    dims.into()
}

fn counting(dtype: DType, sizes: &[i64]) -> Tensor {
    let n = sizes.iter().product::<i64>();
    t(dtype, sizes, &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

#[test]
fn moving_elements() {
    let x = counting(DType::F32, &[2, 3]);
    let got = run(&[x], |b, x| {
        let x = x[0];
        let one = b.full(1i64, DType::I64, &[]);
        let zero = b.full(0i64, DType::I64, &[]);
        vec![
            x.reshape(&[3, 2]),
            x.transpose(&[1, 0]),
            x.broadcast_in_dim(&[2, 2, 3], &[0, 2]),
            x.slices(&[0, 0], &[2, 3], &[1, 2]),
            x.pad(-1.0, &[1, -1], &[0, 1], &[0, 1]),
            b.concat(&[x, x], 1),
            x.reverse(&[0, 1]),
            x.dynamic_slice(&[one, zero], &[1, 2]),
            x.update_slice(b.full(9.0, DType::F32, &[1, 2]), &[1, 1]),
            x.slice(1, 1, 1, 1),
        ]
    });
    let want: [&[f64]; 10] = [
        &[0., 1., 2., 3., 4., 5.],
        &[0., 3., 1., 4., 2., 5.],
        &[0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.],
        &[0., 2., 3., 5.],
        &[-1., -1., -1., -1., -1., -1., 1., -1., 2., -1., -1., 4., -1., 5., -1.],
        &[0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.],
        &[5., 4., 3., 2., 1., 0.],
        &[3., 4.],
        &[0., 1., 2., 3., 9., 9.],
        &[],
    ];
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        exact(got, want, &format!("{i}"));
    }
}

#[test]
fn iota_of_every_dtype() {
    for dtype in DType::ALL {
        let got = run1(&[], |b, _| b.iota(dtype, &[2, 3], 1));
        let want: Vec<f64> = match dtype {
            DType::Bool => vec![0., 1., 1., 0., 1., 1.],
            _ if dtype.is_complex() => vec![0., 0., 1., 0., 2., 0., 0., 0., 1., 0., 2., 0.],
            _ => vec![0., 1., 2., 0., 1., 2.],
        };
        exact(&got, &want, &format!("{dtype}"));
    }
}

#[test]
fn gathers() {
    let x = counting(DType::F32, &[3, 4]);
    let rows = t(DType::I64, &[2], &[2.0, 7.0]);
    // Out of range: clamped.
    let got = run1(&[x.clone(), rows], |_, x| x[0].take(0, x[1]));
    exact(&got, &[8., 9., 10., 11., 8., 9., 10., 11.], "rows");
    // One element of each row: the rows are a batch.
    let columns = t(DType::I32, &[3], &[1.0, 0.0, 3.0]);
    let attrs = GatherAttrs {
        offset_dims: s(&[]),
        collapsed_slice_dims: s(&[1]),
        operand_batching_dims: s(&[0]),
        start_indices_batching_dims: s(&[0]),
        start_index_map: s(&[1]),
        index_vector_dim: 1,
        slice_sizes: s(&[1, 1]),
    };
    let got = run1(&[x, columns], |_, x| x[0].gather(x[1], attrs));
    exact(&got, &[1., 4., 11.], "batched");
}

#[test]
fn scatters() {
    // Position 9 is out of range: dropped.
    let index = t(DType::I64, &[4], &[1.0, 1.0, 9.0, 0.0]);
    for (kind, dtype, want) in [
        (ScatterKind::Reduce(ReduceKind::Sum), DType::F32, [5., 7., 1.]),
        (ScatterKind::Reduce(ReduceKind::Prod), DType::BF16, [4., 6., 1.]),
        (ScatterKind::Reduce(ReduceKind::Max), DType::I64, [4., 3., 1.]),
        (ScatterKind::Reduce(ReduceKind::Min), DType::F64, [1., 1., 1.]),
        (ScatterKind::Reduce(ReduceKind::Sum), DType::F16, [5., 7., 1.]),
        (ScatterKind::Reduce(ReduceKind::Sum), DType::U8, [5., 7., 1.]),
    ] {
        let (x, updates) = (t(dtype, &[3], &[1., 1., 1.]), t(dtype, &[4], &[3., 3., 8., 4.]));
        let updates = match kind {
            ScatterKind::Reduce(ReduceKind::Prod) => t(dtype, &[4], &[3., 2., 8., 4.]),
            _ => updates,
        };
        let got = run1(&[x, index.clone(), updates], |_, x| x[0].put_flat(kind, x[1], x[2], false));
        exact(&got, &want, &format!("{kind:?} of {dtype}"));
    }
    let once = t(DType::I32, &[2], &[2.0, 0.0]);
    for dtype in [DType::Bool, DType::F32, DType::C64, DType::F8E5M2, DType::U64] {
        let (x, updates) = match dtype {
            DType::C64 => (c(dtype, &[3], &[(0., 0.); 3]), c(dtype, &[2], &[(1., 1.); 2])),
            _ => (t(dtype, &[3], &[0.; 3]), t(dtype, &[2], &[1.; 2])),
        };
        let want: &[f64] =
            if dtype.is_complex() { &[1., 1., 0., 0., 1., 1.] } else { &[1., 0., 1.] };
        let got = run1(&[x, once.clone(), updates], |_, x| {
            x[0].put_flat(ScatterKind::Set, x[1], x[2], true)
        });
        exact(&got, want, &format!("set {dtype}"));
    }
    let bools = (t(DType::Bool, &[3], &[1., 0., 0.]), t(DType::Bool, &[4], &[0., 1., 1., 0.]));
    for (kind, want) in [(ReduceKind::Or, [1., 1., 0.]), (ReduceKind::And, [0., 0., 0.])] {
        let inputs = [bools.0.clone(), index.clone(), bools.1.clone()];
        let kind = ScatterKind::Reduce(kind);
        exact(&run1(&inputs, |_, x| x[0].put_flat(kind, x[1], x[2], false)), &want, "bool");
    }
    // Rows as a batch.
    let attrs = ScatterAttrs {
        update_window_dims: s(&[]),
        inserted_window_dims: s(&[1]),
        input_batching_dims: s(&[0]),
        scatter_indices_batching_dims: s(&[0]),
        scatter_dims_to_operand_dims: s(&[1]),
        index_vector_dim: 2,
        unique_indices: false,
    };
    let inputs = [
        t(DType::F32, &[2, 3], &[0.; 6]),
        t(DType::I64, &[2, 2], &[0., 2., 1., 1.]),
        t(DType::F32, &[2, 2], &[1., 2., 3., 4.]),
    ];
    let kind = ScatterKind::Reduce(ReduceKind::Sum);
    let got = run1(&inputs, |_, x| x[0].scatter(kind, x[1], x[2], attrs));
    exact(&got, &[1., 0., 2., 0., 7., 0.], "batched");
}

#[test]
fn reductions() {
    use ReduceKind::{And, Max, Min, Or, Prod, Sum};
    for dtype in FLOATS {
        let x = t(dtype, &[2, 3], &[1., -2., 3., 0.5, NAN, 4.]);
        let got = run(&[x], |_, x| {
            vec![
                x[0].sum(&[1], false),
                x[0].reduce(Prod, &[1], false),
                x[0].reduce(Max, &[1], false),
                x[0].reduce(Min, &[1], true),
                x[0].sum(&[0, 1], false),
                x[0].slice(1, 0, 0, 1).reduce(Max, &[1], false),
                x[0].slice(1, 0, 0, 1).reduce(Prod, &[1], false),
            ]
        });
        let want: [&[f64]; 7] =
            [&[2., NAN], &[-6., NAN], &[3., NAN], &[-2., NAN], &[NAN], &[-INF; 2], &[1.; 2]];
        for (got, want) in got.iter().zip(want) {
            exact(got, want, &format!("{dtype}"));
        }
    }
    for dtype in INTS {
        let x = t(dtype, &[4], &[1., 2., 6., 3.]);
        let kinds = [Sum, Prod, Max, Min, And, Or];
        let got = run(&[x], |_, x| {
            let empty = x[0].slice(0, 0, 0, 1);
            let whole = kinds.iter().map(|&k| x[0].reduce(k, &[0], false));
            whole.chain([empty.reduce(Max, &[0], false), empty.reduce(Min, &[0], false)]).collect()
        });
        let (low, high) = match dtype {
            DType::U64 => (0.0, u64::MAX as f64),
            _ => (dtype.min_value().to_f64(), dtype.max_value().to_f64()),
        };
        for (got, want) in got.iter().zip([12., 36., 6., 1., 0., 7., low, high]) {
            exact(got, &[want], &format!("{dtype}"));
        }
    }
    let x = t(DType::Bool, &[2, 2], &[0., 1., 1., 1.]);
    for (kind, want) in [
        (Sum, [1., 1.]),
        (Prod, [0., 1.]),
        (Max, [1., 1.]),
        (Min, [0., 1.]),
        (And, [0., 1.]),
        (Or, [1., 1.]),
    ] {
        let got = run1(std::slice::from_ref(&x), |_, x| x[0].reduce(kind, &[1], false));
        exact(&got, &want, &format!("{kind:?} of bool"));
    }
    for dtype in [DType::C64, DType::C128] {
        let z = c(dtype, &[2], &[(1., 2.), (3., -1.)]);
        exact(
            &run1(std::slice::from_ref(&z), |_, x| x[0].sum(&[0], false)),
            &[4., 1.],
            "complex sum",
        );
        exact(&run1(&[z], |_, x| x[0].reduce(Prod, &[0], false)), &[5., 5.], "complex product");
    }
    let narrow = t(DType::F8E4M3FN, &[3], &[1., -448., 2.]);
    exact(&run1(&[narrow], |_, x| x[0].reduce(Max, &[0], false)), &[2.], "float8 max");
}

#[test]
fn positions_of_extremes() {
    let floats = [-1., 3., 3., NAN, 1., NAN, -INF, -INF, -INF, 0., -0., 0.];
    for dtype in FLOATS {
        let x = t(dtype, &[4, 3], &floats);
        let got = run(&[x], |_, x| {
            let (max, at) = x[0].arg_reduce(true, 1, false);
            let (min, at_min) = x[0].arg_reduce(false, 1, true);
            vec![max, at, min, at_min]
        });
        exact(&got[0], &[3., NAN, -INF, 0.], "max");
        exact(&got[1], &[1., 0., 0., 0.], "position of the maximum");
        exact(&got[2], &[-1., NAN, -INF, 0.], "min");
        exact(&got[3], &[0., 0., 0., 0.], "position of the minimum");
    }
    for dtype in INTS {
        let lowest = dtype.min_value().to_f64();
        let x = t(dtype, &[2, 2], &[2., 5., lowest, lowest]);
        let got = run(&[x], |_, x| {
            let (max, at) = x[0].arg_reduce(true, 1, false);
            vec![max, at]
        });
        exact(&got[0], &[5., lowest], "max");
        exact(&got[1], &[1., 0.], "position");
    }
    let x = t(DType::Bool, &[4], &[0., 1., 0., 1.]);
    exact(&run1(&[x], |_, x| x[0].arg_reduce(true, 0, false).1), &[1.], "bool");
    // However the reduction is split, the first of many wins.
    let mut many = vec![0.0; 100_000];
    for i in [40_000, 40_001, 70_000, 99_999] {
        many[i] = NAN;
    }
    let many = t(DType::F32, &[100_000], &many);
    exact(
        &run1(std::slice::from_ref(&many), |_, x| x[0].arg_reduce(true, 0, false).1),
        &[40_000.],
        "NaN",
    );
    let finite = run1(&[many], |_, x| x[0].slice(0, 0, 40_000, 1).arg_reduce(false, 0, false).1);
    exact(&finite, &[0.], "ties");
}

#[test]
fn windows() {
    let x = t(DType::F32, &[1, 5], &[1., NAN, 3., 2., 5.]);
    let window = WindowAttrs {
        sizes: s(&[1, 2]),
        strides: s(&[1, 2]),
        base_dilation: s(&[1, 1]),
        window_dilation: s(&[1, 2]),
        pad_low: s(&[0, 1]),
        pad_high: s(&[0, 1]),
    };
    let got = run1(&[x], |_, x| x[0].reduce_window(ReduceKind::Max, window.clone()));
    exact(&got, &[NAN, NAN, 2.], "max pool");
    for dtype in [DType::F32, DType::BF16, DType::I64, DType::U8, DType::F64] {
        let x = t(dtype, &[2, 3], &[1., 2., 3., 4., 5., 6.]);
        let got = run(&[x], |_, x| {
            vec![
                x[0].cumulative(ReduceKind::Sum, 1),
                x[0].cumulative(ReduceKind::Max, 0),
                x[0].slice(1, 0, 2, 1).cumulative(ReduceKind::Prod, 1),
            ]
        });
        exact(&got[0], &[1., 3., 6., 4., 9., 15.], &format!("cumsum of {dtype}"));
        exact(&got[1], &[1., 2., 3., 4., 5., 6.], &format!("cummax of {dtype}"));
        exact(&got[2], &[1., 2., 4., 20.], &format!("cumprod of {dtype}"));
    }
    let z = c(DType::C64, &[2], &[(1., 1.), (2., -1.)]);
    exact(&run1(&[z], |_, x| x[0].cumulative(ReduceKind::Sum, 0)), &[1., 1., 3., 0.], "complex");
}

#[test]
fn sorts_are_stable_with_nan_last() {
    for dtype in FLOATS {
        let x = t(dtype, &[7], &[2., NAN, -0., 0., -INF, NAN, 2.]);
        let got = run(&[x], |b, x| {
            let at = b.iota(DType::I64, &[7], 0);
            let up = b.sort(&[x[0], at], 0, false);
            let down = b.sort(&[x[0], at], 0, true);
            vec![up[0], up[1], down[0], down[1], b.sort(&[x[0]], 0, false)[0]]
        });
        let up = [-INF, -0., 0., 2., 2., NAN, NAN];
        exact(&got[0], &up, "ascending");
        exact(&got[1], &[4., 2., 3., 0., 6., 1., 5.], "ascending positions");
        exact(&got[2], &[NAN, NAN, 2., 2., -0., 0., -INF], "descending");
        exact(&got[3], &[1., 5., 0., 6., 2., 3., 4.], "descending positions");
        exact(&got[4], &up, "alone");
    }
    for dtype in [DType::I8, DType::I64, DType::U8, DType::U64, DType::Bool] {
        let x = t(dtype, &[2, 2], &[1., 0., 0., 1.]);
        let got = run(&[x], |b, x| {
            let at = b.iota(DType::I32, &[2, 2], 1);
            b.sort(&[x[0], at], 1, true)
        });
        exact(&got[0], &[1., 0., 1., 0.], "sorted");
        exact(&got[1], &[0., 1., 1., 0.], "positions");
    }
    exact(
        &run1(&[t(DType::U8, &[2], &[200., 3.])], |b, x| b.sort(&[x[0]], 0, false)[0]),
        &[3., 200.],
        "unsigned",
    );
    exact(
        &run1(&[t(DType::I8, &[2], &[3., -3.])], |b, x| b.sort(&[x[0]], 0, false)[0]),
        &[-3., 3.],
        "signed",
    );
}

#[test]
fn scalars_have_windows_of_nothing() {
    let window = WindowAttrs {
        sizes: s(&[]),
        strides: s(&[]),
        base_dilation: s(&[]),
        window_dilation: s(&[]),
        pad_low: s(&[]),
        pad_high: s(&[]),
    };
    let x = t(DType::F32, &[], &[3.]);
    let prim = Prim::ReduceWindow(ReduceKind::Sum, window);
    exact(&run1(&[x], |b, x| b.add(prim, &[x[0]])), &[3.], "window");
}
