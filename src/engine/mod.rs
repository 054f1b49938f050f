//! The engine: the stages joined, behind one lock for recording and one thread for execution.
//!
//! Recording threads take the lock, append steps and, when the policy says so, flush: the trace
//! is cut, its program found or built, and a [`executor::Call`] sent to the executor thread.
//! Compilation happens on a pool beside it, in parallel for independent programs. Values become
//! [`Slot`]s, promises of buffers; a failure travels along them to whoever reads.

mod compile;
mod executor;
mod flush;
mod host;
mod promise;
mod regions;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};
use crate::observe::stats::{Location, Times};
use crate::observe::{Ledger, Locations, Stats};
use crate::ops::{Arg, OpId, registry};
use crate::pjrt;
use crate::policy::{Limits, Mode, Policy, Reason};
use crate::trace::template::Sizing;
use crate::trace::{CellId, Recorded, Recorder, Template, Ty};

use executor::Executor;
pub use executor::Slot;
use regions::Regions;

/// What recording works on.
struct Core {
    recorder: Recorder<Arc<Slot>>,
    regions: Regions,
    stats: Stats,
    policy: Policy,
}

/// Where to look for a plugin, as the Python package knows it.
#[derive(Clone, Debug, Default)]
pub struct PluginPaths {
    pub default: Option<String>,
    pub libtpu: Option<String>,
}

pub struct Engine {
    core: Mutex<Core>,
    executor: OnceLock<Result<Executor>>,
    mode: AtomicU8,
    forked: AtomicBool,
    ledger: Arc<Ledger>,
    times: Arc<Times>,
    locations: Mutex<Locations>,
    fallbacks: Mutex<BTreeMap<String, u64>>,
    plugin_paths: Mutex<PluginPaths>,
}

/// What a recorded call gave the shim.
pub enum Call {
    /// The template tells the returns; each fresh one has a cell and an address.
    Done(Arc<Template>, SmallVec<[(CellId, u64); 2]>),
    /// `out=` tensors need these shapes first, in order of return.
    Resize(SmallVec<[Ty; 2]>),
}

/// What to do about an op that isn't native.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    Warn,
    Silent,
    Refuse,
}

