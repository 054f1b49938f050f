//! Between host and device: uploads, downloads, resizing, waiting.

use std::sync::Arc;

use super::executor::Executor;
use super::{Core, Engine, Slot, device_error};
use crate::ensure;
use crate::error::{Error, Result};
use crate::ir::types::contiguous_strides;
use crate::ir::{DType, TensorType};
use crate::ops::{Arg, TensorArg, registry};
use crate::pjrt;
use crate::policy::Reason;
use crate::trace::store::State;
use crate::trace::template::Sizing;
use crate::trace::view::Window;
use crate::trace::{CellId, intern};

impl Engine {
    /// A new cell that holds nothing, and its address.
    pub fn new_cell(&self, nbytes: u64) -> (CellId, u64) {
        self.lock().recorder.store.new_cell(nbytes)
    }

    /// The cell whose bytes contain `address`, and where it starts.
    pub fn cell_at(&self, address: u64) -> Option<(CellId, u64)> {
        self.lock().recorder.store.cell_at(address)
    }

    pub fn free_cell(&self, cell: CellId) {
        if !self.is_forked() {
            self.lock().recorder.store.free_cell(cell);
        }
    }

    /// Grows or shrinks a cell; what both sizes share keeps its contents.
    pub fn resize_cell(&self, cell: CellId, nbytes: u64) -> Result<()> {
        let executor = self.executor()?;
        let core = &mut *self.lock();
        let store = &core.recorder.store;
        let known = store.cell(cell).ok_or_else(|| Error::runtime("a storage that was freed"))?;
        let (old, value) = (known.nbytes, known.value);
        if value.is_some() {
            // Seen as bytes, the common part is copied into a cell of the new size, which then
            // trades places.
            let keep = old.min(nbytes) as i64;
            let (new, _) = core.recorder.store.new_cell(nbytes);
            if keep > 0 {
                let window = |cell, write| TensorArg {
                    cell,
                    dtype: DType::U8,
                    sizes: std::slice::from_ref(&keep),
                    strides: &[1],
                    offset: 0,
                    write,
                    out: false,
                };
                let args = [
                    Arg::Tensor(window(new, Some(0))),
                    Arg::Tensor(window(cell, None)),
                    Arg::Bool(false),
                ];
                core.recorder.record(copy_op()?, &args, Sizing::None, 0)?;
            }
            if let Some(moved) = core.recorder.store.cell(new).and_then(|c| c.value) {
                core.recorder.store.hold(cell, moved);
            }
            core.recorder.store.free_cell(new);
        }
        core.recorder.store.resize_cell(cell, nbytes);
        self.flush_if_eager(core, executor);
        Ok(())
    }

    fn flush_if_eager(&self, core: &mut Core, executor: &Executor) {
        if self.mode() != crate::policy::Mode::DeferAndFuse {
            self.flush_core(core, executor, Reason::EachOp);
        }
    }

    /// Copies dense row-major bytes, of the window's sizes and dtype, into the window.
    pub fn upload(&self, dst: &TensorArg<'_>, bytes: &[u8], location: u32) -> Result<()> {
        let executor = self.executor()?;
        let slot = executor.upload(device_dtype(dst.dtype), dst.sizes, bytes)?;
        let ty = intern(&TensorType::new(dst.dtype, dst.sizes));
        let core = &mut *self.lock();
        let store = &mut core.recorder.store;
        let cell =
            store.cell(dst.cell).ok_or_else(|| Error::runtime("a storage that was freed"))?;
        let whole = cell.nbytes == ty.bytes()
            && dst.offset == 0
            && dst.strides == contiguous_strides(dst.sizes).as_slice();
        let value = store.new_value(ty, State::Ready(slot));
        if whole {
            store.hold(dst.cell, value);
            return Ok(());
        }
        // Through a view: by way of a cell of its own.
        let (staging, _) = store.new_cell(ty.bytes());
        store.hold(staging, value);
        let strides = contiguous_strides(dst.sizes);
        let source = TensorArg { cell: staging, strides: &strides, offset: 0, write: None, ..*dst };
        let args = [
            Arg::Tensor(TensorArg { write: Some(0), ..*dst }),
            Arg::Tensor(source),
            Arg::Bool(false),
        ];
        let recorded = core.recorder.record(copy_op()?, &args, Sizing::None, location);
        core.recorder.store.free_cell(staging);
        recorded?;
        self.flush_if_eager(core, executor);
        Ok(())
    }

