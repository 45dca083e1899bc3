//! Loaders: threads that sample and gather ahead of Python.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use morphgl_execute::{Pool, PoolSettings, Stop};
use morphgl_graph_store::{Dataset, Load, OpenOptions};
use morphgl_registry::{
    At, Batching, BatchingContext, Error, Key, PairSettings, Place, Registry, SamplerSettings, Sampling, SeedSet,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::array::borrowed;
use crate::batch::{Batch, Form, Spares};
use crate::buffer::{Buffer, Kind};
use crate::edges::EdgeIds;
use crate::graph::Graph;

/// How often a wait for a mini-batch looks for Ctrl-C.
pub(crate) const SIGNALS: Duration = Duration::from_millis(50);

/// The order of an epoch of `count` pairs that is shuffled: their indices, of which each mini-batch has the next ones. O(count) time.
#[pyfunction]
pub(crate) fn epoch_order(py: Python<'_>, seed: u64, epoch: u32, count: u32) -> Buffer {
    let order = py.detach(|| {
        let mut order: Vec<u32> = (0..count).collect();
        morphgl_sampler_core::permute(seed, epoch, &mut order);
        Arc::new(order)
    });
    // SAFETY: the owner keeps the elements, which nothing else has.
    unsafe {
        Buffer::new(bytemuck::cast_slice(&order), vec![order.len()], Kind::U32, false, Arc::<Vec<u32>>::clone(&order))
    }
}

/// Makes the mini-batches of epochs. Its threads live as long as an epoch is iterated over.
#[pyclass(frozen, module = "morphgl._morphgl")]
pub(crate) struct Loader {
    dataset: Arc<Dataset>,
    key: Key,
    batching: Box<dyn Batching>,
    settings: PoolSettings,
    form: Form,
    edges: Option<Arc<EdgeIds>>,
    /// The workers, between two epochs.
    pool: Arc<Mutex<Option<Pool>>>,
    spares: Arc<Spares>,
    /// The process that threads and locks belong to.
    process: u32,
}

#[pymethods]
impl Loader {
    /// `seeds` are nodes, or pairs `[pairs, 2]` where `pairs` has `PairSettings` as JSON; `given` are destinations of negatives, as many
    /// of each pair. `settings` are `SamplerSettings` as JSON; `form` is `edges` or `blocks`; `prefetch` mini-batches wait for the caller; with
    /// `edge_ids` they number their edges, by `edge_order` where there is one. `disk`, the options of an operator as JSON, leaves the
    /// graph's directory on disk.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the arguments of one call from Python")]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        seeds: &Bound<'_, PyAny>,
        pairs: Option<&str>,
        given: Option<&Bound<'_, PyAny>>,
        settings: &str,
        form: &str,
        gather: bool,
        threads: usize,
        prefetch: usize,
        edge_ids: bool,
        edge_order: Option<&Bound<'_, PyAny>>,
        disk: Option<&str>,
    ) -> PyResult<Self> {
        let (dataset, options) = match disk {
            None => (Arc::clone(&graph.0), serde_json::Value::Null),
            Some(options) => {
                let open = OpenOptions { load: Load::Disk, verify: false };
                let opened = py.detach(|| Dataset::load(graph.0.path.clone(), open)).map_err(invalid)?;
                (Arc::new(opened), serde_json::from_str(options).map_err(invalid)?)
            }
        };
        let what = if pairs.is_some() { "edge_label_index" } else { "input_nodes" };
        let seeds = borrowed::<u32>(what, seeds)?;
        let given = given.map(|given| borrowed::<u32>("negatives", given)).transpose()?;
        let pairs: Option<PairSettings> = pairs.map(serde_json::from_str).transpose().map_err(invalid)?;
        let settings: SamplerSettings = serde_json::from_str(settings).map_err(invalid)?;
        let kind = settings.sampling.kind().to_string();
        let form = match (form, &settings.sampling) {
            ("blocks", _) => Form::Blocks,
            (_, Sampling::Shadow(_)) => Form::Induced,
            _ => Form::Edges,
        };
        let num_nodes = dataset.num_nodes();
        let order = edge_order.map(|order| borrowed::<u32>("edge order", order)).transpose()?;
        let edges = edge_ids.then(|| Arc::new(py.detach(|| EdgeIds::new(&dataset.topology, order))));
        let built = py.detach(|| {
            let seeds = match pairs {
                Some(settings) => {
                    let (pairs, given) = (bytemuck::cast_slice(&seeds), given.as_deref().unwrap_or_default());
                    SeedSet::of_pairs_against(what, pairs, given, num_nodes, settings)?
                }
                None => SeedSet::new(what, &seeds, num_nodes)?,
            };
            let registry = Registry::collect()?;
            let status = registry.status();
            let found = status.iter().find(|s| {
                let from = if disk.is_some() { At::Disk } else { At::Host };
                let samples = s.description.reads == from && s.description.samples(&kind, None);
                samples && s.availability.is_ok()
            });
            let key = found.map(|s| s.description.key.clone()).ok_or_else(|| {
                let cure = match disk {
                    Some(_) => "does not read from disk; leave memory and cache out, or sample by neighbor",
                    None => "has no interchangeable operator in host memory; load by another sampler",
                };
                Error::setting("sampler", format!("{kind} {cure}"))
            })?;
            let place = Place::Host;
            let context = BatchingContext { dataset: Arc::clone(&dataset), seeds, settings, gather, place, options };
            registry.batching(&key, &context).map(|batching| (key, batching))
        });
        let (key, batching) = built.map_err(invalid)?;
        let settings = PoolSettings { workers: threads.max(1), threads_per_worker: 1, queue: prefetch };
        let pool = Arc::new(Mutex::new(Some(Pool::new(&key, batching.as_ref(), settings).map_err(invalid)?)));
        // Python may hold a mini-batch or two besides those of the window.
        let spares = Spares::new(settings.window() + 4);
        Ok(Self { dataset, key, batching, settings, form, edges, pool, spares, process: std::process::id() })
    }

    /// Number of mini-batches per epoch.
    #[getter]
    fn num_batches(&self) -> usize {
        self.batching.num_batches()
    }

    /// The operator that samples.
    #[getter]
    fn operator(&self) -> String {
        self.key.to_string()
    }

    /// Starts the threads of an epoch, of which the first `count` mini-batches are made.
    fn epoch(&self, epoch: u32, count: u32) -> PyResult<Epoch> {
        if std::process::id() != self.process {
            let what = "this loader was made before the process forked, and its threads stayed behind; make it in the new process";
            return Err(PyRuntimeError::new_err(what));
        }
        let kept = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A second epoch at the same time has workers of its own.
        let pool = match kept {
            Some(pool) => pool,
            None => Pool::new(&self.key, self.batching.as_ref(), self.settings).map_err(invalid)?,
        };
        let (send, batches) = bounded(1);
        let stop = Stop::new();
        let producer = Producer {
            epoch,
            count,
            dataset: Arc::clone(&self.dataset),
            form: self.form,
            edges: self.edges.clone(),
            spares: Arc::clone(&self.spares),
            stop: stop.clone(),
            send,
        };
        let home = Arc::clone(&self.pool);
        let run = move || {
            let mut pool = pool;
            producer.run(&mut pool);
            *home.lock().unwrap_or_else(PoisonError::into_inner) = Some(pool);
        };
        let thread = thread::Builder::new().name("morphgl-loader".to_string()).spawn(run);
        let thread = thread.map_err(|e| PyRuntimeError::new_err(format!("no thread for the loader: {e}")))?;
        Ok(Epoch { batches: Some(batches), stop, thread: Mutex::new(Some(thread)) })
    }
}

fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What the thread of an epoch needs.
struct Producer {
    epoch: u32,
    count: u32,
    dataset: Arc<Dataset>,
    form: Form,
    edges: Option<Arc<EdgeIds>>,
    spares: Arc<Spares>,
    stop: Stop,
    send: Sender<Result<Batch, String>>,
}

impl Producer {
    /// Sends mini-batches until the last, the first failure, or nobody receives them any more.
    fn run(self, pool: &mut Pool) {
        let mut loader = match pool.load(self.epoch, 0..self.count, &self.stop) {
            Ok(loader) => loader,
            Err(error) => {
                let _ = self.send.send(Err(error.to_string()));
                return;
            }
        };
        loop {
            let (mut arrays, recycled) = self.spares.take();
            if let Some(batch) = recycled {
                loader.recycle(batch);
            }
            let next = loader.next();
            let Some(next) = next else { return };
            let made = next.map_err(|error| error.to_string()).map(|batch| {
                let host = batch.into_host().expect("operators of the host make mini-batches there");
                arrays.fill(host, self.form, &self.dataset, self.edges.as_deref());
                arrays.lend(self.form, &self.spares)
            });
            let failed = made.is_err();
            if self.send.send(made).is_err() || failed {
                return;
            }
        }
    }
}

/// An iterator over the mini-batches of an epoch, in order. Its threads end with it.
#[pyclass(module = "morphgl._morphgl")]
pub(crate) struct Epoch {
    /// `None` once it has ended.
    batches: Option<Receiver<Result<Batch, String>>>,
    stop: Stop,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Epoch {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next mini-batch. The interpreter's lock is released while it waits.
    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            let Some(batches) = &self.batches else { return Ok(None) };
            match py.detach(|| batches.recv_timeout(SIGNALS)) {
                Ok(Ok(batch)) => return Ok(Some(batch)),
                Ok(Err(error)) => {
                    py.detach(|| self.close());
                    return Err(PyRuntimeError::new_err(error));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    py.detach(|| self.close());
                    return Ok(None);
                }
                // Ctrl-C ends the epoch.
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(interrupted) = py.check_signals() {
                        py.detach(|| self.close());
                        return Err(interrupted);
                    }
                }
            }
        }
    }

    /// Ends the threads, after the mini-batches that they are at, and waits for them.
    fn close(&mut self) {
        self.stop.request();
        self.batches = None;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of an operator was caught and sent; another one was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.close();
    }
}
