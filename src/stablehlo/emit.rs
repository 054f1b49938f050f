//! The spelling of each primitive.

use std::fmt::Write;

use crate::ir::prim::FftKind;
use crate::ir::{
    BinaryOp, CompareDir, DType, Graph, Node, Number, Prim, ReduceKind, ScatterKind, Shape,
    TensorType, UnaryOp, ValueId,
};

use super::regions;

/// What a module takes beside its graph.
pub struct Params<'a> {
    /// Types of the graph's inputs.
    pub inputs: &'a [TensorType],
    /// For each input: the result that takes over its buffer.
    pub aliases: &'a [Option<u32>],
    /// Scalars passed at run time, packed after the inputs: those of float and complex carriers
    /// in one f64 tensor (a complex one takes two places) …
    pub float_slots: &'a [u32],
    /// … and those of integer and bool carriers in one i64 tensor. Absent where empty.
    pub int_slots: &'a [u32],
}

/// The module of a graph, its only function `@main`.
pub fn module(graph: &Graph, params: &Params<'_>) -> String {
    let mut p = Printer {
        graph,
        names: vec![0; graph.nodes().len()],
        next: 0,
        text: String::with_capacity(256 + 96 * graph.nodes().len()),
    };
    p.function(params);
    p.text
}

pub(super) struct Printer<'a> {
    graph: &'a Graph,
    /// The number of each node's SSA value.
    names: Vec<u32>,
    next: u32,
    pub(super) text: String,
}

/// Formatting into a `String` cannot fail.
macro_rules! w {
    ($p:expr, $($arg:tt)*) => {{
        let _ = write!($p.text, $($arg)*);
    }};
}

/// `tensor<2x3xf32>`
pub(super) struct T<'a>(pub &'a TensorType);

impl std::fmt::Display for T<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("tensor<")?;
        for d in &self.0.dims {
            write!(f, "{}x", d.bound())?;
        }
        write!(f, "{}>", self.0.dtype.mlir())
    }
}

/// `[1, 2]`
struct L<'a>(&'a [i64]);

impl std::fmt::Display for L<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, n) in self.0.iter().enumerate() {
            write!(f, "{}{n}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

/// `array<i64: 1, 2>`, which has no colon if empty.
struct A<'a>(&'a [i64]);

impl std::fmt::Display for A<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "array<i64" } else { "array<i64: " })?;
        for (i, n) in self.0.iter().enumerate() {
            write!(f, "{}{n}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str(">")
    }
}

