//! Consistent probability sampling: which spans are kept, what each then stands for, and why.
//!
//! A decision is a pure function of trace id, tracestate and rate: no clock, no dice, no memory.
//! Every process and every restart decides alike, so a trace is kept whole or not at all. A span is
//! kept when its randomness R reaches the threshold T; T is what we ask, composed with what the
//! span arrived with. `docs/sampling.md` has the modes.
//!
//! Keeps: a threshold is never lowered, and a weight that is not known is not 1.

mod collector;
mod explain;
mod threshold;
mod tracestate;

pub use explain::{Explained, explain};
use threshold::{NEVER, Rate, adjusted_count, randomness_of};
use tracestate::Arrival;

/// How our rate meets what upstream did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everything is kept, and weighed by what upstream says.
    #[default]
    Off,
    /// Everything ends at the rate; what upstream made rarer passes unchanged.
    Equalizing,
    /// Traffic is cut by the rate, on top of upstream.
    Proportional,
    /// As the Collector's `probabilistic_sampler` decides in that mode. A span that arrives with
    /// randomness or a threshold of its own, which the Collector refuses, is equalized: a fleet
    /// with the same seed in front of us then keeps exactly what we keep.
    HashSeed,
}

impl Mode {
    /// The mode of this name, as the settings spell it.
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

/// What a decision may look at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Sixteen bytes.
    pub trace_id: [u8; 16],
    /// As sent.
    pub trace_state: &'a [u8],
    /// Whose span it is.
    pub project: &'a str,
    /// Of the deployment.
    pub environment: &'a str,
    /// `service.name`.
    pub service: &'a str,
    /// Who sent it.
    pub drain: &'a str,
    /// The span attribute `sampling.priority`, if it is a number or spells one; only `hash_seed`
    /// looks at it, as the Collector does.
    pub priority: Option<f64>,
}

/// Keep or drop, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision<'a> {
    /// Whether the span is stored.
    pub keep: bool,
    /// How many spans it stands for; none: unknown, or not kept.
    pub weight: Option<f64>,
    /// The threshold in force; none: unknown, or nothing reaches it.
    pub threshold: Option<u64>,
    /// Short and stable: one of a few texts per rule, made once.
    pub reason: &'a str,
    /// Whether the tracestate to store is the one written, which may be empty, and not the one sent.
    pub rewritten: bool,
}

/// What a trace must be for a rule to hold; what is absent matches everything.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Exactly this project.
    pub project: Option<String>,
    /// Exactly this environment.
    pub environment: Option<String>,
    /// Exactly this service.
    pub service: Option<String>,
    /// Exactly this drain.
    pub drain: Option<String>,
}

impl Match {
    fn holds_for(&self, subject: &Subject<'_>) -> bool {
        let asked = [&self.project, &self.environment, &self.service, &self.drain];
        let found = [
            subject.project,
            subject.environment,
            subject.service,
            subject.drain,
        ];
        asked
            .iter()
            .zip(found)
            .all(|(asked, found)| asked.as_deref().is_none_or(|it| it == found))
    }
}

/// Decides span by span. Made once from the settings; the default keeps everything.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    mode: Mode,
    seeded: collector::Hash,
    rules: Vec<(Match, Course)>,
    otherwise: Course,
}

/// A rate and the texts of its decisions.
#[derive(Clone, Debug, Default)]
struct Course {
    rate: Rate,
    within: String,
    outside: String,
    rarer: String,
    /// The tracestate of a span that arrived with none.
    trace_state: Vec<u8>,
}

impl Course {
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
            within: format!("{name}within rate"),
            outside: format!("{name}outside rate"),
            rarer: format!("{name}rarer upstream"),
            trace_state,
        })
    }
}

