//! Python bindings: the sampling decision on one trace.

use pyo3::prelude::*;

use super::core_error;
use crate::sample::{self, Explained};

/// Keep, weight, threshold, reason, and what of the trace state was ignored.
type ExplainedTrace = (bool, Option<f64>, Option<String>, String, Vec<&'static str>);

/// The decision on one trace.
#[pyfunction]
#[pyo3(signature = (trace_id, *, mode, rate, seed, trace_state))]
pub fn explain_sampling(
    trace_id: &str,
    mode: &str,
    rate: f64,
    seed: u32,
    trace_state: &str,
) -> PyResult<ExplainedTrace> {
    let explained = sample::explain(trace_id, mode, rate, seed, trace_state).map_err(core_error)?;
    let Explained {
        keep,
        weight,
        threshold,
        reason,
        ignored,
    } = explained;
    Ok((keep, weight, threshold, reason, ignored))
}
