//! Python bindings of the sets of delivery digests.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::core_error;
use crate::digest::DigestKey;
use crate::digests::{self, DIGEST_BYTES};

fn salt_from(salt: &[u8]) -> PyResult<[u8; DIGEST_BYTES]> {
    let wrong_length = || {
        core_error(format!(
            "salt has {} bytes; expected {DIGEST_BYTES}",
            salt.len()
        ))
    };
    salt.try_into().map_err(|_| wrong_length())
}

/// Reads a digest key.
pub fn key(bytes: &[u8]) -> PyResult<DigestKey> {
    let wrong_length = || {
        core_error(format!(
            "digest key has {} bytes; expected {}",
            bytes.len(),
            DigestKey::BYTES
        ))
    };
    DigestKey::from_bytes(bytes).ok_or_else(wrong_length)
}

/// Growing set of digests in memory.
#[pyclass(module = "receiver._transcode")]
pub struct Digests(digests::Digests);

#[pymethods]
impl Digests {
    #[new]
    fn new(salt: &[u8]) -> PyResult<Self> {
        salt_from(salt).map(digests::Digests::new).map(Self)
    }
    fn __len__(&self) -> usize {
        self.0.len()
    }
    fn add(&mut self, digests: &[u8]) {
        self.0.add(digests);
    }
    fn known(&self, digests: &[u8]) -> Vec<usize> {
        self.0.known(digests)
    }
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        // Written into the Python object itself, because a copy would need twice the memory.
        PyBytes::new_with(py, self.0.slots_bytes(), |out| {
            self.0.write_slots(out);
            Ok(())
        })
    }
}

/// In-memory index of a set of digests in a file.
#[pyclass(module = "receiver._transcode")]
pub struct DigestTags(digests::Tags);

#[pymethods]
impl DigestTags {
    #[new]
    fn new(salt: &[u8]) -> PyResult<Self> {
        salt_from(salt).map(digests::Tags::new).map(Self)
    }
    fn extend(&mut self, slots: &[u8]) {
        self.0.extend(slots);
    }
    fn known(&self, digests: &[u8], slot_equals: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        // The file is read by Python, because the core opens no files.
        let compare =
            |slot, digest: [u8; DIGEST_BYTES]| slot_equals.call1((slot, digest))?.extract();
        self.0.known(digests, compare)
    }
}
