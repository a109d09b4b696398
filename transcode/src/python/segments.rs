//! Python bindings of records and segments.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::core_error;
use crate::block::Segment;
use crate::rewrite::NewIdentity;

/// Returns the footer that seals these records.
#[pyfunction]
pub fn footer(py: Python<'_>, segment: PyBackedBytes) -> PyResult<Bound<'_, PyBytes>> {
    // `bytes` are immutable, so no thread can change them while the GIL is released.
    let footer = py
        .detach(|| crate::scan::footer(&segment))
        .map_err(core_error)?;
    Ok(PyBytes::new(py, &footer))
}

/// Returns the footer that seals the records with these headers.
#[pyfunction]
pub fn footer_for<'py>(py: Python<'py>, heads: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &crate::scan::footer_for(heads))
}

/// Returns the counts in the footer at the end of a segment: records, rows, bytes before the footer.
#[pyfunction]
pub fn footer_counts(tail: &[u8]) -> Option<(u32, u64, u64)> {
    crate::frame::last_footer(tail).map(|footer| (footer.records, footer.rows, footer.bytes_before))
}

/// Returns the end of a record's list of acknowledged deliveries, and the length of the record.
#[pyfunction]
pub fn record_head(head: &[u8]) -> Option<(usize, usize)> {
    crate::frame::head_of(head).map(|head| (head.answers_end, head.length))
}

/// Returns whether a segment begins with a record of a newer version.
#[pyfunction]
pub fn is_newer(py: Python<'_>, segment: PyBackedBytes) -> bool {
    py.detach(|| crate::scan::is_newer(&segment))
}

/// One record of a segment.
#[pyclass(frozen, get_all, module = "receiver._transcode")]
pub struct Record {
    offset: usize,
    length: usize,
    rows: u32,
    answers: Py<PyBytes>,
    received_ms: (i64, i64),
}

/// Content of a segment: its complete records, and its damage.
#[pyclass(frozen, get_all, module = "receiver._transcode")]
pub struct Scan {
    epoch: u64,
    seq: u64,
    records: Vec<Py<Record>>,
    good_bytes: usize,
    sealed: bool,
    codec: &'static str,
    damage: Vec<(usize, usize, &'static str)>,
}

/// Reads a segment. A torn tail is a normal result; corruption of an acknowledged record is reported as damage.
#[pyfunction]
pub fn scan(py: Python<'_>, segment: PyBackedBytes) -> PyResult<Scan> {
    // Reading a whole segment takes long: other threads continue meanwhile.
    let content = py.detach(|| crate::scan::scan(&segment));
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
        epoch: content.segment.epoch,
        seq: content.segment.seq,
        records: content
            .records
            .iter()
            .map(record)
            .collect::<PyResult<_>>()?,
        good_bytes: content.good_bytes,
        sealed: content.footer.is_some(),
        codec: content.codec().name(),
        damage: content
            .damage
            .iter()
            .map(|damage| (damage.offset, damage.length, damage.reason))
            .collect(),
    })
}

/// Returns a new sealed segment with merged blocks and only the rows in these ranges. It keeps the identity of the
/// segment unless `new_identity` (epoch, seq, whether to include the acknowledged deliveries) is given.
#[pyfunction]
#[pyo3(name = "rewrite", signature = (segment, keep, codec, block_rows_max, new_identity = None))]
pub fn rewrite_segment<'py>(
    py: Python<'py>,
    segment: PyBackedBytes,
    keep: Vec<(usize, usize)>,
    codec: &str,
    block_rows_max: usize,
    new_identity: Option<(u64, u64, bool)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let codec = super::codec(codec)?;
    let new_identity = new_identity.map(|(epoch, seq, with_answers)| NewIdentity {
        segment: Segment { epoch, seq },
        with_answers,
    });
    let done = py
        .detach(|| crate::rewrite::rewrite(&segment, &keep, codec, block_rows_max, new_identity))
        .map_err(core_error)?;
    Ok(PyBytes::new(py, &done))
}

/// Returns the runs of rows that start on the same day, on the same shard: first row, row after the last, days since
/// 1970, shard.
#[pyfunction]
pub fn day_runs(
    py: Python<'_>,
    segment: PyBackedBytes,
    shards: u32,
) -> PyResult<Vec<(usize, usize, i64, u32)>> {
    let runs = py
        .detach(|| crate::days::day_runs(&segment, shards))
        .map_err(core_error)?;
    Ok(runs
        .iter()
        .map(|run| (run.first, run.end, run.day, run.shard))
        .collect())
}
