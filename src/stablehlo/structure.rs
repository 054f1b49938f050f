//! Primitives that move elements, and those with a region: reductions, sorts, scatters.

use super::elementwise::{IS_NAN, monoid};
use super::printer::{Array, List, Pairs, Printer, Ref, Ty, Val, compare_type, direction, put};
use crate::ir::{
    CompareDir, DType, GatherAttrs, Number, Prim, ReduceKind, ScatterAttrs, ScatterKind, Shape,
    TensorType, WindowAttrs,
};

pub(super) fn emit(p: &mut Printer, prim: &Prim, x: &[Val], ty: &TensorType) -> Val {
    let all: smallvec::SmallVec<[&Val; 6]> = x.iter().collect();
    let mut call = |name: &str, attributes: std::fmt::Arguments<'_>| {
        p.call(name, &all, attributes, ty.clone())
    };
    match prim {
        Prim::Reshape(_) => call("stablehlo.reshape", format_args!("")),
        Prim::Transpose(perm) => {
            call("stablehlo.transpose", format_args!(", dims = {}", List(perm)))
        }
        Prim::Broadcast { dims, .. } => {
            call("stablehlo.broadcast_in_dim", format_args!(", dims = {}", List(dims)))
        }
        Prim::Pad { low, high, interior } => {
            let (low, high, interior) = (List(low), List(high), List(interior));
            let attributes = format_args!(", low = {low}, high = {high}, interior = {interior}");
            call("stablehlo.pad", attributes)
        }
        Prim::Concat(dim) => call("stablehlo.concatenate", format_args!(", dim = {dim}")),
        Prim::DynamicSlice(sizes) => {
            call("stablehlo.dynamic_slice", format_args!(", sizes = {}", List(sizes)))
        }
        Prim::DynamicUpdateSlice => call("stablehlo.dynamic_update_slice", format_args!("")),
        Prim::Reverse(dims) => {
            let name = p.begin("stablehlo.reverse");
            put!(p, " {}, dims = {} : {}\n", x[0].name, List(dims), Ty(ty));
            Val { name, ty: ty.clone() }
        }
        Prim::Barrier => {
            let name = p.begin("stablehlo.optimization_barrier");
            put!(p, " {} : {}\n", x[0].name, Ty(ty));
            Val { name, ty: ty.clone() }
        }
        Prim::Slice { starts, limits, strides } => p.slice(&x[0], starts, limits, strides),
        Prim::Iota(dim) => iota(p, *dim, ty),
        Prim::Gather(attrs) => gather(p, attrs, &x[0], &x[1], ty),
        _ => unreachable!("{prim:?} is not printed here"),
    }
}

fn iota(p: &mut Printer, dim: u32, ty: &TensorType) -> Val {
    if ty.dtype.is_bool() {
        let counts = iota(p, dim, &ty.with_dtype(DType::I64));
        return p.convert(&counts, DType::Bool);
    }
    let name = p.begin("stablehlo.iota");
    put!(p, " dim = {dim} : {}\n", Ty(ty));
    Val { name, ty: ty.clone() }
}

/// Writes the dimension lists of an attribute that are not empty.
fn dimension_lists(p: &mut Printer, lists: &[(&str, &Shape)]) {
    for (name, dims) in lists.iter().filter(|(_, dims)| !dims.is_empty()) {
        put!(p, "{name} = {}, ", List(dims));
    }
}

fn gather(p: &mut Printer, a: &GatherAttrs, x: &Val, starts: &Val, ty: &TensorType) -> Val {
    let name = p.begin("\"stablehlo.gather\"");
    put!(p, "({}, {}) <{{dimension_numbers = #stablehlo.gather<", x.name, starts.name);
    dimension_lists(
        p,
        &[
            ("offset_dims", &a.offset_dims),
            ("collapsed_slice_dims", &a.collapsed_slice_dims),
            ("operand_batching_dims", &a.operand_batching_dims),
            ("start_indices_batching_dims", &a.start_indices_batching_dims),
            ("start_index_map", &a.start_index_map),
        ],
    );
    put!(
        p,
        "index_vector_dim = {}>, slice_sizes = {}, indices_are_sorted = false}}>",
        a.index_vector_dim,
        Array(&a.slice_sizes)
    );
    p.signature(&[x, starts], &[ty]);
    Val { name, ty: ty.clone() }
}

