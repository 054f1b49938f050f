//! Compiled modules.

use std::borrow::Borrow;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use super::abi::{self, SizedStruct, call};
use super::buffer::Buffer;
use super::client::ClientHandle;
use super::error::{Error, Result};
use super::event::Event;
use super::sys;

/// Calls with up to this many arguments or outputs need no allocation of their own.
const INLINE: usize = 16;

/// A module that was compiled and loaded onto the client's device.
pub struct Executable {
    client: Arc<ClientHandle>,
    loaded: *mut sys::PJRT_LoadedExecutable,
    /// The same module's description, asked for once.
    described: *mut sys::PJRT_Executable,
    num_outputs: usize,
}

// SAFETY: PJRT executables may be executed and asked from any thread, also concurrently.
// Destroying needs exclusive access, which `Drop` has.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

/// Memory that an execution takes, in bytes, as the compiler planned it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// All arguments.
    pub argument: i64,
    /// All outputs, those that reuse an argument included.
    pub output: i64,
    /// The part of the outputs that reuses donated arguments.
    pub alias: i64,
    /// Scratch memory during the execution.
    pub temp: i64,
    /// The machine code, for as long as the executable lives.
    pub generated_code: i64,
}

impl Executable {
    /// # Safety
    /// `loaded` must be an executable of this client that the caller owns.
    pub(super) unsafe fn from_raw(
        client: Arc<ClientHandle>,
        loaded: *mut sys::PJRT_LoadedExecutable,
    ) -> Result<Executable> {
        // From here on, dropping it destroys both.
        let mut executable =
            Executable { client, loaded, described: ptr::null_mut(), num_outputs: 0 };
        let plugin = executable.client.plugin;

        let mut args = sys::PJRT_LoadedExecutable_GetExecutable_Args {
            loaded_executable: loaded,
            ..SizedStruct::sized()
        };
        // SAFETY: the executable is alive.
        unsafe { call!(plugin, PJRT_LoadedExecutable_GetExecutable, &mut args) }?;
        executable.described = args.executable;

        let mut args = sys::PJRT_Executable_NumOutputs_Args {
            executable: executable.described,
            ..SizedStruct::sized()
        };
        // SAFETY: the executable is alive.
        unsafe { call!(plugin, PJRT_Executable_NumOutputs, &mut args) }?;
        executable.num_outputs = args.num_outputs;
        Ok(executable)
    }

    /// The module's name.
    ///
    /// # Errors
    /// The plugin cannot tell.
    pub fn name(&self) -> Result<String> {
        let mut args =
            sys::PJRT_Executable_Name_Args { executable: self.described, ..SizedStruct::sized() };
        // SAFETY: the executable is alive.
        unsafe { call!(self.client.plugin, PJRT_Executable_Name, &mut args) }?;
        // SAFETY: the text lives as long as the executable, and is copied here.
        Ok(unsafe { abi::text(args.executable_name, args.executable_name_size) })
    }

    /// How many arrays an execution returns.
    pub fn num_outputs(&self) -> usize {
        self.num_outputs
    }

