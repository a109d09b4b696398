//! Fast path of connections: collects deliveries with known heads and answers them without a call of Python for each.
//!
//! ```text
//! bytes of a connection ─▶ FastConnection ─▶ FastSender ─▶ FastBatch ─▶ commit ─▶ answer
//!                              │ anything but one complete delivery with a known head
//!                              └─▶ the connection's Python
//! ```
//!
//! Invariant: a connection has one delivery here at most, until it is answered or handed back.
//! Never: decides about a delivery. Python takes or refuses each batch.

use std::collections::HashMap;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::fast_batch::FastSender;
use crate::known_head;

/// A request head that was accepted before, split around the digits of its Content-Length.
#[pyclass(frozen, module = "receiver._transcode")]
pub struct KnownHead(known_head::KnownHead);

#[pymethods]
impl KnownHead {
    #[new]
    fn new(before: &[u8], after: &[u8]) -> Self {
        Self(known_head::KnownHead::new(before, after))
    }

    /// Returns the body's length and offset if these bytes start with this head.
    fn r#match(&self, data: &[u8]) -> Option<(usize, usize)> {
        self.0.body_in(data).map(|body| (body.len(), body.start))
    }
}

/// State that all connections of an intake share.
#[pyclass(module = "receiver._transcode")]
#[derive(Default)]
pub struct FastPath {
    /// Connections by address of their object.
    changed: HashMap<usize, Py<FastConnection>>,
}

#[pymethods]
impl FastPath {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Returns the protocols whose connections took or answered deliveries since the last call, last answer last.
    fn take_changed(&mut self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let mut changed: Vec<_> = self
            .changed
            .drain()
            .filter_map(|(_, connection)| {
                let mut connection = connection.borrow_mut(py);
                connection.is_listed = false;
                let protocol = connection.protocol.as_ref()?.clone_ref(py);
                Some((connection.answered_at, protocol))
            })
            .collect();
        changed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        changed.into_iter().map(|(_, protocol)| protocol).collect()
    }
}

/// One connection, called with the bytes that it receives.
#[pyclass(module = "receiver._transcode")]
pub struct FastConnection {
    fast_path: Py<FastPath>,
    /// Receives what the fast path does not take; `None` after the connection is closed.
    protocol: Option<Py<PyAny>>,
    receive: Option<Py<PyAny>>,
    #[pyo3(set)]
    write: Option<Py<PyAny>>,
    known: Option<(Py<KnownHead>, Py<FastSender>)>,
    /// Whether the next byte is the first of a request.
    #[pyo3(set)]
    is_ready: bool,
    /// Whether a delivery here waits for its answer.
    #[pyo3(get, set)]
    is_waiting: bool,
    /// Number of answers that can be written without regard to the protocol's state.
    #[pyo3(set)]
    direct_answers: u32,
    answered: u32,
    answered_at: f64,
    /// Whether it is in `FastPath::changed`.
    is_listed: bool,
}

#[pymethods]
impl FastConnection {
    #[new]
    fn new(fast_path: Py<FastPath>, protocol: Py<PyAny>, receive: Py<PyAny>) -> Self {
        Self {
            fast_path,
            protocol: Some(protocol),
            receive: Some(receive),
            write: None,
            known: None,
            is_ready: false,
            is_waiting: false,
            direct_answers: 0,
            answered: 0,
            answered_at: 0.0,
            is_listed: false,
        }
    }

    /// Takes the bytes, or passes them to Python.
    fn __call__(this: &Bound<'_, Self>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(bytes) = data.cast::<PyBytes>()
            && Self::collect(this, bytes)?
        {
            return Ok(());
        }
        let receive = {
            let mut connection = this.borrow_mut();
            connection.is_ready = false;
            connection
                .receive
                .as_ref()
                .map(|it| it.clone_ref(this.py()))
        };
        match receive {
            Some(receive) => receive.call1(this.py(), (data,)).map(drop),
            None => Ok(()),
        }
    }

    /// Sets the head and the sender of the deliveries to take.
    #[pyo3(signature = (head, sender))]
    fn learn(&mut self, head: Py<KnownHead>, sender: Option<Py<FastSender>>) {
        self.known = sender.map(|sender| (head, sender));
    }

