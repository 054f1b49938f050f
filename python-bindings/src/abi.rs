//! The C ABI that the dispatcher shim calls: `shim/core.h`, function by function.
//!
//! Raw pointers become slices here and nowhere else. Nothing unwinds across: a panic is caught
//! and reported as an error of the call.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use defer_and_fuse::engine::{Call, Engine, Fallback};
use defer_and_fuse::error::{Error, ErrorKind, Result};
use defer_and_fuse::ir::{DType, Number};
use defer_and_fuse::ops::{Arg, TensorArg, registry};
use defer_and_fuse::policy::Reason;
use defer_and_fuse::trace::Return;
use smallvec::SmallVec;

/// `DfTensor`
#[repr(C)]
pub struct RawTensor {
    cell: u64,
    sizes: *const i64,
    strides: *const i64,
    offset: i64,
    ndim: u32,
    dtype: u8,
    flags: u8,
    write_return: u8,
    reserved: u8,
}

const WRITE: u8 = 1;
const OUT: u8 = 2;

/// `DfArg`
#[repr(C)]
pub struct RawArg {
    tag: u8,
    dtype: u8,
    flags: u8,
    reserved: u8,
    len: u32,
    first: Word,
    second: Word,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Word {
    i: i64,
    d: f64,
    tensors: *const RawTensor,
    ints: *const i64,
    floats: *const f64,
    text: *const u8,
}

const SLOT: u8 = 1;
const WRAPPED: u8 = 2;

/// `DfOutput`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawOutput {
    cell: u64,
    address: *mut c_void,
    nbytes: u64,
    sizes: *const i64,
    ndim: u32,
    dtype: u8,
    written: u8,
}

/// `DfResult`
#[repr(C)]
pub struct RawResult {
    outs: *const RawOutput,
    len: u32,
}

const OK: i32 = 0;
const ERROR: i32 = 1;
const RESIZE: i32 = 2;

thread_local! {
    static FAILURE: RefCell<(CString, i32)> = RefCell::new((CString::default(), 0));
    static OUTPUTS: RefCell<SmallVec<[RawOutput; 8]>> = RefCell::new(SmallVec::new());
}

fn fail(e: &Error) {
    let text = CString::new(e.message.replace('\0', " ")).unwrap_or_default();
    FAILURE.with_borrow_mut(|failure| *failure = (text, e.kind as i32));
}

/// Runs `f`; an error or a panic is left for `df_error_message`, and `default` returned.
fn guard<T>(default: T, f: impl FnOnce() -> Result<T>) -> T {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message");
        Err(Error::runtime(format!("internal error of the tpu backend: {text}")))
    });
    result.unwrap_or_else(|e| {
        fail(&e);
        default
    })
}

fn status(f: impl FnOnce() -> Result<()>) -> i32 {
    guard(ERROR, || f().map(|()| OK))
}

/// # Safety
/// `data` points to `len` elements that outlive `'a`, unless `len` is 0.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data, len) }
}

unsafe extern "C" {
    fn df_dtype_name(code: u8) -> *const c_char;
}

fn dtype_name(code: u8) -> String {
    // SAFETY: any code will do; the name is a C string of static storage duration.
    unsafe { CStr::from_ptr(df_dtype_name(code)) }.to_string_lossy().into_owned()
}

fn dtype(code: u8) -> Result<DType> {
    DType::from_torch(code).ok_or_else(|| {
        Error::new(
            ErrorKind::NotImplemented,
            format!("tensors of dtype {} are not supported on tpu", dtype_name(code)),
        )
    })
}

/// # Safety
/// The pointers of `raw` are valid for its counts and for `'a`.
unsafe fn tensor<'a>(raw: &RawTensor) -> Result<TensorArg<'a>> {
    let write = (raw.flags & WRITE != 0 && raw.write_return != u8::MAX).then_some(raw.write_return);
    let ndim = raw.ndim as usize;
    // SAFETY: the caller's promise.
    let (sizes, strides) = unsafe { (slice(raw.sizes, ndim), slice(raw.strides, ndim)) };
    Ok(TensorArg {
        cell: raw.cell,
        dtype: if raw.cell == 0 { DType::F32 } else { dtype(raw.dtype)? },
        sizes,
        strides,
        offset: raw.offset,
        write,
        out: raw.flags & OUT != 0,
    })
}

/// The tensors of each list argument, for `arguments` to refer to.
type Lists<'a> = SmallVec<[SmallVec<[TensorArg<'a>; 8]>; 2]>;

/// # Safety
/// As for `tensor`, for every argument.
unsafe fn lists<'a>(raw: &[RawArg]) -> Result<Lists<'a>> {
    let mut lists = Lists::new();
    for arg in raw.iter().filter(|a| a.tag == 2) {
        // SAFETY: the tag says which member of the union is set; the rest is the caller's promise.
        let list = unsafe { slice(arg.first.tensors, arg.len as usize) };
        // SAFETY: the caller's promise.
        lists.push(list.iter().map(|t| unsafe { tensor(t) }).collect::<Result<_>>()?);
    }
    Ok(lists)
}

