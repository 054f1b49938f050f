//! A client: the plugin's connection to the devices it manages.

use std::ffi::c_char;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::abi::{self, SizedStruct, call};
use super::buffer::{Buffer, DType};
use super::error::{ApiVersion, Error, Result};
use super::executable::Executable;
use super::options::{CompileOptions, OptionValue};
use super::plugin::Plugin;
use super::sys;

/// A PJRT client. Cloning it is cheap and gives another handle to the same client; the client is
/// destroyed when its last handle, buffer, executable and event are gone.
#[derive(Clone)]
pub struct Client {
    handle: Arc<ClientHandle>,
}

/// What buffers, executables and events keep alive.
pub(super) struct ClientHandle {
    pub(super) plugin: &'static Plugin,
    pub(super) raw: *mut sys::PJRT_Client,
    /// The device that arrays are uploaded to: the first that this process can address.
    device: *mut sys::PJRT_Device,
    devices: Vec<DeviceInfo>,
    platform_name: String,
    platform_version: String,
}

// SAFETY: PJRT clients and devices may be used from any thread, also concurrently.
unsafe impl Send for ClientHandle {}
// SAFETY: as above.
unsafe impl Sync for ClientHandle {}

/// One device, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Unique among the client's devices, those of other processes included.
    pub id: i32,
    /// The model, e.g. `cpu` or `TPU v5e`.
    pub kind: String,
    /// A short name for people, e.g. `CpuDevice(id=0)`.
    pub description: String,
}

/// Memory use of a device in bytes, as far as the plugin tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemoryStats {
    /// In use now.
    pub bytes_in_use: i64,
    /// The most that was in use at once.
    pub peak_bytes_in_use: Option<i64>,
    /// What the allocator may use at most.
    pub bytes_limit: Option<i64>,
}

impl Client {
    /// Creates a client of `plugin`.
    ///
    /// `options` are the plugin's own, by name. XLA:CPU knows `cpu_device_count` (an
    /// [`OptionValue::Int`]: how many devices to pretend to have, 4 if not given) and ignores what
    /// it does not know. Mind the types: a plugin may end the process over a wrong one (XLA:CPU
    /// does). [`OptionValue::Double`] is passed as `f32`, the only floating-point type that the C
    /// API has here.
    ///
    /// # Errors
    /// The plugin knows no such option, cannot reach its devices, or has none.
    pub fn new(plugin: &'static Plugin, options: &[(&str, OptionValue)]) -> Result<Client> {
        let options: Vec<_> = options.iter().map(|(name, value)| named(name, value)).collect();
        let mut args = sys::PJRT_Client_Create_Args {
            create_options: options.as_ptr(),
            num_options: options.len(),
            ..SizedStruct::sized()
        };
        // SAFETY: the options and the strings they point to outlive the call.
        unsafe { call!(plugin, PJRT_Client_Create, &mut args) }?;

        // From here on, dropping the handle destroys the client.
        let mut handle = ClientHandle {
            plugin,
            raw: args.client,
            device: std::ptr::null_mut(),
            devices: Vec::new(),
            platform_name: String::new(),
            platform_version: String::new(),
        };
        handle.describe()?;
        Ok(Client { handle: Arc::new(handle) })
    }

