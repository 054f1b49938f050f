//! The PJRT layer against a real plugin: the one that `TORCHTPU_PJRT_PLUGIN` names, else XLA:CPU
//! from the `xla-cpu-pjrt` package of the Python on the `PATH`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use defer_and_fuse::pjrt::{
    API_VERSION, Buffer, Candidates, Client, CompileOptions, DType, Device, Error, OptionValue,
    Plugin, Result, discover,
};

fn plugin() -> &'static Plugin {
    let choice = discover(&Candidates::default()).unwrap_or_else(|error| panic!("{error}"));
    Plugin::load(choice.path).unwrap_or_else(|error| panic!("{error}"))
}

fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| Client::new(plugin(), &[]).unwrap())
}

fn f32s(client: &Client, values: &[f32]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    client.upload(DType::F32, &[values.len() as i64], &bytes).unwrap()
}

fn to_f32s(buffer: &Buffer) -> Result<Vec<f32>> {
    let size = buffer.dtype()?.host_size(buffer.dims()?)?;
    let mut bytes = vec![0; size];
    buffer.download(&mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect())
}

/// `main(a, b) = a op b` on vectors of `n` f32, with `attribute` on the first argument.
fn binary(op: &str, n: usize, attribute: &str) -> String {
    let t = format!("tensor<{n}xf32>");
    format!(
        "func.func @main(%a: {t} {attribute}, %b: {t}) -> {t} {{
           %c = stablehlo.{op} %a, %b : {t}
           return %c : {t}
         }}"
    )
}

const DONATE: &str = "{tf.aliasing_output = 0 : i32}";

#[test]
fn compile_execute_download() {
    let client = client();
    let add = client.compile(&binary("add", 3, "")).unwrap();
    assert_eq!(add.num_outputs(), 1);
    let (a, b) = (f32s(client, &[1.0, 2.0, 3.0]), f32s(client, &[10.0, 20.0, 30.0]));
    let sum = add.execute(&[&a, &b], &[]).unwrap().pop().unwrap();
    // An output that may still be in the making is an argument like any other.
    let sum = add.execute(&[&sum, &b], &[]).unwrap().pop().unwrap();
    sum.wait().unwrap();
    assert!(sum.is_ready().unwrap());
    assert_eq!(sum.dtype().unwrap(), DType::F32);
    assert_eq!(sum.dims().unwrap(), [3]);
    assert!(sum.on_device_size().unwrap() >= 12);
    assert_eq!(to_f32s(&sum).unwrap(), [21.0, 42.0, 63.0]);
}

#[test]
fn the_device_trait_is_all_the_engine_needs() {
    fn double<D: Device>(device: &D) -> f32 {
        let module = device.compile(&binary("add", 1, "")).unwrap();
        let x = device.upload(DType::F32, &[1], &21f32.to_le_bytes()).unwrap();
        let mut outputs = Vec::new();
        device.execute(&module, &[&x, &x], &[], &mut outputs).unwrap();
        device.wait(&outputs[0]).unwrap();
        assert!(device.is_ready(&outputs[0]).unwrap());
        assert_eq!(device.memory_stats(&module).unwrap().output, 4);
        let mut bytes = [0; 4];
        device.download(&outputs[0], &mut bytes).unwrap();
        f32::from_le_bytes(bytes)
    }
    assert_eq!(double(client()), 42.0);
    assert!(!Device::platform_name(client()).is_empty());
    assert!(Device::plugin_path(client()).is_file());
    assert_eq!(Device::api_version(client()).major, API_VERSION.major);
}

#[test]
fn a_client_tells_what_it_runs_on() {
    assert!(std::ptr::eq(plugin(), plugin()), "a plugin is loaded once");
    let client = client();
    assert!(!client.platform_version().is_empty());
    let device = &client.devices()[0];
    assert!(!device.kind.is_empty() && !device.description.is_empty(), "{device:?}");
    if client.platform_name() == "cpu" {
        let one = Client::new(plugin(), &[("cpu_device_count", OptionValue::Int(1))]).unwrap();
        assert_eq!(one.devices().len(), 1);
        let uncounted = one.device_memory_stats().unwrap_err();
        assert!(uncounted.to_string().contains("PJRT_Device_MemoryStats"), "{uncounted}");
    }
}

