//! What ops and regions lower to, as text: one snapshot an op, and three whole regions.
//!
//! `cargo insta review` (or `INSTA_UPDATE=always cargo test --test snapshots`) accepts changes.

use defer_and_fuse::ir::{DType, Number, TensorType};
use defer_and_fuse::ops::{Arg, TensorArg, registry};
use defer_and_fuse::region;
use defer_and_fuse::rewrite;
use defer_and_fuse::stablehlo;
use defer_and_fuse::trace::store::State;
use defer_and_fuse::trace::template::Sizing;
use defer_and_fuse::trace::{Recorded, Recorder, intern};

use A::{B, Bs, D, I, Is, List, N, Ni, None as Nil, Rng, S, T};
use DType::{BF16, Bool, F32, F64, I32, I64};

/// A tensor of a test: a window on a cell of a recorder that has no device.
#[derive(Clone)]
struct Tensor {
    cell: u64,
    dtype: DType,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
    write: Option<u8>,
}

impl Tensor {
    fn arg(&self) -> TensorArg<'_> {
        TensorArg {
            cell: self.cell,
            dtype: self.dtype,
            sizes: &self.sizes,
            strides: &self.strides,
            offset: self.offset,
            write: self.write,
            out: false,
        }
    }

    fn written(mut self) -> Tensor {
        self.write = Some(0);
        self
    }

    fn view(mut self, sizes: &[i64], strides: &[i64], offset: i64) -> Tensor {
        (self.sizes, self.strides, self.offset) = (sizes.into(), strides.into(), offset);
        self
    }
}

/// An argument of a test's call.
#[derive(Clone)]
enum A {
    T(Tensor),
    List(Vec<Tensor>),
    None,
    N(f64),
    /// A number that is an integer.
    Ni(i64),
    I(i64),
    B(bool),
    Is(Vec<i64>),
    Bs(Vec<i64>),
    S(&'static str),
    D(DType),
    Rng,
}

/// Records calls and prints the region they make.
#[derive(Default)]
struct Bench {
    recorder: Recorder<()>,
}

impl Bench {
    fn tensor(&mut self, dtype: DType, sizes: &[i64]) -> Tensor {
        let ty = intern(&TensorType::new(dtype, sizes));
        let value = self.recorder.store.new_value(ty, State::Ready(()));
        let (cell, _) = self.recorder.store.new_cell(ty.bytes());
        self.recorder.store.hold(cell, value);
        contiguous(cell, dtype, sizes)
    }

    fn call(&mut self, name: &str, args: &[A]) -> Vec<Tensor> {
        let op = registry().find(name).unwrap_or_else(|| panic!("{name} is not defined"));
        let lists: Vec<Vec<TensorArg<'_>>> = args
            .iter()
            .filter_map(|a| match a {
                A::List(list) => Some(list.iter().map(Tensor::arg).collect()),
                _ => None,
            })
            .collect();
        let mut list = lists.iter();
        let args: Vec<Arg<'_>> = args
            .iter()
            .map(|a| match a {
                A::T(t) => Arg::Tensor(t.arg()),
                A::List(_) => Arg::Tensors(list.next().expect("as many lists as list arguments")),
                A::None => Arg::None,
                A::N(v) => Arg::Number(Number::float(*v)),
                A::Ni(v) => Arg::Number(Number::Int(*v)),
                A::I(v) => Arg::Int(*v),
                A::B(v) => Arg::Bool(*v),
                A::Is(v) => Arg::Ints(v),
                A::Bs(v) => Arg::Bools(v),
                A::S(s) => Arg::Str(s),
                A::D(d) => Arg::DType(*d),
                A::Rng => Arg::Generator { seed: 7, counter: 1 },
            })
            .collect();
        match self.recorder.record(op, &args, Sizing::None, 0) {
            Ok(Recorded::Step(template, fresh)) => template
                .outputs
                .iter()
                .zip(&fresh)
                .map(|(ty, &(cell, _))| contiguous(cell, ty.dtype(), ty.sizes()))
                .collect(),
            Ok(_) => panic!("{name} was not recorded"),
            Err(e) => panic!("{name}: {e}"),
        }
    }

