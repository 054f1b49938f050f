//! The one error type of the engine: which Python exception it is, and what a person reads.

use std::fmt;

use crate::ir::builder::IrError;

/// The Python exception an error becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum ErrorKind {
    Runtime = 0,
    Index = 1,
    Type = 2,
    Value = 3,
    NotImplemented = 4,
    OutOfMemory = 5,
}

#[derive(Clone, Debug)]
pub struct Error {
    pub kind: ErrorKind,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }

    pub fn runtime(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Runtime, message)
    }

    /// Adds what the failure happened in, on a line of its own.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Error {
        self.message = format!("{}\n  {context}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<IrError> for Error {
    fn from(e: IrError) -> Error {
        Error::runtime(e.0)
    }
}

/// Returns an error unless the condition holds: `ensure!(cond, "text {}", x)`, or with a kind
/// first: `ensure!(cond, Index, "text")`.
#[macro_export]
macro_rules! ensure {
    ($cond:expr, $kind:ident, $($text:tt)*) => {
        if !$cond {
            return Err($crate::error::Error::new(
                $crate::error::ErrorKind::$kind,
                format!($($text)*),
            ));
        }
    };
    ($cond:expr, $($text:tt)*) => {
        $crate::ensure!($cond, Runtime, $($text)*)
    };
}