impl Engine {
    /// The process's engine. The device is opened on first use.
    pub fn global() -> &'static Engine {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        ENGINE.get_or_init(Engine::new)
    }

    fn new() -> Engine {
        Engine {
            core: Mutex::new(Core {
                recorder: Recorder::default(),
                regions: Regions::default(),
                stats: Stats::default(),
                policy: Policy::new(Limits::from_env()),
            }),
            executor: OnceLock::new(),
            mode: AtomicU8::new(Mode::default() as u8),
            forked: AtomicBool::new(false),
            ledger: Arc::default(),
            times: Arc::default(),
            locations: Mutex::default(),
            fallbacks: Mutex::default(),
            plugin_paths: Mutex::default(),
        }
    }

    /// A panic while recording is reported to its caller; the state it left is still a trace.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn set_plugin_paths(&self, paths: PluginPaths) {
        *self.plugin_paths.lock().unwrap_or_else(|e| e.into_inner()) = paths;
    }

    /// The executor, opened by the first who asks.
    ///
    /// Errors: no plugin, not a plugin, a device that can't be opened; the same one each time.
    fn executor(&self) -> Result<&Executor> {
        self.check_fork()?;
        self.executor
            .get_or_init(|| {
                let paths = self.plugin_paths.lock().unwrap_or_else(|e| e.into_inner()).clone();
                Executor::open(&paths, self.ledger.clone(), self.times.clone())
            })
            .as_ref()
            .map_err(Error::clone)
    }

    /// Whether the device was opened.
    pub fn is_open(&self) -> bool {
        self.executor.get().is_some()
    }

    /// The PJRT client, opened now if it wasn't.
    pub fn client(&self) -> Result<&pjrt::Client> {
        Ok(self.executor()?.client())
    }

    pub fn mode(&self) -> Mode {
        Mode::ALL[self.mode.load(Relaxed) as usize]
    }

    /// Changes the mode. What is pending is flushed by the next op, or read, under the new one.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Relaxed);
    }

    /// Every call in a child of a fork fails from now on: the device's threads are gone.
    pub fn after_fork(&self) {
        self.forked.store(true, Relaxed);
    }

    /// Errors: this process was forked from one that used the device.
    pub fn check_fork(&self) -> Result<()> {
        if !self.is_forked() {
            return Ok(());
        }
        Err(Error::runtime(
            "Cannot re-initialize tpu in a forked subprocess. To use tpu with multiprocessing, \
             use the 'spawn' start method.",
        ))
    }

    pub fn is_forked(&self) -> bool {
        self.forked.load(Relaxed)
    }

    /// Records one call, and flushes if the policy says so.
    ///
    /// Errors: what is wrong with the arguments, and in Debug mode what went wrong running it.
    pub fn record(&self, op: OpId, args: &[Arg<'_>], location: u32) -> Result<Call> {
        let executor = self.executor()?;
        let mut core = self.lock();
        let core = &mut *core;
        let sized = registry().get(op).count.is_some();
        let sizing =
            if sized { self.size(core, executor, op, args, location)? } else { Sizing::None };
        core.stats.ops_recorded += 1;
        let recorded = core
            .recorder
            .record(op, args, sizing, location)
            .map_err(|e| self.at_location(e, location))?;
        let (template, fresh) = match recorded {
            Recorded::Step(template, fresh) => (template, fresh),
            Recorded::Resize(types) => {
                core.stats.ops_recorded -= 1;
                return Ok(Call::Resize(types));
            }
            Recorded::NoCount => return Err(Error::runtime("the op's size is not its result")),
        };
        let mode = self.mode();
        let Recorder { trace, store, .. } = &core.recorder;
        if let Some((reason, lengths)) = core.policy.after_step(mode, trace, store) {
            let mut flushed = 0;
            for length in lengths {
                self.flush_prefix(core, executor, reason, length - flushed);
                flushed = length;
            }
            if mode == Mode::Debug
                && let Err(e) = executor.drain()
            {
                for (cell, _) in fresh {
                    core.recorder.store.free_cell(cell);
                }
                return Err(e);
            }
        }
        Ok(Call::Done(template, fresh))
    }

    /// The size that an op's result depends on, read from the device.
    fn size(
        &self,
        core: &mut Core,
        executor: &Executor,
        op: OpId,
        args: &[Arg<'_>],
        location: u32,
    ) -> Result<Sizing> {
        let asked = core
            .recorder
            .record(op, args, Sizing::Ask, location)
            .map_err(|e| self.at_location(e, location))?;
        let Recorded::Step(_, fresh) = asked else { return Ok(Sizing::None) };
        let (cell, _) = fresh[0];
        self.flush_core(core, executor, Reason::ResultSize);
        let mut bytes = [0u8; 8];
        let read = self.read_cell(core, cell, &mut bytes);
        core.recorder.store.free_cell(cell);
        read?;
        Ok(Sizing::Known(i64::from_le_bytes(bytes)))
    }

    fn at_location(&self, e: Error, location: u32) -> Error {
        match self.location(location) {
            Some(at) => e.context(format!("recorded at {at}")),
            None => e,
        }
    }

    /// Interns a source line; callers keep the number, lines are not compared.
    pub fn add_location(&self, file: &str, line: u32, function: &str) -> u32 {
        let location = Location { file: file.to_owned(), line, function: function.to_owned() };
        self.locations.lock().unwrap_or_else(|e| e.into_inner()).add(location)
    }

    pub fn location(&self, id: u32) -> Option<Location> {
        self.locations.lock().unwrap_or_else(|e| e.into_inner()).get(id).cloned()
    }

    /// Notes that an op runs on the CPU instead.
    pub fn note_fallback(&self, op: &str) -> Fallback {
        if std::env::var("TORCHTPU_FALLBACK").is_ok_and(|v| v == "error") {
            return Fallback::Refuse;
        }
        let mut fallbacks = self.fallbacks.lock().unwrap_or_else(|e| e.into_inner());
        match fallbacks.get_mut(op) {
            Some(n) => {
                *n += 1;
                Fallback::Silent
            }
            None => {
                fallbacks.insert(op.to_owned(), 1);
                Fallback::Warn
            }
        }
    }

    pub fn fallbacks(&self) -> BTreeMap<String, u64> {
        self.fallbacks.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    pub fn stats(&self) -> Stats {
        let core = self.lock();
        Stats { templates: core.recorder.templates.len() as u64, ..core.stats.clone() }
    }

    pub fn reset_stats(&self) {
        self.lock().stats = Stats::default();
        self.times.reset();
    }

    /// Where compiled programs are kept for later processes; `None` if they aren't, or the device
    /// wasn't opened yet.
    pub fn cache_folder(&self) -> Option<&std::path::Path> {
        self.executor.get()?.as_ref().ok()?.compiler().folder()
    }

    /// Waits for what is being written to the disk cache: before the process ends.
    pub fn finish_writing(&self) {
        if let Some(Ok(executor)) = self.executor.get()
            && !self.is_forked()
        {
            executor.compiler().finish_writing();
        }
    }

    pub fn times(&self) -> &Times {
        &self.times
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// The error of a device that failed, with the plugin's own words.
fn device_error(e: &pjrt::Error, what: &str) -> Error {
    let kind = if e.is_out_of_memory() { ErrorKind::OutOfMemory } else { ErrorKind::Runtime };
    Error::new(kind, format!("{what}: {e}"))
}