    /// The plugin behind this client.
    pub fn plugin(&self) -> &'static Plugin {
        self.handle.plugin
    }

    /// The path that the plugin was loaded from.
    pub fn plugin_path(&self) -> &'static Path {
        self.handle.plugin.path()
    }

    /// The version of the PJRT C API that the plugin speaks.
    pub fn api_version(&self) -> ApiVersion {
        self.handle.plugin.api_version()
    }

    /// What the client runs on: `cpu`, `tpu`, `cuda`…
    pub fn platform_name(&self) -> &str {
        &self.handle.platform_name
    }

    /// The platform's version in the plugin's own words, e.g. that of libtpu or CUDA.
    pub fn platform_version(&self) -> &str {
        &self.handle.platform_version
    }

    /// The devices that this process can address; at least one. The first holds all buffers.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.handle.devices
    }

    /// Memory use of the first device.
    ///
    /// # Errors
    /// The plugin does not count it (XLA:CPU does not).
    pub fn device_memory_stats(&self) -> Result<DeviceMemoryStats> {
        let mut args = sys::PJRT_Device_MemoryStats_Args {
            device: self.handle.device,
            ..SizedStruct::sized()
        };
        // SAFETY: the device lives as long as the client.
        unsafe { call!(self.handle.plugin, PJRT_Device_MemoryStats, &mut args) }?;
        Ok(DeviceMemoryStats {
            bytes_in_use: args.bytes_in_use,
            peak_bytes_in_use: args.peak_bytes_in_use_is_set.then_some(args.peak_bytes_in_use),
            bytes_limit: args.bytes_limit_is_set.then_some(args.bytes_limit),
        })
    }

    /// Compiles a StableHLO module, given as text (or as MLIR bytecode), with the options that make
    /// this platform's arithmetic IEEE's ([`CompileOptions::faithful`]).
    ///
    /// # Errors
    /// The module does not parse or verify, or XLA cannot compile it; the client stays usable.
    pub fn compile(&self, module: &str) -> Result<Executable> {
        self.compile_with(module, &CompileOptions::faithful(self.platform_name()))
    }

    /// Compiles a StableHLO module, given as text (or as MLIR bytecode), with `options`.
    ///
    /// # Errors
    /// As [`compile`](Self::compile), or XLA knows no such option.
    pub fn compile_with(
        &self,
        module: impl AsRef<[u8]>,
        options: &CompileOptions,
    ) -> Result<Executable> {
        let module = module.as_ref();
        let options = options.encode();
        let format = "mlir";
        let program = sys::PJRT_Program {
            // The C API has a mutable pointer, as other functions write here; this one only reads.
            code: module.as_ptr().cast::<c_char>().cast_mut(),
            code_size: module.len(),
            format: format.as_ptr().cast(),
            format_size: format.len(),
            ..SizedStruct::sized()
        };
        let mut args = sys::PJRT_Client_Compile_Args {
            client: self.handle.raw,
            program: &program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..SizedStruct::sized()
        };
        // SAFETY: all that `args` points to outlives the call.
        unsafe { call!(self.handle.plugin, PJRT_Client_Compile, &mut args) }?;
        // SAFETY: we own the executable that was just compiled.
        unsafe { Executable::from_raw(Arc::clone(&self.handle), args.executable) }
    }

    /// Loads an executable from what [`Executable::serialize`] gave, which skips compilation.
    ///
    /// # Errors
    /// The bytes are damaged, or come from another version of the plugin or another machine.
    pub fn deserialize(&self, serialized: &[u8]) -> Result<Executable> {
        let mut args = sys::PJRT_Executable_DeserializeAndLoad_Args {
            client: self.handle.raw,
            serialized_executable: serialized.as_ptr().cast(),
            serialized_executable_size: serialized.len(),
            ..SizedStruct::sized()
        };
        // SAFETY: the bytes outlive the call.
        unsafe { call!(self.handle.plugin, PJRT_Executable_DeserializeAndLoad, &mut args) }?;
        // SAFETY: we own the executable that was just loaded.
        unsafe { Executable::from_raw(Arc::clone(&self.handle), args.loaded_executable) }
    }

    /// Copies an array to the first device. `bytes` is row-major and dense, one byte an element
    /// for types narrower than that, and is free for reuse upon return.
    ///
    /// # Errors
    /// `bytes` has another size than `dtype` and `dims` say, or the device is out of memory.
    pub fn upload(&self, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<Buffer> {
        let expected = dtype.host_size(dims)?;
        if bytes.len() != expected {
            return Err(Error::SizeMismatch {
                what: "upload",
                dtype,
                dims: dims.to_vec(),
                expected,
                actual: bytes.len(),
            });
        }
        let mut args = sys::PJRT_Client_BufferFromHostBuffer_Args {
            client: self.handle.raw,
            data: bytes.as_ptr().cast(),
            type_: dtype.to_pjrt(),
            dims: dims.as_ptr(),
            num_dims: dims.len(),
            host_buffer_semantics: sys::PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
            device: self.handle.device,
            ..SizedStruct::sized()
        };
        // SAFETY: `bytes` holds the whole array, as checked above, and under these semantics the
        // plugin reads it during the call only.
        unsafe { call!(self.handle.plugin, PJRT_Client_BufferFromHostBuffer, &mut args) }?;
        // SAFETY: we own the event. These semantics make it ready already.
        drop(unsafe {
            super::Event::from_raw(Arc::clone(&self.handle), args.done_with_host_buffer)
        });
        // SAFETY: we own the buffer that was just made.
        Ok(unsafe { Buffer::from_raw(Arc::clone(&self.handle), args.buffer) })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("platform", &self.handle.platform_name)
            .field("devices", &self.handle.devices)
            .field("plugin", self.handle.plugin)
            .finish_non_exhaustive()
    }
}

impl ClientHandle {
    /// Whether arrays live in ordinary host memory.
    pub(super) fn is_cpu(&self) -> bool {
        self.platform_name == "cpu"
    }

