//! Consistent probability sampling: which spans are kept, how many spans each represents, and why.
//!
//! A decision is a pure function of trace id, tracestate and rate, without clock, random numbers or state.
//! Every process makes the same decision, also after a restart, so a trace is kept completely or dropped
//! completely. A span is kept if its randomness R reaches the threshold T, which combines the configured
//! rate with the threshold that the span arrived with. `docs/sampling.md` describes the modes.
//!
//! Invariant: a threshold is never lowered, and an unknown weight is reported as unknown, not as 1.

mod collector;
mod explain;
mod threshold;
mod tracestate;

pub use explain::{Explained, explain};
use threshold::{NEVER, Rate, adjusted_count, randomness_of};
use tracestate::Arrival;

/// How the configured rate is combined with upstream sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every span is kept; its weight follows from the upstream threshold.
    #[default]
    Off,
    /// Every span ends up sampled at the configured rate; spans that upstream sampled at a lower rate pass unchanged.
    Equalizing,
    /// The rate applies in addition to upstream sampling.
    Proportional,
    /// Decides as the Collector's `probabilistic_sampler` does in that mode. A span that arrives with
    /// randomness or a threshold, which the Collector refuses, is handled as in `Equalizing`. A fleet of
    /// collectors with the same seed in front of the receiver keeps exactly the same spans.
    HashSeed,
}

impl Mode {
    /// Returns the mode with this name in the settings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "equalizing" => Some(Self::Equalizing),
            "proportional" => Some(Self::Proportional),
            "hash_seed" => Some(Self::HashSeed),
            _ => None,
        }
    }
}

/// Input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Sixteen bytes.
    pub trace_id: [u8; 16],
    /// Tracestate as sent.
    pub trace_state: &'a [u8],
    /// Project of the span.
    pub project: &'a str,
    /// Environment of the deployment.
    pub environment: &'a str,
    /// `service.name`.
    pub service: &'a str,
    /// Drain that delivered the span.
    pub drain: &'a str,
    /// The span attribute `sampling.priority`, if it is a number or the text of a number. Used only by
    /// `hash_seed`, as in the Collector.
    pub priority: Option<f64>,
}

/// Decision on one span, with its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'a> {
    /// Whether the span is stored.
    pub keep: bool,
    /// Number of spans it represents; `None` if unknown or dropped.
    pub weight: Option<f64>,
    /// Effective threshold; `None` if unknown or if no randomness reaches it.
    pub threshold: Option<u64>,
    /// Reason, short and stable: one of a few strings per rule, allocated once.
    pub reason: &'a str,
    /// Whether to store the rewritten tracestate, which may be empty, instead of the tracestate as sent.
    pub rewritten: bool,
}

/// Conditions of a sampling rule; an absent condition matches everything.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Matches only this project.
    pub project: Option<String>,
    /// Matches only this environment.
    pub environment: Option<String>,
    /// Matches only this service.
    pub service: Option<String>,
    /// Matches only this drain.
    pub drain: Option<String>,
}

impl Match {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        let conditions = [&self.project, &self.environment, &self.service, &self.drain];
        let values = [
            subject.project,
            subject.environment,
            subject.service,
            subject.drain,
        ];
        conditions
            .iter()
            .zip(values)
            .all(|(condition, value)| condition.as_deref().is_none_or(|it| it == value))
    }
}

/// Decides span by span. Built once from the settings; the default keeps everything.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    mode: Mode,
    seeded: collector::Hash,
    rules: Vec<(Match, RatePlan)>,
    default_plan: RatePlan,
}

/// A rate and the prepared strings of its decisions.
#[derive(Clone, Debug, Default)]
struct RatePlan {
    rate: Rate,
    within: String,
    outside: String,
    rarer: String,
    /// Tracestate for a span that arrived without a tracestate.
    trace_state: Vec<u8>,
}

impl RatePlan {
    fn new(name: &str, mode: Mode, rate: f64) -> Result<Self, String> {
        if !(0.0..=1.0).contains(&rate) {
            return Err(format!("sampling rate {rate}; expected 0 to 1"));
        }
        let rate = match mode {
            Mode::HashSeed => collector::rate(rate),
            _ => Rate::new(rate),
        };
        let mut trace_state = Vec::new();
        tracestate::write(b"", Some(rate.threshold), None, &mut trace_state);
        Ok(Self {
            rate,
            // Built once; a decision borrows its reason.
            within: format!("{name}within rate"),
            outside: format!("{name}outside rate"),
            rarer: format!("{name}rarer upstream"),
            trace_state,
        })
    }
}

