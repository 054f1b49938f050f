use defer_and_fuse::ir::prim::FftKind;
use defer_and_fuse::ir::{ConvAttrs, DType, DotAttrs, Prim, Shape};

use crate::harness::{FLOATS, Tensor, c, close, exact, run1, t};

fn s(dims: &[i64]) -> Shape {
    dims.into()
}

#[test]
fn products() {
    for dtype in
        FLOATS.into_iter().chain([DType::I8, DType::I32, DType::I64, DType::U8, DType::F8E5M2])
    {
        let x = t(dtype, &[2, 3], &[1., 2., 3., 4., 5., 6.]);
        let y = t(dtype, &[3, 2], &[1., 0., 0., 1., 1., 1.]);
        exact(
            &run1(&[x, y], |_, x| x[0].bmm(x[1])),
            &[4., 5., 10., if dtype == DType::F8E5M2 { 12. } else { 11. }],
            &format!("{dtype}"),
        );
    }
    let z = c(DType::C64, &[1, 1], &[(1., 2.)]);
    exact(&run1(&[z.clone(), z], |_, x| x[0].bmm(x[1])), &[-3., 4.], "complex");
    let b = t(DType::Bool, &[2, 2], &[1., 1., 0., 0.]);
    exact(&run1(&[b.clone(), b], |_, x| x[0].bmm(x[1])), &[1., 1., 0., 0.], "bool");
    // The batch comes first, then what is free on the left, then on the right.
    let x = t(DType::F32, &[2, 2, 1], &[1., 2., 3., 4.]);
    let y = t(DType::F32, &[2, 3, 1], &[1., 2., 3., 4., 5., 6.]);
    let attrs = DotAttrs {
        lhs_batch: s(&[1]),
        rhs_batch: s(&[0]),
        lhs_contract: s(&[2]),
        rhs_contract: s(&[2]),
        out: DType::F64,
    };
    let want = [1., 2., 3., 3., 6., 9., 8., 10., 12., 16., 20., 24.];
    exact(&run1(&[x, y], |_, x| x[0].dot(x[1], attrs)), &want, "batched");
    let empty = [t(DType::F32, &[2, 0], &[]), t(DType::F32, &[0, 1], &[])];
    exact(&run1(&empty, |_, x| x[0].bmm(x[1])), &[0., 0.], "of nothing");
}

#[test]
fn narrow_products_are_summed_in_f32() {
    // In bf16 the sum would stay at 256: 256 + 1 rounds to 256.
    let mut row = vec![1.0; 65];
    row[0] = 256.0;
    for dtype in [DType::BF16, DType::F16] {
        row[0] = if dtype == DType::F16 { 2048.0 } else { 256.0 };
        let x = t(dtype, &[1, 65], &row);
        let ones = t(dtype, &[65, 1], &[1.0; 65]);
        exact(&run1(&[x, ones], |_, x| x[0].bmm(x[1])), &[row[0] + 64.0], &format!("{dtype}"));
    }
}

fn plain(spatial: usize) -> ConvAttrs {
    let (zeros, ones) = (Shape::from_elem(0, spatial), Shape::from_elem(1, spatial));
    let dims: Shape = (0..spatial as i64 + 2).collect();
    ConvAttrs {
        strides: ones.clone(),
        pad_low: zeros.clone(),
        pad_high: zeros,
        lhs_dilation: ones.clone(),
        rhs_dilation: ones,
        lhs_dims: dims.clone(),
        rhs_dims: dims.clone(),
        out_dims: dims,
        feature_groups: 1,
        batch_groups: 1,
        reverse: false,
    }
}

fn conv(x: &Tensor, k: &Tensor, attrs: ConvAttrs) -> Tensor {
    run1(&[x.clone(), k.clone()], |b, x| b.add(Prim::Conv(attrs), &[x[0], x[1]]))
}