#[test]
fn a_buffer_outlives_its_client_handle() {
    let buffer = {
        let client = Client::new(plugin(), &[]).unwrap();
        f32s(&client, &[1.0, 2.0])
    };
    assert_eq!(to_f32s(&buffer).unwrap(), [1.0, 2.0]);
}

#[test]
fn many_arguments_and_outputs() {
    const N: usize = 40;
    let t = "tensor<2xf32>";
    let args: Vec<String> = (0..N).map(|i| format!("%a{i}: {t}")).collect();
    let ops: String = (0..N).map(|i| format!("%b{i} = stablehlo.negate %a{i} : {t}\n")).collect();
    let outs: Vec<String> = (0..N).map(|i| format!("%b{i}")).collect();
    let types = vec![t; N].join(", ");
    let module = format!(
        "func.func @main({}) -> ({types}) {{ {ops} return {} : {types} }}",
        args.join(", "),
        outs.join(", ")
    );
    let client = client();
    let negate = client.compile(&module).unwrap();
    let args: Vec<Buffer> = (0..N).map(|i| f32s(client, &[i as f32, 0.5])).collect();
    let outputs = negate.execute(&args, &[]).unwrap();
    assert_eq!(outputs.len(), N);
    for (i, output) in outputs.iter().enumerate() {
        assert_eq!(to_f32s(output).unwrap(), [-(i as f32), -0.5]);
    }
}

#[test]
fn a_module_without_outputs_can_be_awaited() {
    let client = client();
    let module = client.compile("func.func @main(%a: tensor<1xf32>) { return }").unwrap();
    let (outputs, done) = module.execute_tracked(&[&f32s(client, &[1.0])], &[]).unwrap();
    assert!(outputs.is_empty());
    done.wait().unwrap();
    assert!(done.is_ready().unwrap());
}

#[test]
fn donation_reuses_the_memory_and_only_where_the_mask_says_so() {
    let client = client();
    let add = client.compile(&binary("add", 1024, DONATE)).unwrap();
    let stats = add.memory_stats().unwrap();
    assert_eq!((stats.argument, stats.output, stats.alias), (8192, 4096, 4096), "{stats:?}");

    let (a, b) = (f32s(client, &[1.0; 1024]), f32s(client, &[2.0; 1024]));
    for mask in [&[][..], &[false, true]] {
        // The mask allows, the module decides: its second argument is not reusable.
        let kept = add.execute(&[&a, &b], mask).unwrap();
        assert_eq!(to_f32s(&kept[0]).unwrap(), [3.0; 1024]);
        assert!(!a.is_deleted().unwrap() && !b.is_deleted().unwrap());
    }
    assert_eq!(to_f32s(&a).unwrap(), [1.0; 1024]);

    let sum = add.execute(&[&a, &b], &[true, false]).unwrap();
    assert_eq!(to_f32s(&sum[0]).unwrap(), [3.0; 1024]);
    assert!(a.is_deleted().unwrap() && !b.is_deleted().unwrap());
    let error = to_f32s(&a).unwrap_err().to_string();
    assert!(error.contains("donated") || error.contains("deleted"), "{error}");
    assert!(a.wait().is_err());
    assert!(add.execute(&[&a, &b], &[]).is_err(), "a donated buffer is no argument");
}

#[test]
fn donating_a_buffer_that_is_passed_twice_is_an_error() {
    let client = client();
    let add = client.compile(&binary("add", 4, DONATE)).unwrap();
    let a = f32s(client, &[1.0; 4]);
    assert!(add.execute(&[&a, &a], &[true, true]).is_err());
    let mask = add.execute(&[&a, &a], &[true]).unwrap_err();
    assert!(mask.to_string().contains("2 arguments, but a donation mask of 1"), "{mask}");
}

