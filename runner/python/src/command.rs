//! The commands of `morphgl` as functions.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;

use crossbeam::channel::{RecvTimeoutError, bounded};
use morphgl::cli::{self, Call, Failure};
use morphgl::{Observer, Process, Stop};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::graph::Graph;
use crate::hook::EpochHook;
use crate::loader::SIGNALS;
use crate::process_group::process_of;
use crate::torch::TrainerGuard;

/// The interpreter's process, which all commands share but those that run as ranks: each of these has one of its own.
static PROCESS: LazyLock<Arc<Process>> = LazyLock::new(Arc::default);

/// Runs a command line on `graph`, and returns the JSON document that it prints; `trainer` is what `Training_CPU_Torch` trains.
/// `on_epoch` is what [`EpochHook`] calls, and `ranks` the `ProcessGroup` of which this process is one. Ctrl-C stops the command as it
/// does the program.
#[pyfunction]
#[pyo3(signature = (arguments, graph, trainer, quiet, on_epoch, ranks))]
pub(crate) fn run(
    py: Python<'_>,
    arguments: Vec<String>,
    graph: Option<&Graph>,
    trainer: Option<Py<PyAny>>,
    quiet: bool,
    on_epoch: Option<Py<PyAny>>,
    ranks: Option<Py<PyAny>>,
) -> PyResult<String> {
    let process = match ranks {
        Some(group) => Arc::new(process_of(py, group)?),
        None => Arc::clone(&PROCESS),
    };
    let dataset = graph.map(|graph| Arc::clone(&graph.0));
    let guard = trainer.map(TrainerGuard::new).transpose()?;
    let stop = Stop::new();
    let of_command = stop.clone();
    let raised = Arc::<Mutex<Option<PyErr>>>::default();
    let hook = on_epoch.map(|function| EpochHook::new(function, stop.clone(), Arc::clone(&raised)));
    let observer = hook.map(|hook| Arc::new(hook) as Arc<dyn Observer>);
    let (send, done) = bounded(1);
    let work = move || {
        let call = Call { process: &process, arguments: &arguments, dataset, quiet, stop: &of_command, observer };
        let _ = send.send(cli::call(call));
    };
    let thread = thread::Builder::new().name("morphgl".to_string()).spawn(work);
    let thread = thread.map_err(|e| PyRuntimeError::new_err(format!("no thread for the command: {e}")))?;
    let mut interrupted = None;
    let called = loop {
        match py.detach(|| done.recv_timeout(SIGNALS)) {
            Ok(called) => break Some(called),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = py.check_signals() {
                    interrupted = Some(signal);
                }
                if interrupted.is_some() {
                    stop.request();
                }
            }
        }
    };
    let ended = py.detach(|| thread.join());
    if let Some(signal) = interrupted {
        return Err(signal);
    }
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    match called {
        Some(Ok(document)) => Ok(document.to_string()),
        Some(Err(Failure { message, usage: true })) => Err(PyValueError::new_err(message)),
        // The module's own exception says where it was raised; what MorphGL was at is added.
        Some(Err(Failure { message, .. })) => match guard.as_ref().and_then(TrainerGuard::raised) {
            Some(error) => {
                let error = error.clone_ref(py);
                let _ = error.value(py).call_method1("add_note", (message,));
                Err(error)
            }
            None => Err(PyRuntimeError::new_err(message)),
        },
        None => Err(PyRuntimeError::new_err(format!("the command panicked: {:?}", ended.err().map(panic_text)))),
    }
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
}
