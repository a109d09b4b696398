//! What is kept, cut, sampled and resolved: built once from the settings, never changed.

use crate::clock::Window;
use crate::compress::Codec;
use crate::limits::Limits;
use crate::resolve::Resolver;
use crate::sample::Sampler;

/// The operator's wishes.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whose span it is.
    pub resolver: Resolver,
    /// Which start times are taken at their word.
    pub window: Window,
    /// What is kept.
    pub sampler: Sampler,
    /// How blocks are compressed.
    pub codec: Codec,
    /// Every ceiling.
    pub limits: Limits,
}
