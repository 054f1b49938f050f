//! A value that another thread will provide.

use std::sync::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};

#[derive(Debug)]
enum State<T> {
    Waiting,
    Here(T),
    Failed(Error),
    /// Given away, by donation.
    Gone,
}

/// Set once, by a value or an error; waited for by any number of threads.
#[derive(Debug)]
pub struct Promise<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Default for Promise<T> {
    fn default() -> Promise<T> {
        Promise { state: Mutex::new(State::Waiting), changed: Condvar::new() }
    }
}

impl<T> Promise<T> {
    pub fn kept(value: T) -> Promise<T> {
        Promise { state: Mutex::new(State::Here(value)), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn settle(&self, result: Result<T>) {
        *self.lock() = match result {
            Ok(value) => State::Here(value),
            Err(e) => State::Failed(e),
        };
        self.changed.notify_all();
    }

    pub fn is_settled(&self) -> bool {
        !matches!(*self.lock(), State::Waiting)
    }

    /// Waits, then looks at the value. The value cannot be taken meanwhile.
    ///
    /// Errors: what the promise failed with.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R> {
        let mut state = self.lock();
        loop {
            match &*state {
                State::Waiting => {
                    state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner());
                }
                State::Here(value) => return Ok(f(value)),
                State::Failed(e) => return Err(e.clone()),
                State::Gone => return Err(Error::runtime("the buffer was given to another value")),
            }
        }
    }

    /// Waits, then takes the value away.
    ///
    /// Errors: what the promise failed with.
    pub fn take(&self) -> Result<T> {
        self.with(|_| ())?;
        match std::mem::replace(&mut *self.lock(), State::Gone) {
            State::Here(value) => Ok(value),
            State::Failed(e) => Err(e),
            State::Waiting | State::Gone => {
                Err(Error::runtime("the buffer was given to another value"))
            }
        }
    }
}