    /// Returns the number of answers since the last call, and the time of the last answer.
    fn take_answered(&mut self) -> (u32, f64) {
        (std::mem::take(&mut self.answered), self.answered_at)
    }

    /// Drops the references to the protocol and its transport. An unanswered delivery is still stored.
    fn close(this: &Bound<'_, Self>) {
        let mut connection = this.borrow_mut();
        let forgotten = (
            connection.protocol.take(),
            connection.receive.take(),
            connection.write.take(),
            connection.known.take(),
        );
        let listed = std::mem::take(&mut connection.is_listed).then(|| {
            let mut fast_path = connection.fast_path.borrow_mut(this.py());
            fast_path.changed.remove(&address(this))
        });
        // Last, because freeing an object may call Python, which may use this connection.
        drop(connection);
        drop((forgotten, listed));
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.protocol)?;
        visit.call(&self.receive)?;
        visit.call(&self.write)
    }

    fn __clear__(&mut self) {
        self.protocol = None;
        self.receive = None;
        self.write = None;
    }
}

impl FastConnection {
    /// Takes the bytes if they are one complete delivery with the known head.
    fn collect(this: &Bound<'_, Self>, bytes: &Bound<'_, PyBytes>) -> PyResult<bool> {
        let py = this.py();
        let mut connection = this.borrow_mut();
        let Some((head, sender)) = &connection.known else {
            return Ok(false);
        };
        if !connection.is_ready || connection.is_waiting {
            return Ok(false);
        }
        let Some(body) = head.get().0.body_in(bytes.as_bytes()) else {
            return Ok(false);
        };
        if !sender.borrow_mut(py).add(this, bytes, body) {
            return Ok(false);
        }
        let sender = sender.clone_ref(py);
        connection.is_waiting = true;
        Self::list(this, &mut connection);
        drop(connection);
        FastSender::announce(sender.bind(py))?;
        Ok(true)
    }

    fn list(this: &Bound<'_, Self>, connection: &mut PyRefMut<'_, Self>) {
        if !std::mem::replace(&mut connection.is_listed, true) {
            let mut fast_path = connection.fast_path.borrow_mut(this.py());
            fast_path
                .changed
                .insert(address(this), this.clone().unbind());
        }
    }

    /// Returns the protocol; `None` if the connection is closed.
    pub fn protocol(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.protocol
            .as_ref()
            .map(|protocol| protocol.clone_ref(py))
    }

    /// Passes the bytes of a delivery back to the protocol.
    pub fn hand_back(this: &Bound<'_, Self>, bytes: &PyBackedBytes) -> PyResult<()> {
        let protocol = {
            let mut connection = this.borrow_mut();
            connection.is_waiting = false;
            connection.protocol(this.py())
        };
        protocol.map_or(Ok(()), |protocol| {
            protocol
                .call_method1(this.py(), "take_back", (bytes,))
                .map(drop)
        })
    }

    /// Writes the answer, or passes the reply to the protocol if the connection is not as usual.
    pub fn answer(this: &Bound<'_, Self>, answer: &Answer<'_, '_>) -> PyResult<()> {
        let mut connection = this.borrow_mut();
        connection.is_waiting = false;
        let Some(write) = &connection.write else {
            return Ok(());
        };
        if let Some(wire) = answer.wire
            && connection.direct_answers > 0
        {
            let write = write.clone_ref(this.py());
            connection.direct_answers -= 1;
            connection.answered += 1;
            connection.answered_at = answer.now;
            Self::list(this, &mut connection);
            drop(connection);
            return write.call1(this.py(), (wire,)).map(drop);
        }
        let protocol = connection.protocol(this.py());
        drop(connection);
        protocol.map_or(Ok(()), |protocol| {
            protocol
                .call_method1(this.py(), "answer_collected", (answer.reply,))
                .map(drop)
        })
    }
}

/// An answer to all deliveries of a batch.
pub struct Answer<'a, 'py> {
    /// What is written to a connection; `None` if each protocol must write its answer.
    pub wire: Option<&'a Bound<'py, PyBytes>>,
    /// The same answer for a protocol.
    pub reply: &'a Bound<'py, PyAny>,
    /// Time of the event loop.
    pub now: f64,
}

fn address(connection: &Bound<'_, FastConnection>) -> usize {
    connection.as_ptr().addr()
}