impl Printer<'_> {
    fn function(&mut self, params: &Params<'_>) {
        self.text.push_str("module @region {\n  func.func public @main(");
        let mut first = true;
        for (i, ty) in params.inputs.iter().enumerate() {
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            w!(self, "{comma}%arg{i}: {}", T(ty));
            if let Some(Some(result)) = params.aliases.get(i) {
                w!(self, " {{tf.aliasing_output = {result} : i32}}");
            }
        }
        let carrier = |slot: u32| {
            let at = self.graph.nodes().iter().find(|n| n.prim == Prim::Scalar(slot));
            at.map_or(DType::F64, |n| n.types[0].dtype)
        };
        let places: Vec<(u32, DType)> =
            params.float_slots.iter().map(|&s| (s, carrier(s))).collect();
        let floats: i64 = places.iter().map(|(_, d)| 1 + i64::from(d.is_complex())).sum();
        if floats > 0 {
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            w!(self, "{comma}%floats: tensor<{floats}xf64>");
        }
        let ints = params.int_slots.len();
        if ints > 0 {
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            w!(self, "{comma}%ints: tensor<{ints}xi64>");
        }
        self.text.push_str(") -> (");
        let graph = self.graph;
        for (i, &v) in graph.outputs.iter().enumerate() {
            w!(self, "{}{}", if i > 0 { ", " } else { "" }, T(graph.ty(v)));
        }
        self.text.push_str(") {\n");
        let live = graph.live();
        for (id, node) in graph.nodes().iter().enumerate().filter(|(id, _)| live[*id]) {
            match node.prim {
                Prim::Input(_) => {}
                Prim::Scalar(slot) => {
                    let name = self.scalar(slot, &places, params.int_slots, floats, ints);
                    self.names[id] = name;
                }
                _ => {
                    let name = self.node(node);
                    self.names[id] = name;
                }
            }
        }
        self.text.push_str("    return");
        for (i, &v) in graph.outputs.iter().enumerate() {
            self.text.push_str(if i > 0 { ", " } else { " " });
            self.value(v);
        }
        for (i, &v) in graph.outputs.iter().enumerate() {
            w!(self, "{}{}", if i > 0 { ", " } else { " : " }, T(graph.ty(v)));
        }
        self.text.push_str("\n  }\n}\n");
    }

    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn value(&mut self, v: ValueId) {
        let node = self.graph.node(v.node);
        match node.prim {
            Prim::Input(i) => w!(self, "%arg{i}"),
            _ if node.types.len() > 1 => {
                w!(self, "%{}#{}", self.names[v.node as usize], v.output);
            }
            _ => w!(self, "%{}", self.names[v.node as usize]),
        }
    }

    fn ty(&self, v: ValueId) -> &TensorType {
        self.graph.ty(v)
    }

    /// Takes a run-time number out of its pack.
    fn scalar(
        &mut self,
        slot: u32,
        floats: &[(u32, DType)],
        ints: &[u32],
        packed_floats: i64,
        packed_ints: usize,
    ) -> u32 {
        if let Some(at) = ints.iter().position(|&s| s == slot) {
            let number = self.unpack("ints", at as i64, packed_ints as i64, "i64");
            let is_bool = self.graph.nodes().iter().any(|n| {
                n.prim == Prim::Scalar(slot) && n.types[0].dtype == DType::Bool
            });
            if !is_bool {
                return number;
            }
            let as_bool = self.fresh();
            w!(self, "    %{as_bool} = stablehlo.convert %{number} : (tensor<i64>) -> tensor<i1>\n");
            return as_bool;
        }
        let before = floats.iter().take_while(|(s, _)| *s != slot);
        let at: i64 = before.map(|(_, d)| 1 + i64::from(d.is_complex())).sum();
        let number = self.unpack("floats", at, packed_floats, "f64");
        if !floats.iter().any(|(s, d)| *s == slot && d.is_complex()) {
            return number;
        }
        let imag = self.unpack("floats", at + 1, packed_floats, "f64");
        let pair = self.fresh();
        w!(self, "    %{pair} = stablehlo.complex %{number}, %{imag} : tensor<complex<f64>>\n");
        pair
    }

    fn unpack(&mut self, pack: &str, at: i64, len: i64, dtype: &str) -> u32 {
        let (slice, scalar) = (self.fresh(), self.fresh());
        w!(
            self,
            "    %{slice} = stablehlo.slice %{pack} [{at}:{}] : (tensor<{len}x{dtype}>) -> tensor<1x{dtype}>\n",
            at + 1
        );
        w!(
            self,
            "    %{scalar} = stablehlo.reshape %{slice} : (tensor<1x{dtype}>) -> tensor<{dtype}>\n"
        );
        scalar
    }

    /// `%n = name %a, %b {attributes} : (types) -> type`
    fn plain(&mut self, node: &Node, op: &str, attributes: &str) -> u32 {
        let name = self.fresh();
        w!(self, "    %{name} = \"{op}\"(");
        self.operands(node);
        w!(self, ")");
        if !attributes.is_empty() {
            w!(self, " {{{attributes}}}");
        }
        self.signature(node);
        name
    }

    pub(super) fn operands(&mut self, node: &Node) {
        for (i, &v) in node.inputs.iter().enumerate() {
            if i > 0 {
                self.text.push_str(", ");
            }
            self.value(v);
        }
    }

    pub(super) fn signature(&mut self, node: &Node) {
        self.text.push_str(" : (");
        for (i, &v) in node.inputs.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let ty = self.graph.ty(v);
            let _ = write!(self.text, "{comma}{}", T(ty));
        }
        self.text.push_str(") -> ");
        if let [ty] = node.types.as_slice() {
            w!(self, "{}\n", T(ty));
            return;
        }
        self.text.push('(');
        for (i, ty) in node.types.iter().enumerate() {
            w!(self, "{}{}", if i > 0 { ", " } else { "" }, T(ty));
        }
        self.text.push_str(")\n");
    }

    fn constant(&mut self, number: Number, ty: &TensorType) -> u32 {
        let name = self.fresh();
        w!(self, "    %{name} = stablehlo.constant dense<{}> : {}\n", literal(number, ty.dtype), T(ty));
        name
    }

    fn node(&mut self, node: &Node) -> u32 {
        let ty = &node.types[0];
        match &node.prim {
            Prim::Input(_) | Prim::Scalar(_) => unreachable!("leaves are printed by `function`"),
            Prim::Constant(number) => self.constant(*number, ty),
            Prim::Iota(dim) => {
                let name = self.fresh();
                // An iota counts in integers or floats; a bool one is odd or even.
                w!(self, "    %{name} = stablehlo.iota dim = {dim} : {}\n", T(ty));
                name
            }
            Prim::Unary(op) => self.unary(node, *op),
            Prim::Binary(op) => self.binary(node, *op),
            Prim::Compare(dir) => {
                let x = self.ty(node.inputs[0]).dtype;
                let kind = if x.is_inexact() {
                    "FLOAT"
                } else if x.is_unsigned() {
                    "UNSIGNED"
                } else {
                    "SIGNED"
                };
                let dir = match dir {
                    CompareDir::Eq => "EQ",
                    CompareDir::Ne => "NE",
                    CompareDir::Lt => "LT",
                    CompareDir::Le => "LE",
                    CompareDir::Gt => "GT",
                    CompareDir::Ge => "GE",
                };
                let attributes = format!(
                    "comparison_direction = #stablehlo<comparison_direction {dir}>, \
                     compare_type = #stablehlo<comparison_type {kind}>"
                );
                self.plain(node, "stablehlo.compare", &attributes)
            }
            Prim::Select => self.plain(node, "stablehlo.select", ""),
            Prim::Clamp => self.plain(node, "stablehlo.clamp", ""),
            Prim::Convert(to) => self.convert(node, *to),
            Prim::Bitcast(_) => self.plain(node, "stablehlo.bitcast_convert", ""),
            Prim::Reshape(_) => self.plain(node, "stablehlo.reshape", ""),
            Prim::Transpose(perm) => {
                self.plain(node, "stablehlo.transpose", &format!("permutation = {}", A(perm)))
            }
            Prim::Broadcast { dims, .. } => self.plain(
                node,
                "stablehlo.broadcast_in_dim",
                &format!("broadcast_dimensions = {}", A(dims)),
            ),
            Prim::Slice { starts, limits, strides } => self.plain(
                node,
                "stablehlo.slice",
                &format!(
                    "start_indices = {}, limit_indices = {}, strides = {}",
                    A(starts),
                    A(limits),
                    A(strides)
                ),
            ),
            Prim::Pad { low, high, interior } => self.plain(
                node,
                "stablehlo.pad",
                &format!(
                    "edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                    A(low),
                    A(high),
                    A(interior)
                ),
            ),
            Prim::Concat(dim) => {
                self.plain(node, "stablehlo.concatenate", &format!("dimension = {dim} : i64"))
            }
            Prim::Reverse(dims) => {
                self.plain(node, "stablehlo.reverse", &format!("dimensions = {}", A(dims)))
            }
            Prim::DynamicSlice(sizes) => {
                self.plain(node, "stablehlo.dynamic_slice", &format!("slice_sizes = {}", A(sizes)))
            }
            Prim::DynamicUpdateSlice => self.plain(node, "stablehlo.dynamic_update_slice", ""),
            Prim::Gather(a) => {
                let attributes = format!(
                    "dimension_numbers = #stablehlo.gather<offset_dims = {}, \
                     collapsed_slice_dims = {}, operand_batching_dims = {}, \
                     start_indices_batching_dims = {}, start_index_map = {}, \
                     index_vector_dim = {}>, slice_sizes = {}",
                    L(&a.offset_dims),
                    L(&a.collapsed_slice_dims),
                    L(&a.operand_batching_dims),
                    L(&a.start_indices_batching_dims),
                    L(&a.start_index_map),
                    a.index_vector_dim,
                    A(&a.slice_sizes)
                );
                self.plain(node, "stablehlo.gather", &attributes)
            }
            Prim::Scatter(kind, a) => {
                let name = self.fresh();
                w!(self, "    %{name} = \"stablehlo.scatter\"(");
                self.operands(node);
                w!(
                    self,
                    ") <{{scatter_dimension_numbers = #stablehlo.scatter<\
                     update_window_dims = {}, inserted_window_dims = {}, \
                     input_batching_dims = {}, scatter_indices_batching_dims = {}, \
                     scatter_dims_to_operand_dims = {}, index_vector_dim = {}>, \
                     unique_indices = {}}}> ({{\n",
                    L(&a.update_window_dims),
                    L(&a.inserted_window_dims),
                    L(&a.input_batching_dims),
                    L(&a.scatter_indices_batching_dims),
                    L(&a.scatter_dims_to_operand_dims),
                    a.index_vector_dim,
                    a.unique_indices
                );
                match kind {
                    ScatterKind::Set => regions::second(&mut self.text, ty.dtype),
                    ScatterKind::Reduce(k) => regions::monoid(&mut self.text, *k, ty.dtype),
                }
                self.text.push_str("    })");
                self.signature(node);
                name
            }
            Prim::Dot(a) => self.plain(
                node,
                "stablehlo.dot_general",
                &format!(
                    "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {}, \
                     rhs_batching_dimensions = {}, lhs_contracting_dimensions = {}, \
                     rhs_contracting_dimensions = {}>",
                    L(&a.lhs_batch),
                    L(&a.rhs_batch),
                    L(&a.lhs_contract),
                    L(&a.rhs_contract)
                ),
            ),
            Prim::Conv(a) => {
                let padding: Vec<String> = a
                    .pad_low
                    .iter()
                    .zip(&a.pad_high)
                    .map(|(l, h)| format!("[{l}, {h}]"))
                    .collect();
                let n = a.strides.len();
                let reversal = vec![if a.reverse { "true" } else { "false" }; n].join(", ");
                let attributes = format!(
                    "window_strides = {}, padding = dense<[{}]> : tensor<{n}x2xi64>, \
                     lhs_dilation = {}, rhs_dilation = {}, window_reversal = array<i1: {reversal}>, \
                     dimension_numbers = #stablehlo.conv<raw input_batch_dimension = {}, \
                     input_feature_dimension = {}, input_spatial_dimensions = {}, \
                     kernel_output_feature_dimension = {}, kernel_input_feature_dimension = {}, \
                     kernel_spatial_dimensions = {}, output_batch_dimension = {}, \
                     output_feature_dimension = {}, output_spatial_dimensions = {}>, \
                     feature_group_count = {} : i64, batch_group_count = {} : i64",
                    A(&a.strides),
                    padding.join(", "),
                    A(&a.lhs_dilation),
                    A(&a.rhs_dilation),
                    a.lhs_dims[0],
                    a.lhs_dims[1],
                    L(&a.lhs_dims[2..]),
                    a.rhs_dims[0],
                    a.rhs_dims[1],
                    L(&a.rhs_dims[2..]),
                    a.out_dims[0],
                    a.out_dims[1],
                    L(&a.out_dims[2..]),
                    a.feature_groups,
                    a.batch_groups
                );
                self.plain(node, "stablehlo.convolution", &attributes)
            }
            Prim::Reduce(kind, dims) => self.reduce(node, *kind, dims),
            Prim::ArgReduce { max, dim } => self.arg_reduce(node, *max, *dim),
            Prim::ReduceWindow(kind, win) => {
                let init = self.constant(kind.identity(ty.dtype), &TensorType::scalar(ty.dtype));
                let x = self.ty(node.inputs[0]).clone();
                let padding: Vec<String> = win
                    .pad_low
                    .iter()
                    .zip(&win.pad_high)
                    .map(|(l, h)| format!("[{l}, {h}]"))
                    .collect();
                let name = self.fresh();
                w!(self, "    %{name} = \"stablehlo.reduce_window\"(");
                self.value(node.inputs[0]);
                w!(
                    self,
                    ", %{init}) <{{window_dimensions = {}, window_strides = {}, \
                     base_dilations = {}, window_dilations = {}, padding = dense<[{}]> : \
                     tensor<{}x2xi64>}}> ({{\n",
                    A(&win.sizes),
                    A(&win.strides),
                    A(&win.base_dilation),
                    A(&win.window_dilation),
                    padding.join(", "),
                    win.sizes.len()
                );
                regions::monoid(&mut self.text, *kind, ty.dtype);
                let init = TensorType::scalar(ty.dtype);
                w!(self, "    }}) : ({}, {}) -> {}\n", T(&x), T(&init), T(ty));
                name
            }
            Prim::Sort { dim, descending } => {
                let name = self.fresh();
                let n = node.inputs.len();
                w!(self, "    %{name}{} = \"stablehlo.sort\"(", results(n));
                self.operands(node);
                w!(self, ") <{{dimension = {dim} : i64, is_stable = true}}> ({{\n");
                let dtypes: Vec<DType> = node.types.iter().map(|t| t.dtype).collect();
                regions::comparator(&mut self.text, &dtypes, *descending);
                self.text.push_str("    })");
                self.signature(node);
                name
            }
            Prim::Cholesky { lower } => {
                self.plain(node, "stablehlo.cholesky", &format!("lower = {lower}"))
            }
            Prim::TriangularSolve { left, lower, unit_diagonal, transpose } => {
                let transpose = ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"][usize::from(*transpose)];
                let attributes = format!(
                    "left_side = {left}, lower = {lower}, unit_diagonal = {unit_diagonal}, \
                     transpose_a = #stablehlo<transpose {transpose}>"
                );
                self.plain(node, "stablehlo.triangular_solve", &attributes)
            }
            Prim::Fft { kind, lengths } => {
                let kind = match kind {
                    FftKind::Fft => "FFT",
                    FftKind::Ifft => "IFFT",
                    FftKind::Rfft => "RFFT",
                    FftKind::Irfft => "IRFFT",
                };
                let attributes =
                    format!("fft_type = #stablehlo<fft_type {kind}>, fft_length = {}", A(lengths));
                self.plain(node, "stablehlo.fft", &attributes)
            }
        }
    }

    fn unary(&mut self, node: &Node, op: UnaryOp) -> u32 {
        let dtype = self.ty(node.inputs[0]).dtype;
        // XLA refuses these on unsigned integers, where they say nothing or little.
        if dtype.is_unsigned() && matches!(op, UnaryOp::Abs) {
            return self.plain(node, "stablehlo.convert", "");
        }
        if dtype.is_unsigned() && matches!(op, UnaryOp::Sign) {
            let ty = self.ty(node.inputs[0]).clone();
            let one = self.constant(Number::Int(1).cast(dtype), &ty);
            let name = self.fresh();
            w!(self, "    %{name} = stablehlo.minimum ");
            self.value(node.inputs[0]);
            w!(self, ", %{one} : {}\n", T(&ty));
            return name;
        }
        let (dialect, name) = match op {
            UnaryOp::Abs => ("stablehlo", "abs"),
            UnaryOp::Neg => ("stablehlo", "negate"),
            UnaryOp::Sign => ("stablehlo", "sign"),
            UnaryOp::Not => ("stablehlo", "not"),
            UnaryOp::Exp => ("stablehlo", "exponential"),
            UnaryOp::Expm1 => ("stablehlo", "exponential_minus_one"),
            UnaryOp::Log => ("stablehlo", "log"),
            UnaryOp::Log1p => ("stablehlo", "log_plus_one"),
            UnaryOp::Sqrt => ("stablehlo", "sqrt"),
            UnaryOp::Rsqrt => ("stablehlo", "rsqrt"),
            UnaryOp::Cbrt => ("stablehlo", "cbrt"),
            UnaryOp::Sin => ("stablehlo", "sine"),
            UnaryOp::Cos => ("stablehlo", "cosine"),
            UnaryOp::Tan => ("chlo", "tan"),
            UnaryOp::Asin => ("chlo", "asin"),
            UnaryOp::Acos => ("chlo", "acos"),
            UnaryOp::Atan => ("chlo", "atan"),
            UnaryOp::Sinh => ("chlo", "sinh"),
            UnaryOp::Cosh => ("chlo", "cosh"),
            UnaryOp::Tanh => ("stablehlo", "tanh"),
            UnaryOp::Asinh => ("chlo", "asinh"),
            UnaryOp::Acosh => ("chlo", "acosh"),
            UnaryOp::Atanh => ("chlo", "atanh"),
            UnaryOp::Logistic => ("stablehlo", "logistic"),
            UnaryOp::Floor => ("stablehlo", "floor"),
            UnaryOp::Ceil => ("stablehlo", "ceil"),
            UnaryOp::RoundEven => ("stablehlo", "round_nearest_even"),
            UnaryOp::Erf => ("chlo", "erf"),
            UnaryOp::Erfc => ("chlo", "erfc"),
            UnaryOp::ErfInv => ("chlo", "erf_inv"),
            UnaryOp::Lgamma => ("chlo", "lgamma"),
            UnaryOp::Digamma => ("chlo", "digamma"),
            UnaryOp::IsFinite => ("stablehlo", "is_finite"),
            UnaryOp::Real => ("stablehlo", "real"),
            UnaryOp::Imag => ("stablehlo", "imag"),
            UnaryOp::PopulationCount => ("stablehlo", "popcnt"),
        };
        self.plain(node, &format!("{dialect}.{name}"), "")
    }

    fn binary(&mut self, node: &Node, op: BinaryOp) -> u32 {
        let name = match op {
            BinaryOp::Add => "stablehlo.add",
            BinaryOp::Sub => "stablehlo.subtract",
            BinaryOp::Mul => "stablehlo.multiply",
            BinaryOp::Div => "stablehlo.divide",
            BinaryOp::Rem => "stablehlo.remainder",
            BinaryOp::Pow => "stablehlo.power",
            BinaryOp::Atan2 => "stablehlo.atan2",
            BinaryOp::Max => "stablehlo.maximum",
            BinaryOp::Min => "stablehlo.minimum",
            BinaryOp::And => "stablehlo.and",
            BinaryOp::Or => "stablehlo.or",
            BinaryOp::Xor => "stablehlo.xor",
            BinaryOp::ShiftLeft => "stablehlo.shift_left",
            BinaryOp::ShiftRightArithmetic => "stablehlo.shift_right_arithmetic",
            BinaryOp::ShiftRightLogical => "stablehlo.shift_right_logical",
            BinaryOp::Complex => "stablehlo.complex",
            BinaryOp::NextAfter => "chlo.next_after",
            BinaryOp::Polygamma => "chlo.polygamma",
            BinaryOp::Zeta => "chlo.zeta",
        };
        self.plain(node, name, "")
    }

    fn convert(&mut self, node: &Node, to: DType) -> u32 {
        let from = self.ty(node.inputs[0]).clone();
        if to != DType::Bool {
            return self.plain(node, "stablehlo.convert", "");
        }
        let zero = self.constant(Number::Int(0).cast(from.dtype), &from);
        let name = self.fresh();
        w!(self, "    %{name} = stablehlo.compare NE, ");
        self.value(node.inputs[0]);
        w!(self, ", %{zero} : ({0}, {0}) -> {1}\n", T(&from), T(&node.types[0]));
        name
    }

    fn reduce(&mut self, node: &Node, kind: ReduceKind, dims: &Shape) -> u32 {
        let ty = &node.types[0];
        let scalar = TensorType::scalar(ty.dtype);
        let init = self.constant(kind.identity(ty.dtype), &scalar);
        let x = self.ty(node.inputs[0]).clone();
        let name = self.fresh();
        w!(self, "    %{name} = \"stablehlo.reduce\"(");
        self.value(node.inputs[0]);
        w!(self, ", %{init}) <{{dimensions = {}}}> ({{\n", A(dims));
        regions::monoid(&mut self.text, kind, ty.dtype);
        w!(self, "    }}) : ({}, {}) -> {}\n", T(&x), T(&scalar), T(ty));
        name
    }

    fn arg_reduce(&mut self, node: &Node, max: bool, dim: u32) -> u32 {
        let x = self.ty(node.inputs[0]).clone();
        let positions = x.with_dtype(DType::I64);
        let iota = self.fresh();
        w!(self, "    %{iota} = stablehlo.iota dim = {dim} : {}\n", T(&positions));
        let (value, index) = (TensorType::scalar(x.dtype), TensorType::scalar(DType::I64));
        let extreme = if max { x.dtype.min_value() } else { x.dtype.max_value() };
        let worst = self.constant(extreme, &value);
        // Behind every real position, so that a worst element still wins over it.
        let behind = self.constant(Number::Int(i64::MAX), &index);
        let name = self.fresh();
        w!(self, "    %{name}:2 = \"stablehlo.reduce\"(");
        self.value(node.inputs[0]);
        w!(self, ", %{iota}, %{worst}, %{behind}) <{{dimensions = array<i64: {dim}>}}> ({{\n");
        regions::arg(&mut self.text, max, x.dtype);
        w!(
            self,
            "    }}) : ({}, {}, {}, {}) -> ({}, {})\n",
            T(&x),
            T(&positions),
            T(&value),
            T(&index),
            T(&node.types[0]),
            T(&node.types[1])
        );
        name
    }
}