pub(super) fn with_region(p: &mut Printer, prim: &Prim, x: &[Val], types: &[TensorType]) -> Val {
    let ty = &types[0];
    match prim {
        Prim::Reduce(kind, dims) => reduce(p, *kind, dims, &x[0], ty),
        Prim::ArgReduce { max, dim } => arg_reduce(p, *max, *dim, &x[0], types),
        Prim::ReduceWindow(_, w) if w.sizes.is_empty() => x[0].clone(),
        Prim::ReduceWindow(kind, window) => reduce_window(p, *kind, window, &x[0], ty),
        Prim::Sort { dim, descending } => sort(p, *dim, *descending, x),
        Prim::Scatter(kind, attrs) => scatter(p, *kind, attrs, x),
        _ => unreachable!("{prim:?} is not printed here"),
    }
}

/// The neutral element as a 0-dimensional value.
fn identity(p: &mut Printer, kind: ReduceKind, dtype: DType) -> Val {
    p.constant(kind.identity(dtype), &TensorType::scalar(dtype))
}

fn reduce(p: &mut Printer, kind: ReduceKind, dims: &[i64], x: &Val, ty: &TensorType) -> Val {
    let init = identity(p, kind, ty.dtype);
    let name = p.begin("stablehlo.reduce");
    put!(
        p,
        "({} init: {}) applies {} across dimensions = {}",
        x.name,
        init.name,
        monoid(kind, ty.dtype),
        List(dims)
    );
    p.signature(&[x, &init], &[ty]);
    Val { name, ty: ty.clone() }
}

/// Prints ` ({ ^bb0(%a, %b): … })` joining two elements.
fn join(p: &mut Printer, op: Option<&str>, dtype: DType) {
    let t = TensorType::scalar(dtype);
    let t = Ty(&t);
    put!(p, " ({{\n      ^bb0(%a: {t}, %b: {t}):\n");
    if let Some(op) = op {
        put!(p, "        %c = {op} %a, %b : {t}\n        stablehlo.return %c : {t}\n");
    } else {
        put!(p, "        stablehlo.return %b : {t}\n");
    }
    put!(p, "    }})");
}

fn reduce_window(
    p: &mut Printer,
    kind: ReduceKind,
    w: &WindowAttrs,
    x: &Val,
    ty: &TensorType,
) -> Val {
    let init = identity(p, kind, ty.dtype);
    let name = p.begin("\"stablehlo.reduce_window\"");
    put!(
        p,
        "({}, {}) <{{window_dimensions = {}, window_strides = {}, base_dilations = {}, \
         window_dilations = {}, padding = dense<{}> : tensor<{}x2xi64>}}>",
        x.name,
        init.name,
        Array(&w.sizes),
        Array(&w.strides),
        Array(&w.base_dilation),
        Array(&w.window_dilation),
        Pairs(&w.pad_low, &w.pad_high),
        w.sizes.len()
    );
    join(p, Some(monoid(kind, ty.dtype)), ty.dtype);
    p.signature(&[x, &init], &[ty]);
    Val { name, ty: ty.clone() }
}

fn scatter(p: &mut Printer, kind: ScatterKind, a: &ScatterAttrs, x: &[Val]) -> Val {
    let ty = x[0].ty.clone();
    let name = p.begin("\"stablehlo.scatter\"");
    put!(p, "({}, {}, {}) <{{", x[0].name, x[1].name, x[2].name);
    put!(p, "scatter_dimension_numbers = #stablehlo.scatter<");
    dimension_lists(
        p,
        &[
            ("update_window_dims", &a.update_window_dims),
            ("inserted_window_dims", &a.inserted_window_dims),
            ("input_batching_dims", &a.input_batching_dims),
            ("scatter_indices_batching_dims", &a.scatter_indices_batching_dims),
            ("scatter_dims_to_operand_dims", &a.scatter_dims_to_operand_dims),
        ],
    );
    put!(
        p,
        "index_vector_dim = {}>, indices_are_sorted = false, unique_indices = {}}}>",
        a.index_vector_dim,
        a.unique_indices
    );
    let op = match kind {
        ScatterKind::Set => None,
        ScatterKind::Reduce(kind) => Some(monoid(kind, ty.dtype)),
    };
    join(p, op, ty.dtype);
    p.signature(&[&x[0], &x[1], &x[2]], &[&ty]);
    Val { name, ty }
}

/// A line of a region: `%name = stablehlo.compare DIR, x, y, KIND : (t, t) -> tensor<i1>`.
fn compare_line(p: &mut Printer, name: &str, dir: CompareDir, x: &str, y: &str, dtype: DType) {
    let ty = TensorType::scalar(dtype);
    let (dir, kind, t) = (direction(dir), compare_type(dtype), Ty(&ty));
    put!(
        p,
        "        {name} = stablehlo.compare {dir}, {x}, {y}, {kind} : ({t}, {t}) -> tensor<i1>\n"
    );
}

