//! Arrays on a device.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::abi::{self, SizedStruct, call};
use super::client::ClientHandle;
use super::error::{Error, Result};
use super::event::Event;
use super::sys;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $constant:ident, $name:literal, $host_bytes:literal;)*) => {
        /// Element types of PJRT buffers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DType {
            $($(#[$doc])* $variant,)*
        }

        impl DType {
            /// Every element type.
            pub const ALL: &[DType] = &[$(DType::$variant,)*];

            /// Bytes of one element in host memory. The four-bit types take a whole byte there
            /// (uploads read its lower half, downloads extend the sign or zeros); on the device
            /// they may be packed.
            pub const fn host_bytes(self) -> usize {
                match self {
                    $(DType::$variant => $host_bytes,)*
                }
            }

            /// The type's short name, e.g. `f32`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DType::$variant => $name,)*
                }
            }

            pub(super) const fn to_pjrt(self) -> sys::PJRT_Buffer_Type {
                match self {
                    $(DType::$variant => sys::$constant,)*
                }
            }

            pub(super) const fn from_pjrt(raw: sys::PJRT_Buffer_Type) -> Option<DType> {
                match raw {
                    $(sys::$constant => Some(DType::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

dtypes! {
    /// Boolean, one byte: 0 or 1.
    Pred = PJRT_Buffer_Type_PRED, "pred", 1;
    /// Signed 4-bit integer.
    S4 = PJRT_Buffer_Type_S4, "s4", 1;
    /// Signed 8-bit integer.
    S8 = PJRT_Buffer_Type_S8, "s8", 1;
    /// Signed 16-bit integer.
    S16 = PJRT_Buffer_Type_S16, "s16", 2;
    /// Signed 32-bit integer.
    S32 = PJRT_Buffer_Type_S32, "s32", 4;
    /// Signed 64-bit integer.
    S64 = PJRT_Buffer_Type_S64, "s64", 8;
    /// Unsigned 4-bit integer.
    U4 = PJRT_Buffer_Type_U4, "u4", 1;
    /// Unsigned 8-bit integer.
    U8 = PJRT_Buffer_Type_U8, "u8", 1;
    /// Unsigned 16-bit integer.
    U16 = PJRT_Buffer_Type_U16, "u16", 2;
    /// Unsigned 32-bit integer.
    U32 = PJRT_Buffer_Type_U32, "u32", 4;
    /// Unsigned 64-bit integer.
    U64 = PJRT_Buffer_Type_U64, "u64", 8;
    /// 8-bit float: 4 bits of exponent, 3 of mantissa, NaN but no infinities.
    F8E4M3FN = PJRT_Buffer_Type_F8E4M3FN, "f8e4m3fn", 1;
    /// 8-bit float: 5 bits of exponent, 2 of mantissa.
    F8E5M2 = PJRT_Buffer_Type_F8E5M2, "f8e5m2", 1;
    /// IEEE half precision.
    F16 = PJRT_Buffer_Type_F16, "f16", 2;
    /// The upper half of an `F32`.
    BF16 = PJRT_Buffer_Type_BF16, "bf16", 2;
    /// IEEE single precision.
    F32 = PJRT_Buffer_Type_F32, "f32", 4;
    /// IEEE double precision.
    F64 = PJRT_Buffer_Type_F64, "f64", 8;
    /// Complex of two `F32`, real part first.
    C64 = PJRT_Buffer_Type_C64, "c64", 8;
    /// Complex of two `F64`, real part first.
    C128 = PJRT_Buffer_Type_C128, "c128", 16;
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl DType {
    /// Bytes of a dense array of this type in host memory.
    ///
    /// # Errors
    /// A dimension is negative, or the size overflows.
    pub fn host_size(self, dims: &[i64]) -> Result<usize> {
        dims.iter()
            .try_fold(self.host_bytes(), |size, &dim| size.checked_mul(usize::try_from(dim).ok()?))
            .ok_or_else(|| Error::BadShape { dtype: self, dims: dims.to_vec() })
    }
}

/// An array on a device. Its contents may still be in the making: operations that need them wait
/// on the device, and [`download`](Self::download) and [`wait`](Self::wait) block.
///
/// Dropping a buffer gives its memory back once all work that was enqueued on it has finished.
pub struct Buffer {
    client: Arc<ClientHandle>,
    raw: *mut sys::PJRT_Buffer,
    /// Above zero: how many threads read the array's memory directly. Below zero: how many give
    /// it away at this moment, so that no thread may begin to read. Both at once cannot be.
    readers: AtomicI32,
}

// SAFETY: PJRT buffers may be used from any thread, also concurrently; the plugin synchronises
// them. Destroying needs exclusive access, which `Drop` has.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// # Safety
    /// `raw` must be a buffer of this client that the caller owns.
    #[inline]
    pub(super) unsafe fn from_raw(client: Arc<ClientHandle>, raw: *mut sys::PJRT_Buffer) -> Self {
        Self { client, raw, readers: AtomicI32::new(0) }
    }

    #[inline]
    pub(super) fn raw(&self) -> *mut sys::PJRT_Buffer {
        self.raw
    }

    /// The element type.
    ///
    /// # Errors
    /// The plugin uses a type that [`DType`] does not have.
    pub fn dtype(&self) -> Result<DType> {
        let mut args =
            sys::PJRT_Buffer_ElementType_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, PJRT_Buffer_ElementType, &mut args) }?;
        DType::from_pjrt(args.type_).ok_or_else(|| Error::Unsupported {
            call: "PJRT_Buffer_ElementType",
            what: format!("element type number {}", args.type_),
        })
    }

    /// The dimensions; for one that is dynamic, its bound.
    ///
    /// # Errors
    /// The plugin cannot tell.
    pub fn dims(&self) -> Result<&[i64]> {
        let mut args =
            sys::PJRT_Buffer_Dimensions_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, PJRT_Buffer_Dimensions, &mut args) }?;
        // SAFETY: the list lives as long as the buffer, which `self` borrows.
        Ok(unsafe { abi::slice(args.dims, args.num_dims) })
    }

    /// Bytes that the array takes on the device, padding included.
    ///
    /// # Errors
    /// The buffer was deleted or donated.
    pub fn on_device_size(&self) -> Result<usize> {
        let mut args =
            sys::PJRT_Buffer_OnDeviceSizeInBytes_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, PJRT_Buffer_OnDeviceSizeInBytes, &mut args) }?;
        Ok(args.on_device_size_in_bytes)
    }

    /// Copies the array to `dst`, row-major and dense, once it is computed. Blocks.
    ///
    /// # Errors
    /// `dst` does not have the array's size, the buffer was deleted or donated, or the
    /// computation that makes it failed. `dst` may have been written to in part.
    pub fn download(&self, dst: &mut [u8]) -> Result<()> {
        let (dtype, dims) = (self.dtype()?, self.dims()?);
        let expected = dtype.host_size(dims)?;
        if dst.len() != expected {
            return Err(Error::SizeMismatch {
                what: "download",
                dtype,
                dims: dims.to_vec(),
                expected,
                actual: dst.len(),
            });
        }

        if !(self.client.is_cpu() && self.copy_from_host_memory(dims, dst)?) {
            self.copy_by_plugin(dims.len(), dst)?;
        }
        // What the upper half of a four-bit element's byte holds is the plugin's affair.
        match dtype {
            DType::S4 => dst.iter_mut().for_each(|b| *b = (((*b << 4) as i8) >> 4) as u8),
            DType::U4 => dst.iter_mut().for_each(|b| *b &= 0x0f),
            _ => {}
        }
        Ok(())
    }

    /// Has the plugin copy the array of `rank` dimensions to `dst`, which has its size. Blocks.
    fn copy_by_plugin(&self, rank: usize, dst: &mut [u8]) -> Result<()> {
        const INLINE: usize = 8;

        // Devices may hold arrays in another order, so row-major has to be asked for: the last
        // dimension is the most minor.
        let (mut inline, mut heap) = ([0i64; INLINE], Vec::new());
        let minor_to_major = if rank <= INLINE {
            &mut inline[..rank]
        } else {
            heap.resize(rank, 0);
            &mut heap[..]
        };
        for (i, dim) in minor_to_major.iter_mut().enumerate() {
            *dim = (rank - 1 - i) as i64;
        }
        let mut layout = sys::PJRT_Buffer_MemoryLayout {
            type_: sys::PJRT_Buffer_MemoryLayout_Type_Tiled,
            __bindgen_anon_1: sys::PJRT_Buffer_MemoryLayout__bindgen_ty_1 {
                tiled: sys::PJRT_Buffer_MemoryLayout_Tiled {
                    minor_to_major: minor_to_major.as_ptr(),
                    minor_to_major_size: rank,
                    ..SizedStruct::sized()
                },
            },
            ..SizedStruct::sized()
        };
        let mut args = sys::PJRT_Buffer_ToHostBuffer_Args {
            src: self.raw,
            host_layout: &mut layout,
            dst: dst.as_mut_ptr().cast(),
            dst_size: dst.len(),
            ..SizedStruct::sized()
        };
        // SAFETY: `dst` has the array's size, and nobody else can touch it until we return, which
        // is after the copy has finished or failed.
        unsafe { call!(self.client.plugin, PJRT_Buffer_ToHostBuffer, &mut args) }?;
        // SAFETY: we own the event.
        unsafe { Event::from_raw(Arc::clone(&self.client), args.event) }.wait()
    }

    /// Copies the array to `dst` from XLA:CPU's memory, which is the host's; `false` where it is
    /// not held element by element there. The plugin's own copy goes through its thread pool,
    /// which for small arrays costs 16 µs instead of 0.5, and it does not reorder.
    fn copy_from_host_memory(&self, dims: &[i64], dst: &mut [u8]) -> Result<bool> {
        let order = self.minor_to_major()?;
        let row_major = order.iter().rev().copied().eq(0..dims.len() as i64);
        // Another size means packed elements or a dynamic shape's header.
        if self.on_device_size()? != dst.len() {
            if row_major {
                return Ok(false);
            }
            return Err(Error::Unsupported {
                call: "PJRT_Buffer_ToHostBuffer",
                what: format!("a packed or dynamic array in the dimension order {order:?}"),
            });
        }
        self.wait()?;
        if dst.is_empty() {
            return Ok(true);
        }
        let Some(_open) = Reader::begin(&self.readers) else {
            return Ok(false);
        };
        let mut args =
            sys::PJRT_Buffer_UnsafePointer_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, PJRT_Buffer_UnsafePointer, &mut args) }?;
        // SAFETY: on XLA:CPU this is the address of the array's memory, which holds as many bytes
        // as `dst`. They are computed, as waited for above, and stay as they are while `_open`
        // lives: memory is only given away or reused by `delete`, by a donation (both close the
        // buffer first) or by `drop`, which cannot happen while `self` is borrowed.
        let src = unsafe {
            abi::slice(std::ptr::with_exposed_provenance::<u8>(args.buffer_pointer), dst.len())
        };
        if row_major {
            dst.copy_from_slice(src);
        } else {
            copy_to_row_major(src, dims, order, dst);
        }
        Ok(true)
    }

    /// The order of the dimensions on the device, the fastest varying first.
    fn minor_to_major(&self) -> Result<&[i64]> {
        let mut args =
            sys::PJRT_Buffer_GetMemoryLayout_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, PJRT_Buffer_GetMemoryLayout, &mut args) }?;
        if args.layout.type_ == sys::PJRT_Buffer_MemoryLayout_Type_Tiled {
            // SAFETY: the type says that it is this member of the union.
            let tiled = unsafe { args.layout.__bindgen_anon_1.tiled };
            if tiled.num_tiles == 0 {
                // SAFETY: the list lives as long as the buffer, which `self` borrows.
                return Ok(unsafe { abi::slice(tiled.minor_to_major, tiled.minor_to_major_size) });
            }
        }
        Err(Error::Unsupported {
            call: "PJRT_Buffer_GetMemoryLayout",
            what: "a tiled or strided layout in host memory".to_owned(),
        })
    }

    /// Waits for direct readers to finish and keeps new ones out. It is for the moment in which
    /// the plugin takes the memory; afterwards it is the plugin that refuses.
    pub(super) fn close(&self) {
        let close = |n: i32| (n <= 0).then_some(n - 1);
        while self.readers.fetch_update(Ordering::Acquire, Ordering::Relaxed, close).is_err() {
            std::thread::yield_now();
        }
    }

    /// Undoes one [`close`](Self::close).
    pub(super) fn reopen(&self) {
        self.readers.fetch_add(1, Ordering::Release);
    }

    /// The event of the array being computed. It carries the error of a failed execution.
    ///
    /// # Errors
    /// The plugin cannot give one. For a buffer that was deleted or donated, it is the event that
    /// fails.
    pub fn ready_event(&self) -> Result<Event> {
        let mut args =
            sys::PJRT_Buffer_ReadyEvent_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, PJRT_Buffer_ReadyEvent, &mut args) }?;
        // SAFETY: we own the event.
        Ok(unsafe { Event::from_raw(Arc::clone(&self.client), args.event) })
    }

    /// Whether the array is computed, or its computation has failed.
    ///
    /// # Errors
    /// The plugin cannot tell.
    pub fn is_ready(&self) -> Result<bool> {
        self.ready_event()?.is_ready()
    }

    /// Blocks until the array is computed.
    ///
    /// # Errors
    /// The computation failed, or the buffer was deleted or donated.
    pub fn wait(&self) -> Result<()> {
        self.ready_event()?.wait()
    }

    /// Gives the memory back now (once enqueued work is done with it). The buffer can only be
    /// dropped after this; everything else is an error.
    ///
    /// # Errors
    /// The plugin refuses.
    pub fn delete(&self) -> Result<()> {
        let mut args = sys::PJRT_Buffer_Delete_Args { buffer: self.raw, ..SizedStruct::sized() };
        self.close();
        // SAFETY: the buffer is alive, and nobody reads its memory, as it is closed.
        let deleted = unsafe { call!(self.client.plugin, PJRT_Buffer_Delete, &mut args) };
        self.reopen();
        deleted
    }

    /// Whether the buffer was deleted or donated.
    ///
    /// # Errors
    /// The plugin cannot tell.
    pub fn is_deleted(&self) -> Result<bool> {
        let mut args = sys::PJRT_Buffer_IsDeleted_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: the buffer is alive.
        unsafe { call!(self.client.plugin, PJRT_Buffer_IsDeleted, &mut args) }?;
        Ok(args.is_deleted)
    }
}

