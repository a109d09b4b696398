//! What is kept, cut, sampled and resolved: built once from the settings, never changed.

use std::collections::HashMap;

use crate::clock::Window;
use crate::compress::Codec;
use crate::key;
use crate::limits::Limits;
use crate::resolve::{Place, Resolver, Rule};
use crate::sample::{Match, Mode, Sampler};

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

/// The operator's wishes as they are spelled in the settings.
#[expect(missing_docs, reason = "the settings' own names")]
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub project: Vec<(String, String)>,
    pub deployment: Vec<(String, String)>,
    pub retention_days: i64,
    pub late_margin_days: i64,
    pub ahead_s_max: i64,
    pub sampling_mode: String,
    pub sampling_rate: f64,
    pub sampling_seed: i64,
    pub sampling_rules: Vec<(HashMap<String, String>, f64)>,
    pub codec: String,
    pub limits: HashMap<String, i64>,
}

impl Policy {
    /// What the wishes mean.
    ///
    /// # Errors
    /// When one of them makes no sense; the text names it.
    pub fn new(wishes: &Wishes) -> Result<Self, String> {
        Ok(Self {
            resolver: Resolver::new(
                &rules("project", &wishes.project)?,
                &rules("deployment", &wishes.deployment)?,
            )?,
            window: window(wishes)?,
            sampler: sampler(wishes)?,
            codec: Codec::from_name(&wishes.codec)
                .ok_or_else(|| format!("codec {:?}; expected lz4 or zstd", wishes.codec))?,
            limits: limits(&wishes.limits)?,
        })
    }
}

fn rules(list: &str, spelled: &[(String, String)]) -> Result<Vec<Rule>, String> {
    let rule = |(place, key): &(String, String)| {
        let place = match place.as_str() {
            "resource" => Place::Resource,
            "span" => Place::Span,
            other => {
                return Err(format!(
                    "{list} looks at {other:?}; expected resource or span"
                ));
            }
        };
        Ok(Rule {
            place,
            key: key.clone(),
        })
    };
    spelled.iter().map(rule).collect()
}

fn sampler(wishes: &Wishes) -> Result<Sampler, String> {
    let mode = Mode::from_name(&wishes.sampling_mode).ok_or_else(|| {
        format!(
            "sampling mode {:?}; expected off, equalizing, proportional or hash_seed",
            wishes.sampling_mode
        )
    })?;
    let rules = wishes
        .sampling_rules
        .iter()
        .map(|(when, rate)| Ok((matching(when)?, *rate)));
    let rules = rules.collect::<Result<_, String>>()?;
    Sampler::new(
        mode,
        wishes.sampling_rate,
        count("sampling seed", wishes.sampling_seed)?,
        rules,
    )
}

fn matching(when: &HashMap<String, String>) -> Result<Match, String> {
    let mut matching = Match::default();
    for (what, value) in when {
        let field = match what.as_str() {
            "project" => &mut matching.project,
            "environment" => &mut matching.environment,
            "service" => &mut matching.service,
            "drain" => &mut matching.drain,
            other => {
                return Err(format!(
                    "sampling rule looks at {other:?}; expected project, environment, service or drain"
                ));
            }
        };
        *field = Some(value.clone());
    }
    // Spans are compared by the key that is stored.
    matching.project = matching
        .project
        .map(|name| key::bounded(&name).into_owned());
    Ok(matching)
}

fn window(wishes: &Wishes) -> Result<Window, String> {
    let retention_days = count("retention_days", wishes.retention_days)?;
    let late_margin_days = count("late_margin_days", wishes.late_margin_days)?;
    if retention_days > 0 && late_margin_days >= retention_days {
        return Err(format!(
            "late_margin_days is {late_margin_days} and retention_days {retention_days}; expected the margin to be shorter"
        ));
    }
    Ok(Window {
        retention_days,
        late_margin_days,
        ahead_s_max: count("ahead_s_max", wishes.ahead_s_max)?,
    })
}

fn count(name: &str, value: i64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("{name} is {value}; expected 0 to {}", u32::MAX))
}

fn limits(spelled: &HashMap<String, i64>) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for (name, value) in spelled {
        let positive = usize::try_from(*value).ok().filter(|value| *value > 0);
        let value =
            positive.ok_or_else(|| format!("limit {name} is {value}; expected at least 1"))?;
        if !limits.set(name, value) {
            return Err(format!("limit {name:?} is unknown"));
        }
    }
    Ok(limits)
}
