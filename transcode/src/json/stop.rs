//! Why reading stops before the end of the body.

use crate::refusal::Refusal;

/// What reading yields.
pub(super) type Outcome<T> = Result<T, Stop>;

/// What ended the reading. Boxed, so that what the hot path passes on stays small.
#[derive(Debug)]
pub(super) struct Stop(pub Box<Reason>);

/// Why it ended.
#[derive(Debug)]
pub(super) enum Reason {
    /// The delivery is refused.
    Refused(Refusal),
    /// A resource or scope came again after its spans were told: begin anew, with two passes each.
    Late,
}

impl Stop {
    #[cold]
    pub fn late() -> Self {
        Self(Box::new(Reason::Late))
    }
}

impl From<Refusal> for Stop {
    #[cold]
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(Reason::Refused(refusal)))
    }
}