#[test]
fn a_deleted_buffer_is_refused() {
    let client = client();
    let a = f32s(client, &[1.0; 4]);
    a.delete().unwrap();
    assert!(a.is_deleted().unwrap());
    assert!(to_f32s(&a).is_err());
}

#[test]
fn a_bad_module_is_an_error_and_the_client_lives_on() {
    let client = client();
    let not_mlir = client.compile("this is not a module").unwrap_err();
    assert!(matches!(not_mlir, Error::Pjrt { call: "PJRT_Client_Compile", .. }), "{not_mlir:?}");
    let wrong_type = client
        .compile(
            "func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> {
               %b = stablehlo.add %a, %a : tensor<3xf32>
               return %b : tensor<3xf32>
             }",
        )
        .unwrap_err()
        .to_string();
    assert!(wrong_type.contains("tensor<2xf32>"), "{wrong_type}");
    let unknown_op = client
        .compile(
            "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
               %b = stablehlo.frobnicate %a : tensor<2xf32>
               return %b : tensor<2xf32>
             }",
        )
        .unwrap_err()
        .to_string();
    assert!(unknown_op.contains("frobnicate"), "{unknown_op}");
    assert!(client.compile(&binary("add", 2, "")).is_ok());
}

#[test]
fn wrong_arguments_are_an_error_and_the_client_lives_on() {
    let client = client();
    let add = client.compile(&binary("add", 4, "")).unwrap();
    let (a, short) = (f32s(client, &[1.0; 4]), f32s(client, &[1.0; 2]));
    let ints = client.upload(DType::S64, &[4], &[0; 32]).unwrap();
    assert!(add.execute(&[&a], &[]).is_err(), "too few");
    assert!(add.execute(&[&a, &a, &a], &[]).is_err(), "too many");
    for wrong in [&short, &ints] {
        let outcome = add.execute(&[&a, wrong], &[]).and_then(|o| to_f32s(&o[0]));
        assert!(outcome.is_err(), "{wrong:?} as argument gave {outcome:?}");
    }
    assert_eq!(to_f32s(&add.execute(&[&a, &a], &[]).unwrap()[0]).unwrap(), [2.0; 4]);
}

#[test]
fn compile_options_reach_the_compiler() {
    let client = client();
    let unknown =
        CompileOptions::default().with_override("xla_no_such_flag", OptionValue::Bool(true));
    let error = client.compile_with(binary("add", 2, ""), &unknown).unwrap_err().to_string();
    assert!(error.contains("xla_no_such_flag"), "{error}");

    let quick = CompileOptions::default()
        .with_override("xla_backend_optimization_level", OptionValue::Int(0))
        .with_override("xla_llvm_disable_expensive_passes", OptionValue::Bool(true));
    let add = client.compile_with(binary("add", 2, ""), &quick).unwrap();
    let a = f32s(client, &[1.0, 2.0]);
    assert_eq!(to_f32s(&add.execute(&[&a, &a], &[]).unwrap()[0]).unwrap(), [2.0, 4.0]);
}

#[test]
fn an_executable_survives_serialisation() {
    let client = client();
    let add = client.compile(&binary("add", 1024, DONATE)).unwrap();
    let bytes = add.serialize().unwrap();
    let loaded = client.deserialize(&bytes).unwrap();
    assert_eq!(loaded.name().unwrap(), add.name().unwrap());
    assert_eq!(loaded.num_outputs(), 1);
    let (a, b) = (f32s(client, &[1.0; 1024]), f32s(client, &[2.0; 1024]));
    let kept = loaded.execute(&[&a, &b], &[]).unwrap();
    assert_eq!(to_f32s(&kept[0]).unwrap(), [3.0; 1024]);
    assert!(!a.is_deleted().unwrap());
    let donated = loaded.execute(&[&a, &b], &[true, false]).unwrap();
    assert_eq!(to_f32s(&donated[0]).unwrap(), [3.0; 1024]);
    assert!(a.is_deleted().unwrap());

    assert!(client.deserialize(b"not an executable").is_err());
    assert!(client.deserialize(&bytes[..bytes.len() / 2]).is_err());
    assert!(client.deserialize(&[]).is_err());
}

