//! Immutable configuration of the core, built once from the settings: limits, sampling, project resolution,
//! clock guard and compression.

use std::collections::HashMap;

use crate::clock::Window;
use crate::compress::Codec;
use crate::key;
use crate::limits::Limits;
use crate::resolve::{Place, Resolver, Rule};
use crate::sample::{Match, Mode, Sampler};

/// Validated configuration.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Finds the project and deployment of a span.
    pub resolver: Resolver,
    /// Range of start times that are stored as sent.
    pub window: Window,
    /// Decides which spans are stored.
    pub sampler: Sampler,
    /// Compression of the blocks.
    pub codec: Codec,
    /// Limits on one delivery.
    pub limits: Limits,
}

/// The settings of the receiver that the core uses, before validation.
#[expect(
    missing_docs,
    reason = "named as in the settings file, which documents them"
)]
#[derive(Clone, Debug, Default)]
pub struct Settings {
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
    /// Validates the settings.
    ///
    /// # Errors
    /// If a setting is invalid; the message names it.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Ok(Self {
            resolver: Resolver::new(
                &rules("project", &settings.project)?,
                &rules("deployment", &settings.deployment)?,
            )?,
            window: window(settings)?,
            sampler: sampler(settings)?,
            codec: Codec::from_name(&settings.codec)
                .ok_or_else(|| format!("codec {:?}; expected lz4 or zstd", settings.codec))?,
            limits: limits(&settings.limits)?,
        })
    }
}

fn rules(list_name: &str, entries: &[(String, String)]) -> Result<Vec<Rule>, String> {
    let rule = |(place, key): &(String, String)| {
        let place = match place.as_str() {
            "resource" => Place::Resource,
            "span" => Place::Span,
            other => {
                return Err(format!(
                    "{list_name} uses attributes of {other:?}; expected resource or span"
                ));
            }
        };
        Ok(Rule {
            place,
            key: key.clone(),
        })
    };
    entries.iter().map(rule).collect()
}

fn sampler(settings: &Settings) -> Result<Sampler, String> {
    let mode = Mode::from_name(&settings.sampling_mode).ok_or_else(|| {
        format!(
            "sampling mode {:?}; expected off, equalizing, proportional or hash_seed",
            settings.sampling_mode
        )
    })?;
    let rules = settings
        .sampling_rules
        .iter()
        .map(|(when, rate)| Ok((matching(when)?, *rate)));
    let rules = rules.collect::<Result<_, String>>()?;
    Sampler::new(
        mode,
        settings.sampling_rate,
        count("sampling seed", settings.sampling_seed)?,
        rules,
    )
}

fn matching(when: &HashMap<String, String>) -> Result<Match, String> {
    let mut matching = Match::default();
    for (name, value) in when {
        let field = match name.as_str() {
            "project" => &mut matching.project,
            "environment" => &mut matching.environment,
            "service" => &mut matching.service,
            "drain" => &mut matching.drain,
            other => {
                return Err(format!(
                    "sampling rule has a condition on {other:?}; expected project, environment, service or drain"
                ));
            }
        };
        *field = Some(value.clone());
    }
    // Rules are compared with the stored name, which is shortened.
    matching.project = matching
        .project
        .map(|name| key::bounded(&name).into_owned());
    Ok(matching)
}

fn window(settings: &Settings) -> Result<Window, String> {
    let retention_days = count("retention_days", settings.retention_days)?;
    let late_margin_days = count("late_margin_days", settings.late_margin_days)?;
    // If the margin were as long as the retention, every span would be late.
    if retention_days > 0 && late_margin_days >= retention_days {
        return Err(format!(
            "late_margin_days is {late_margin_days} and retention_days {retention_days}; expected the margin to be shorter"
        ));
    }
    Ok(Window {
        retention_days,
        late_margin_days,
        ahead_s_max: count("ahead_s_max", settings.ahead_s_max)?,
    })
}

fn count(name: &str, value: i64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("{name} is {value}; expected 0 to {}", u32::MAX))
}

fn limits(entries: &HashMap<String, i64>) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for (name, value) in entries {
        // A limit of 0 would refuse every delivery, or drop all attributes, events or links.
        let positive = usize::try_from(*value).ok().filter(|value| *value > 0);
        let value =
            positive.ok_or_else(|| format!("limit {name} is {value}; expected at least 1"))?;
        if !limits.set(name, value) {
            return Err(format!("limit {name:?} is unknown"));
        }
    }
    Ok(limits)
}
