//! Python interface to explained sampling decisions.

use pyo3::prelude::*;

use super::{Policy, core_error};
use crate::sample::{self, Explained, Subject};

/// A sampling decision about one trace, with its inputs.
#[pyclass(frozen, module = "receiver._transcode")]
pub(super) struct ExplainedTrace(Explained);

#[pymethods]
impl ExplainedTrace {
    #[getter]
    const fn keep(&self) -> bool {
        self.0.keep
    }
    #[getter]
    const fn weight(&self) -> Option<f64> {
        self.0.weight
    }
    #[getter]
    fn threshold(&self) -> Option<&str> {
        self.0.threshold.as_deref()
    }
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }
    #[getter]
    fn ignored(&self) -> Vec<&'static str> {
        self.0.ignored.clone()
    }
    #[getter]
    const fn rule(&self) -> Option<usize> {
        self.0.rule
    }
    #[getter]
    fn randomness(&self) -> &str {
        &self.0.randomness
    }
    #[getter]
    const fn randomness_from(&self) -> &'static str {
        self.0.randomness_from
    }
    #[getter]
    fn arriving_threshold(&self) -> Option<&str> {
        self.0.arriving_threshold.as_deref()
    }
}

/// Explains what this policy decides about a span of this trace.
#[pyfunction]
#[pyo3(signature = (policy, trace_id, *, trace_state, project, environment, service, drain))]
pub(super) fn explain_sampling(
    policy: &Policy,
    trace_id: &str,
    trace_state: &str,
    project: &str,
    environment: &str,
    service: &str,
    drain: &str,
) -> PyResult<ExplainedTrace> {
    let subject = Subject {
        // Replaced by `explain`, which parses `trace_id`.
        trace_id: [0; 16],
        trace_state: trace_state.as_bytes(),
        project,
        environment,
        service,
        drain,
        priority: None,
    };
    sample::explain(&policy.0.sampler, trace_id, &subject)
        .map(ExplainedTrace)
        .map_err(core_error)
}