/// `dtype` in StableHLO's spelling.
fn mlir(dtype: DType) -> &'static str {
    match dtype {
        DType::Pred => "i1",
        DType::S4 => "i4",
        DType::S8 => "i8",
        DType::S16 => "i16",
        DType::S32 => "i32",
        DType::S64 => "i64",
        DType::U4 => "ui4",
        DType::U8 => "ui8",
        DType::U16 => "ui16",
        DType::U32 => "ui32",
        DType::U64 => "ui64",
        DType::F8E4M3FN => "f8E4M3FN",
        DType::F8E5M2 => "f8E5M2",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::C64 => "complex<f32>",
        DType::C128 => "complex<f64>",
    }
}

#[test]
fn every_dtype_goes_up_through_a_module_and_down() {
    let client = client();
    for &dtype in DType::ALL {
        let (rows, columns) = (3usize, 5usize);
        let bytes: Vec<u8> = (0..rows * columns * dtype.host_bytes())
            .map(|i| match dtype {
                DType::Pred => (i % 2) as u8,
                // In host memory a four-bit integer is a sign- or zero-extended byte.
                DType::S4 => (i % 16) as u8 as i8 as u8,
                DType::U4 => (i % 16) as u8,
                // No byte pattern below 0x40 is a NaN's, whose payload need not survive.
                _ => (i * 37 % 0x40) as u8,
            })
            .map(|b| if dtype == DType::S4 && b > 7 { b | 0xf0 } else { b })
            .collect();
        let dims = [rows as i64, columns as i64];
        let array = client.upload(dtype, &dims, &bytes).unwrap();
        assert_eq!(array.dtype().unwrap(), dtype);
        assert_eq!(array.dims().unwrap(), dims);
        let mut same = vec![0xee; bytes.len()];
        array.download(&mut same).unwrap();
        assert_eq!(same, bytes, "{dtype}");

        let t = mlir(dtype);
        let transpose = client
            .compile(&format!(
                "func.func @main(%a: tensor<3x5x{t}>) -> tensor<5x3x{t}> {{
                   %b = stablehlo.transpose %a, dims = [1, 0] : (tensor<3x5x{t}>) -> tensor<5x3x{t}>
                   return %b : tensor<5x3x{t}>
                 }}"
            ))
            .unwrap();
        let turned = transpose.execute(&[&array], &[]).unwrap();
        let mut down = vec![0xee; bytes.len()];
        turned[0].download(&mut down).unwrap();
        let size = dtype.host_bytes();
        let expected: Vec<u8> = (0..columns)
            .flat_map(|c| (0..rows).map(move |r| (r * columns + c) * size))
            .flat_map(|at| bytes[at..at + size].to_vec())
            .collect();
        assert_eq!(down, expected, "{dtype}");
    }
}

#[test]
fn every_rank_and_an_empty_array() {
    let client = client();
    for rank in 0..=10 {
        let dims: Vec<i64> = (0..rank).map(|i| 1 + i % 2).collect();
        let size = DType::U16.host_size(&dims).unwrap();
        let bytes: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let array = client.upload(DType::U16, &dims, &bytes).unwrap();
        assert_eq!(array.dims().unwrap(), dims);
        let mut down = vec![0; size];
        array.download(&mut down).unwrap();
        assert_eq!(down, bytes);
    }
    let empty = client.upload(DType::F32, &[3, 0], &[]).unwrap();
    assert_eq!(empty.dims().unwrap(), [3, 0]);
    empty.download(&mut []).unwrap();
}

