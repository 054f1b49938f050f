//! PJRT: running StableHLO modules on a device, through a plugin's C API.
//!
//! A [`Plugin`] is a shared library (libtpu, XLA:CPU, the CUDA plugin) that exports one table of C
//! functions. [`discover()`] chooses which one, [`Plugin::load`] loads it, [`Client::new`] connects
//! to its devices. A client compiles module text to an [`Executable`], and uploads arrays to
//! [`Buffer`]s; executing takes buffers and returns buffers at once, while the work goes on.
//!
//! ```no_run
//! use defer_and_fuse::pjrt::{Candidates, Client, DType, Plugin, discover};
//!
//! # fn main() -> defer_and_fuse::pjrt::Result<()> {
//! let plugin = Plugin::load(discover(&Candidates::default())?.path)?;
//! let client = Client::new(plugin, &[])?;
//! let double = client.compile(
//!     "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
//!        %y = stablehlo.add %x, %x : tensor<2xf32>
//!        return %y : tensor<2xf32>
//!      }",
//! )?;
//! let x = client.upload(DType::F32, &[2], &[0, 0, 128, 63, 0, 0, 0, 64])?; // [1.0, 2.0]
//! let y = double.execute(&[&x], &[])?;
//! let mut bytes = [0; 8];
//! y[0].download(&mut bytes)?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything here is `Send + Sync`: PJRT allows calls from any thread. This module knows nothing
//! of the rest of the crate; the engine sees it through the [`Device`] trait.

mod abi;
mod buffer;
mod cache;
mod client;
mod discover;
mod error;
mod event;
mod executable;
mod identity;
mod options;
mod plugin;
// Generated, see generate-sys.sh: C names, and the whole API where we use a part of it.
#[allow(
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
#[rustfmt::skip]
mod sys;

use std::path::Path;

pub use buffer::{Buffer, DType};
pub use cache::{Cache, Entry, Found, Key};
pub use client::{Client, DeviceInfo, DeviceMemoryStats};
pub use discover::{Candidates, Choice, PLUGIN_ENV, Reason, discover, tpu_present};
pub use error::{ApiVersion, Error, ErrorCode, Result};
pub use event::Event;
pub use executable::{Executable, MemoryStats};
pub use identity::Identity;
pub use options::{CompileOptions, OptionValue};
pub use plugin::{API_VERSION, Plugin};

/// What the engine needs of a device. [`Client`] is the real one.
pub trait Device: Send + Sync {
    /// An array on the device, possibly still in the making.
    type Buffer: Send + Sync;
    /// A compiled module.
    type Executable: Send + Sync;

    /// What the device is: `cpu`, `tpu`, `cuda`…
    fn platform_name(&self) -> &str;
    /// The path of the plugin behind it.
    fn plugin_path(&self) -> &Path;
    /// The version of the PJRT C API that the plugin speaks.
    fn api_version(&self) -> ApiVersion;

    /// Compiles a StableHLO module.
    ///
    /// # Errors
    /// The module is malformed, or the compiler cannot compile it.
    fn compile(&self, module: &str) -> Result<Self::Executable>;
    /// The memory that an execution takes, as the compiler planned it.
    ///
    /// # Errors
    /// The device does not tell.
    fn memory_stats(&self, executable: &Self::Executable) -> Result<MemoryStats>;
    /// Enqueues an execution and appends its outputs, see [`Executable::execute_into`].
    ///
    /// # Errors
    /// The arguments are not those that the module takes, or the device is out of memory.
    fn execute(
        &self,
        executable: &Self::Executable,
        args: &[&Self::Buffer],
        donate: &[bool],
        outputs: &mut Vec<Self::Buffer>,
    ) -> Result<()>;

    /// Copies a dense row-major array to the device; `bytes` is free upon return.
    ///
    /// # Errors
    /// `bytes` does not have the array's size, or the device is out of memory.
    fn upload(&self, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<Self::Buffer>;
    /// Waits for an array and copies it to `dst`, dense and row-major.
    ///
    /// # Errors
    /// `dst` does not have the array's size, or the array's computation failed.
    fn download(&self, buffer: &Self::Buffer, dst: &mut [u8]) -> Result<()>;
    /// Whether an array is computed, or its computation has failed.
    ///
    /// # Errors
    /// The device cannot tell.
    fn is_ready(&self, buffer: &Self::Buffer) -> Result<bool>;
    /// Waits for an array.
    ///
    /// # Errors
    /// The array's computation failed.
    fn wait(&self, buffer: &Self::Buffer) -> Result<()>;
}

impl Device for Client {
    type Buffer = Buffer;
    type Executable = Executable;

    fn platform_name(&self) -> &str {
        Client::platform_name(self)
    }

    fn plugin_path(&self) -> &Path {
        Client::plugin_path(self)
    }

    fn api_version(&self) -> ApiVersion {
        Client::api_version(self)
    }

    fn compile(&self, module: &str) -> Result<Executable> {
        Client::compile(self, module)
    }

    fn memory_stats(&self, executable: &Executable) -> Result<MemoryStats> {
        executable.memory_stats()
    }

    fn execute(
        &self,
        executable: &Executable,
        args: &[&Buffer],
        donate: &[bool],
        outputs: &mut Vec<Buffer>,
    ) -> Result<()> {
        executable.execute_into(args, donate, outputs)
    }

    fn upload(&self, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<Buffer> {
        Client::upload(self, dtype, dims, bytes)
    }

    fn download(&self, buffer: &Buffer, dst: &mut [u8]) -> Result<()> {
        buffer.download(dst)
    }

    fn is_ready(&self, buffer: &Buffer) -> Result<bool> {
        buffer.is_ready()
    }

    fn wait(&self, buffer: &Buffer) -> Result<()> {
        buffer.wait()
    }
}
