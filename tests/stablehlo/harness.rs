//! Tensors on the host, and running a small graph on them.

use std::sync::OnceLock;

use defer_and_fuse::ir::builder::IrError;
use defer_and_fuse::ir::{Builder, DType, Graph, Prim, TensorType, V};
use defer_and_fuse::pjrt::{
    self, Candidates, Client, CompileOptions, OptionValue, Plugin, discover,
};
use defer_and_fuse::stablehlo::{Params, module};

pub const NAN: f64 = f64::NAN;
pub const INF: f64 = f64::INFINITY;
pub const REALS: [DType; 6] =
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E5M2, DType::F8E4M3FN];
pub const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];
pub const INTS: [DType; 8] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

pub fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let choice = discover(&Candidates::default()).unwrap_or_else(|e| panic!("{e}"));
        let plugin = Plugin::load(choice.path).unwrap_or_else(|e| panic!("{e}"));
        Client::new(plugin, &[]).unwrap_or_else(|e| panic!("{e}"))
    })
}

/// A dense tensor in host memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub ty: TensorType,
    pub bytes: Vec<u8>,
}

/// A real tensor (floats, integers, bool) of values that `dtype` can represent.
pub fn t(dtype: DType, sizes: &[i64], values: &[f64]) -> Tensor {
    let ty = TensorType::new(dtype, sizes);
    assert_eq!(ty.numel() as usize, values.len());
    Tensor { ty, bytes: values.iter().flat_map(|&v| encode(dtype, v)).collect() }
}

/// A complex tensor.
pub fn c(dtype: DType, sizes: &[i64], values: &[(f64, f64)]) -> Tensor {
    let parts: Vec<f64> = values.iter().flat_map(|&(re, im)| [re, im]).collect();
    let bytes = parts.iter().flat_map(|&v| encode(dtype.real(), v)).collect();
    Tensor { ty: TensorType::new(dtype, sizes), bytes }
}

impl Tensor {
    /// The values; for complex tensors, the parts one after the other.
    pub fn values(&self) -> Vec<f64> {
        let real = self.ty.dtype.real();
        self.bytes.chunks(real.size()).map(|b| decode(real, b)).collect()
    }
}

fn encode(dtype: DType, v: f64) -> Vec<u8> {
    match dtype {
        DType::Bool => vec![u8::from(v != 0.0)],
        DType::U8 => (v as u8).to_le_bytes().to_vec(),
        DType::I8 => (v as i8).to_le_bytes().to_vec(),
        DType::U16 => (v as u16).to_le_bytes().to_vec(),
        DType::I16 => (v as i16).to_le_bytes().to_vec(),
        DType::U32 => (v as u32).to_le_bytes().to_vec(),
        DType::I32 => (v as i32).to_le_bytes().to_vec(),
        DType::U64 => (v as u64).to_le_bytes().to_vec(),
        DType::I64 => (v as i64).to_le_bytes().to_vec(),
        DType::F32 => (v as f32).to_le_bytes().to_vec(),
        DType::F64 => v.to_le_bytes().to_vec(),
        // The bit pattern that means this value.
        _ => (0..=u16::MAX)
            .map(|bits| bits.to_le_bytes()[..dtype.size()].to_vec())
            .find(|b| same(decode(dtype, b), v))
            .unwrap_or_else(|| panic!("{dtype} has no {v}")),
    }
}

pub fn decode(dtype: DType, b: &[u8]) -> f64 {
    let raw = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| if i < n { b[i] } else { 0 }));
    match dtype {
        DType::Bool | DType::U8 => b[0].into(),
        DType::I8 => (b[0] as i8).into(),
        DType::U16 => (raw(2) as u16).into(),
        DType::I16 => (raw(2) as i16).into(),
        DType::U32 => (raw(4) as u32).into(),
        DType::I32 => (raw(4) as i32).into(),
        DType::U64 => raw(8) as f64,
        DType::I64 => raw(8) as i64 as f64,
        DType::F32 => f32::from_bits(raw(4) as u32).into(),
        DType::F64 => f64::from_bits(raw(8)),
        DType::BF16 => f32::from_bits((raw(2) as u32) << 16).into(),
        DType::F16 => small(raw(2), 5, 10, true),
        DType::F8E5M2 => small(raw(1), 5, 2, true),
        DType::F8E4M3FN => small(raw(1), 4, 3, false),
        DType::C64 | DType::C128 => unreachable!("complex tensors are decoded by parts"),
    }
}

/// The value of a float of `e` exponent and `m` mantissa bits.
fn small(bits: u64, e: u32, m: u32, infinities: bool) -> f64 {
    let sign = if bits >> (e + m) & 1 == 1 { -1.0 } else { 1.0 };
    let (field, mantissa) = (bits >> m & ((1 << e) - 1), bits & ((1 << m) - 1));
    let top = (1 << e) - 1;
    let bias = (1 << (e - 1)) - 1;
    let fraction = mantissa as f64 / f64::from(1 << m);
    sign * match field {
        _ if field == top && infinities => return if mantissa == 0 { sign * INF } else { NAN },
        _ if field == top && mantissa == (1 << m) - 1 => return NAN,
        0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(field as i32 - bias),
    }
}

