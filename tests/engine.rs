//! The engine without PyTorch: cells, windows, modes, errors, through the real plugin.

use defer_and_fuse::engine::{Call, Engine};
use defer_and_fuse::error::Result;
use defer_and_fuse::ir::{DType, Number};
use defer_and_fuse::ops::{Arg, TensorArg, registry};
use defer_and_fuse::policy::Mode;

/// A contiguous or strided f32 tensor on a cell.
#[derive(Clone)]
struct Tensor {
    cell: u64,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
}

impl Tensor {
    fn arg(&self) -> TensorArg<'_> {
        TensorArg {
            cell: self.cell,
            dtype: DType::F32,
            sizes: &self.sizes,
            strides: &self.strides,
            offset: self.offset,
            write: None,
            out: false,
        }
    }

    fn written(&self) -> Arg<'_> {
        Arg::Tensor(TensorArg { write: Some(0), ..self.arg() })
    }

    fn view(&self, sizes: &[i64], strides: &[i64], offset: i64) -> Tensor {
        Tensor { cell: self.cell, sizes: sizes.into(), strides: strides.into(), offset }
    }
}

fn contiguous(cell: u64, sizes: &[i64]) -> Tensor {
    let strides = defer_and_fuse::ir::types::contiguous_strides(sizes).to_vec();
    Tensor { cell, sizes: sizes.into(), strides, offset: 0 }
}

fn upload(sizes: &[i64], data: &[f32]) -> Tensor {
    let engine = Engine::global();
    let (cell, _) = engine.new_cell(data.len() as u64 * 4);
    let tensor = contiguous(cell, sizes);
    let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    engine.upload(&tensor.arg(), &bytes, 0).expect("upload");
    tensor
}

fn download(tensor: &Tensor) -> Result<Vec<f32>> {
    let mut bytes = vec![0; tensor.sizes.iter().product::<i64>() as usize * 4];
    Engine::global().download(&tensor.arg(), &mut bytes, 0)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

fn record(name: &str, args: &[Arg<'_>]) -> Result<Vec<Tensor>> {
    let op = registry().find(name).expect("the op is defined");
    match Engine::global().record(op, args, 0)? {
        Call::Done(template, fresh) => Ok(template
            .outputs
            .iter()
            .zip(&fresh)
            .map(|(ty, &(cell, _))| contiguous(cell, ty.sizes()))
            .collect()),
        Call::Resize(_) => panic!("no out= tensor was given"),
    }
}

fn add(x: Arg<'_>, y: Arg<'_>) -> Result<Vec<Tensor>> {
    record("aten::add.Tensor", &[x, y, Arg::Number(Number::Int(1))])
}

#[test]
fn the_way_of_the_data() {
    let engine = Engine::global();
    for mode in Mode::ALL {
        engine.set_mode(mode);

        // An op, a view of its result, a write through another view.
        let x = upload(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
        let y = add(Arg::Tensor(x.arg()), Arg::Tensor(x.arg())).expect("add").remove(0);
        assert_eq!(
            download(&y.view(&[3, 2], &[1, 3], 0)).expect("read"),
            [2., 8., 4., 10., 6., 12.]
        );
        let column = y.view(&[2], &[3], 1);
        add(column.written(), Arg::Number(Number::float(0.5))).expect("add_");
        assert_eq!(download(&y).expect("read"), [2., 4.5, 6., 8., 10.5, 12.]);
        assert_eq!(download(&x).expect("read"), [1., 2., 3., 4., 5., 6.]);

        // A shape error is raised by the call, names it, and loses nothing.
        let z = upload(&[2], &[1., 2.]);
        let e = add(Arg::Tensor(x.arg()), Arg::Tensor(z.arg())).err().expect("a shape error");
        assert!(e.message.contains("must match the size of tensor b (2)"), "{e}");
        assert!(e.message.contains("aten::add.Tensor(float32[2, 3], float32[2]"), "{e}");
        assert_eq!(download(&z).expect("read"), [1., 2.]);

        // Overlapping windows are gathered.
        let windows = x.view(&[5, 2], &[1, 1], 0);
        let doubled = add(Arg::Tensor(windows.arg()), Arg::Tensor(windows.arg())).expect("add");
        assert_eq!(
            download(&doubled[0]).expect("read"),
            [2., 4., 4., 6., 6., 8., 8., 10., 10., 12.]
        );
    }

    // A number that changes compiles once more, then never again.
    engine.set_mode(Mode::DeferAndFuse);
    let x = upload(&[4], &[1., 2., 3., 4.]);
    engine.reset_stats();
    for i in 0..5 {
        let y = add(Arg::Tensor(x.arg()), Arg::Number(Number::float(f64::from(i) + 0.25)));
        let y = download(&y.expect("add")[0]).expect("read");
        assert_eq!(y[0], 1.25 + i as f32);
    }
    let stats = engine.stats();
    assert_eq!((stats.regions_compiled, stats.recompiled_for_number), (2, 1));

    // A value nobody holds is never computed; a dying operand gives its buffer to its successor.
    engine.reset_stats();
    let before = engine.ledger().current();
    for _ in 0..3 {
        let dead = add(Arg::Tensor(x.arg()), Arg::Tensor(x.arg())).expect("add").remove(0);
        engine.free_cell(dead.cell);
        add(x.written(), Arg::Number(Number::float(1.0))).expect("add_");
        engine.synchronize().expect("run");
    }
    assert_eq!(engine.stats().ops_dead, 3);
    assert_eq!(engine.ledger().current(), before);
    assert_eq!(download(&x).expect("read"), [4., 5., 6., 7.]);
}
