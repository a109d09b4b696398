//! Batches: deliveries of several connections that arrived before the same group.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::PyDelivery;
use super::fast_path::{Answer, FastConnection};
use crate::group::{Delivery, Kind};
use crate::unpack::Encoding;

/// Limits of one batch, which is one unit of a group.
const BATCH_BYTES_MAX: usize = 256 * 1024;
const BATCH_DELIVERIES_MAX: usize = 256;
/// Bytes that a sender's connections may hold before Python claims memory for them.
const ARRIVED_BYTES_MAX: usize = 1024 * 1024;

/// One delivery that has arrived.
struct Arrived {
    connection: Py<FastConnection>,
    bytes: PyBackedBytes,
    body_start: usize,
}

impl Arrived {
    fn body(&self) -> &[u8] {
        self.bytes.get(self.body_start..).unwrap_or_default()
    }
}

/// What the deliveries of a sender have in common.
struct Origin {
    /// A delivery without a body.
    python: Py<PyAny>,
    drain: String,
    kind: Kind,
    encodings: Vec<Encoding>,
    strict: bool,
    body_bytes_max: usize,
}

/// Deliveries of one drain, path, content type and coding that have arrived and are not taken yet.
#[pyclass(module = "receiver._transcode")]
pub struct FastSender {
    origin: Arc<Origin>,
    body_bytes_max: usize,
    on_arrival: Py<PyAny>,
    arrived: Vec<Arrived>,
    arrived_bytes: usize,
}

#[pymethods]
impl FastSender {
    #[new]
    fn new(
        origin: &Bound<'_, PyAny>,
        body_bytes_max: usize,
        on_arrival: Py<PyAny>,
    ) -> PyResult<Self> {
        let extracted: PyDelivery = origin.extract()?;
        let delivery = super::delivery(&extracted)?;
        let origin = Origin {
            python: origin.clone().unbind(),
            drain: delivery.drain.to_owned(),
            kind: delivery.kind,
            encodings: delivery.encodings,
            strict: delivery.strict,
            body_bytes_max: delivery.body_bytes_max,
        };
        Ok(Self {
            origin: Arc::new(origin),
            body_bytes_max,
            on_arrival,
            arrived: Vec::new(),
            arrived_bytes: 0,
        })
    }

    /// Returns what has arrived, in batches.
    fn take(&mut self) -> Vec<FastBatch> {
        self.arrived_bytes = 0;
        let mut batches: Vec<FastBatch> = Vec::new();
        for arrived in self.arrived.drain(..) {
            let body_bytes = arrived.body().len();
            match batches.last_mut() {
                Some(batch) if batch.has_room(body_bytes) => {
                    batch.body_bytes += body_bytes;
                    batch.arrived.push(arrived);
                }
                _ => batches.push(FastBatch {
                    origin: Arc::clone(&self.origin),
                    received_at_ns: AtomicI64::new(0),
                    body_bytes,
                    arrived: vec![arrived],
                }),
            }
        }
        batches
    }

    /// Shows the cycle with its `Sender`, which ends when the dictionary of that is cleared.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.on_arrival)
    }
}

impl FastSender {
    /// Adds a delivery. Returns whether there was room.
    pub fn add(
        &mut self,
        connection: &Bound<'_, FastConnection>,
        bytes: &Bound<'_, PyBytes>,
        body: Range<usize>,
    ) -> bool {
        let size = bytes.as_bytes().len();
        let is_whole = body.end == size && body.len() <= self.body_bytes_max;
        if !is_whole || self.arrived_bytes + size > ARRIVED_BYTES_MAX {
            return false;
        }
        self.arrived_bytes += size;
        self.arrived.push(Arrived {
            connection: connection.clone().unbind(),
            bytes: bytes.clone().into(),
            body_start: body.start,
        });
        true
    }

    /// Announces the first delivery after a call of `take`.
    pub fn announce(this: &Bound<'_, Self>) -> PyResult<()> {
        let on_arrival = {
            let sender = this.borrow();
            (sender.arrived.len() == 1).then(|| sender.on_arrival.clone_ref(this.py()))
        };
        on_arrival.map_or(Ok(()), |call| call.call1(this.py(), (this,)).map(drop))
    }
}

/// Reports an error of one connection; the other connections must still get their answers.
fn report(connection: &Bound<'_, FastConnection>, done: PyResult<()>) {
    if let Err(error) = done {
        error.write_unraisable(connection.py(), Some(connection));
    }
}

/// Deliveries of one sender that arrived before the same group.
#[pyclass(frozen, module = "receiver._transcode")]
pub struct FastBatch {
    origin: Arc<Origin>,
    /// Set before the batch is committed.
    received_at_ns: AtomicI64,
    #[pyo3(get)]
    body_bytes: usize,
    arrived: Vec<Arrived>,
}

#[pymethods]
impl FastBatch {
    fn __len__(&self) -> usize {
        self.arrived.len()
    }

    /// Returns a delivery without a body.
    #[getter]
    fn origin(&self, py: Python<'_>) -> Py<PyAny> {
        self.origin.python.clone_ref(py)
    }

    #[getter]
    fn received_at_ns(&self) -> i64 {
        self.received_at_ns.load(Relaxed)
    }

    #[setter]
    fn set_received_at_ns(&self, received_at_ns: i64) {
        self.received_at_ns.store(received_at_ns, Relaxed);
    }

    /// Returns whether the bodies are compressed.
    #[getter]
    fn is_encoded(&self) -> bool {
        !self.origin.encodings.is_empty()
    }

    /// Returns the bodies, each with the protocol of its connection; `None` if that is closed.
    fn split<'py>(&self, py: Python<'py>) -> Vec<(Option<Py<PyAny>>, Bound<'py, PyBytes>)> {
        self.arrived
            .iter()
            .map(|arrived| {
                let protocol = arrived.connection.borrow(py).protocol(py);
                (protocol, PyBytes::new(py, arrived.body()))
            })
            .collect()
    }

    /// Passes the bytes to the protocols of the connections, which handle them as if they had just arrived.
    fn hand_back(&self, py: Python<'_>) {
        for arrived in &self.arrived {
            let connection = arrived.connection.bind(py);
            report(
                connection,
                FastConnection::hand_back(connection, &arrived.bytes),
            );
        }
    }

    /// Answers all deliveries: writes `wire` where nothing else is to be done, passes on `reply` elsewhere.
    #[pyo3(signature = (wire, reply, now))]
    fn answer(
        &self,
        py: Python<'_>,
        wire: Option<&Bound<'_, PyBytes>>,
        reply: &Bound<'_, PyAny>,
        now: f64,
    ) {
        let answer = Answer { wire, reply, now };
        for arrived in &self.arrived {
            let connection = arrived.connection.bind(py);
            report(connection, FastConnection::answer(connection, &answer));
        }
    }
}

impl FastBatch {
    fn has_room(&self, body_bytes: usize) -> bool {
        self.arrived.len() < BATCH_DELIVERIES_MAX && self.body_bytes + body_bytes <= BATCH_BYTES_MAX
    }

    /// Returns the deliveries for the core.
    pub fn deliveries(&self) -> impl Iterator<Item = Delivery<'_>> {
        self.arrived.iter().map(|arrived| Delivery {
            drain: &self.origin.drain,
            body: arrived.body(),
            kind: self.origin.kind,
            encodings: self.origin.encodings.clone(),
            received_at_ns: self.received_at_ns(),
            strict: self.origin.strict,
            body_bytes_max: self.origin.body_bytes_max,
        })
    }
}