    fn module(mut self) -> String {
        let trace = std::mem::take(&mut self.recorder.trace);
        let cut = region::cut(&trace, trace.steps.len(), &mut self.recorder.store, |()| true);
        let store = &self.recorder.store;
        let inputs = cut.inputs.iter().map(|&v| store.value(v).ty.tensor_type().clone()).collect();
        let program = region::build(&trace, &cut, inputs, &cut.runtime);
        let int_slots: Vec<u32> =
            (0..cut.runtime.len()).filter(|&i| cut.runtime[i]).map(|i| i as u32).collect();
        stablehlo::module(
            &rewrite::optimise(program.graph),
            &stablehlo::Params {
                inputs: &program.inputs,
                aliases: &program.donations,
                float_slots: &[],
                int_slots: &int_slots,
            },
        )
    }
}

fn contiguous(cell: u64, dtype: DType, sizes: &[i64]) -> Tensor {
    let strides = defer_and_fuse::ir::types::contiguous_strides(sizes).to_vec();
    Tensor { cell, dtype, sizes: sizes.into(), strides, offset: 0, write: None }
}

/// One op on fresh tensors: `t` makes them.
fn op(name: &'static str, args: impl FnOnce(&mut dyn FnMut(DType, &[i64]) -> Tensor) -> Vec<A>) {
    let mut bench = Bench::default();
    let args = args(&mut |dtype, sizes| bench.tensor(dtype, sizes));
    bench.call(name, &args);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots/ops");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name.trim_start_matches("aten::"), bench.module()));
}

#[test]
fn elementwise() {
    op("aten::add.Tensor", |t| vec![T(t(F32, &[2, 3])), T(t(F32, &[3])), Ni(1)]);
    op("aten::sub.Tensor", |t| vec![T(t(F32, &[2])), T(t(I32, &[2])), Ni(2)]);
    op("aten::mul.Tensor", |t| vec![T(t(BF16, &[4])), N(0.1)]);
    op("aten::div.Tensor", |t| vec![T(t(I64, &[4])), T(t(I64, &[4]))]);
    op("aten::div.Tensor_mode", |t| vec![T(t(F32, &[4])), T(t(F32, &[4])), S("floor")]);
    op("aten::remainder.Tensor", |t| vec![T(t(I32, &[4])), T(t(I32, &[4]))]);
    op("aten::pow.Tensor_Scalar", |t| vec![T(t(F32, &[4])), Ni(2)]);
    op("aten::where.self", |t| vec![T(t(Bool, &[2, 1])), T(t(F32, &[2, 3])), T(t(F32, &[1]))]);
    op("aten::clamp", |t| vec![T(t(F32, &[4])), N(-1.0), Nil]);
    op("aten::lt.Scalar", |t| vec![T(t(F32, &[4])), N(0.5)]);
    op("aten::bitwise_and.Tensor", |t| vec![T(t(I32, &[4])), T(t(I32, &[4]))]);
    op("aten::logical_not", |t| vec![T(t(F32, &[4]))]);
    op("aten::exp", |t| vec![T(t(I32, &[4]))]);
    op("aten::rsqrt", |t| vec![T(t(F64, &[4]))]);
    op("aten::erf", |t| vec![T(t(F32, &[4]))]);
    op("aten::gelu", |t| vec![T(t(F32, &[4])), S("none")]);
    op("aten::silu", |t| vec![T(t(BF16, &[4]))]);
    op("aten::lerp.Scalar", |t| vec![T(t(F32, &[4])), T(t(F32, &[4])), N(0.9)]);
    op("aten::addcdiv", |t| vec![T(t(F32, &[4])), T(t(F32, &[4])), T(t(F32, &[4])), N(-1e-3)]);
}

#[test]
fn matrices_and_reductions() {
    op("aten::mm", |t| vec![T(t(F32, &[2, 3])), T(t(F32, &[3, 4]))]);
    op("aten::bmm", |t| vec![T(t(BF16, &[5, 2, 3])), T(t(BF16, &[5, 3, 4]))]);
    op("aten::addmm", |t| {
        vec![
            T(t(F32, &[4])),
            T(t(F32, &[2, 3])),
            T(t(F32, &[4, 3]).view(&[3, 4], &[1, 3], 0)),
            Ni(1),
            Ni(1),
        ]
    });
    op("aten::sum.dim_IntList", |t| vec![T(t(F32, &[2, 3])), Is(vec![-1]), B(true), Nil]);
    op("aten::mean.dim", |t| vec![T(t(BF16, &[2, 3])), Is(vec![0]), B(false), Nil]);
    op("aten::amax", |t| vec![T(t(F32, &[2, 3])), Is(vec![1]), B(false)]);
    op("aten::max.dim", |t| vec![T(t(F32, &[2, 3])), I(1), B(false)]);
    op("aten::argmax", |t| vec![T(t(F32, &[2, 3])), I(1), B(true)]);
    op("aten::var.correction", |t| vec![T(t(F32, &[2, 3])), Is(vec![1]), Ni(1), B(false)]);
    op("aten::cumsum", |t| vec![T(t(F32, &[2, 3])), I(1), Nil]);
    op("aten::sort.stable", |t| vec![T(t(F32, &[2, 3])), B(true), I(-1), B(true)]);
    op("aten::topk", |t| vec![T(t(F32, &[2, 8])), I(3), I(-1), B(true), B(true)]);
    op("aten::_softmax", |t| vec![T(t(F32, &[2, 3])), I(-1), B(false)]);
    op("aten::_log_softmax", |t| vec![T(t(F32, &[2, 3])), I(1), B(false)]);
    op("aten::native_layer_norm", |t| {
        vec![T(t(F32, &[2, 3])), Is(vec![3]), T(t(F32, &[3])), T(t(F32, &[3])), N(1e-5)]
    });
    op("aten::native_batch_norm", |t| {
        let x = t(F32, &[2, 3, 4, 4]);
        let mut c = || T(t(F32, &[3]));
        vec![T(x), c(), c(), c(), c(), B(true), N(0.1), N(1e-5)]
    });
    op("aten::nll_loss_forward", |t| vec![T(t(F32, &[4, 5])), T(t(I64, &[4])), Nil, I(1), I(-100)]);
}

#[test]
fn shapes_indices_windows() {
    op("aten::cat", |t| vec![List(vec![t(F32, &[2, 3]), t(F32, &[1, 3])]), I(0)]);
    op("aten::tril", |t| vec![T(t(F32, &[3, 3])), I(0)]);
    op("aten::flip", |t| vec![T(t(F32, &[2, 3])), Is(vec![1])]);
    op("aten::constant_pad_nd", |t| vec![T(t(F32, &[2, 3])), Is(vec![1, -1]), N(0.0)]);
    op("aten::masked_fill.Scalar", |t| {
        vec![T(t(F32, &[2, 3])), T(t(Bool, &[3])), N(f64::NEG_INFINITY)]
    });
    op("aten::embedding", |t| {
        vec![T(t(F32, &[9, 3])), T(t(I64, &[2, 2])), I(-1), B(false), B(false)]
    });
    op("aten::index.Tensor", |t| vec![T(t(F32, &[4, 5])), List(vec![t(I64, &[2]), t(I64, &[2])])]);
    op("aten::gather", |t| vec![T(t(F32, &[4, 5])), I(1), T(t(I64, &[4, 2])), B(false)]);
    op("aten::scatter_add", |t| {
        vec![T(t(F32, &[4, 5])), I(1), T(t(I64, &[4, 2])), T(t(F32, &[4, 2]))]
    });
    op("aten::convolution", |t| {
        let (x, w) = (t(F32, &[1, 4, 8, 8]), t(F32, &[6, 2, 3, 3]));
        let two = |n| Is(vec![n, n]);
        vec![T(x), T(w), Nil, two(2), two(1), two(1), B(false), two(0), I(2)]
    });
    op("aten::convolution_backward", |t| {
        let (g, x, w) = (t(F32, &[1, 6, 4, 4]), t(F32, &[1, 4, 8, 8]), t(F32, &[6, 4, 3, 3]));
        let two = |n| Is(vec![n, n]);
        vec![
            T(g),
            T(x),
            T(w),
            Is(vec![6]),
            two(2),
            two(1),
            two(1),
            B(false),
            two(0),
            I(1),
            Bs(vec![1, 1, 1]),
        ]
    });
    op("aten::max_pool2d_with_indices", |t| {
        let two = |n| Is(vec![n, n]);
        vec![T(t(F32, &[1, 2, 4, 4])), two(2), two(2), two(0), two(1), B(false)]
    });
    op("aten::uniform", |t| vec![T(t(F32, &[8])), N(0.0), N(1.0), Rng]);
    op("aten::copy", |t| vec![T(t(I32, &[2, 2])), T(t(F32, &[2])), B(false)]);
    op("aten::full", |_| vec![Is(vec![2]), N(1.5), D(BF16), Nil, Nil, Nil]);
}

fn region(name: &str, bench: Bench) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots/regions");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name, bench.module()));
}

