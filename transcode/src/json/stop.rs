//! Reasons why decoding stops before the end of the body.

use crate::refusal::Refusal;

/// Result of a reading function.
pub(super) type Outcome<T> = Result<T, Stop>;

/// The reason that decoding stopped. Boxed, so that results in the hot path stay small.
#[derive(Debug)]
pub(super) struct Stop(pub Box<Reason>);

/// Why decoding stopped.
#[derive(Debug)]
pub(super) enum Reason {
    /// The delivery is refused.
    Refused(Refusal),
    /// A resource or scope occurred again after its spans were reported: restart with two passes each.
    Late,
}

impl Stop {
    #[cold]
    pub fn late_owner() -> Self {
        Self(Box::new(Reason::Late))
    }
}

impl From<Refusal> for Stop {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(Reason::Refused(refusal)))
    }
}
