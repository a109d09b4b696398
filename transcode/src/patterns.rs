//! Regular expressions from the settings, searched in texts of senders in linear time.

use regex::{Error, RegexSet, RegexSetBuilder};

/// Maximum memory of a compiled set.
pub const COMPILED_BYTES_MAX: usize = 4 << 20;
/// Maximum depth of groups.
pub const DEPTH_MAX: u32 = 32;

/// Patterns that are searched together, in upper and lower case.
pub struct PatternSet(RegexSet);

impl PatternSet {
    /// Compiles the patterns.
    ///
    /// # Errors
    ///
    /// What is wrong with a pattern. A pattern that matches the empty text is wrong: it would match every text.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let set = RegexSetBuilder::new(patterns)
            .case_insensitive(true)
            .dot_matches_new_line(true)
            .nest_limit(DEPTH_MAX)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| problem(&error))?;
        if set.is_match("") {
            return Err("matches the empty text; expected a pattern that needs a character".into());
        }
        Ok(Self(set))
    }

    /// Returns whether a part of the text matches a pattern.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

fn problem(error: &Error) -> String {
    match error {
        Error::CompiledTooBig(limit) => {
            format!("needs over {limit} bytes when compiled; expected smaller numbers of repeats")
        }
        // The lines before show the pattern.
        other => {
            let text = other.to_string();
            let line = text.lines().last().unwrap_or_default();
            let reason = line.strip_prefix("error: ").unwrap_or(line);
            format!("is not a regular expression: {reason}")
        }
    }
}