fn results(n: usize) -> String {
    if n > 1 { format!(":{n}") } else { String::new() }
}

/// A number as an MLIR literal of `dtype`, exact to the bit for floats.
fn literal(number: Number, dtype: DType) -> String {
    let part = |v: f64, dtype: DType| match dtype {
        DType::F64 => format!("0x{:016X}", v.to_bits()),
        _ if dtype == DType::F32 => format!("0x{:08X}", (v as f32).to_bits()),
        // The narrower floats round from a decimal; what isn't finite has fixed bits.
        _ if v.is_finite() => format!("{v:.17e}"),
        DType::BF16 => narrow(v, 0x7FC0, 0x7F80, 0x8000),
        DType::F16 => narrow(v, 0x7E00, 0x7C00, 0x8000),
        DType::F8E5M2 => narrow8(v, 0x7E, 0x7C, 0x80),
        // No infinities: the nearest is NaN.
        _ => narrow8(v, 0x7F, 0x7F, 0x80),
    };
    match dtype {
        DType::Bool => (!number.is_zero()).to_string(),
        DType::C64 | DType::C128 => {
            let real = dtype.real();
            format!("({}, {})", part(number.to_f64(), real), part(number.imag(), real))
        }
        _ if dtype.is_float() => part(number.to_f64(), dtype),
        DType::U64 => (number.to_i64() as u64).to_string(),
        DType::U32 => (number.to_i64() as u32).to_string(),
        _ => number.to_i64().to_string(),
    }
}

fn narrow(v: f64, nan: u16, infinity: u16, sign: u16) -> String {
    let bits = if v.is_nan() { nan } else { infinity };
    format!("0x{:04X}", if v.is_sign_negative() && !v.is_nan() { bits | sign } else { bits })
}

fn narrow8(v: f64, nan: u8, infinity: u8, sign: u8) -> String {
    let bits = if v.is_nan() { nan } else { infinity };
    format!("0x{:02X}", if v.is_sign_negative() && !v.is_nan() { bits | sign } else { bits })
}
