//! Loaders: threads that sample and gather ahead of Python.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use morphgl_execute::{Pool, PoolSettings, Stop};
use morphgl_graph_store::{Dataset, Load, OpenOptions};
use morphgl_registry::{Batching, Key, Place, SamplerSettings, Sampling};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::array::borrowed;
use crate::batch::{Batch, Form, Spares};
use crate::buffer::{Buffer, Kind};
use crate::device::{self, Arrivals, Candidates, Timed, ToDevice, Wish};
use crate::device_batch::DeviceBatch;
use crate::edges::EdgeIds;
use crate::graph::Graph;
use crate::operator::{Builder, Request};

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
    parts: Parts,
    batching: Box<dyn Batching>,
    /// The workers, between two epochs.
    pool: Arc<Mutex<Option<Pool>>>,
    /// The process that threads and locks belong to.
    process: u32,
}

/// What loaders share that differ by their seeds alone.
#[derive(Clone)]
struct Parts {
    builder: Arc<Builder>,
    settings: PoolSettings,
    form: Form,
    edges: Option<Arc<EdgeIds>>,
    spares: Arc<Spares>,
    /// Where mini-batches go, and the deliveries that were timed; `None` for mini-batches of the host.
    to: Option<(Arc<ToDevice>, Arc<Vec<Timed>>)>,
}

#[pymethods]
impl Loader {
    /// `seeds` are nodes, or pairs `[pairs, 2]` where `pairs` has `PairSettings` as JSON; `given` are destinations of negatives, as many
    /// of each pair. `settings` are `SamplerSettings` as JSON; `form` is `edges` or `blocks`; `prefetch` mini-batches wait for the caller; with
    /// `edge_ids` they number their edges, by `edge_order` where there is one. `disk`, the options of an operator as JSON, leaves the
    /// graph's directory on disk. `device` is a place that mini-batches are delivered to, with the names of operators that are to be
    /// used, and the bytes that graph and features may take there.
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
        device: Option<(String, Vec<String>, Option<u64>)>,
    ) -> PyResult<Self> {
        let (dataset, disk) = match disk {
            None => (Arc::clone(&graph.0), None),
            Some(options) => {
                let open = OpenOptions { load: Load::Disk, verify: false };
                let opened = py.detach(|| Dataset::load(graph.0.path.clone(), open)).map_err(invalid)?;
                (Arc::new(opened), Some(serde_json::from_str(options).map_err(invalid)?))
            }
        };
        let pairs = pairs.map(serde_json::from_str).transpose().map_err(invalid)?;
        let settings: SamplerSettings = serde_json::from_str(settings).map_err(invalid)?;
        let form = match (form, &settings.sampling) {
            ("blocks", _) => Form::Blocks,
            (_, Sampling::Shadow(_)) => Form::Induced,
            _ => Form::Edges,
        };
        let order = edge_order.map(|order| borrowed::<u32>("edge order", order)).transpose()?;
        let edges = edge_ids.then(|| Arc::new(py.detach(|| EdgeIds::new(&dataset.topology, order))));
        let request = Request { dataset, pairs, settings, gather };
        let settings = PoolSettings { workers: threads.max(1), threads_per_worker: 1, queue: prefetch };
        let (builder, to, settings) = match device {
            None => (py.detach(|| Builder::on_host(request, disk)).map_err(invalid)?, None, settings),
            Some((place, operators, memory)) => {
                let place: Place = place.parse().map_err(invalid)?;
                let operators = operators.iter().map(|name| name.parse::<Key>());
                let operators = operators.collect::<std::result::Result<_, _>>().map_err(invalid)?;
                let wish = Wish { place, operators, memory };
                let seeds = borrowed::<u32>("seeds", seeds)?;
                let given = given.map(|given| borrowed::<u32>("negatives", given)).transpose()?;
                let fastest = py.detach(|| {
                    let seeds = (&*seeds, given.as_deref().unwrap_or_default());
                    Candidates::find(request, &wish)?.fastest(seeds, form.edge_list(), settings)
                });
                let (builder, to, timed) = fastest.map_err(invalid)?;
                let settings = device::pool_settings(&builder, settings);
                (builder, Some((Arc::new(to), Arc::new(timed))), settings)
            }
        };
        // Python may hold a mini-batch or two besides those of the window.
        let spares = Spares::new(settings.window() + 4);
        Self::of(py, Parts { builder: Arc::new(builder), settings, form, edges, spares, to }, seeds, given)
    }

    /// The same loader of other seeds, or pairs with other negatives, in place of those that it has.
    fn with_seeds(&self, py: Python<'_>, seeds: &Bound<'_, PyAny>, given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Self::of(py, self.parts.clone(), seeds, given)
    }

    /// Number of mini-batches per epoch.
    #[getter]
    fn num_batches(&self) -> usize {
        self.batching.num_batches()
    }

    /// The operator that samples.
    #[getter]
    fn operator(&self) -> String {
        self.parts.builder.key.to_string()
    }

    /// The operators that mini-batches come by.
    #[getter]
    fn operators(&self) -> Vec<String> {
        let transferring = self.parts.to.iter().map(|(to, _)| to.key.to_string());
        std::iter::once(self.operator()).chain(transferring).collect()
    }

    /// The deliveries to a device, with the seconds of a mini-batch by each, or why it cannot run: `(name, seconds, why)`. A delivery
    /// that is the only one has neither.
    #[getter]
    fn routes(&self) -> Vec<(String, Option<f64>, Option<String>)> {
        let timed = self.parts.to.iter().flat_map(|(_, timed)| timed.iter());
        let row = |(delivery, seconds): &Timed| match seconds {
            Ok(seconds) => (device::name(delivery), *seconds, None),
            Err(why) => (device::name(delivery), None, Some(why.clone())),
        };
        timed.map(row).collect()
    }

    /// Starts the threads of an epoch, of which the mini-batches from `first` up to `end` are made.
    fn epoch(&self, epoch: u32, first: u32, end: u32) -> PyResult<Epoch> {
        if std::process::id() != self.process {
            let what = "this loader was made before the process forked, and its threads stayed behind; make it in the new process";
            return Err(PyRuntimeError::new_err(what));
        }
        let kept = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A second epoch at the same time has workers of its own.
        let pool = match kept {
            Some(pool) => pool,
            None => Pool::new(&self.parts.builder.key, self.batching.as_ref(), self.parts.settings).map_err(invalid)?,
        };
        let (send, made) = bounded(1);
        let stop = Stop::new();
        let producer = Producer {
            epoch,
            batches: first..end,
            dataset: Arc::clone(&self.parts.builder.request.dataset),
            form: self.parts.form,
            edges: self.parts.edges.clone(),
            spares: Arc::clone(&self.parts.spares),
            to: self.parts.to.as_ref().map(|(to, _)| Arc::clone(to)),
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
        Ok(Epoch { batches: Some(made), stop, thread: Mutex::new(Some(thread)) })
    }
}

