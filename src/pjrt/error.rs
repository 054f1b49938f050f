//! What can go wrong between us and a PJRT plugin.

use std::fmt;
use std::path::PathBuf;

use super::sys;

/// The result of every fallible call in this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error from finding, loading or calling a PJRT plugin.
///
/// It is `Clone` because one failed execution fails every value that depends on it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No plugin was named and none was found.
    #[error(
        "no PJRT plugin was found ({tried}). Install one with `pip install xla-cpu-pjrt`, or set \
         {} to the path of a PJRT plugin (a shared library that exports GetPjrtApi)",
        super::discover::PLUGIN_ENV
    )]
    NoPlugin {
        /// What was looked at, in order.
        tried: String,
    },

    /// The plugin's path does not lead to a readable file.
    #[error(
        "the PJRT plugin {} cannot be read: {reason}. Check the path ({} chooses the plugin), or \
         reinstall the package it belongs to",
        path.display(),
        super::discover::PLUGIN_ENV
    )]
    PluginUnreadable {
        /// The path that was tried.
        path: PathBuf,
        /// The operating system's reason.
        reason: String,
    },

    /// The plugin's file is something else than a shared library of this platform, or one of the
    /// libraries it depends on is missing.
    #[error(
        "{} cannot be loaded as a shared library: {reason}. A PJRT plugin is a shared library \
         built for this machine (on Linux an ELF .so file); {} chooses another one",
        path.display(),
        super::discover::PLUGIN_ENV
    )]
    NotASharedLibrary {
        /// The path that was tried.
        path: PathBuf,
        /// The dynamic linker's reason.
        reason: String,
    },

    /// A shared library, but no PJRT plugin.
    #[error(
        "{} is a shared library but not a PJRT plugin: {reason}. {} must name a PJRT plugin such \
         as xla_cpu_pjrt.so or libtpu.so",
        path.display(),
        super::discover::PLUGIN_ENV
    )]
    NotAPlugin {
        /// The path that was tried.
        path: PathBuf,
        /// What it lacks.
        reason: String,
    },

    /// The plugin speaks an incompatible version of the PJRT C API.
    #[error(
        "the PJRT plugin {} speaks PJRT C API {found}, but this build speaks {expected}: the major \
         versions must be equal. Install a plugin of major version {}, or a DeferAndFuse built \
         for {}",
        path.display(),
        expected.major,
        found.major
    )]
    IncompatibleVersion {
        /// The path that was tried.
        path: PathBuf,
        /// The plugin's version.
        found: ApiVersion,
        /// The version of the header that this build was generated from.
        expected: ApiVersion,
    },

    /// The plugin is older than a function that is needed.
    #[error(
        "the PJRT plugin {} (PJRT C API {version}) does not offer {call}: a newer plugin is needed",
        path.display()
    )]
    MissingFunction {
        /// The plugin's path.
        path: PathBuf,
        /// The plugin's version.
        version: ApiVersion,
        /// The function's name in the C API.
        call: &'static str,
    },

    /// The plugin refused or failed a call.
    #[error("{call} failed with {code}: {message}")]
    Pjrt {
        /// The function's name in the C API.
        call: &'static str,
        /// The kind of failure.
        code: ErrorCode,
        /// The plugin's own words.
        message: String,
    },

    /// The plugin manages no device that this process can address.
    #[error("the PJRT plugin {} (platform {platform}) has no addressable device", path.display())]
    NoDevice {
        /// The plugin's path.
        path: PathBuf,
        /// The client's platform name.
        platform: String,
    },

    /// A host slice does not have the size of the array it is copied from or to.
    #[error(
        "{what} of {dtype}{dims:?} needs a host slice of {expected} bytes, but it has {actual}"
    )]
    SizeMismatch {
        /// "upload" or "download".
        what: &'static str,
        /// Element type of the array.
        dtype: super::DType,
        /// Dimensions of the array.
        dims: Vec<i64>,
        /// Bytes of the array in host memory.
        expected: usize,
        /// Bytes of the slice.
        actual: usize,
    },

    /// Dimensions that no array can have.
    #[error(
        "{dtype}{dims:?} is not an array's shape: dimensions must not be negative, and their \
         product must fit the address space"
    )]
    BadShape {
        /// Element type of the array.
        dtype: super::DType,
        /// Dimensions of the array.
        dims: Vec<i64>,
    },

    /// An executable was called with the wrong arguments.
    #[error("executable {name:?} was called wrongly: {reason}")]
    BadCall {
        /// The executable's (module's) name.
        name: String,
        /// What is wrong.
        reason: String,
    },

    /// The plugin returned something that this build cannot represent.
    #[error("the PJRT plugin returned an unsupported value from {call}: {what}")]
    Unsupported {
        /// The function's name in the C API.
        call: &'static str,
        /// The value.
        what: String,
    },
}

