//! The executor thread: runs calls in the order in which they were flushed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use smallvec::SmallVec;

use super::compile::{Compiler, Pending};
use super::promise::Promise;
use super::{Engine, PluginPaths, device_error};
use crate::error::{Error, Result};
use crate::observe::Ledger;
use crate::observe::stats::Times;
use crate::pjrt;
use crate::trace::recorder::LocationId;

/// Calls that recording may be ahead of execution.
const QUEUE: usize = 256;

/// What made a value, for a person who reads that it failed.
pub struct Origin {
    /// Made into text only if something failed.
    pub about: Arc<dyn Fn() -> String + Send + Sync>,
    /// The source line of the last op.
    recorded_at: LocationId,
    /// Somebody has read that it failed.
    told: AtomicBool,
}

impl Origin {
    pub fn new(
        about: Arc<dyn Fn() -> String + Send + Sync>,
        recorded_at: LocationId,
    ) -> Arc<Origin> {
        Arc::new(Origin { about, recorded_at, told: AtomicBool::new(false) })
    }

    pub fn explain(&self, e: Error) -> Error {
        self.told.store(true, Relaxed);
        let e = e.context(format!("running {}", (self.about)()));
        match Engine::global().location(self.recorded_at) {
            Some(at) => e.context(format!("recorded at {at}")),
            None => e,
        }
    }
}

/// A device buffer, perhaps still in the making.
pub struct Slot {
    pub buffer: Promise<Arc<pjrt::Buffer>>,
    bytes: u64,
    /// The call that makes it; none for an upload. A call may fail after it was launched.
    origin: Option<Arc<Origin>>,
    /// Several values have this buffer, so it can't be donated.
    pub shared: AtomicBool,
    /// The buffer became another slot's, which accounts for it.
    donated: AtomicBool,
    ledger: Arc<Ledger>,
}

impl Slot {
    fn new(
        buffer: Promise<Arc<pjrt::Buffer>>,
        bytes: u64,
        origin: Option<Arc<Origin>>,
        ledger: Arc<Ledger>,
    ) -> Arc<Slot> {
        ledger.allocated(bytes);
        let (shared, donated) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Slot { buffer, bytes, origin, shared, donated, ledger })
    }

    /// Says in an error of this value what made it.
    pub fn explain(&self, e: Error) -> Error {
        match &self.origin {
            Some(origin) => origin.explain(e),
            None => e,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.donated.load(Relaxed) {
            self.ledger.freed(self.bytes);
        }
    }
}

/// One execution.
pub struct Call {
    pub program: Pending,
    pub inputs: SmallVec<[Arc<Slot>; 8]>,
    /// For each input: its buffer becomes an output's.
    pub donate: Arc<[bool]>,
    /// Numbers that stayed out of the program.
    pub floats: Vec<f64>,
    pub ints: Vec<i64>,
    pub outputs: SmallVec<[Arc<Slot>; 4]>,
    pub origin: Arc<Origin>,
}

/// The outputs of a call, and what it was.
type Launched = (SmallVec<[Arc<pjrt::Buffer>; 4]>, Option<Arc<Origin>>);

enum Job {
    Run(Box<Call>),
    /// Everything before this was handed to the device.
    Barrier(Sender<()>),
}

pub struct Executor {
    client: Arc<pjrt::Client>,
    queue: Sender<Job>,
    compiler: Arc<Compiler>,
    pool: rayon::ThreadPool,
    ledger: Arc<Ledger>,
    /// The first failure since somebody asked.
    failure: Arc<Mutex<Option<Error>>>,
    /// The last call: what "everything done" waits for.
    last: Arc<Mutex<Launched>>,
}