#[test]
fn a_column_major_output_is_downloaded_row_major() {
    let client = client();
    let module = client
        .compile(
            r#"func.func @main(%a: tensor<2x3xf32>) -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) {
                 %b = stablehlo.add %a, %a : tensor<2x3xf32>
                 return %b : tensor<2x3xf32>
               }"#,
        )
        .unwrap();
    let bytes: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let a = client.upload(DType::F32, &[2, 3], &bytes).unwrap();
    let b = module.execute(&[&a], &[]).unwrap();
    assert_eq!(to_f32s(&b[0]).unwrap(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
}

#[test]
fn a_slice_of_the_wrong_size_is_refused() {
    let client = client();
    let up = client.upload(DType::F32, &[2, 3], &[0; 20]).unwrap_err().to_string();
    assert!(up.contains("f32[2, 3]") && up.contains("24") && up.contains("20"), "{up}");
    let array = client.upload(DType::F32, &[2, 3], &[0; 24]).unwrap();
    let down = array.download(&mut [0; 25]).unwrap_err();
    assert!(matches!(down, Error::SizeMismatch { expected: 24, actual: 25, .. }), "{down}");
    assert!(matches!(client.upload(DType::F32, &[-1], &[]), Err(Error::BadShape { .. })));
    assert!(matches!(client.upload(DType::F32, &[1 << 62, 8], &[]), Err(Error::BadShape { .. })));
}

#[test]
fn threads_share_a_client() {
    let client = client();
    let add = Arc::new(client.compile(&binary("add", 2048, DONATE)).unwrap());
    let b = Arc::new(f32s(client, &[1.0; 2048]));
    std::thread::scope(|scope| {
        for start in 0..8 {
            let (add, b) = (Arc::clone(&add), Arc::clone(&b));
            scope.spawn(move || {
                let mut sum = f32s(client, &[start as f32; 2048]);
                for _ in 0..50 {
                    sum = add.execute(&[&sum, &*b], &[true, false]).unwrap().pop().unwrap();
                }
                assert_eq!(to_f32s(&sum).unwrap(), [start as f32 + 50.0; 2048]);
            });
        }
    });
}

#[test]
fn a_reader_never_sees_memory_that_was_given_away() {
    let client = client();
    let add = client.compile(&binary("add", 4096, DONATE)).unwrap();
    let one = f32s(client, &[1.0; 4096]);
    for round in 0..200 {
        let a = f32s(client, &[0.0; 4096]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Whole and untouched, or refused; never half overwritten.
                if let Ok(values) = to_f32s(&a) {
                    assert!(values.iter().all(|&v| v == 0.0), "round {round}");
                }
            });
            let sum = add.execute(&[&a, &one], &[true, false]).unwrap();
            assert_eq!(to_f32s(&sum[0]).unwrap(), [1.0; 4096]);
        });
    }
}

/// A file of its own for a test, removed at the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, contents: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("pjrt-test-{}-{name}", std::process::id()));
        std::fs::write(&path, contents).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load_error(path: &Path) -> Error {
    let error = Plugin::load(path).expect_err("this is no plugin");
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()), "the path is missing in: {text}");
    assert!(text.contains("TORCHTPU_PJRT_PLUGIN"), "the way out is missing in: {text}");
    error
}

#[test]
fn what_is_not_a_plugin_is_refused_with_the_reason() {
    let missing = load_error(Path::new("/no/such/folder/plugin.so"));
    assert!(matches!(&missing, Error::PluginUnreadable { .. }), "{missing}");

    let folder = load_error(&std::env::temp_dir());
    assert!(matches!(&folder, Error::PluginUnreadable { .. }), "{folder}");
    assert!(folder.to_string().contains("directory"), "{folder}");

    let empty = TempFile::new("empty.so", b"");
    assert!(load_error(&empty.0).to_string().contains("empty"));

    let text = TempFile::new("text.so", b"I am a text file, and longer than an ELF header is.\n");
    let error = load_error(&text.0);
    assert!(matches!(&error, Error::NotASharedLibrary { .. }), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_shared_library_is_refused() {
    // The C library that this process runs on.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("libc.so")))
        .expect("a dynamically linked C library");
    let error = load_error(Path::new(libc));
    assert!(matches!(&error, Error::NotAPlugin { .. }), "{error}");
    assert!(error.to_string().contains("GetPjrtApi"), "{error}");
}
