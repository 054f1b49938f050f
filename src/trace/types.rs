//! Interned tensor types: comparing two is comparing two addresses, and the sizes live as long as
//! the process, so the shim may keep pointers to them.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::ir::{DType, Shape, TensorType};

/// An interned tensor type.
#[derive(Clone, Copy)]
pub struct Ty(&'static Interned);

struct Interned {
    id: u32,
    ty: TensorType,
    sizes: Shape,
    bytes: u64,
}

impl Ty {
    pub fn id(self) -> u32 {
        self.0.id
    }

    pub fn dtype(self) -> DType {
        self.0.ty.dtype
    }

    pub fn sizes(self) -> &'static [i64] {
        &self.0.sizes
    }

    pub fn bytes(self) -> u64 {
        self.0.bytes
    }

    pub fn tensor_type(self) -> &'static TensorType {
        &self.0.ty
    }
}

impl PartialEq for Ty {
    fn eq(&self, other: &Ty) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Ty {}

impl std::fmt::Debug for Ty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0.ty, f)
    }
}

static TYPES: Mutex<Option<HashMap<TensorType, Ty>>> = Mutex::new(None);

/// The interned form of `ty`. Not for the hot path: templates keep theirs.
pub fn intern(ty: &TensorType) -> Ty {
    let mut types = TYPES.lock().unwrap_or_else(|e| e.into_inner());
    let types = types.get_or_insert_default();
    if let Some(&known) = types.get(ty) {
        return known;
    }
    let interned =
        Interned { id: types.len() as u32, ty: ty.clone(), sizes: ty.sizes(), bytes: ty.bytes() };
    // Leaked on purpose: bounded by the distinct types a process uses.
    let leaked = Ty(Box::leak(Box::new(interned)));
    types.insert(ty.clone(), leaked);
    leaked
}