/// Copies a dense array whose dimensions vary in `order`, the fastest first, to `dst` in row-major
/// order. `src` and `dst` have the same size, a multiple of the number of elements.
fn copy_to_row_major(src: &[u8], dims: &[i64], order: &[i64], dst: &mut [u8]) {
    let elements: usize = dims.iter().product::<i64>() as usize;
    let size = dst.len() / elements;
    let mut strides = vec![0; dims.len()];
    let mut stride = size;
    for &dim in order {
        strides[dim as usize] = stride;
        stride *= dims[dim as usize] as usize;
    }
    let mut index = vec![0; dims.len()];
    let mut from = 0;
    for element in dst.chunks_exact_mut(size) {
        element.copy_from_slice(&src[from..from + size]);
        // On to the next element: count up like an odometer, the last dimension first.
        for dim in (0..dims.len()).rev() {
            index[dim] += 1;
            from += strides[dim];
            if index[dim] < dims[dim] as usize {
                break;
            }
            from -= strides[dim] * index[dim];
            index[dim] = 0;
        }
    }
}

/// A thread that reads an array's memory directly.
struct Reader<'a>(&'a AtomicI32);

impl<'a> Reader<'a> {
    /// `None` while the memory is being given away.
    fn begin(readers: &'a AtomicI32) -> Option<Self> {
        let begin = |n: i32| (n >= 0).then_some(n + 1);
        readers
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, begin)
            .ok()
            .map(|_| Self(readers))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.dtype(), self.dims()) {
            (Ok(dtype), Ok(dims)) => write!(f, "Buffer({dtype}{dims:?})"),
            _ => write!(f, "Buffer(?)"),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut args = sys::PJRT_Buffer_Destroy_Args { buffer: self.raw, ..SizedStruct::sized() };
        // SAFETY: we own the buffer and this is its last use.
        if let Err(error) = unsafe { call!(self.client.plugin, PJRT_Buffer_Destroy, &mut args) } {
            tracing::warn!(%error, "could not destroy a PJRT buffer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_dimension_order_becomes_row_major() {
        let dims = [2, 3, 4];
        let row_major: Vec<u8> = (0..24).flat_map(|i| [i, 0xaa]).collect();
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]] {
            let mut src = vec![0; 48];
            for (i, element) in row_major.chunks_exact(2).enumerate() {
                let index = [i / 12, i / 4 % 3, i % 4];
                let (mut at, mut stride) = (0, 2);
                for dim in order {
                    at += index[dim] * stride;
                    stride *= dims[dim] as usize;
                }
                src[at..at + 2].copy_from_slice(element);
            }
            let mut dst = vec![0; 48];
            copy_to_row_major(&src, &dims, &order.map(|dim| dim as i64), &mut dst);
            assert_eq!(dst, row_major, "{order:?}");
        }
    }
}
