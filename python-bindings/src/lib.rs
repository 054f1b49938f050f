//! The extension module `deferandfuse._core`: the engine, the dispatcher shim (C++, see `shim/`)
//! and what the Python package asks them.

mod abi;

use defer_and_fuse::engine::{Engine, PluginPaths};
use defer_and_fuse::error::{Error, ErrorKind};
use defer_and_fuse::policy::{Mode, Reason};
use pyo3::exceptions::{
    PyIndexError, PyMemoryError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn to_py(e: Error) -> PyErr {
    match e.kind {
        ErrorKind::Runtime => PyRuntimeError::new_err(e.message),
        ErrorKind::Index => PyIndexError::new_err(e.message),
        ErrorKind::Type => PyTypeError::new_err(e.message),
        ErrorKind::Value => PyValueError::new_err(e.message),
        ErrorKind::NotImplemented => PyNotImplementedError::new_err(e.message),
        ErrorKind::OutOfMemory => Python::attach(|py| out_of_memory(py, e.message)),
    }
}

/// `torch.OutOfMemoryError`, as ops raise it.
fn out_of_memory(py: Python<'_>, message: String) -> PyErr {
    let raised = py.import("torch").and_then(|torch| torch.getattr("OutOfMemoryError"));
    match raised.and_then(|class| class.call1((message.as_str(),))) {
        Ok(error) => PyErr::from_value(error),
        Err(_) => PyMemoryError::new_err(message),
    }
}

unsafe extern "C" {
    fn df_shim_init() -> i32;
}

#[pymodule]
mod _core {
    use super::*;

    /// Registers the device with PyTorch's dispatcher. Once a process.
    #[pyfunction]
    fn init_shim(py: Python<'_>) -> PyResult<()> {
        // SAFETY: torch is loaded, since the Python package imports it before this module.
        match unsafe { df_shim_init() } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(py)),
        }
    }

    /// Where to look for a PJRT plugin, if `TORCHTPU_PJRT_PLUGIN` doesn't say.
    #[pyfunction]
    #[pyo3(signature = (default, libtpu=None))]
    fn set_plugin_paths(default: Option<String>, libtpu: Option<String>) {
        Engine::global().set_plugin_paths(PluginPaths { default, libtpu });
    }

    #[pyfunction]
    fn mode() -> &'static str {
        Engine::global().mode().name()
    }

    #[pyfunction]
    fn set_mode(mode: &str) -> PyResult<()> {
        let mode: Mode = mode.parse().map_err(PyValueError::new_err)?;
        Engine::global().set_mode(mode);
        Ok(())
    }

    /// Counters and times (seconds) since the start or the last reset.
    #[pyfunction]
    fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let engine = Engine::global();
        let stats = py.detach(|| engine.stats());
        let flushes = PyDict::new(py);
        for (reason, count) in &stats.flushes {
            flushes.set_item(reason.to_string(), count)?;
        }
        let (times, relaxed) = (engine.times(), std::sync::atomic::Ordering::Relaxed);
        let seconds = |n: &std::sync::atomic::AtomicU64| n.load(relaxed) as f64 / 1e9;
        let out = PyDict::new(py);
        out.set_item("mode", engine.mode().name())?;
        out.set_item("ops_recorded", stats.ops_recorded)?;
        out.set_item("ops_dead", stats.ops_dead)?;
        out.set_item("templates", stats.templates)?;
        out.set_item("flushes", flushes)?;
        out.set_item("regions_compiled", stats.regions_compiled)?;
        out.set_item("recompiled_for_number", stats.recompiled_for_number)?;
        out.set_item("cache_hits", stats.cache_hits)?;
        out.set_item("digest", format!("{:016x}", stats.digest))?;
        out.set_item("executions", times.executions.load(relaxed))?;
        out.set_item("optimise_seconds", seconds(&times.optimise))?;
        out.set_item("compile_seconds", seconds(&times.compile))?;
        out.set_item("execute_seconds", seconds(&times.execute))?;
        let disk = PyDict::new(py);
        let folder = engine.cache_folder().map(|path| path.display().to_string());
        disk.set_item("folder", folder)?;
        for (name, count) in [
            ("hits", &times.disk.hits),
            ("misses", &times.disk.misses),
            ("rejected", &times.disk.rejected),
            ("unserialisable", &times.disk.unserialisable),
            ("bytes_read", &times.disk.bytes_read),
            ("bytes_written", &times.disk.bytes_written),
        ] {
            disk.set_item(name, count.load(relaxed))?;
        }
        disk.set_item("seconds", seconds(&times.load))?;
        out.set_item("disk_cache", disk)?;
        Ok(out)
    }

    /// Waits for what is being written to the disk cache.
    #[pyfunction]
    fn finish_writing(py: Python<'_>) {
        py.detach(|| Engine::global().finish_writing());
    }

    #[pyfunction]
    fn reset_stats() {
        Engine::global().reset_stats();
    }

    /// Calls that ran on the CPU, by op.
    #[pyfunction]
    fn fallbacks(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let out = PyDict::new(py);
        for (op, count) in Engine::global().fallbacks() {
            out.set_item(op, count)?;
        }
        Ok(out)
    }

    /// Names of the functional overloads that the engine defines.
    #[pyfunction]
    fn native_ops() -> Vec<&'static str> {
        defer_and_fuse::ops::registry().iter().map(|op| op.name).collect()
    }

    /// What the plugin tells of itself and its device. Opens the device.
    #[pyfunction]
    fn device_properties(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let client = py.detach(|| Engine::global().client()).map_err(to_py)?;
        let out = PyDict::new(py);
        out.set_item("plugin", client.plugin_path().display().to_string())?;
        out.set_item("platform", client.platform_name())?;
        out.set_item("platform_version", client.platform_version())?;
        out.set_item("pjrt_api_version", client.api_version().to_string())?;
        if let Some(device) = client.devices().first() {
            out.set_item("name", &device.kind)?;
            out.set_item("description", &device.description)?;
        }
        if let Ok(memory) = client.device_memory_stats() {
            out.set_item("bytes_limit", memory.bytes_limit)?;
        }
        Ok(out)
    }

    #[pyfunction]
    fn is_open() -> bool {
        Engine::global().is_open()
    }

    /// Bytes in live device buffers: now, at most, and at most with executables' temporaries.
    #[pyfunction]
    fn memory_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let ledger = Engine::global().ledger();
        let out = PyDict::new(py);
        out.set_item("current", ledger.current())?;
        out.set_item("peak", ledger.peak())?;
        out.set_item("peak_with_temporaries", ledger.peak_with_temporaries())?;
        out.set_item("allocations", ledger.allocations())?;
        Ok(out)
    }

    #[pyfunction]
    fn reset_peak_memory_stats() {
        Engine::global().ledger().reset_peak();
    }

    #[pyfunction]
    fn synchronize(py: Python<'_>) -> PyResult<()> {
        py.detach(|| Engine::global().synchronize()).map_err(to_py)
    }

    #[pyfunction]
    fn flush(py: Python<'_>) -> PyResult<()> {
        py.detach(|| Engine::global().flush(Reason::Explicit)).map_err(to_py)
    }
}