    /// The compiler's plan of the memory that an execution takes.
    ///
    /// # Errors
    /// The plugin does not tell.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let mut args = sys::PJRT_Executable_GetCompiledMemoryStats_Args {
            executable: self.described,
            ..SizedStruct::sized()
        };
        // SAFETY: the executable is alive.
        unsafe { call!(self.client.plugin, PJRT_Executable_GetCompiledMemoryStats, &mut args) }?;
        Ok(MemoryStats {
            argument: args.argument_size_in_bytes,
            output: args.output_size_in_bytes,
            alias: args.alias_size_in_bytes,
            temp: args.temp_size_in_bytes,
            generated_code: args.generated_code_size_in_bytes,
        })
    }

    /// The compiled form, for [`Client::deserialize`](super::Client::deserialize). It belongs to
    /// this version of the plugin and this kind of machine.
    ///
    /// # Errors
    /// The plugin does not support it for this executable.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args = sys::PJRT_Executable_Serialize_Args {
            executable: self.described,
            ..SizedStruct::sized()
        };
        // SAFETY: the executable is alive.
        unsafe { call!(self.client.plugin, PJRT_Executable_Serialize, &mut args) }?;
        // SAFETY: the bytes live until the deleter runs, and are copied here.
        let bytes =
            unsafe { abi::slice(args.serialized_bytes.cast::<u8>(), args.serialized_bytes_size) }
                .to_vec();
        if let Some(delete) = args.serialized_executable_deleter {
            // SAFETY: the plugin asks for exactly one call with what it gave us.
            unsafe { delete(args.serialized_executable) };
        }
        Ok(bytes)
    }

    /// Enqueues an execution on the first device and returns its outputs, which may still be in
    /// the making; see [`execute_into`](Self::execute_into).
    ///
    /// # Errors
    /// As [`execute_into`](Self::execute_into).
    pub fn execute<B: Borrow<Buffer>>(&self, args: &[B], donate: &[bool]) -> Result<Vec<Buffer>> {
        let mut outputs = Vec::with_capacity(self.num_outputs);
        self.execute_into(args, donate, &mut outputs)?;
        Ok(outputs)
    }

    /// Enqueues an execution on the first device and appends its outputs, which may still be in
    /// the making, to `outputs`. Errors of the execution itself come out of waiting for an output
    /// or downloading it.
    ///
    /// `donate` says for each argument whether its memory may be reused, where the module marked
    /// the argument as reusable (`tf.aliasing_output`); such a buffer counts as deleted
    /// afterwards. Empty means none. A buffer that is passed more than once must not be donated.
    ///
    /// This is the hot path of op-at-a-time execution: up to 16 arguments and outputs it does
    /// not allocate by itself.
    ///
    /// # Errors
    /// The arguments are not those that the module takes, one of them was deleted, or the device
    /// is out of memory. `outputs` is unchanged then.
    pub fn execute_into<B: Borrow<Buffer>>(
        &self,
        args: &[B],
        donate: &[bool],
        outputs: &mut Vec<Buffer>,
    ) -> Result<()> {
        self.launch(args, donate, outputs, None)
    }

    /// As [`execute`](Self::execute), and also returns the event of the whole execution: the way
    /// to wait for a module without outputs.
    ///
    /// # Errors
    /// As [`execute_into`](Self::execute_into).
    pub fn execute_tracked<B: Borrow<Buffer>>(
        &self,
        args: &[B],
        donate: &[bool],
    ) -> Result<(Vec<Buffer>, Event)> {
        let mut outputs = Vec::with_capacity(self.num_outputs);
        let mut done = ptr::null_mut();
        self.launch(args, donate, &mut outputs, Some(&mut done))?;
        // SAFETY: we own the event.
        Ok((outputs, unsafe { Event::from_raw(Arc::clone(&self.client), done) }))
    }

    fn launch<B: Borrow<Buffer>>(
        &self,
        args: &[B],
        donate: &[bool],
        outputs: &mut Vec<Buffer>,
        done: Option<&mut *mut sys::PJRT_Event>,
    ) -> Result<()> {
        if !donate.is_empty() && donate.len() != args.len() {
            return Err(self.bad_call(format!(
                "{} arguments, but a donation mask of {}",
                args.len(),
                donate.len()
            )));
        }

        let (mut inline, mut heap) = ([ptr::null_mut(); INLINE], Vec::new());
        let arguments = scratch(&mut inline, &mut heap, args.len());
        for (slot, arg) in arguments.iter_mut().zip(args) {
            *slot = arg.borrow().raw();
        }

        // Arguments that are not named here may be donated, if the module says so.
        let (mut inline, mut heap) = ([0i64; INLINE], Vec::new());
        let mut kept = 0;
        let keep = scratch(&mut inline, &mut heap, args.len());
        for i in 0..args.len() {
            if !donated(donate, i) {
                keep[kept] = i as i64;
                kept += 1;
            }
        }

        let (mut inline, mut heap) = ([ptr::null_mut(); INLINE], Vec::new());
        let results: &mut [*mut sys::PJRT_Buffer] =
            scratch(&mut inline, &mut heap, self.num_outputs);

        let mut options = sys::PJRT_ExecuteOptions {
            non_donatable_input_indices: keep.as_ptr(),
            num_non_donatable_input_indices: kept,
            ..SizedStruct::sized()
        };
        let argument_list = arguments.as_ptr();
        let output_list = results.as_mut_ptr();
        let mut call_args = sys::PJRT_LoadedExecutable_Execute_Args {
            executable: self.loaded,
            options: &mut options,
            argument_lists: &argument_list,
            num_devices: 1,
            num_args: args.len(),
            output_lists: &output_list,
            device_complete_events: done.map_or(ptr::null_mut(), ptr::from_mut),
            ..SizedStruct::sized()
        };
        let donations = || {
            args.iter()
                .enumerate()
                .filter(|(i, _)| donated(donate, *i))
                .map(|(_, arg)| arg.borrow())
        };
        donations().for_each(Buffer::close);
        // SAFETY: all that the arguments point to outlives the call, the lists have the lengths
        // that are declared, and `results` has room for the module's outputs. Nobody reads the
        // memory of the donated arguments, as they are closed.
        let launched =
            unsafe { call!(self.client.plugin, PJRT_LoadedExecutable_Execute, &mut call_args) };
        donations().for_each(Buffer::reopen);
        launched?;
        outputs.extend(
            // SAFETY: we own the buffers that the execution returned.
            results.iter().map(|&raw| unsafe { Buffer::from_raw(Arc::clone(&self.client), raw) }),
        );
        Ok(())
    }

    #[cold]
    fn bad_call(&self, reason: String) -> Error {
        Error::BadCall { name: self.name().unwrap_or_default(), reason }
    }
}

/// Whether the mask donates argument `i`; an empty mask donates none.
#[inline]
fn donated(donate: &[bool], i: usize) -> bool {
    donate.get(i).copied().unwrap_or(false)
}

/// The first `len` of `inline`, or of `heap` where it has no room for them.
#[inline]
fn scratch<'a, T: Copy, const N: usize>(
    inline: &'a mut [T; N],
    heap: &'a mut Vec<T>,
    len: usize,
) -> &'a mut [T] {
    if len <= N {
        &mut inline[..len]
    } else {
        heap.resize(len, inline[0]);
        heap
    }
}

impl fmt::Debug for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executable")
            .field("name", &self.name().unwrap_or_default())
            .field("num_outputs", &self.num_outputs)
            .finish_non_exhaustive()
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let plugin = self.client.plugin;
        if !self.described.is_null() {
            let mut args = sys::PJRT_Executable_Destroy_Args {
                executable: self.described,
                ..SizedStruct::sized()
            };
            // SAFETY: we own the description and this is its last use.
            if let Err(error) = unsafe { call!(plugin, PJRT_Executable_Destroy, &mut args) } {
                tracing::warn!(%error, "could not destroy a PJRT executable's description");
            }
        }
        let mut args = sys::PJRT_LoadedExecutable_Destroy_Args {
            executable: self.loaded,
            ..SizedStruct::sized()
        };
        // SAFETY: we own the executable and this is its last use. Running executions keep what
        // they need.
        if let Err(error) = unsafe { call!(plugin, PJRT_LoadedExecutable_Destroy, &mut args) } {
            tracing::warn!(%error, "could not destroy a PJRT executable");
        }
    }
}
