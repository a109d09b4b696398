//! The doorway to Python: converts arguments, drops the GIL, maps errors. No logic lives here.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what Python hands over is owned here"
)]

mod digests;
mod sampling;

use std::cell::RefCell;
use std::collections::HashMap;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::block::Segment;
use crate::compress::Codec;
use crate::group::{self, Delivery, Kind, Workspace};
use crate::policy::{self, Wishes};
use crate::rewrite::Anew;
use crate::sums::{self, Spans};
use crate::unpack::Encoding;
use crate::{outcome, schema};

create_exception!(
    _transcode,
    CoreError,
    PyValueError,
    "Arguments that make no sense, or a segment that is not what it says."
);

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::default();
}

fn core_error(reason: impl Into<String>) -> PyErr {
    CoreError::new_err(reason.into())
}

fn codec(name: &str) -> PyResult<Codec> {
    Codec::from_name(name)
        .ok_or_else(|| core_error(format!("codec {name:?}; expected lz4 or zstd")))
}

/// What is kept, cut, sampled and resolved: built once from the settings.
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
        let wishes = Wishes {
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
        policy::Policy::new(&wishes).map(Self).map_err(core_error)
    }
}

/// What became of one delivery.
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

/// One record, ready to append, and what became of each delivery.
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

/// Drain, and its spans: received, stored, sampled out, rejected, unresolved.
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

type PyDelivery = (
    PyBackedStr,
    PyBackedBytes,
    PyBackedStr,
    Vec<PyBackedStr>,
    i64,
    bool,
    usize,
);

fn delivery(from: &PyDelivery) -> PyResult<Delivery<'_>> {
    let (drain, body, kind, encodings, received_at_ns, strict, body_bytes_max) = from;
    let kind = Kind::from_name(kind);
    let encodings = encodings
        .iter()
        .map(|name| Encoding::from_name(name))
        .collect::<Option<Vec<_>>>();
    Ok(Delivery {
        drain,
        body,
        kind: kind.ok_or_else(|| {
            core_error("content kind is unknown; expected protobuf, json or ndjson")
        })?,
        encodings: encodings
            .ok_or_else(|| core_error("encoding is unknown; refuse it before it comes here"))?,
        received_at_ns: *received_at_ns,
        strict: *strict,
        body_bytes_max: *body_bytes_max,
    })
}

/// Transcode deliveries into one record.
#[pyfunction]
fn commit(
    py: Python<'_>,
    policy: &Policy,
    deliveries: Vec<PyDelivery>,
    epoch: u64,
    seq: u64,
    digest_key: &[u8],
) -> PyResult<Commit> {
    let key = digests::key(digest_key)?;
    let deliveries = deliveries
        .iter()
        .map(delivery)
        .collect::<PyResult<Vec<_>>>()?;
    let done = py.detach(|| {
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

/// The footer that seals these records.
#[pyfunction]
fn footer(py: Python<'_>, segment: PyBackedBytes) -> PyResult<Bound<'_, PyBytes>> {
    let footer = py
        .detach(|| crate::scan::footer(&segment))
        .map_err(core_error)?;
    Ok(PyBytes::new(py, &footer))
}

/// The footer that seals records of which only this is known.
#[pyfunction]
fn footer_for<'py>(
    py: Python<'py>,
    checksums: &[u8],
    rows: u64,
    bytes_before: u64,
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &crate::scan::footer_for(checksums, rows, bytes_before))
}

/// One record of a segment.
#[pyclass(frozen, get_all, module = "receiver._transcode")]
struct Record {
    offset: usize,
    length: usize,
    rows: u32,
    answers: Py<PyBytes>,
    received_ms: (i64, i64),
}

/// A segment, read: whole records only.
#[pyclass(frozen, get_all, module = "receiver._transcode")]
struct Scan {
    epoch: u64,
    seq: u64,
    records: Vec<Py<Record>>,
    good_bytes: usize,
    sealed: bool,
    damage: Vec<(usize, usize, &'static str)>,
}

/// Read a segment: a torn tail is an ordinary answer, rot in a promised record is damage.
#[pyfunction]
fn scan(py: Python<'_>, segment: PyBackedBytes) -> PyResult<Scan> {
    let found = py.detach(|| crate::scan::scan(&segment));
    let record = |record: &crate::frame::Record<'_>| {
        let answers = PyBytes::new(py, record.answers).unbind();
        let (offset, length, rows) = (record.offset, record.length, record.head.rows);
        Py::new(
            py,
            Record {
                offset,
                length,
                rows,
                answers,
                received_ms: record.head.received_ms,
            },
        )
    };
    Ok(Scan {
        epoch: found.segment.epoch,
        seq: found.segment.seq,
        records: found.records.iter().map(record).collect::<PyResult<_>>()?,
        good_bytes: found.good_bytes,
        sealed: found.footer.is_some(),
        damage: found
            .damage
            .iter()
            .map(|damage| (damage.offset, damage.length, damage.reason))
            .collect(),
    })
}

/// Merge the blocks of a segment, keeping only these row ranges, into a new sealed segment: the same one, or
/// that of `anew` (epoch, seq, whether it answers for the deliveries).
#[pyfunction]
#[pyo3(name = "rewrite", signature = (segment, keep, codec, block_rows_max, anew = None))]
fn rewrite_segment<'py>(
    py: Python<'py>,
    segment: PyBackedBytes,
    keep: Vec<(usize, usize)>,
    codec: &str,
    block_rows_max: usize,
    anew: Option<(u64, u64, bool)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let codec = self::codec(codec)?;
    let anew = anew.map(|(epoch, seq, with_answers)| Anew {
        segment: Segment { epoch, seq },
        with_answers,
    });
    let done = py
        .detach(|| crate::rewrite::rewrite(&segment, &keep, codec, block_rows_max, anew))
        .map_err(core_error)?;
    Ok(PyBytes::new(py, &done))
}

/// Which rows belong to which day: first row, row after the last, days since 1970.
#[pyfunction]
fn day_runs(py: Python<'_>, segment: PyBackedBytes) -> PyResult<Vec<(usize, usize, i64)>> {
    let runs = py
        .detach(|| crate::days::day_runs(&segment))
        .map_err(core_error)?;
    Ok(runs
        .iter()
        .map(|run| (run.first, run.end, run.day))
        .collect())
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
    module.add("SCHEMAS", schema::SCHEMAS.to_vec())?;
    module.add("CoreError", module.py().get_type::<CoreError>())?;
    module.add_class::<Policy>()?;
    module.add_class::<Outcome>()?;
    module.add_class::<Commit>()?;
    module.add_class::<Record>()?;
    module.add_class::<Scan>()?;
    module.add_class::<digests::Digests>()?;
    module.add_class::<digests::DigestTags>()?;
    module.add_function(wrap_pyfunction!(commit, module)?)?;
    module.add_function(wrap_pyfunction!(footer, module)?)?;
    module.add_function(wrap_pyfunction!(footer_for, module)?)?;
    module.add_function(wrap_pyfunction!(scan, module)?)?;
    module.add_function(wrap_pyfunction!(rewrite_segment, module)?)?;
    module.add_function(wrap_pyfunction!(day_runs, module)?)?;
    module.add_class::<sampling::ExplainedTrace>()?;
    module.add_function(wrap_pyfunction!(sampling::explain_sampling, module)?)
}