    fn describe(&mut self) -> Result<()> {
        let plugin = self.plugin;
        let mut name =
            sys::PJRT_Client_PlatformName_Args { client: self.raw, ..SizedStruct::sized() };
        // SAFETY: the client is alive.
        unsafe { call!(plugin, PJRT_Client_PlatformName, &mut name) }?;
        // SAFETY: the text lives as long as the client, and is copied here.
        self.platform_name = unsafe { abi::text(name.platform_name, name.platform_name_size) };

        let mut version =
            sys::PJRT_Client_PlatformVersion_Args { client: self.raw, ..SizedStruct::sized() };
        // SAFETY: the client is alive.
        unsafe { call!(plugin, PJRT_Client_PlatformVersion, &mut version) }?;
        self.platform_version =
            // SAFETY: the text lives as long as the client, and is copied here.
            unsafe { abi::text(version.platform_version, version.platform_version_size) };

        let mut devices =
            sys::PJRT_Client_AddressableDevices_Args { client: self.raw, ..SizedStruct::sized() };
        // SAFETY: the client is alive.
        unsafe { call!(plugin, PJRT_Client_AddressableDevices, &mut devices) }?;
        // SAFETY: the list lives as long as the client.
        let devices =
            unsafe { abi::slice(devices.addressable_devices, devices.num_addressable_devices) };
        self.device = *devices.first().ok_or_else(|| Error::NoDevice {
            path: plugin.path().to_owned(),
            platform: self.platform_name.clone(),
        })?;
        self.devices = devices
            .iter()
            // SAFETY: the devices live as long as the client.
            .map(|&device| unsafe { describe_device(plugin, device) })
            .collect::<Result<_>>()?;
        Ok(())
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        let mut args = sys::PJRT_Client_Destroy_Args { client: self.raw, ..SizedStruct::sized() };
        // SAFETY: everything that uses the client holds its handle, so this is its last use.
        if let Err(error) = unsafe { call!(self.plugin, PJRT_Client_Destroy, &mut args) } {
            tracing::warn!(%error, "could not destroy the PJRT client");
        }
    }
}

/// # Safety
/// `device` must be a live device of `plugin`.
unsafe fn describe_device(plugin: &Plugin, device: *mut sys::PJRT_Device) -> Result<DeviceInfo> {
    let mut args = sys::PJRT_Device_GetDescription_Args { device, ..SizedStruct::sized() };
    // SAFETY: the caller vouches for the device.
    unsafe { call!(plugin, PJRT_Device_GetDescription, &mut args) }?;
    let device_description = args.device_description;

    let mut id = sys::PJRT_DeviceDescription_Id_Args { device_description, ..SizedStruct::sized() };
    // SAFETY: the description lives as long as its device.
    unsafe { call!(plugin, PJRT_DeviceDescription_Id, &mut id) }?;
    let mut kind =
        sys::PJRT_DeviceDescription_Kind_Args { device_description, ..SizedStruct::sized() };
    // SAFETY: as above.
    unsafe { call!(plugin, PJRT_DeviceDescription_Kind, &mut kind) }?;
    let mut words =
        sys::PJRT_DeviceDescription_ToString_Args { device_description, ..SizedStruct::sized() };
    // SAFETY: as above.
    unsafe { call!(plugin, PJRT_DeviceDescription_ToString, &mut words) }?;
    Ok(DeviceInfo {
        id: id.id,
        // SAFETY: the text lives as long as the device, and is copied here.
        kind: unsafe { abi::text(kind.device_kind, kind.device_kind_size) },
        // SAFETY: as above.
        description: unsafe { abi::text(words.to_string, words.to_string_size) },
    })
}

/// A named value that points into `name` and `value`, so it must not outlive them.
fn named(name: &str, value: &OptionValue) -> sys::PJRT_NamedValue {
    use sys::PJRT_NamedValue__bindgen_ty_1 as Value;
    let (type_, value, value_size) = match value {
        OptionValue::Bool(v) => (sys::PJRT_NamedValue_kBool, Value { bool_value: *v }, 1),
        OptionValue::Int(v) => (sys::PJRT_NamedValue_kInt64, Value { int64_value: *v }, 1),
        OptionValue::Double(v) => {
            (sys::PJRT_NamedValue_kFloat, Value { float_value: *v as f32 }, 1)
        }
        OptionValue::String(v) => {
            (sys::PJRT_NamedValue_kString, Value { string_value: v.as_ptr().cast() }, v.len())
        }
    };
    sys::PJRT_NamedValue {
        name: name.as_ptr().cast(),
        name_size: name.len(),
        type_,
        __bindgen_anon_1: value,
        value_size,
        ..SizedStruct::sized()
    }
}
