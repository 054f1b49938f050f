//! Contractions, factorisations and transforms.

use super::printer::{List, Pairs, Printer, Ty, Val, put};
use crate::ir::prim::FftKind;
use crate::ir::{ConvAttrs, DotAttrs, Prim, TensorType};

pub(super) fn emit(p: &mut Printer, prim: &Prim, x: &[Val], ty: &TensorType) -> Val {
    match prim {
        Prim::Dot(attrs) => dot(p, attrs, &x[0], &x[1], ty),
        Prim::Conv(attrs) => conv(p, attrs, &x[0], &x[1], ty),
        Prim::Cholesky { lower } => {
            p.call("stablehlo.cholesky", &[&x[0]], format_args!(", lower = {lower}"), ty.clone())
        }
        Prim::TriangularSolve { left, lower, unit_diagonal, transpose } => {
            let transpose = match transpose {
                0 => "NO_TRANSPOSE",
                1 => "TRANSPOSE",
                _ => "ADJOINT",
            };
            let name = p.begin("\"stablehlo.triangular_solve\"");
            put!(
                p,
                "({}, {}) <{{left_side = {left}, lower = {lower}, unit_diagonal = {unit_diagonal}, \
                 transpose_a = #stablehlo<transpose {transpose}>}}>",
                x[0].name,
                x[1].name
            );
            p.signature(&[&x[0], &x[1]], &[ty]);
            Val { name, ty: ty.clone() }
        }
        Prim::Fft { kind, lengths } => {
            let kind = match kind {
                FftKind::Fft => "FFT",
                FftKind::Ifft => "IFFT",
                FftKind::Rfft => "RFFT",
                FftKind::Irfft => "IRFFT",
            };
            let attributes = format_args!(", type = {kind}, length = {}", List(lengths));
            p.call("stablehlo.fft", &[&x[0]], attributes, ty.clone())
        }
        _ => unreachable!("{prim:?} is not printed here"),
    }
}

/// Narrow floats are summed in f32 and rounded once.
fn dot(p: &mut Printer, a: &DotAttrs, x: &Val, y: &Val, ty: &TensorType) -> Val {
    let sum = ty.with_dtype(ty.dtype.opmath());
    let name = p.begin("stablehlo.dot_general");
    p.operands(&[x, y]);
    if !a.lhs_batch.is_empty() {
        put!(p, ", batching_dims = {} x {}", List(&a.lhs_batch), List(&a.rhs_batch));
    }
    put!(p, ", contracting_dims = {} x {}", List(&a.lhs_contract), List(&a.rhs_contract));
    p.signature(&[x, y], &[&sum]);
    p.convert(&Val { name, ty: sum }, ty.dtype)
}

fn conv(p: &mut Printer, a: &ConvAttrs, x: &Val, y: &Val, ty: &TensorType) -> Val {
    let sum = ty.with_dtype(ty.dtype.opmath());
    let spatial = a.strides.len();
    let name = p.begin("stablehlo.convolution");
    put!(p, "({}, {}) dim_numbers = ", x.name, y.name);
    let sides = [
        (&a.lhs_dims, ["b", "f"], "x"),
        (&a.rhs_dims, ["o", "i"], "->"),
        (&a.out_dims, ["b", "f"], ""),
    ];
    for (dims, letters, after) in sides {
        // `dims` says where each named dimension is; MLIR lists what each position is.
        for position in 0..dims.len() as i64 {
            put!(p, "{}", if position > 0 { ", " } else { "[" });
            match dims.iter().position(|&d| d == position) {
                Some(i) if i < 2 => put!(p, "{}", letters[i]),
                Some(i) => put!(p, "{}", i - 2),
                None => unreachable!("{dims:?} is not a permutation"),
            }
        }
        put!(p, "]{after}");
    }
    put!(p, ", window = {{");
    if spatial > 0 {
        put!(
            p,
            "stride = {}, pad = {}, lhs_dilate = {}, rhs_dilate = {}, reverse = [",
            List(&a.strides),
            Pairs(&a.pad_low, &a.pad_high),
            List(&a.lhs_dilation),
            List(&a.rhs_dilation)
        );
        for i in 0..spatial {
            put!(p, "{}{}", if i > 0 { ", " } else { "" }, a.reverse);
        }
        put!(p, "]");
    }
    put!(
        p,
        "}} {{batch_group_count = {} : i64, feature_group_count = {} : i64}} : ({}, {}) -> {}\n",
        a.batch_groups,
        a.feature_groups,
        Ty(&x.ty),
        Ty(&y.ty),
        Ty(&sum)
    );
    p.convert(&Val { name, ty: sum }, ty.dtype)
}