impl Error {
    /// The plugin's error code, for errors that came from a call to the plugin.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Pjrt { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the device ran out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        // XLA:CPU reports scratch memory it can't get while running as an internal error.
        self.code() == Some(ErrorCode::ResourceExhausted)
            || matches!(self, Error::Pjrt { message, .. } if message.contains("Out of memory"))
    }
}

/// The version of the PJRT C API: a plugin works with callers of the same major version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApiVersion {
    /// Changes when the ABI breaks.
    pub major: i32,
    /// Changes when the interface grows.
    pub minor: i32,
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $constant:ident, $text:literal;)*) => {
        /// The kind of a plugin's failure: the canonical status codes that absl and gRPC share.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
            /// A code that this build has no name for.
            Other(u32),
        }

        impl ErrorCode {
            pub(super) fn from_pjrt(code: sys::PJRT_Error_Code) -> Self {
                match code {
                    $(sys::$constant => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Other(code) => write!(f, "code {code}"),
                }
            }
        }
    };
}

error_codes! {
    /// The operation was cancelled.
    Cancelled = PJRT_Error_Code_CANCELLED, "CANCELLED";
    /// An error without a known kind.
    Unknown = PJRT_Error_Code_UNKNOWN, "UNKNOWN";
    /// An argument (a module, an option, a buffer) is wrong.
    InvalidArgument = PJRT_Error_Code_INVALID_ARGUMENT, "INVALID_ARGUMENT";
    /// The operation took too long.
    DeadlineExceeded = PJRT_Error_Code_DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED";
    /// Something named does not exist.
    NotFound = PJRT_Error_Code_NOT_FOUND, "NOT_FOUND";
    /// Something to be created exists already.
    AlreadyExists = PJRT_Error_Code_ALREADY_EXISTS, "ALREADY_EXISTS";
    /// The caller may not do this.
    PermissionDenied = PJRT_Error_Code_PERMISSION_DENIED, "PERMISSION_DENIED";
    /// Out of memory, or of another resource.
    ResourceExhausted = PJRT_Error_Code_RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED";
    /// The system is not in the state that the operation needs.
    FailedPrecondition = PJRT_Error_Code_FAILED_PRECONDITION, "FAILED_PRECONDITION";
    /// The operation was aborted.
    Aborted = PJRT_Error_Code_ABORTED, "ABORTED";
    /// An index or an offset is outside its range.
    OutOfRange = PJRT_Error_Code_OUT_OF_RANGE, "OUT_OF_RANGE";
    /// The plugin does not implement this.
    Unimplemented = PJRT_Error_Code_UNIMPLEMENTED, "UNIMPLEMENTED";
    /// A broken invariant inside the plugin.
    Internal = PJRT_Error_Code_INTERNAL, "INTERNAL";
    /// The device or service is unavailable at present.
    Unavailable = PJRT_Error_Code_UNAVAILABLE, "UNAVAILABLE";
    /// Data was lost or corrupted.
    DataLoss = PJRT_Error_Code_DATA_LOSS, "DATA_LOSS";
    /// The caller is not authenticated.
    Unauthenticated = PJRT_Error_Code_UNAUTHENTICATED, "UNAUTHENTICATED";
}