    /// Flushes, waits for the window's elements and copies them to `dst`, dense and row-major.
    ///
    /// Errors: what went wrong computing them, with the op and the line that recorded it.
    pub fn download(&self, src: &TensorArg<'_>, dst: &mut [u8], location: u32) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        let executor = self.executor()?;
        let slot = {
            let core = &mut *self.lock();
            if is_whole(core, src)? {
                self.flush_core(core, executor, Reason::HostRead);
                ready(core, src.cell)?
            } else {
                self.read_view(core, executor, src, location)?
            }
        };
        // Without the lock: other threads may record meanwhile.
        fetch(&slot, dst).inspect_err(|e| executor.was_read(e))
    }

    /// A view is read by the op that copies it into a cell of its own.
    fn read_view(
        &self,
        core: &mut Core,
        executor: &Executor,
        src: &TensorArg<'_>,
        location: u32,
    ) -> Result<Arc<Slot>> {
        let bytes = TensorType::new(src.dtype, src.sizes).bytes();
        let (staging, _) = core.recorder.store.new_cell(bytes);
        let strides = contiguous_strides(src.sizes);
        let target =
            TensorArg { cell: staging, strides: &strides, offset: 0, write: Some(0), ..*src };
        let args =
            [Arg::Tensor(target), Arg::Tensor(TensorArg { write: None, ..*src }), Arg::Bool(false)];
        let read = core.recorder.record(copy_op()?, &args, Sizing::None, location).and_then(|_| {
            self.flush_core(core, executor, Reason::HostRead);
            ready(core, staging)
        });
        core.recorder.store.free_cell(staging);
        read
    }

    /// The bytes of a cell whose value is ready.
    pub(super) fn read_cell(&self, core: &Core, cell: CellId, dst: &mut [u8]) -> Result<()> {
        fetch(&*ready(core, cell)?, dst)
    }

    /// Flushes and waits for the device.
    ///
    /// Errors: the first failure since the last call that nobody has read.
    pub fn synchronize(&self) -> Result<()> {
        if !self.is_open() {
            return Ok(());
        }
        self.flush(Reason::Synchronize)?;
        self.executor()?.drain()
    }
}

/// The window is all of its storage's value, in order, so the value's bytes are the window's.
fn is_whole(core: &Core, src: &TensorArg<'_>) -> Result<bool> {
    let store = &core.recorder.store;
    let cell = store.cell(src.cell).ok_or_else(|| Error::runtime("a storage that was freed"))?;
    let window = Window { sizes: src.sizes, strides: src.strides, offset: src.offset };
    Ok(cell.value.is_some_and(|v| {
        let ty = store.value(v).ty;
        let bytes = TensorType::new(src.dtype, src.sizes).bytes();
        ty.dtype() == src.dtype && ty.bytes() == bytes && window.is_contiguous()
    }))
}

fn ready(core: &Core, cell: CellId) -> Result<Arc<Slot>> {
    let store = &core.recorder.store;
    let value = store.cell(cell).and_then(|c| c.value);
    match value.map(|v| &store.value(v).state) {
        Some(State::Ready(slot)) => Ok(slot.clone()),
        _ => Err(Error::runtime("the value to read was not computed")),
    }
}

fn fetch(slot: &Slot, dst: &mut [u8]) -> Result<()> {
    slot.buffer.with(|buffer| {
        buffer
            .download(dst)
            .map_err(|e| slot.explain(device_error(&e, "computing this tensor failed")))
    })?
}

/// The op that the engine itself records to move elements between windows.
fn copy_op() -> Result<crate::ops::OpId> {
    let copy = registry().find("aten::copy");
    ensure!(copy.is_some(), "aten::copy is not defined");
    Ok(copy.unwrap_or_default())
}

fn device_dtype(dtype: DType) -> pjrt::DType {
    use pjrt::DType as P;
    match dtype {
        DType::U8 => P::U8,
        DType::I8 => P::S8,
        DType::I16 => P::S16,
        DType::I32 => P::S32,
        DType::I64 => P::S64,
        DType::F16 => P::F16,
        DType::F32 => P::F32,
        DType::F64 => P::F64,
        DType::C64 => P::C64,
        DType::C128 => P::C128,
        DType::Bool => P::Pred,
        DType::BF16 => P::BF16,
        DType::F8E5M2 => P::F8E5M2,
        DType::F8E4M3FN => P::F8E4M3FN,
        DType::U16 => P::U16,
        DType::U32 => P::U32,
        DType::U64 => P::U64,
    }
}
