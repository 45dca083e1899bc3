//! What a run leaves behind.

use std::path::{Path, PathBuf};

use morphgl_graph_store::Schema;
use morphgl_model_core::ModelSpec;
use morphgl_registry::NamedTensor;

use crate::session::report;
use crate::session::run_dir::RunDir;
use crate::session::run_dir::status::State;
use crate::{Recorder, StopReason, words};

/// Writes metrics, model, report and status, each even if another fails; returns the errors. Of a directory that is no longer the
/// run's there is one.
pub(super) fn write(
    mut run_dir: Option<RunDir>,
    save: Option<&Path>,
    model: Option<(&ModelSpec, &Schema, &[NamedTensor])>,
    run: report::Run<'_>,
    recorder: Option<Recorder>,
) -> Vec<String> {
    let mut unwritten = Vec::new();
    run_dir = run_dir.filter(|dir| dir.path().map_err(|e| unwritten.push(words::one_line(&e))).is_ok());
    let mut note = |written: anyhow::Result<()>| unwritten.extend(written.err().map(|e| words::one_line(&e)));
    if let Some(dir) = &mut run_dir {
        note(dir.write_metrics());
    }
    let state = match run.report.stop_reason {
        StopReason::Interrupted => State::Interrupted,
        StopReason::Epochs | StopReason::Patience | StopReason::Requested => State::Done,
    };
    if let Some((model, schema, parameters)) = model {
        for path in run_dir.iter().map(RunDir::model).chain(save.map(|path| Ok(path.to_path_buf()))) {
            let save = |path: PathBuf| Ok(morphgl_model_core::save_model(&path, model, schema, parameters)?);
            note(path.and_then(save));
        }
    }
    if let (Some(dir), Some(recorder)) = (&run_dir, recorder) {
        note(dir.write_report(&report::of_run(run, recorder)));
    }
    if let Some(dir) = &run_dir {
        // A run whose files are not all written is not done: it can be resumed for them.
        let written = dir.set_status(if unwritten.is_empty() { state } else { State::Failed });
        unwritten.extend(written.err().map(|e| words::one_line(&e)));
    }
    unwritten
}