/// # Safety
/// As for `tensor`, for every argument; tags say which members of the unions are set.
unsafe fn arguments<'l, 'a: 'l>(
    raw: &[RawArg],
    lists: &'l Lists<'a>,
) -> Result<SmallVec<[Arg<'l>; 16]>> {
    let mut lists = lists.iter();
    let mut args = SmallVec::new();
    for arg in raw {
        let len = arg.len as usize;
        let slot = arg.flags & SLOT != 0;
        // SAFETY: tags say which member is set; pointers are the caller's promise.
        args.push(unsafe {
            match arg.tag {
                0 => Arg::None,
                1 => Arg::Tensor(tensor(&*arg.first.tensors)?),
                2 => Arg::Tensors(lists.next().map_or(&[], |list| list.as_slice())),
                3 if slot => Arg::Number(Number::Int(arg.first.i)),
                3 => Arg::Int(arg.first.i),
                4 => Arg::Number(Number::float(arg.first.d)),
                5 if slot => Arg::Number(Number::Bool(arg.first.i != 0)),
                5 => Arg::Bool(arg.first.i != 0),
                6 => Arg::Number(Number::complex(arg.first.d, arg.second.d)),
                7 => Arg::Ints(slice(arg.first.ints, len)),
                8 => Arg::Floats(slice(arg.first.floats, len)),
                9 => Arg::Bools(slice(arg.first.ints, len)),
                10 => Arg::Str(
                    std::str::from_utf8(slice(arg.first.text, len))
                        .map_err(|_| Error::runtime("a string argument is not UTF-8"))?,
                ),
                11 => Arg::DType(dtype(arg.first.i as u8)?),
                12 => Arg::Generator { seed: arg.first.i, counter: arg.second.i },
                13 => {
                    let dtype = dtype(arg.dtype)?;
                    let value = if dtype.is_complex() {
                        Number::complex(arg.first.d, arg.second.d)
                    } else if dtype.is_float() {
                        Number::float(arg.first.d)
                    } else if dtype.is_bool() {
                        Number::Bool(arg.first.i != 0)
                    } else {
                        Number::Int(arg.first.i)
                    };
                    Arg::HostScalar { dtype, wrapped: arg.flags & WRAPPED != 0, value }
                }
                14 => Arg::Ignored,
                tag => return Err(Error::runtime(format!("unknown argument tag {tag}"))),
            }
        });
    }
    Ok(args)
}