impl Executor {
    /// Opens the device and starts the executor thread.
    ///
    /// Errors: no plugin to be found, or one that doesn't load or open its device.
    pub fn open(paths: &PluginPaths, ledger: Arc<Ledger>, times: Arc<Times>) -> Result<Executor> {
        let candidates = pjrt::Candidates {
            default: paths.default.clone().map(Into::into),
            libtpu: paths.libtpu.clone().map(Into::into),
        };
        let open = |e: pjrt::Error| device_error(&e, "the tpu device can't be opened");
        let choice = pjrt::discover(&candidates).map_err(open)?;
        let plugin = pjrt::Plugin::load(choice.path).map_err(open)?;
        let client = Arc::new(pjrt::Client::new(plugin, &[]).map_err(open)?);
        let pool = rayon::ThreadPoolBuilder::new()
            .thread_name(|i| format!("compile-{i}"))
            // LLVM recurses deeply on large modules.
            .stack_size(64 << 20)
            .build()
            .map_err(|e| Error::runtime(format!("can't start compiler threads: {e}")))?;
        let (queue, jobs) = bounded(QUEUE);
        let executor = Executor {
            client: client.clone(),
            queue,
            compiler: Arc::new(Compiler::new(client.clone(), times.clone())),
            pool,
            ledger: ledger.clone(),
            failure: Arc::default(),
            last: Arc::default(),
        };
        let worker = Worker {
            client,
            ledger,
            times,
            failure: executor.failure.clone(),
            last: executor.last.clone(),
        };
        std::thread::Builder::new()
            .name("execute".to_owned())
            .spawn(move || worker.run(&jobs))
            .map_err(|e| Error::runtime(format!("can't start the executor thread: {e}")))?;
        Ok(executor)
    }

    pub fn client(&self) -> &pjrt::Client {
        &self.client
    }

    /// A buffer that the call of `origin` will fill.
    pub fn promise(&self, bytes: u64, origin: &Arc<Origin>) -> Arc<Slot> {
        Slot::new(Promise::default(), bytes, Some(origin.clone()), self.ledger.clone())
    }

    /// A buffer that a call will make of the one that `donor` gives up.
    pub fn heir(&self, donor: &Slot, origin: &Arc<Origin>) -> Arc<Slot> {
        // From here on the new slot accounts for the bytes.
        donor.donated.store(true, Relaxed);
        self.ledger.freed(donor.bytes);
        self.promise(donor.bytes, origin)
    }

    /// Copies dense row-major bytes to the device.
    pub fn upload(&self, dtype: pjrt::DType, dims: &[i64], bytes: &[u8]) -> Result<Arc<Slot>> {
        let buffer = self
            .client
            .upload(dtype, dims, bytes)
            .map_err(|e| device_error(&e, "copying a tensor to the device failed"))?;
        let ledger = self.ledger.clone();
        Ok(Slot::new(Promise::kept(Arc::new(buffer)), bytes.len() as u64, None, ledger))
    }

    /// Starts making a module's program on the pool, as [`Compiler::make`] says.
    pub fn compile(
        &self,
        small: bool,
        module: impl FnOnce() -> Result<String> + Send + 'static,
    ) -> Pending {
        let promise = Pending::default();
        let (compiler, result) = (self.compiler.clone(), promise.clone());
        self.pool.spawn(move || compiler.make(small, module, &result));
        promise
    }

    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    pub fn run(&self, call: Call) {
        // The thread ends only with the process.
        let _ = self.queue.send(Job::Run(Box::new(call)));
    }

    /// A failure was raised where its value was read: `drain` needn't tell of it again.
    pub fn was_read(&self, e: &Error) {
        let mut failure = self.failure.lock().unwrap_or_else(|e| e.into_inner());
        if failure.as_ref().is_some_and(|known| known.message == e.message) {
            *failure = None;
        }
    }

