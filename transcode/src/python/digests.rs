//! The doorway to what was accepted before.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::core_error;
use crate::digest::DigestKey;
use crate::digests::{self, DIGEST_BYTES, Layout};

fn salted(salt: &[u8]) -> PyResult<[u8; DIGEST_BYTES]> {
    let wanted = || {
        core_error(format!(
            "salt has {} bytes; expected {DIGEST_BYTES}",
            salt.len()
        ))
    };
    salt.try_into().map_err(|_| wanted())
}

/// Reads the key of this installation.
pub fn key(bytes: &[u8]) -> PyResult<DigestKey> {
    let wanted = || {
        core_error(format!(
            "digest key has {} bytes; expected {}",
            bytes.len(),
            DigestKey::BYTES
        ))
    };
    DigestKey::from_bytes(bytes).ok_or_else(wanted)
}

/// A set of digests that grows.
#[pyclass(module = "receiver._transcode")]
pub struct Digests(digests::Digests);

#[pymethods]
impl Digests {
    #[new]
    fn new(salt: &[u8]) -> PyResult<Self> {
        salted(salt).map(digests::Digests::new).map(Self)
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
        PyBytes::new_with(py, self.0.slots_bytes(), |out| {
            self.0.write_slots(out);
            Ok(())
        })
    }
}

/// What is kept in memory of a set that lies in a file.
#[pyclass(module = "receiver._transcode")]
pub struct DigestTags(digests::Tags);

#[pymethods]
impl DigestTags {
    #[new]
    #[pyo3(signature = (salt, *, mixed_once))]
    fn new(salt: &[u8], mixed_once: bool) -> PyResult<Self> {
        let layout = if mixed_once {
            Layout::Once
        } else {
            Layout::Twice
        };
        Ok(Self(digests::Tags::new(salted(salt)?, layout)))
    }
    fn extend(&mut self, slots: &[u8]) {
        self.0.extend(slots);
    }
    fn known(&self, digests: &[u8], lies_at: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let ask = |place, digest: [u8; DIGEST_BYTES]| lies_at.call1((place, digest))?.extract();
        self.0.known(digests, ask)
    }
}
