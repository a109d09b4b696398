//! Reasons to stop decoding before the end of the body.

use crate::refusal::Refusal;

/// Result of a reading function.
pub(super) type ReadResult<T> = Result<T, Stop>;

/// Boxed reason. The box keeps the results of functions in the hot path small.
#[derive(Debug)]
pub(super) struct Stop(pub Box<Reason>);

/// Why decoding stopped.
#[derive(Debug)]
pub(super) enum Reason {
    /// The delivery is refused.
    Refused(Refusal),
    /// A resource or scope occurred again after its spans were reported. The decoder restarts with two passes over each.
    LateOwner,
}

impl Stop {
    #[cold]
    pub fn late_owner() -> Self {
        Self(Box::new(Reason::LateOwner))
    }
}

impl From<Refusal> for Stop {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(Reason::Refused(refusal)))
    }
}
