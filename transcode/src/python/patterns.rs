//! Python binding of the patterns for secrets.

use pyo3::prelude::*;

use super::core_error;
use crate::patterns;

/// Regular expressions that are searched together, in linear time.
#[pyclass(frozen, module = "receiver._transcode")]
pub struct PatternSet(patterns::PatternSet);

#[pymethods]
impl PatternSet {
    #[new]
    fn new(patterns: Vec<String>) -> PyResult<Self> {
        patterns::PatternSet::new(&patterns)
            .map(Self)
            .map_err(core_error)
    }
    fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}
