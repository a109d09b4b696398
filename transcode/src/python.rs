//! Python module of the core: converts arguments and results, releases the GIL and maps errors.
//!
//! Never: contains logic of its own.

#![expect(
    clippy::needless_pass_by_value,
    reason = "PyO3 passes arguments by value"
)]

mod digests;
mod fast_batch;
mod fast_path;
mod patterns;
mod sampling;
mod segments;

use std::cell::RefCell;
use std::collections::HashMap;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use self::fast_batch::FastBatch;
use crate::block::Segment;
use crate::compress::Codec;
use crate::group::{self, Delivery, Kind, Workspace};
use crate::policy::{self, Settings};
use crate::sums::{self, Spans};
use crate::unpack::Encoding;
use crate::{outcome, schema};

create_exception!(
    _transcode,
    CoreError,
    PyValueError,
    "Invalid arguments, or a segment whose content contradicts its headers."
);

thread_local! {
    /// One workspace per thread, so that intake threads reuse buffers without a lock.
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

fn core_error(reason: impl Into<String>) -> PyErr {
    CoreError::new_err(reason.into())
}

fn codec(name: &str) -> PyResult<Codec> {
    Codec::from_name(name)
        .ok_or_else(|| core_error(format!("codec {name:?}; expected lz4 or zstd")))
}

/// Rules for limits, sampling and project resolution, built once from the settings.
#[pyclass(frozen, module = "receiver._transcode")]
struct Policy(policy::Policy);

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (*, project, deployment, retention_days, late_margin_days, ahead_s_max, sampling_mode,
        sampling_rate, sampling_seed, sampling_rules, codec, limits))]
    #[expect(clippy::too_many_arguments, reason = "all are named at the call")]
    fn new(
        project: Vec<(String, String)>,
        deployment: Vec<(String, String)>,
        retention_days: i64,
        late_margin_days: i64,
        ahead_s_max: i64,
        sampling_mode: String,
        sampling_rate: f64,
        sampling_seed: i64,
        sampling_rules: Vec<(HashMap<String, String>, f64)>,
        codec: String,
        limits: HashMap<String, i64>,
    ) -> PyResult<Self> {
        let settings = Settings {
            project,
            deployment,
            retention_days,
            late_margin_days,
            ahead_s_max,
            sampling_mode,
            sampling_rate,
            sampling_seed,
            sampling_rules,
            codec,
            limits,
        };
        policy::Policy::new(&settings).map(Self).map_err(core_error)
    }
}

/// Outcome of one delivery.
#[pyclass(frozen, module = "receiver._transcode")]
struct Outcome(outcome::Outcome);

#[pymethods]
impl Outcome {
    #[getter]
    fn verdict(&self) -> &'static str {
        self.0.verdict.name()
    }
    #[getter]
    const fn is_plain(&self) -> bool {
        self.0.is_plain()
    }
    #[getter]
    fn received(&self) -> u32 {
        self.0.received
    }
    #[getter]
    fn stored(&self) -> u32 {
        self.0.stored
    }
    #[getter]
    fn sampled_out(&self) -> u32 {
        self.0.sampled_out
    }
    #[getter]
    fn rejected(&self) -> u32 {
        self.0.rejected
    }
    #[getter]
    fn unresolved(&self) -> u32 {
        self.0.unresolved
    }
    #[getter]
    fn message(&self) -> &str {
        &self.0.message
    }
    #[getter]
    fn field(&self) -> &'static str {
        self.0.field
    }
    #[getter]
    fn reasons(&self) -> Vec<(&'static str, u32)> {
        self.0.reasons.clone()
    }
}

/// One record, ready to append, and the outcome of each delivery.
#[pyclass(frozen, module = "receiver._transcode")]
struct Commit {
    #[pyo3(get)]
    record: Py<PyBytes>,
    #[pyo3(get)]
    rows: u32,
    #[pyo3(get)]
    outcomes: Vec<Py<Outcome>>,
    #[pyo3(get)]
    spans: Vec<PySpans>,
    #[pyo3(get)]
    reasons: Vec<(&'static str, u32)>,
}

/// Name of a drain, and its span counts: received, stored, sampled out, rejected, unresolved.
type PySpans = (String, u64, u64, u64, u64, u64);

fn spans((drain, spans): (&str, Spans)) -> PySpans {
    let Spans {
        received,
        stored,
        sampled_out,
        rejected,
        unresolved,
    } = spans;
    (
        drain.to_owned(),
        received,
        stored,
        sampled_out,
        rejected,
        unresolved,
    )
}

/// One delivery as Python passes it, borrowed without a copy: drain, body, kind, encodings, `received_at_ns`, strict, `body_bytes_max`.
type PyDelivery = (
    PyBackedStr,
    PyBackedBytes,
    PyBackedStr,
    Vec<PyBackedStr>,
    i64,
    bool,
    usize,
);

fn kind(name: &str) -> PyResult<Kind> {
    Kind::from_name(name)
        .ok_or_else(|| core_error("content kind is unknown; expected protobuf, json or ndjson"))
}

fn encodings(names: &[impl AsRef<str>]) -> PyResult<Vec<Encoding>> {
    let encodings = names
        .iter()
        .map(|name| Encoding::from_name(name.as_ref()))
        .collect::<Option<Vec<_>>>();
    encodings
        .ok_or_else(|| core_error("content encoding is unknown; expected a supported encoding"))
}

fn delivery(from: &PyDelivery) -> PyResult<Delivery<'_>> {
    let (drain, body, kind_name, encoding_names, received_at_ns, strict, body_bytes_max) = from;
    Ok(Delivery {
        drain,
        body,
        kind: kind(kind_name)?,
        encodings: encodings(encoding_names)?,
        received_at_ns: *received_at_ns,
        strict: *strict,
        body_bytes_max: *body_bytes_max,
    })
}

