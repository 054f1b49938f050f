//! Storage cells and the values they hold.
//!
//! A cell stands behind a `c10::Storage`. It holds a value, or nothing yet. Writing replaces the
//! value; the old one lives on while pending steps read it. A value is pending (some step will
//! produce it) or ready (a device buffer `B`, itself perhaps still being computed).

use super::types::Ty;

pub type CellId = u64;
pub type ValueId = u32;

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum State<B> {
    /// Output `output` of the pending step `step`.
    Pending {
        step: u32,
        output: u16,
    },
    Ready(B),
}

#[derive(Debug)]
pub struct Value<B> {
    pub ty: Ty,
    pub state: State<B>,
    /// Cells that hold it: it must be there after a flush.
    pub holders: u32,
    /// Reads by pending steps.
    pub uses: u32,
    /// Tells values apart that had the same id at different times.
    serial: u64,
    /// The value that replaced this one in its cell, with its serial.
    successor: Option<(ValueId, u64)>,
    /// Scratch of whoever numbers the values of a trace.
    pub mark: u32,
    /// While a part of the trace is cut: the rest reads it.
    pub awaited: bool,
}

#[derive(Debug)]
pub struct Cell {
    pub value: Option<ValueId>,
    pub nbytes: u64,
    /// Unique, never dereferenced: what `data_ptr` shows.
    pub address: u64,
}

/// A vector with reusable places.
#[derive(Debug)]
struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(i) => {
                self.items[i as usize] = Some(item);
                i
            }
            None => {
                self.items.push(Some(item));
                self.items.len() as u32 - 1
            }
        }
    }

    fn get(&self, i: u32) -> Option<&T> {
        self.items.get(i as usize)?.as_ref()
    }

    fn get_mut(&mut self, i: u32) -> Option<&mut T> {
        self.items.get_mut(i as usize)?.as_mut()
    }

    fn remove(&mut self, i: u32) -> Option<T> {
        let item = self.items.get_mut(i as usize)?.take();
        if item.is_some() {
            self.free.push(i);
        }
        item
    }

    fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

#[derive(Debug)]
pub struct Store<B> {
    cells: Slab<Cell>,
    values: Slab<Value<B>>,
    next_address: u64,
    next_serial: u64,
}

impl<B> Default for Store<B> {
    fn default() -> Store<B> {
        // Canonical but never mapped on the platforms PyTorch runs on; a multiple of 512, as
        // device allocators give.
        Store {
            cells: Slab::default(),
            values: Slab::default(),
            next_address: 0x10_0000_0000,
            next_serial: 0,
        }
    }
}

impl<B> Store<B> {
    /// A new cell of `nbytes` that holds nothing.
    pub fn new_cell(&mut self, nbytes: u64) -> (CellId, u64) {
        let address = self.next_address;
        self.next_address += nbytes.div_ceil(512).max(1) * 512;
        let cell = Cell { value: None, nbytes, address };
        (u64::from(self.cells.insert(cell)) + 1, address)
    }

    pub fn cell(&self, id: CellId) -> Option<&Cell> {
        self.cells.get(id.checked_sub(1)? as u32)
    }

    /// The cell whose bytes contain `address`, and where it starts. Looks at every cell.
    pub fn cell_at(&self, address: u64) -> Option<(CellId, u64)> {
        let cells = self.cells.items.iter().enumerate();
        cells.filter_map(|(i, cell)| Some((i, cell.as_ref()?))).find_map(|(i, cell)| {
            let end = cell.address + cell.nbytes.max(1);
            (cell.address..end).contains(&address).then_some((i as u64 + 1, cell.address))
        })
    }

    pub fn resize_cell(&mut self, id: CellId, nbytes: u64) {
        if let Some(cell) = self.cells.get_mut((id - 1) as u32) {
            cell.nbytes = nbytes;
        }
    }

    /// Frees a cell and what only it held. Unknown cells are ignored.
    pub fn free_cell(&mut self, id: CellId) {
        let Some(index) = id.checked_sub(1) else { return };
        if let Some(cell) = self.cells.remove(index as u32)
            && let Some(value) = cell.value
        {
            self.release(value);
        }
    }

    /// Makes `value` what the cell holds.
    pub fn hold(&mut self, id: CellId, value: ValueId) {
        let held = self.value_mut(value);
        held.holders += 1;
        let serial = held.serial;
        let Some(cell) = self.cells.get_mut((id - 1) as u32) else { return };
        if let Some(old) = cell.value.replace(value) {
            self.value_mut(old).successor = Some((value, serial));
            self.release(old);
        }
    }

    /// A value that nothing holds yet.
    pub fn new_value(&mut self, ty: Ty, state: State<B>) -> ValueId {
        self.next_serial += 1;
        let serial = self.next_serial;
        let (successor, mark, awaited) = (None, 0, false);
        self.values.insert(Value {
            ty,
            state,
            holders: 0,
            uses: 0,
            serial,
            successor,
            mark,
            awaited,
        })
    }

    /// The value that replaced this one in its cell, if it still exists.
    pub fn successor(&self, id: ValueId) -> Option<ValueId> {
        let (next, serial) = self.value(id).successor?;
        self.values.get(next).is_some_and(|v| v.serial == serial).then_some(next)
    }

    pub fn value(&self, id: ValueId) -> &Value<B> {
        self.values.get(id).expect("a value that is held or used exists")
    }

    pub fn value_mut(&mut self, id: ValueId) -> &mut Value<B> {
        self.values.get_mut(id).expect("a value that is held or used exists")
    }

    fn release(&mut self, id: ValueId) {
        let value = self.value_mut(id);
        value.holders -= 1;
        // A pending value may still be an intermediate; its flush removes it.
        if value.holders == 0 && value.uses == 0 && matches!(value.state, State::Ready(_)) {
            self.values.remove(id);
        }
    }

    /// A pending read of a value was done; removes the value if it was the last and nothing holds
    /// it.
    pub fn was_read(&mut self, id: ValueId) {
        self.value_mut(id).uses -= 1;
        self.settle(id);
    }

    /// Removes a value that nothing holds and nobody will read.
    pub fn settle(&mut self, id: ValueId) {
        if self.values.get(id).is_some_and(|v| v.holders == 0 && v.uses == 0) {
            self.values.remove(id);
        }
    }

    pub fn live_cells(&self) -> usize {
        self.cells.len()
    }

    pub fn live_values(&self) -> usize {
        self.values.len()
    }
}
