//! Loading a PJRT plugin: a shared library that exports the table of the PJRT C API.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::abi::{self, SizedStruct, call};
use super::error::{ApiVersion, Error, ErrorCode, Result};
use super::sys;

/// The version of the header that our bindings were generated from.
pub const API_VERSION: ApiVersion =
    ApiVersion { major: sys::PJRT_API_MAJOR as i32, minor: sys::PJRT_API_MINOR as i32 };

/// A loaded and initialised PJRT plugin.
///
/// A plugin stays loaded until the process ends: XLA keeps threads and thread-local state in it,
/// so unloading would be unsound.
pub struct Plugin {
    path: PathBuf,
    version: ApiVersion,
    // Our own copy, so that functions which an older plugin's shorter table lacks read as `None`.
    api: sys::PJRT_Api,
}

// SAFETY: `api` is a table of function pointers that never changes after loading, and PJRT allows
// calling its functions from any thread. Its extension chain is never touched by this module.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("path", &self.path)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Plugin {
    /// Loads and initialises the plugin at `path`. A plugin that this process has loaded already
    /// is returned as it is.
    ///
    /// # Errors
    /// The file is missing or unreadable, not a shared library, not a PJRT plugin, speaks another
    /// major version of the PJRT C API, or its initialisation fails.
    pub fn load(path: impl AsRef<Path>) -> Result<&'static Plugin> {
        // The plugin's initialisation must run once, so the lock is held over the whole loading.
        static LOADED: Mutex<Option<HashMap<PathBuf, &'static Plugin>>> = Mutex::new(None);

        let path = path.as_ref();
        let unreadable = |error: std::io::Error| Error::PluginUnreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let canonical = path.canonicalize().map_err(unreadable)?;
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        if let Some(plugin) = loaded.get(&canonical) {
            return Ok(plugin);
        }
        check_file(&canonical).map_err(unreadable)?;
        let plugin: &'static Plugin = Box::leak(Box::new(Self::open(path, &canonical)?));
        tracing::info!(path = %path.display(), version = %plugin.version, "loaded PJRT plugin");
        loaded.insert(canonical, plugin);
        Ok(plugin)
    }

    fn open(path: &Path, canonical: &Path) -> Result<Plugin> {
        let not_a_plugin =
            |reason: &str| Error::NotAPlugin { path: path.to_owned(), reason: reason.to_owned() };

        // SAFETY: loading runs the library's constructors. The user chose this file as a plugin,
        // and running its code is what a plugin is for.
        let library = unsafe { open_library(canonical.as_os_str()) }.map_err(|error| {
            Error::NotASharedLibrary { path: path.to_owned(), reason: describe(&error) }
        })?;
        // Never unloaded, see above; that holds for a library that turns out to be no plugin too,
        // as its constructors have run.
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: this is the type that the PJRT C API gives to the symbol of this name.
        let get_api = unsafe {
            library.get::<unsafe extern "C" fn() -> *const sys::PJRT_Api>(b"GetPjrtApi\0")
        }
        .map_err(|_| not_a_plugin("it does not export GetPjrtApi"))?;
        // SAFETY: GetPjrtApi takes nothing and may be called at any time.
        let table = unsafe { get_api() };
        if table.is_null() {
            return Err(not_a_plugin("its GetPjrtApi returned null"));
        }

        // SAFETY: a table starts with its size, its extensions and its version, in every version
        // of the API.
        let (size, version) = unsafe { ((*table).struct_size, (*table).pjrt_api_version) };
        let version = ApiVersion { major: version.major_version, minor: version.minor_version };
        if size < std::mem::offset_of!(sys::PJRT_Api, PJRT_Error_Destroy) {
            return Err(not_a_plugin("the function table it returned is too short to be one"));
        }
        if version.major != API_VERSION.major {
            return Err(Error::IncompatibleVersion {
                path: path.to_owned(),
                found: version,
                expected: API_VERSION,
            });
        }
        let mut api = sys::PJRT_Api::default();
        // SAFETY: the plugin declares `size` bytes, we copy no more than that and no more than we
        // have room for. The rest stays zero, that is `None`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                table.cast::<u8>(),
                (&raw mut api).cast::<u8>(),
                size.min(size_of::<sys::PJRT_Api>()),
            );
        }

        let plugin = Plugin { path: path.to_owned(), version, api };
        let mut args = sys::PJRT_Plugin_Initialize_Args::sized();
        // SAFETY: `args` is complete; this is the first call to the plugin and happens once.
        match unsafe { call!(&plugin, PJRT_Plugin_Initialize, &mut args) } {
            // The oldest plugins have no initialisation.
            Ok(()) | Err(Error::MissingFunction { .. }) => Ok(plugin),
            Err(error) => Err(error),
        }
    }

    /// The path that the plugin was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of the PJRT C API that the plugin speaks.
    pub fn api_version(&self) -> ApiVersion {
        self.version
    }

    #[inline]
    pub(super) fn api(&self) -> &sys::PJRT_Api {
        &self.api
    }

    #[cold]
    pub(super) fn missing(&self, call: &'static str) -> Error {
        Error::MissingFunction { path: self.path.clone(), version: self.version, call }
    }

    /// Takes over an error that the plugin returned from `call`; null is success.
    #[inline]
    pub(super) fn check(&self, call: &'static str, error: *mut sys::PJRT_Error) -> Result<()> {
        if error.is_null() { Ok(()) } else { Err(self.take_error(call, error)) }
    }

    #[cold]
    fn take_error(&self, call: &'static str, error: *mut sys::PJRT_Error) -> Error {
        let mut message = String::from("the plugin gave no message");
        if let Some(get_message) = self.api.PJRT_Error_Message {
            let mut args = sys::PJRT_Error_Message_Args { error, ..SizedStruct::sized() };
            // SAFETY: `error` is a live error of this plugin.
            unsafe { get_message(&mut args) };
            // SAFETY: the message lives as long as the error, and is copied here.
            message = unsafe { abi::text(args.message, args.message_size) };
        }
        let mut code = ErrorCode::Unknown;
        if let Some(get_code) = self.api.PJRT_Error_GetCode {
            let mut args = sys::PJRT_Error_GetCode_Args { error, ..SizedStruct::sized() };
            // SAFETY: `error` is a live error of this plugin.
            let failed = unsafe { get_code(&mut args) };
            if failed.is_null() {
                code = ErrorCode::from_pjrt(args.code);
            } else {
                self.destroy_error(failed);
            }
        }
        self.destroy_error(error);
        Error::Pjrt { call, code, message }
    }

    fn destroy_error(&self, error: *mut sys::PJRT_Error) {
        if let Some(destroy) = self.api.PJRT_Error_Destroy {
            let mut args = sys::PJRT_Error_Destroy_Args { error, ..SizedStruct::sized() };
            // SAFETY: `error` is a live error of this plugin, and nobody uses it after this.
            unsafe { destroy(&mut args) };
        }
    }
}

/// Checks what the dynamic linker would only report in its own terms.
fn check_file(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Err(std::io::Error::other("it is a directory"));
    }
    // Opening says whether it may be read; one byte, whether there is anything in it.
    let mut first = [0; 1];
    if std::fs::File::open(path)?.read(&mut first)? == 0 {
        return Err(std::io::Error::other("the file is empty"));
    }
    Ok(())
}

/// # Safety
/// Runs the library's constructors.
#[cfg(unix)]
unsafe fn open_library(path: &OsStr) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // Local: a plugin carries its own LLVM and protobuf, which must not meet those of torch.
    // SAFETY: passed on to our caller.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

/// # Safety
/// Runs the library's constructors.
#[cfg(not(unix))]
unsafe fn open_library(path: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: passed on to our caller.
    unsafe { libloading::Library::new(path) }
}

/// The linker's own message where libloading has one, which it keeps as the error's source.
fn describe(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}
