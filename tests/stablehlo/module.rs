//! The function around the operations: parameters, results, donation.

use defer_and_fuse::ir::builder::IrError;
use defer_and_fuse::ir::{Builder, DType, Prim, TensorType};
use defer_and_fuse::stablehlo::{Params, module};

use crate::harness::{Tensor, build, c, client, exact, execute, run, t};

#[test]
fn numbers_arrive_in_packs() {
    let kinds =
        [(0, DType::F64), (3, DType::C128), (5, DType::F64), (1, DType::I64), (9, DType::Bool)];
    let (mut graph, outputs) = Builder::build(|b| {
        let x = b.leaf(Prim::Input(0), TensorType::new(DType::F32, &[2]));
        let mut out = vec![x.id];
        out.extend(
            kinds.map(|(slot, dtype)| b.leaf(Prim::Scalar(slot), TensorType::scalar(dtype)).id),
        );
        Ok::<_, IrError>(out)
    })
    .unwrap();
    graph.outputs = outputs;
    let inputs = [TensorType::new(DType::F32, &[2])];
    let params = Params {
        inputs: &inputs,
        aliases: &[None],
        float_slots: &[0, 3, 3, 5],
        int_slots: &[9, 1],
    };
    let text = module(&graph, &params);
    let arguments: [Tensor; 3] = [
        t(DType::F32, &[2], &[1.0, 2.0]),
        t(DType::F64, &[4], &[0.1, 2.0, -3.0, 7.0]),
        t(DType::I64, &[2], &[1.0, -4.0]),
    ];
    let got = execute(&graph, &text, &arguments);
    let want: [&[f64]; 6] = [&[1.0, 2.0], &[0.1], &[2.0, -3.0], &[7.0], &[-4.0], &[1.0]];
    for (got, want) in got.iter().zip(want) {
        exact(got, want, "scalar");
    }
}

#[test]
fn integers_follow_the_inputs_where_there_are_no_floats() {
    let (mut graph, output) = Builder::build(|b| {
        Ok::<_, IrError>(b.leaf(Prim::Scalar(2), TensorType::scalar(DType::I64)).id)
    })
    .unwrap();
    graph.outputs = vec![output];
    let params = Params { inputs: &[], aliases: &[], float_slots: &[], int_slots: &[2] };
    let got = execute(&graph, &module(&graph, &params), &[t(DType::I64, &[1], &[11.0])]);
    exact(&got[0], &[11.0], "scalar");
}

#[test]
fn outputs_may_repeat_and_be_inputs_and_there_may_be_none() {
    let x = t(DType::F32, &[0, 3], &[]);
    let y = c(DType::C64, &[1], &[(1.0, -2.0)]);
    let got = run(&[x.clone(), y.clone()], |_, x| {
        let sum = x[1] + x[1];
        vec![x[0], x[1], sum, sum]
    });
    assert_eq!(got[..2], [x, y]);
    exact(&got[2], &[2.0, -4.0], "sum");
    assert_eq!(got[2], got[3]);
    assert!(run(&[], |_, _| vec![]).is_empty());
}

#[test]
fn only_what_the_outputs_need_is_printed() {
    let x = t(DType::F32, &[2], &[1.0, 2.0]);
    let graph = build(std::slice::from_ref(&x), |_, x| {
        let _ = x[0].exp();
        vec![x[0].neg()]
    });
    let inputs = [x.ty.clone()];
    let params = Params { inputs: &inputs, aliases: &[], float_slots: &[], int_slots: &[] };
    let text = module(&graph, &params);
    assert_eq!(
        text,
        "module @region {\n  func.func public @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>) {\n    \
         %0 = stablehlo.negate %arg0 : tensor<2xf32>\n    return %0 : tensor<2xf32>\n  }\n}\n"
    );
    use std::ops::Neg;
}

#[test]
fn a_donated_input_gives_its_memory_to_the_output() {
    let n = 1 << 16;
    let x = t(DType::F32, &[n], &vec![1.0; n as usize]);
    let graph = build(&[x.clone(), x.clone()], |_, x| vec![x[0] + x[1]]);
    let inputs = [x.ty.clone(), x.ty.clone()];
    let aliased = |aliases: &[Option<u32>]| {
        let params = Params { inputs: &inputs, aliases, float_slots: &[], int_slots: &[] };
        let executable = client().compile(&module(&graph, &params)).unwrap();
        executable.memory_stats().unwrap().alias
    };
    assert_eq!(aliased(&[None, None]), 0);
    assert_eq!(aliased(&[None, Some(0)]), 4 * n);
}