/// Reads and writes through views of one storage: a row is scaled by a column of its transpose.
#[test]
fn region_of_views() {
    let mut b = Bench::default();
    let x = b.tensor(F32, &[4, 4]);
    let row = x.clone().view(&[4], &[1], 4);
    let column = x.clone().view(&[4], &[4], 2);
    b.call("aten::mul.Tensor", &[T(row.written()), T(column)]);
    b.call("aten::add.Tensor", &[T(x.clone().view(&[2, 2], &[8, 2], 1).written()), N(1.0), Ni(1)]);
    region("views", b);
}

/// A linear layer, its gradient and an in-place update: dead temporaries are gone, the parameter
/// donates its buffer.
#[test]
fn region_of_a_training_step() {
    let mut b = Bench::default();
    let (w, x, y) = (b.tensor(F32, &[3, 2]), b.tensor(F32, &[4, 2]), b.tensor(F32, &[4, 3]));
    let wt = w.clone().view(&[2, 3], &[1, 2], 0);
    let out = b.call("aten::mm", &[T(x.clone()), T(wt)]).remove(0);
    let predicted = out.cell;
    let loss = b.call("aten::mse_loss", &[T(out.clone()), T(y.clone()), I(1)]).remove(0);
    let one = b.call("aten::full", &[Is(vec![]), N(1.0), D(F32), Nil, Nil, Nil]).remove(0);
    let seed = one.cell;
    let grad = b.call("aten::mse_loss_backward", &[T(one), T(out), T(y), I(1)]).remove(0);
    let upstream = grad.cell;
    let gt = grad.view(&[3, 4], &[1, 3], 0);
    let dw = b.call("aten::mm", &[T(gt), T(x)]).remove(0);
    b.call("aten::add.Tensor", &[T(w.written()), T(dw.clone()), N(-0.1)]);
    // Only the loss and the parameter live on.
    for dead in [predicted, seed, upstream, dw.cell] {
        b.recorder.store.free_cell(dead);
    }
    assert!(b.recorder.store.cell(loss.cell).is_some());
    region("training_step", b);
}

/// Causal attention of one head, spelled out.
#[test]
fn region_of_attention() {
    let mut b = Bench::default();
    let [q, k, v] = std::array::from_fn(|_| b.tensor(F32, &[2, 4, 8]));
    let kt = k.view(&[2, 8, 4], &[32, 1, 8], 0);
    let scores = b.call("aten::bmm", &[T(q), T(kt)]).remove(0);
    let scaled = b.call("aten::div.Tensor", &[T(scores), N(8f64.sqrt())]).remove(0);
    let ones = b.call("aten::full", &[Is(vec![4, 4]), Ni(1), D(Bool), Nil, Nil, Nil]).remove(0);
    let future = b.call("aten::triu", &[T(ones), I(1)]).remove(0);
    let masked =
        b.call("aten::masked_fill.Scalar", &[T(scaled), T(future), N(f64::NEG_INFINITY)]).remove(0);
    let weights = b.call("aten::_softmax", &[T(masked), I(-1), B(false)]).remove(0);
    b.call("aten::bmm", &[T(weights), T(v)]);
    region("attention", b);
}