/// The order is total (NaN first, equal values by position), so that the result doesn't depend on
/// how the reduction is split.
fn arg_reduce(p: &mut Printer, max: bool, dim: u32, x: &Val, types: &[TensorType]) -> Val {
    let dtype = x.ty.dtype;
    let kind = if max { ReduceKind::Max } else { ReduceKind::Min };
    let positions = iota(p, dim, &x.ty.with_dtype(DType::I64));
    let init = identity(p, kind, dtype);
    // Loses every tie.
    let last = p.constant(Number::Int(i64::MAX), &TensorType::scalar(DType::I64));
    let name = p.begin_multi("\"stablehlo.reduce\"", 2);
    let (a, b) = (TensorType::scalar(dtype), TensorType::scalar(DType::I64));
    let (t, i) = (Ty(&a), Ty(&b));
    put!(
        p,
        "({}, {}, {}, {}) <{{dimensions = array<i64: {dim}>}}> ({{\n      \
         ^bb0(%a: {t}, %ai: {i}, %b: {t}, %bi: {i}):\n",
        x.name,
        positions.name,
        init.name,
        last.name
    );
    let better = if max { CompareDir::Gt } else { CompareDir::Lt };
    compare_line(p, "%better", better, "%a", "%b", dtype);
    compare_line(p, "%equal", CompareDir::Eq, "%a", "%b", dtype);
    compare_line(p, "%before", CompareDir::Lt, "%ai", "%bi", DType::I64);
    let (mut wins, mut tie) = ("%better", "%equal");
    if dtype.is_float() {
        compare_line(p, "%an", IS_NAN, "%a", "%a", dtype);
        compare_line(p, "%bn", IS_NAN, "%b", "%b", dtype);
        put!(
            p,
            "        %wins = stablehlo.or %better, %an : tensor<i1>\n        \
             %nans = stablehlo.and %an, %bn : tensor<i1>\n        \
             %tie = stablehlo.or %equal, %nans : tensor<i1>\n"
        );
        (wins, tie) = ("%wins", "%tie");
    }
    put!(
        p,
        "        %first = stablehlo.select {tie}, %before, {wins} : tensor<i1>, tensor<i1>\n        \
         %v = stablehlo.select %first, %a, %b : tensor<i1>, {t}\n        \
         %vi = stablehlo.select %first, %ai, %bi : tensor<i1>, {i}\n        \
         stablehlo.return %v, %vi : {t}, {i}\n    }})"
    );
    p.signature(&[x, &positions, &init, &last], &[&types[0], &types[1]]);
    Val { name, ty: types[0].clone() }
}

fn sort(p: &mut Printer, dim: u32, descending: bool, x: &[Val]) -> Val {
    let all: smallvec::SmallVec<[&Val; 4]> = x.iter().collect();
    let types: smallvec::SmallVec<[&TensorType; 4]> = x.iter().map(|v| &v.ty).collect();
    let name = p.begin_multi("\"stablehlo.sort\"", x.len());
    put!(p, "(");
    for (i, v) in x.iter().enumerate() {
        put!(p, "{}{}", if i > 0 { ", " } else { "" }, v.name);
    }
    put!(p, ") <{{dimension = {dim} : i64, is_stable = true}}> ({{\n      ^bb0(");
    for (i, v) in x.iter().enumerate() {
        let scalar = TensorType::scalar(v.ty.dtype);
        let (t, comma) = (Ty(&scalar), if i > 0 { ", " } else { "" });
        put!(p, "{comma}%a{i}: {t}, %b{i}: {t}");
    }
    put!(p, "):\n");
    let dtype = x[0].ty.dtype;
    let dir = if descending { CompareDir::Gt } else { CompareDir::Lt };
    compare_line(p, "%less", dir, "%a0", "%b0", dtype);
    let mut order = "%less";
    if dtype.is_float() {
        let (nan, other) = if descending { ("%a0", "%b0") } else { ("%b0", "%a0") };
        compare_line(p, "%nan", IS_NAN, nan, nan, dtype);
        compare_line(p, "%number", CompareDir::Eq, other, other, dtype);
        put!(
            p,
            "        %last = stablehlo.and %nan, %number : tensor<i1>\n        \
             %order = stablehlo.or %less, %last : tensor<i1>\n"
        );
        order = "%order";
    }
    put!(p, "        stablehlo.return {order} : tensor<i1>\n    }})");
    p.signature(&all, &types);
    debug_assert!(x.len() == 1 || matches!(name, Ref::Result(..)));
    Val { name, ty: x[0].ty.clone() }
}