/// One delivery, or several of one sender.
#[derive(FromPyObject)]
enum PyMember {
    Delivery(PyDelivery),
    Batch(Py<FastBatch>),
}

/// Transcodes deliveries into one record.
#[pyfunction]
fn commit(
    py: Python<'_>,
    policy: &Policy,
    members: Vec<PyMember>,
    epoch: u64,
    seq: u64,
    digest_key: &[u8],
) -> PyResult<Commit> {
    let key = digests::key(digest_key)?;
    let mut deliveries = Vec::with_capacity(members.len());
    for member in &members {
        match member {
            PyMember::Batch(batch) => deliveries.extend(batch.get().deliveries()),
            PyMember::Delivery(single) => deliveries.push(delivery(single)?),
        }
    }
    // Releases the GIL, so that the event loop and other threads continue.
    let done = py.detach(|| {
        // Never borrowed twice: the core does not call back into Python.
        WORKSPACE.with_borrow_mut(|workspace| {
            group::commit(
                &policy.0,
                &key,
                &deliveries,
                Segment { epoch, seq },
                workspace,
            )
        })
    });
    // The sums are computed here, because a loop over all deliveries is slower in Python.
    let sums = sums::of(&deliveries, &done.outcomes);
    let outcomes = done
        .outcomes
        .into_iter()
        .map(|outcome| Py::new(py, Outcome(outcome)));
    Ok(Commit {
        record: PyBytes::new(py, &done.record).unbind(),
        rows: done.rows,
        outcomes: outcomes.collect::<PyResult<_>>()?,
        spans: sums.spans.into_iter().map(spans).collect(),
        reasons: sums.reasons,
    })
}

#[pymodule]
fn _transcode(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let columns = schema::Field::ALL
        .iter()
        .map(|field| (field.name(), field.table_type()))
        .collect::<Vec<_>>();
    module.add(
        "BUILD_PROFILE",
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
    )?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("COLUMNS", columns)?;
    module.add("FOOTER_BYTES", crate::frame::FOOTER_BYTES)?;
    module.add("HEAD_BYTES", crate::frame::HEAD_BYTES)?;
    module.add("SCHEMAS", schema::SCHEMAS.to_vec())?;
    module.add("CoreError", module.py().get_type::<CoreError>())?;
    module.add_class::<Policy>()?;
    module.add_class::<Outcome>()?;
    module.add_class::<Commit>()?;
    module.add_class::<segments::Record>()?;
    module.add_class::<segments::Scan>()?;
    module.add_class::<FastBatch>()?;
    module.add_class::<fast_path::FastConnection>()?;
    module.add_class::<fast_path::FastPath>()?;
    module.add_class::<fast_batch::FastSender>()?;
    module.add_class::<fast_path::KnownHead>()?;
    module.add_class::<digests::Digests>()?;
    module.add_class::<digests::DigestTags>()?;
    module.add_class::<patterns::PatternSet>()?;
    module.add_function(wrap_pyfunction!(commit, module)?)?;
    module.add_function(wrap_pyfunction!(segments::footer, module)?)?;
    module.add_function(wrap_pyfunction!(segments::footer_for, module)?)?;
    module.add_function(wrap_pyfunction!(segments::footer_counts, module)?)?;
    module.add_function(wrap_pyfunction!(segments::record_head, module)?)?;
    module.add_function(wrap_pyfunction!(segments::is_newer, module)?)?;
    module.add_function(wrap_pyfunction!(segments::scan, module)?)?;
    module.add_function(wrap_pyfunction!(segments::rewrite_segment, module)?)?;
    module.add_function(wrap_pyfunction!(segments::day_runs, module)?)?;
    module.add_class::<sampling::ExplainedTrace>()?;
    module.add_function(wrap_pyfunction!(sampling::explain_sampling, module)?)
}
