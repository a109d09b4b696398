//! Commits as claims.

/// The body on which the decoder panics, in tests.
pub const PANICKING_BODY: &[u8] = b"panic, please";
