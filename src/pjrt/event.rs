//! Events: work that the plugin has accepted but may not have finished.

use std::sync::Arc;

use super::abi::{SizedStruct, call};
use super::client::ClientHandle;
use super::error::Result;
use super::sys;

/// The completion of asynchronous work. Dropping it does not cancel the work.
pub struct Event {
    // An event must not outlive the client that runs its work.
    client: Arc<ClientHandle>,
    raw: *mut sys::PJRT_Event,
}

// SAFETY: PJRT events may be polled, awaited and destroyed from any thread. We own this one.
unsafe impl Send for Event {}
// SAFETY: as above; polling and awaiting do not need exclusive access.
unsafe impl Sync for Event {}

impl Event {
    /// # Safety
    /// `raw` must be an event of this client that the caller owns. Null stands for work that was
    /// finished at once.
    pub(super) unsafe fn from_raw(client: Arc<ClientHandle>, raw: *mut sys::PJRT_Event) -> Self {
        Self { client, raw }
    }

    /// Whether the work has finished, well or badly.
    ///
    /// # Errors
    /// The plugin cannot tell.
    pub fn is_ready(&self) -> Result<bool> {
        if self.raw.is_null() {
            return Ok(true);
        }
        let mut args = sys::PJRT_Event_IsReady_Args { event: self.raw, ..SizedStruct::sized() };
        // SAFETY: the event is alive.
        unsafe { call!(self.client.plugin, PJRT_Event_IsReady, &mut args) }?;
        Ok(args.is_ready)
    }

    /// Blocks until the work has finished.
    ///
    /// # Errors
    /// The work failed: the error of the work itself.
    pub fn wait(&self) -> Result<()> {
        if self.raw.is_null() {
            return Ok(());
        }
        let mut args = sys::PJRT_Event_Await_Args { event: self.raw, ..SizedStruct::sized() };
        // SAFETY: the event is alive.
        unsafe { call!(self.client.plugin, PJRT_Event_Await, &mut args) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let mut args = sys::PJRT_Event_Destroy_Args { event: self.raw, ..SizedStruct::sized() };
        // SAFETY: we own the event and this is its last use.
        if let Err(error) = unsafe { call!(self.client.plugin, PJRT_Event_Destroy, &mut args) } {
            tracing::warn!(%error, "could not destroy a PJRT event");
        }
    }
}
