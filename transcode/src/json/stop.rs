//! Why reading stops before the end of the body.

use crate::refusal::Refusal;

/// Boxed, so that what the hot path passes on stays small.
pub(super) type Outcome<T> = Result<T, Box<Stop>>;

/// What ended the reading.
#[derive(Debug)]
pub(super) enum Stop {
    /// The delivery is refused.
    Refused(Refusal),
    /// A resource or scope came again after its spans were told: begin anew, with two passes each.
    Late,
}

impl From<Refusal> for Box<Stop> {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Self::new(Stop::Refused(refusal))
    }
}