#[unsafe(no_mangle)]
pub extern "C" fn df_error_message() -> *const c_char {
    FAILURE.with_borrow(|failure| failure.0.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn df_error_kind() -> i32 {
    FAILURE.with_borrow(|failure| failure.1)
}

/// # Safety
/// `name` is a C string, `flags` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_op_lookup(name: *const c_char, flags: *mut u32) -> u32 {
    guard(0, || {
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        let found = name.to_str().ok().and_then(|name| registry().find(name)).unwrap_or(0);
        if found != 0 {
            // SAFETY: the caller's promise.
            unsafe { *flags = u32::from(registry().get(found).random) };
        }
        Ok(found)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn df_op_name(i: u32) -> *const c_char {
    use std::sync::OnceLock;
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES
        .get_or_init(|| registry().iter().filter_map(|op| CString::new(op.name).ok()).collect());
    names.get(i as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// # Safety
/// `args` points to `nargs` arguments as `core.h` describes them; `result` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_record(
    op: u32,
    args: *const RawArg,
    nargs: u32,
    location: u32,
    result: *mut RawResult,
) -> i32 {
    guard(ERROR, || {
        // SAFETY: the caller's promise.
        let raw = unsafe { slice(args, nargs as usize) };
        let in_op = |e: Error| {
            let name = registry().get(op).name;
            e.context(format!("in {name}{}", location_text(location)))
        };
        // SAFETY: the caller's promise.
        let lists = unsafe { lists(raw) }.map_err(in_op)?;
        // SAFETY: the caller's promise.
        let args = unsafe { arguments(raw, &lists) }.map_err(in_op)?;
        let call = Engine::global().record(op, &args, location)?;
        OUTPUTS.with_borrow_mut(|outputs| {
            outputs.clear();
            let status = describe(&call, outputs);
            // SAFETY: the caller's promise. The thread-local lives until the thread ends, and is
            // next changed by this thread's next call.
            unsafe { *result = RawResult { outs: outputs.as_ptr(), len: outputs.len() as u32 } };
            Ok(status)
        })
    })
}

fn describe(call: &Call, outputs: &mut SmallVec<[RawOutput; 8]>) -> i32 {
    let undefined = RawOutput {
        cell: 0,
        address: std::ptr::null_mut(),
        nbytes: 0,
        sizes: std::ptr::null(),
        ndim: 0,
        dtype: 0,
        written: 0,
    };
    let typed = |ty: defer_and_fuse::trace::Ty| RawOutput {
        nbytes: ty.bytes(),
        sizes: ty.sizes().as_ptr(),
        ndim: ty.sizes().len() as u32,
        dtype: ty.dtype() as u8,
        ..undefined
    };
    match call {
        Call::Resize(types) => {
            outputs.extend(types.iter().map(|&ty| typed(ty)));
            RESIZE
        }
        Call::Done(template, fresh) => {
            let mut fresh = fresh.iter();
            for r in &template.returns {
                outputs.push(match r {
                    Return::Undefined => undefined,
                    Return::Written => RawOutput { written: 1, ..undefined },
                    Return::Fresh(ty) => match fresh.next() {
                        Some(&(cell, address)) => {
                            let address = address as usize as *mut c_void;
                            RawOutput { cell, address, ..typed(*ty) }
                        }
                        None => undefined,
                    },
                });
            }
            OK
        }
    }
}

/// # Safety
/// `file` and `function` are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_location(
    file: *const c_char,
    line: u32,
    function: *const c_char,
) -> u32 {
    guard(0, || {
        // SAFETY: the caller's promise.
        let (file, function) = unsafe { (CStr::from_ptr(file), CStr::from_ptr(function)) };
        let (file, function) = (file.to_string_lossy(), function.to_string_lossy());
        Ok(Engine::global().add_location(&file, line, &function))
    })
}

fn location_text(location: u32) -> String {
    let location = Engine::global().location(location);
    location.map_or_else(String::new, |at| format!("\n  recorded at {at}"))
}

#[unsafe(no_mangle)]
pub extern "C" fn df_location_text(location: u32) -> *const c_char {
    thread_local! {
        static TEXT: RefCell<CString> = RefCell::default();
    }
    let text =
        guard(CString::default(), || Ok(CString::new(location_text(location)).unwrap_or_default()));
    TEXT.with_borrow_mut(|last| {
        *last = text;
        last.as_ptr()
    })
}

/// # Safety
/// `op` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_note_fallback(op: *const c_char) -> i32 {
    guard(1, || {
        // SAFETY: the caller's promise.
        let op = unsafe { CStr::from_ptr(op) };
        Ok(match Engine::global().note_fallback(&op.to_string_lossy()) {
            Fallback::Warn => 0,
            Fallback::Silent => 1,
            Fallback::Refuse => 2,
        })
    })
}

/// # Safety
/// `address` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_cell_new(nbytes: u64, address: *mut *mut c_void) -> u64 {
    guard(0, || {
        Engine::global().check_fork()?;
        let (cell, at) = Engine::global().new_cell(nbytes);
        // SAFETY: the caller's promise.
        unsafe { *address = at as usize as *mut c_void };
        Ok(cell)
    })
}

/// # Safety
/// `start` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_cell_at(address: *const c_void, start: *mut *mut c_void) -> u64 {
    guard(0, || {
        let found = Engine::global().cell_at(address as usize as u64);
        Ok(found.map_or(0, |(cell, at)| {
            // SAFETY: the caller's promise.
            unsafe { *start = at as usize as *mut c_void };
            cell
        }))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn df_cell_free(cell: u64) {
    guard((), || {
        Engine::global().free_cell(cell);
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn df_cell_resize(cell: u64, nbytes: u64) -> i32 {
    status(|| Engine::global().resize_cell(cell, nbytes))
}

fn window_bytes(window: &TensorArg<'_>) -> usize {
    window.sizes.iter().product::<i64>() as usize * window.dtype.size()
}

/// # Safety
/// `dst` is a valid window; `src` has as many bytes as it describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_upload(
    dst: *const RawTensor,
    src: *const c_void,
    location: u32,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { tensor(&*dst) }?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice(src.cast::<u8>(), window_bytes(&window)) };
        Engine::global().upload(&window, bytes, location)
    })
}

/// # Safety
/// `src` is a valid window; `dst` has room for as many bytes as it describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_download(
    src: *const RawTensor,
    dst: *mut c_void,
    location: u32,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { tensor(&*src) }?;
        let len = window_bytes(&window);
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; the bytes are only written.
        let bytes = unsafe { std::slice::from_raw_parts_mut(dst.cast::<u8>(), len) };
        Engine::global().download(&window, bytes, location)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn df_synchronize() -> i32 {
    status(|| Engine::global().synchronize())
}

#[unsafe(no_mangle)]
pub extern "C" fn df_flush() -> i32 {
    status(|| Engine::global().flush(Reason::Explicit))
}

#[unsafe(no_mangle)]
pub extern "C" fn df_after_fork_in_child() {
    Engine::global().after_fork();
}

/// # Safety
/// The pointers are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn df_memory_stats(current: *mut u64, peak: *mut u64, allocations: *mut u64) {
    let ledger = Engine::global().ledger();
    // SAFETY: the caller's promise.
    unsafe {
        *current = ledger.current();
        *peak = ledger.peak_with_temporaries();
        *allocations = ledger.allocations();
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn df_memory_reset_peak() {
    Engine::global().ledger().reset_peak();
}