/// Equal, NaN being NaN and −0 not 0.
pub fn same(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits()
}

/// Runs the graph that `f` builds on `inputs`.
pub fn run(
    inputs: &[Tensor],
    f: impl for<'b> FnOnce(&'b Builder, &[V<'b>]) -> Vec<V<'b>>,
) -> Vec<Tensor> {
    let graph = build(inputs, f);
    let types: Vec<TensorType> = inputs.iter().map(|t| t.ty.clone()).collect();
    let params = Params { inputs: &types, aliases: &[], float_slots: &[], int_slots: &[] };
    execute(&graph, &module(&graph, &params), inputs)
}

/// As [`run`], for graphs with one output.
pub fn run1(inputs: &[Tensor], f: impl for<'b> FnOnce(&'b Builder, &[V<'b>]) -> V<'b>) -> Tensor {
    run(inputs, |b, x| vec![f(b, x)]).remove(0)
}

pub fn build(
    inputs: &[Tensor],
    f: impl for<'b> FnOnce(&'b Builder, &[V<'b>]) -> Vec<V<'b>>,
) -> Graph {
    let (mut graph, outputs) = Builder::build(|b| {
        let x: Vec<V> = (inputs.iter().enumerate())
            .map(|(i, t)| b.leaf(Prim::Input(i as u32), t.ty.clone()))
            .collect();
        Ok::<_, IrError>(f(b, &x).iter().map(|v| v.id).collect::<Vec<_>>())
    })
    .unwrap_or_else(|e| panic!("{}", e.0));
    graph.outputs = outputs;
    graph
}

pub fn execute(graph: &Graph, text: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    let client = client();
    let mut options = CompileOptions::default();
    if client.platform_name() == "cpu" {
        // XLA:CPU's own default drops a NaN on the right of a maximum.
        options = options.with_override("xla_cpu_enable_fast_min_max", OptionValue::Bool(false));
    }
    let executable = client.compile_with(text, &options).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let buffers: Vec<pjrt::Buffer> = (inputs.iter())
        .map(|t| client.upload(pjrt_dtype(t.ty.dtype), &t.ty.sizes(), &t.bytes).unwrap())
        .collect();
    let outputs = executable.execute(&buffers, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (outputs.iter().zip(&graph.outputs))
        .map(|(buffer, &v)| {
            let ty = graph.ty(v).clone();
            assert_eq!(buffer.dtype().unwrap(), pjrt_dtype(ty.dtype), "{text}");
            assert_eq!(buffer.dims().unwrap(), ty.sizes().as_slice(), "{text}");
            let mut bytes = vec![0; ty.bytes() as usize];
            buffer.download(&mut bytes).unwrap();
            Tensor { ty, bytes }
        })
        .collect()
}

pub fn pjrt_dtype(dtype: DType) -> pjrt::DType {
    match dtype {
        DType::Bool => pjrt::DType::Pred,
        DType::U8 => pjrt::DType::U8,
        DType::I8 => pjrt::DType::S8,
        DType::U16 => pjrt::DType::U16,
        DType::I16 => pjrt::DType::S16,
        DType::U32 => pjrt::DType::U32,
        DType::I32 => pjrt::DType::S32,
        DType::U64 => pjrt::DType::U64,
        DType::I64 => pjrt::DType::S64,
        DType::F16 => pjrt::DType::F16,
        DType::BF16 => pjrt::DType::BF16,
        DType::F32 => pjrt::DType::F32,
        DType::F64 => pjrt::DType::F64,
        DType::C64 => pjrt::DType::C64,
        DType::C128 => pjrt::DType::C128,
        DType::F8E5M2 => pjrt::DType::F8E5M2,
        DType::F8E4M3FN => pjrt::DType::F8E4M3FN,
    }
}

/// Bit for bit, except that any NaN is NaN.
#[track_caller]
pub fn exact(got: &Tensor, want: &[f64], what: &str) {
    let values = got.values();
    let equal = values.len() == want.len() && values.iter().zip(want).all(|(&a, &b)| same(a, b));
    assert!(equal, "{what}: {} {values:?} is not {want:?}", got.ty);
}

/// Within `ulps` roundings of the tensor's dtype.
#[track_caller]
pub fn close(got: &Tensor, want: &[f64], ulps: f64, what: &str) {
    let values = got.values();
    let tolerance = ulps * got.ty.dtype.epsilon();
    let near = |a: f64, b: f64| {
        (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * b.abs().max(tolerance)
    };
    let equal = values.len() == want.len() && values.iter().zip(want).all(|(&a, &b)| near(a, b));
    assert!(equal, "{what}: {} {values:?} is not near {want:?}", got.ty);
}