    /// Waits until everything sent so far is done on the device.
    ///
    /// Errors: the first failure since the last time somebody asked.
    pub fn drain(&self) -> Result<()> {
        let (done, wait) = bounded(1);
        let _ = self.queue.send(Job::Barrier(done));
        let _ = wait.recv();
        let (last, origin) =
            std::mem::take(&mut *self.last.lock().unwrap_or_else(|e| e.into_inner()));
        let mut outcome = Ok(());
        for buffer in &last {
            if let Err(e) = buffer.wait() {
                if origin.as_ref().is_some_and(|origin| origin.told.load(Relaxed)) {
                    continue;
                }
                let e = device_error(&e, "an execution failed");
                outcome = Err(origin.as_ref().map_or(e.clone(), |origin| origin.explain(e)));
            }
        }
        match self.failure.lock().unwrap_or_else(|e| e.into_inner()).take() {
            Some(e) => Err(e),
            None => outcome,
        }
    }
}

struct Worker {
    client: Arc<pjrt::Client>,
    ledger: Arc<Ledger>,
    times: Arc<Times>,
    failure: Arc<Mutex<Option<Error>>>,
    last: Arc<Mutex<Launched>>,
}

impl Worker {
    fn run(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Run(call) => self.call(*call),
                Job::Barrier(done) => {
                    let _ = done.send(());
                }
            }
        }
    }

    fn call(&self, call: Call) {
        match self.execute(&call) {
            Ok(buffers) => {
                let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
                last.0.clear();
                last.1 = Some(call.origin.clone());
                for (slot, buffer) in call.outputs.iter().zip(buffers) {
                    let buffer = Arc::new(buffer);
                    last.0.push(buffer.clone());
                    slot.buffer.settle(Ok(buffer));
                }
            }
            Err(e) => {
                // Before anybody can read it, and then take it back.
                let mut failure = self.failure.lock().unwrap_or_else(|e| e.into_inner());
                failure.get_or_insert(e.clone());
                drop(failure);
                for slot in &call.outputs {
                    slot.buffer.settle(Err(e.clone()));
                }
            }
        }
    }

    fn execute(&self, call: &Call) -> Result<Vec<pjrt::Buffer>> {
        // An operand that failed fails this call with the operand's own error.
        let mut buffers: SmallVec<[Arc<pjrt::Buffer>; 16]> = SmallVec::new();
        for (slot, donate) in call.inputs.iter().zip(call.donate.iter()) {
            if *donate {
                // `last` may still refer to it.
                self.last.lock().unwrap_or_else(|e| e.into_inner()).0.clear();
                buffers.push(slot.buffer.take()?);
            } else {
                buffers.push(slot.buffer.with(Arc::clone)?);
            }
        }
        self.launch(call, buffers).map_err(|e| call.origin.explain(e))
    }

    fn launch(
        &self,
        call: &Call,
        mut buffers: SmallVec<[Arc<pjrt::Buffer>; 16]>,
    ) -> Result<Vec<pjrt::Buffer>> {
        let compiled = call.program.with(Arc::clone)?;
        let failed = |e: pjrt::Error| device_error(&e, "the execution failed");
        let mut donate: SmallVec<[bool; 16]> = SmallVec::from_slice(&call.donate);
        if !call.floats.is_empty() {
            let bytes: Vec<u8> = call.floats.iter().flat_map(|x| x.to_le_bytes()).collect();
            let dims = [call.floats.len() as i64];
            let packed = self.client.upload(pjrt::DType::F64, &dims, &bytes).map_err(failed)?;
            buffers.push(Arc::new(packed));
            donate.push(false);
        }
        if !call.ints.is_empty() {
            let bytes: Vec<u8> = call.ints.iter().flat_map(|x| x.to_le_bytes()).collect();
            let dims = [call.ints.len() as i64];
            let packed = self.client.upload(pjrt::DType::S64, &dims, &bytes).map_err(failed)?;
            buffers.push(Arc::new(packed));
            donate.push(false);
        }
        let start = Instant::now();
        let outputs = compiled.executable.execute(&buffers, &donate).map_err(failed)?;
        self.times.executed(start.elapsed());
        self.ledger.ran(compiled.temporaries);
        Ok(outputs)
    }
}
