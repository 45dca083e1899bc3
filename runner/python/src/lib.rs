//! The native part of the Python package `morphgl`: graphs over numpy's memory, and mini-batches in memory that numpy and torch
//! share, commands as functions, and a training operator for torch modules. The package's Python files check arguments and give names to what is here; nothing here is for users.

mod array;
mod batch;
mod buffer;
mod command;
mod csc;
mod device;
mod device_batch;
mod edges;
mod examples;
mod gather;
mod graph;
mod hook;
mod loader;
mod operator;
mod picture;
mod process_group;
mod sampler;
mod subgraph;
mod torch;
mod value;

// Operators register themselves where they are linked.
use morphgl_batching_cpu as _;
use morphgl_batching_cuda_neighbor as _;
use morphgl_batching_disk_neighbor as _;
#[cfg(feature = "walk-through")]
use morphgl_training_cpu_burn as _;
use morphgl_training_cpu_native as _;
use morphgl_training_cuda_native as _;
#[cfg(feature = "walk-through")]
use morphgl_transferring_cpu_checked as _;
use morphgl_transferring_cpu_host as _;
use morphgl_transferring_cuda as _;
use pyo3::prelude::*;

/// The kinds of sampling of the linked operators, and whether each reads fanouts.
#[pyfunction]
fn samplers() -> Vec<(&'static str, bool)> {
    morphgl_registry::SamplingSpec::linked().into_iter().map(|spec| (spec.name, spec.by_fanouts)).collect()
}

/// Places of the CUDA devices of this machine.
#[pyfunction]
fn devices() -> Vec<String> {
    let found = morphgl_cuda::accelerators(&morphgl_registry::Machine::probe());
    found.into_iter().map(|device| device.place.to_string()).collect()
}

/// Whether importers take a column of this name for ids.
#[pyfunction]
fn is_id_column(name: &str) -> bool {
    morphgl_formats::is_id_column(name)
}

#[pymodule]
fn _morphgl(module: &Bound<'_, PyModule>) -> PyResult<()> {
    gather::started();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<graph::Graph>()?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<loader::Epoch>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<device_batch::DeviceBatch>()?;
    module.add_class::<sampler::Sampler>()?;
    module.add_function(wrap_pyfunction!(gather::gather, module)?)?;
    module.add_function(wrap_pyfunction!(csc::csc, module)?)?;
    module.add_function(wrap_pyfunction!(loader::epoch_order, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(samplers, module)?)?;
    module.add_function(wrap_pyfunction!(is_id_column, module)?)?;
    module.add_function(wrap_pyfunction!(value::rest_of, module)?)?;
    module.add_function(wrap_pyfunction!(value::with_rest, module)?)?;
    module.add_function(wrap_pyfunction!(examples::with_pairs, module)?)?;
    module.add_function(wrap_pyfunction!(examples::of_pairs, module)?)?;
    module.add_function(wrap_pyfunction!(examples::with_task, module)?)?;
    module.add_function(wrap_pyfunction!(examples::task_of, module)?)?;
    module.add_function(wrap_pyfunction!(picture::line_chart, module)?)?;
    module.add_function(wrap_pyfunction!(picture::timeline, module)?)?;
    module.add_function(wrap_pyfunction!(command::run, module)?)
}