impl Loader {
    fn of(py: Python<'_>, parts: Parts, seeds: &Bound<'_, PyAny>, given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let (builder, settings) = (&parts.builder, parts.settings);
        let seeds = borrowed::<u32>("seeds", seeds)?;
        let given = given.map(|given| borrowed::<u32>("negatives", given)).transpose()?;
        let made = py.detach(|| {
            let batching = builder.operator(&seeds, given.as_deref().unwrap_or_default()).map_err(|e| e.to_string())?;
            let pool = Pool::new(&builder.key, batching.as_ref(), settings).map_err(|e| e.to_string())?;
            Ok::<_, String>((batching, pool))
        });
        let (batching, pool) = made.map_err(invalid)?;
        let pool = Arc::new(Mutex::new(Some(pool)));
        Ok(Self { parts, batching, pool, process: std::process::id() })
    }
}

fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What the thread of an epoch needs.
struct Producer {
    epoch: u32,
    batches: Range<u32>,
    dataset: Arc<Dataset>,
    form: Form,
    edges: Option<Arc<EdgeIds>>,
    spares: Arc<Spares>,
    to: Option<Arc<ToDevice>>,
    stop: Stop,
    send: Sender<Result<Made, String>>,
}

/// A mini-batch for Python.
#[derive(IntoPyObject)]
pub(crate) enum Made {
    /// In host memory.
    Host(Batch),
    /// On a device.
    Device(DeviceBatch),
}

impl Producer {
    /// Sends mini-batches until the last, the first failure, or nobody receives them any more.
    fn run(self, pool: &mut Pool) {
        let mut loader = match pool.load(self.epoch, self.batches, &self.stop) {
            Ok(loader) => loader,
            Err(error) => {
                let _ = self.send.send(Err(error.to_string()));
                return;
            }
        };
        if let Some(to) = &self.to {
            for delivered in Arrivals::new(loader, to) {
                let made = delivered.map(|exported| Made::Device(DeviceBatch::new(exported, self.form)));
                if self.send.send(made.map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
            return;
        }
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
                Made::Host(arrays.lend(self.form, &self.spares))
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
    batches: Option<Receiver<Result<Made, String>>>,
    stop: Stop,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Epoch {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next mini-batch. The interpreter's lock is released while it waits.
    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Made>> {
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