impl Sampler {
    /// One rate, or the rate of the first rule that holds.
    ///
    /// # Errors
    /// When a rate is not between 0 and 1.
    pub fn new(mode: Mode, rate: f64, seed: u32, rules: Vec<(Match, f64)>) -> Result<Self, String> {
        let rules = rules
            .into_iter()
            .enumerate()
            .map(|(at, (when, rate))| {
                Ok((
                    when,
                    Course::new(&format!("rule {}: ", at + 1), mode, rate)?,
                ))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self {
            mode,
            seeded: collector::Hash::seeded(seed),
            rules,
            otherwise: Course::new("", mode, rate)?,
        })
    }

    /// The decision. `trace_state` receives the tracestate to store if it is not the one sent.
    #[must_use]
    #[inline]
    pub fn decide<'a>(&'a self, subject: &Subject<'_>, trace_state: &mut Vec<u8>) -> Decision<'a> {
        if self.mode == Mode::Off {
            return as_it_came(subject);
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
            return by_priority(keep, &arrival, subject, trace_state);
        }
        let course = self.course(subject);
        let hashed = self.is_hashed(&arrival);
        let randomness = self.randomness(&arrival, subject);
        if arrival
            .threshold
            .is_some_and(|threshold| randomness < threshold)
        {
            return inconsistent(&arrival, subject, trace_state);
        }
        let threshold = self.compose(&course.rate, arrival.threshold);
        let mut decision = course.decision(randomness, threshold, arrival.threshold);
        if decision.keep && arrival.threshold != Some(threshold) {
            decision.rewritten = true;
            let new_randomness = hashed.then_some(randomness);
            if subject.trace_state.is_empty() && !hashed {
                trace_state.clone_from(&course.trace_state);
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

    /// Whether the randomness is the Collector's hash of the trace id.
    #[inline]
    fn is_hashed(&self, arrival: &Arrival) -> bool {
        self.mode == Mode::HashSeed && arrival.is_unmarked()
    }

    /// The randomness of a span: what it arrived with, or what its trace id gives.
    #[inline]
    fn randomness(&self, arrival: &Arrival, subject: &Subject<'_>) -> u64 {
        match arrival.randomness {
            Some(randomness) => randomness,
            None if self.is_hashed(arrival) => self.seeded.randomness(&subject.trace_id),
            None => randomness_of(&subject.trace_id),
        }
    }

    /// The first rule that holds, counted from zero.
    #[inline]
    fn rule_of(&self, subject: &Subject<'_>) -> Option<usize> {
        self.rules
            .iter()
            .position(|(when, _)| when.holds_for(subject))
    }

    fn course(&self, subject: &Subject<'_>) -> &Course {
        self.rule_of(subject)
            .and_then(|at| self.rules.get(at))
            .map_or(&self.otherwise, |(_, course)| course)
    }

    /// Our threshold on top of the arriving one. Never below it: rounding must not lower it.
    fn compose(&self, ours: &Rate, arriving: Option<u64>) -> u64 {
        let Some(arriving) = arriving else {
            return ours.threshold;
        };
        let composed = match self.mode {
            Mode::Proportional => ours.of(arriving),
            _ => ours.threshold,
        };
        composed.max(arriving)
    }
}

impl Course {
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

/// Nothing is decided; the weight is what upstream's threshold says, if it says anything.
fn as_it_came(subject: &Subject<'_>) -> Decision<'static> {
    let mut threshold = None;
    if !subject.trace_state.is_empty() {
        let arrival = Arrival::read(subject.trace_state);
        let randomness = arrival
            .randomness
            .unwrap_or_else(|| randomness_of(&subject.trace_id));
        threshold = arrival
            .threshold
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

/// Kept, but not by chance: what it stands for is unknown, so no threshold may go on saying it.
fn unweighed(
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

/// Upstream could not have kept this span at the threshold it names.
#[cold]
fn inconsistent(
    arrival: &Arrival,
    subject: &Subject<'_>,
    trace_state: &mut Vec<u8>,
) -> Decision<'static> {
    unweighed("inconsistent upstream: kept", arrival, subject, trace_state)
}

fn by_priority(
    keep: bool,
    arrival: &Arrival,
    subject: &Subject<'_>,
    trace_state: &mut Vec<u8>,
) -> Decision<'static> {
    if keep {
        return unweighed("sampling.priority says keep", arrival, subject, trace_state);
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