#[test]
fn convolutions() {
    for dtype in FLOATS.into_iter().chain([DType::I32, DType::I64, DType::F8E5M2]) {
        let x = t(dtype, &[1, 1, 5], &[1., 2., 3., 4., 5.]);
        let k = t(dtype, &[1, 1, 2], &[1., 2.]);
        let mut a = plain(1);
        (a.strides, a.pad_low, a.rhs_dilation) = (s(&[2]), s(&[1]), s(&[2]));
        exact(&conv(&x, &k, a.clone()), &[4., 10.], &format!("{dtype}"));
        a.reverse = true;
        exact(&conv(&x, &k, a), &[2., 8.], &format!("mirrored {dtype}"));
    }
    let z = c(DType::C64, &[1, 1, 2], &[(1., 1.), (0., 2.)]);
    exact(&conv(&z, &z, plain(1)), &[-4., 2.], "complex");
    // Two groups, kernel stored as spatial, input, output; result as features last.
    let x = t(DType::F32, &[1, 2, 2], &[1., 2., 3., 4.]);
    let k = t(DType::F32, &[1, 1, 2], &[10., 100.]);
    let mut a = plain(1);
    (a.rhs_dims, a.out_dims, a.feature_groups) = (s(&[2, 1, 0]), s(&[0, 2, 1]), 2);
    exact(&conv(&x, &k, a), &[10., 300., 20., 400.], "groups");
    // A transposed convolution: the input is dilated.
    let x = t(DType::F32, &[1, 1, 2], &[1., 2.]);
    let k = t(DType::F32, &[1, 1, 2], &[1., 3.]);
    let mut a = plain(1);
    (a.lhs_dilation, a.pad_low, a.pad_high) = (s(&[2]), s(&[1]), s(&[1]));
    exact(&conv(&x, &k, a), &[3., 1., 6., 2.], "transposed");
    let x = t(DType::F32, &[1, 1, 2, 2], &[1., 2., 3., 4.]);
    exact(&conv(&x, &x, plain(2)), &[30.], "two dimensions");
    let x = t(DType::F32, &[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let k = t(DType::F32, &[1, 3], &[1., 1., 1.]);
    exact(&conv(&x, &k, plain(0)), &[6., 15.], "no dimension");
}

#[test]
fn factors_and_solutions() {
    for dtype in [DType::F32, DType::F64] {
        let a = t(dtype, &[2, 2], &[4., 2., 2., 10.]);
        for (lower, want) in [(true, [2., 0., 1., 3.]), (false, [2., 1., 0., 3.])] {
            let got =
                run1(std::slice::from_ref(&a), |b, x| b.add(Prim::Cholesky { lower }, &[x[0]]));
            close(&got, &want, 4.0, "cholesky");
        }
        let l = t(dtype, &[2, 2], &[2., 0., 1., 3.]);
        for (left, transpose, unit_diagonal, want) in [
            (true, 0, false, [2., 2., 0., 3.]),
            (true, 1, false, [1.666_666_666_666_666_7, 0.5, 0.666_666_666_666_666_6, 3.]),
            (false, 0, false, [4. / 3., 4. / 3., -0.5, 3.]),
            (true, 0, true, [4., 4., -2., 7.]),
        ] {
            let right = t(dtype, &[2, 2], &[4., 4., 2., 11.]);
            let prim = Prim::TriangularSolve { left, lower: true, unit_diagonal, transpose };
            let got = run1(&[l.clone(), right], |b, x| b.add(prim, &[x[0], x[1]]));
            let want = match (left, transpose) {
                (false, _) => [(4. - 4. / 3.) / 2., 4. / 3., (2. - 11. / 3.) / 2., 11. / 3.],
                (true, 1) => [(4. - 2. / 3.) / 2., (4. - 11. / 3.) / 2., 2. / 3., 11. / 3.],
                _ => want,
            };
            close(&got, &want, 8.0, &format!("left {left}, transpose {transpose}"));
        }
    }
}

#[test]
fn fourier_transforms() {
    for dtype in [DType::F32, DType::F64] {
        let x = t(dtype, &[4], &[1., 2., 3., 4.]);
        let fft = |x: &Tensor, kind, lengths: &[i64]| {
            let prim = Prim::Fft { kind, lengths: lengths.into() };
            run1(std::slice::from_ref(x), |b, x| b.add(prim, &[x[0]]))
        };
        let half = fft(&x, FftKind::Rfft, &[4]);
        close(&half, &[10., 0., -2., 2., -2., 0.], 8.0, "rfft");
        close(&fft(&half, FftKind::Irfft, &[4]), &[1., 2., 3., 4.], 8.0, "irfft");
        let z = c(dtype.complex(), &[2, 2], &[(1., 0.), (0., 1.), (2., 0.), (0., 0.)]);
        let two = fft(&z, FftKind::Fft, &[2, 2]);
        close(&two, &[3., 1., 3., -1., -1., 1., -1., -1.], 8.0, "fft over two dimensions");
        close(&fft(&two, FftKind::Ifft, &[2, 2]), &z.values(), 8.0, "ifft");
    }
}
