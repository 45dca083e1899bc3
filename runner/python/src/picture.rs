//! Pictures of plans and runs: those of the report, as stand-alone SVG documents.

use morphgl::{Plan, Simulated, predicted_timeline};
use morphgl_registry::Registry;
use morphgl_report::{LineChart, SvgOptions, line_chart_svg, svg};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The line chart that the JSON of a `LineChart` describes; an empty string if no line has a point.
#[pyfunction]
pub(crate) fn line_chart(chart: &str) -> PyResult<String> {
    let chart: LineChart = serde_json::from_str(chart).map_err(invalid)?;
    Ok(line_chart_svg(&chart))
}

/// The predicted timeline of an epoch by a plan, which is given as JSON.
#[pyfunction]
pub(crate) fn timeline(plan: &str, title: String) -> PyResult<String> {
    let plan: Plan = serde_json::from_str(plan).map_err(invalid)?;
    let simulated = Simulated::of(&Registry::collect().map_err(invalid)?);
    Ok(svg(&predicted_timeline(&plan, &simulated), &SvgOptions { title, ..SvgOptions::default() }))
}

fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