impl Sampler {
    /// Builds a sampler with a default rate and rules, of which the first match decides the rate.
    ///
    /// # Errors
    /// If a rate is not between 0 and 1.
    pub fn new(mode: Mode, rate: f64, seed: u32, rules: Vec<(Match, f64)>) -> Result<Self, String> {
        let rules = rules
            .into_iter()
            .enumerate()
            .map(|(at, (when, rate))| {
                Ok((
                    when,
                    RatePlan::new(&format!("rule {}: ", at + 1), mode, rate)?,
                ))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self {
            mode,
            seeded: collector::Hash::seeded(seed),
            rules,
            default_plan: RatePlan::new("", mode, rate)?,
        })
    }

    /// Decides on a span. Writes the tracestate to `trace_state` if it differs from the one sent.
    #[must_use]
    #[inline]
    pub fn decide<'a>(&'a self, subject: &Subject<'_>, trace_state: &mut Vec<u8>) -> Decision<'a> {
        if self.mode == Mode::Off {
            return keep_all(subject);
        }
        self.decide_by_rate(subject, trace_state)
    }

    fn decide_by_rate<'a>(
        &'a self,
        subject: &Subject<'_>,
        trace_state: &mut Vec<u8>,
    ) -> Decision<'a> {
        let arrival = Arrival::read(subject.trace_state);
        if self.mode == Mode::HashSeed
            && let Some(keep) = subject.priority.and_then(collector::priority)
        {
            return decide_by_priority(keep, &arrival, subject, trace_state);
        }
        let rate_plan = self.rate_plan(subject);
        let hashed = self.is_hashed(&arrival);
        let randomness = self.randomness(&arrival, subject);
        if arrival
            .threshold
            .is_some_and(|threshold| randomness < threshold)
        {
            // Upstream would have dropped this span at the threshold that it carries.
            return keep_inconsistent(&arrival, subject, trace_state);
        }
        let threshold = self.compose(&rate_plan.rate, arrival.threshold);
        let mut decision = rate_plan.decision(randomness, threshold, arrival.threshold);
        // With an unchanged threshold the tracestate is stored exactly as sent.
        if decision.keep && arrival.threshold != Some(threshold) {
            decision.rewritten = true;
            // The hash that decided here is passed on, so that later stages decide with the same randomness.
            let new_randomness = hashed.then_some(randomness);
            if subject.trace_state.is_empty() && !hashed {
                // The common case: the tracestate was built once for the rate.
                trace_state.clone_from(&rate_plan.trace_state);
            } else {
                tracestate::write(
                    subject.trace_state,
                    Some(threshold),
                    new_randomness,
                    trace_state,
                );
            }
        }
        decision
    }

    /// Returns whether the randomness is the Collector's hash of the trace id.
    #[inline]
    fn is_hashed(&self, arrival: &Arrival) -> bool {
        self.mode == Mode::HashSeed && arrival.is_unmarked()
    }

    /// Returns the randomness that a span arrived with, or derives it from its trace id.
    #[inline]
    fn randomness(&self, arrival: &Arrival, subject: &Subject<'_>) -> u64 {
        match arrival.randomness {
            Some(randomness) => randomness,
            None if self.is_hashed(arrival) => self.seeded.randomness(&subject.trace_id),
            None => randomness_of(&subject.trace_id),
        }
    }

    /// Returns the index of the first matching rule.
    #[inline]
    fn rule_of(&self, subject: &Subject<'_>) -> Option<usize> {
        self.rules
            .iter()
            .position(|(when, _)| when.matches(subject))
    }

    fn rate_plan(&self, subject: &Subject<'_>) -> &RatePlan {
        self.rule_of(subject)
            .and_then(|at| self.rules.get(at))
            .map_or(&self.default_plan, |(_, rate_plan)| rate_plan)
    }

    /// Combines the configured threshold with the arriving threshold. The result is never below the arriving threshold:
    /// rounding must not lower it.
    fn compose(&self, configured: &Rate, arriving: Option<u64>) -> u64 {
        let Some(arriving) = arriving else {
            return configured.threshold;
        };
        let composed = match self.mode {
            Mode::Proportional => configured.of(arriving),
            _ => configured.threshold,
        };
        composed.max(arriving)
    }
}

impl RatePlan {
    fn decision(&self, randomness: u64, threshold: u64, arriving: Option<u64>) -> Decision<'_> {
        let keep = randomness >= threshold;
        let rarer = arriving == Some(threshold) && threshold > self.rate.threshold;
        let reason = match (keep, rarer) {
            (false, _) => &self.outside,
            (true, true) => &self.rarer,
            (true, false) => &self.within,
        };
        Decision {
            keep,
            weight: keep.then(|| adjusted_count(threshold)),
            threshold: (threshold < NEVER).then_some(threshold),
            reason,
            rewritten: false,
        }
    }
}

/// Keeps a span without a decision; its weight follows from the upstream threshold, if there is one.
fn keep_all(subject: &Subject<'_>) -> Decision<'static> {
    let mut threshold = None;
    if !subject.trace_state.is_empty() {
        let arrival = Arrival::read(subject.trace_state);
        let randomness = arrival
            .randomness
            .unwrap_or_else(|| randomness_of(&subject.trace_id));
        threshold = arrival
            .threshold
            // a span that upstream should have dropped says nothing about the number of others
            .filter(|&threshold| randomness >= threshold);
    }
    Decision {
        keep: true,
        weight: threshold.map(adjusted_count),
        threshold,
        reason: "sampling is off",
        rewritten: false,
    }
}

/// Keeps a span for a reason other than its randomness: its weight is unknown, so its threshold is removed.
fn keep_without_weight(
    reason: &'static str,
    arrival: &Arrival,
    subject: &Subject<'_>,
    trace_state: &mut Vec<u8>,
) -> Decision<'static> {
    if arrival.threshold.is_some() {
        tracestate::write(subject.trace_state, None, None, trace_state);
    }
    let rewritten = arrival.threshold.is_some();
    Decision {
        keep: true,
        weight: None,
        threshold: None,
        reason,
        rewritten,
    }
}

/// Keeps a span that upstream could not have kept at the threshold it carries.
#[cold]
fn keep_inconsistent(
    arrival: &Arrival,
    subject: &Subject<'_>,
    trace_state: &mut Vec<u8>,
) -> Decision<'static> {
    keep_without_weight("inconsistent upstream: kept", arrival, subject, trace_state)
}

fn decide_by_priority(
    keep: bool,
    arrival: &Arrival,
    subject: &Subject<'_>,
    trace_state: &mut Vec<u8>,
) -> Decision<'static> {
    if keep {
        return keep_without_weight("sampling.priority says keep", arrival, subject, trace_state);
    }
    let reason = "sampling.priority says drop";
    Decision {
        keep: false,
        weight: None,
        threshold: None,
        reason,
        rewritten: false,
    }
}

#[cfg(test)]
mod tests;
