//! Tests of sampling decisions: specification vectors, threshold algebra, and rewritten tracestates.

mod algebra;
mod vectors;

use super::{Decision, Explained, Match, Mode, Sampler, Subject, explain};

/// A trace id whose randomness is 0.81 of the maximum.
const HIGH: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;

fn subject(trace_id: u128, trace_state: &str) -> Subject<'_> {
    Subject {
        trace_id: trace_id.to_be_bytes(),
        trace_state: trace_state.as_bytes(),
        project: "prj_1",
        environment: "production",
        service: "api",
        drain: "eu",
        priority: None,
    }
}

fn sampler(mode: Mode, rate: f64) -> Sampler {
    Sampler::new(mode, rate, 0, Vec::new()).unwrap()
}

/// Returns the decision and the tracestate to store.
fn decided<'a>(sampler: &'a Sampler, subject: &Subject<'_>) -> (Decision<'a>, String) {
    let mut written = Vec::new();
    let decision = sampler.decide(subject, &mut written);
    let stored = if decision.rewritten {
        &written[..]
    } else {
        subject.trace_state
    };
    (decision, str::from_utf8(stored).unwrap().to_owned())
}

/// Returns the tracestate stored for a kept span that arrived with this tracestate.
fn stored(mode: Mode, rate: f64, trace_state: &str) -> String {
    let sampler = sampler(mode, rate);
    let (decision, stored) = decided(&sampler, &subject(HIGH, trace_state));
    assert!(decision.keep);
    stored
}

#[test]
fn off_keeps_every_span_unchanged() {
    let sampler = Sampler::default();
    let cases = [
        ("", None, None),
        ("vendor=x", None, None),
        ("ot=th:c", Some(4.0), Some(0xc0_0000_0000_0000)),
        ("ot=th:C", None, None),
        ("ot=th:c;rv:6e6d1a75832a2f", None, None),
    ];
    for (trace_state, weight, threshold) in cases {
        let (decision, stored) = decided(&sampler, &subject(HIGH, trace_state));

        assert!(decision.keep && !decision.rewritten);
        assert_eq!(
            (decision.weight, decision.threshold),
            (weight, threshold),
            "{trace_state}"
        );
        assert_eq!(
            (decision.reason, stored.as_str()),
            ("sampling is off", trace_state)
        );
    }
}

#[test]
fn new_threshold_is_written_and_other_fields_are_preserved() {
    let cases = [
        ("", "ot=th:c"),
        ("vendor=x", "ot=th:c,vendor=x"),
        ("vendor=x,ot=th:8", "ot=th:c,vendor=x"),
        ("a=1 ,\tot=p:8;th:8;q:r , b=2,", "ot=th:c;p:8;q:r,a=1,b=2"),
        ("ot=rv:ce929d0e0e4736", "ot=th:c;rv:ce929d0e0e4736"),
        ("ot=th:C;rv:CE929D0E0E4736", "ot=th:c"),
        ("ot=th:8;;x;Y:1;z:a b;ok:1", "ot=th:c;ok:1"),
        ("not=th:8", "ot=th:c,not=th:8"),
    ];
    for (arrived, expected) in cases {
        assert_eq!(
            stored(Mode::Equalizing, 0.25, arrived),
            expected,
            "{arrived}"
        );
    }
}

#[test]
fn unchanged_threshold_keeps_its_notation() {
    assert_eq!(
        stored(Mode::Equalizing, 0.5, "b=2,ot=th:c00"),
        "b=2,ot=th:c00"
    );
    assert_eq!(
        stored(Mode::Proportional, 1.0, "ot=th:c1234567"),
        "ot=th:c1234567"
    );
}

#[test]
fn ot_member_over_256_bytes_is_ignored() {
    let long = format!("ot=th:8;x:{}", "y".repeat(253));

    assert_eq!(stored(Mode::Proportional, 0.5, &long), "ot=th:8");
}

#[test]
fn inconsistent_upstream_span_is_kept_without_threshold_or_weight() {
    let cases = [
        ("ot=th:c;rv:6e6d1a75832a2f", "ot=rv:6e6d1a75832a2f"),
        ("v=x,ot=th:f", "v=x"),
        ("ot=th:f", ""),
    ];
    for mode in [Mode::Equalizing, Mode::Proportional, Mode::HashSeed] {
        for (arrived, expected) in cases {
            let sampler = sampler(mode, 0.01);
            let (decision, stored) = decided(&sampler, &subject(HIGH, arrived));

            assert!(decision.keep);
            assert_eq!((decision.weight, decision.threshold), (None, None));
            assert_eq!(decision.reason, "inconsistent upstream: kept");
            assert_eq!(stored, expected);
        }
    }
}

#[test]
fn first_matching_rule_decides_the_rate() {
    let project = |name: &str| Match {
        project: Some(name.to_owned()),
        ..Match::default()
    };
    let place = Match {
        environment: Some("production".to_owned()),
        service: Some("api".to_owned()),
        drain: Some("eu".to_owned()),
        ..Match::default()
    };
    let rules = vec![
        (project("prj_2"), 0.5),
        (place, 0.1),
        (project("prj_1"), 1.0),
    ];
    let sampler = Sampler::new(Mode::Equalizing, 0.25, 0, rules).unwrap();
    let reason = |subject: &Subject<'_>| decided(&sampler, subject).0.reason;
    let subject_a = subject(HIGH, "");

    assert_eq!(reason(&subject_a), "rule 2: outside rate");
    assert_eq!(
        reason(&Subject {
            drain: "us",
            ..subject_a
        }),
        "rule 3: within rate"
    );
    assert_eq!(
        reason(&Subject {
            project: "prj_2",
            ..subject_a
        }),
        "rule 1: within rate"
    );
    assert_eq!(
        reason(&Subject {
            project: "",
            drain: "",
            ..subject_a
        }),
        "within rate"
    );
    assert_eq!(reason(&subject(HIGH, "ot=th:c8")), "rule 2: outside rate");
    assert_eq!(
        reason(&Subject {
            drain: "",
            ..subject(HIGH, "ot=th:4")
        }),
        "rule 3: rarer upstream"
    );
}

#[test]
fn collector_priority_overrides_the_hash_and_removes_the_weight() {
    let sampler = sampler(Mode::HashSeed, 0.0);
    let prioritised = |priority, trace_state| {
        let subject = Subject {
            priority: Some(priority),
            ..subject(HIGH, trace_state)
        };
        decided(&sampler, &subject)
    };

    let (kept, stored) = prioritised(1.0, "v=x,ot=th:8;rv:ce929d0e0e4736");
    assert_eq!((kept.keep, kept.weight), (true, None));
    assert_eq!(stored, "ot=rv:ce929d0e0e4736,v=x");
    assert!(prioritised(0.5, "").0.keep);
    let full = Sampler::new(Mode::HashSeed, 1.0, 0, Vec::new()).unwrap();
    let dropped = Subject {
        priority: Some(0.0),
        ..subject(HIGH, "")
    };
    assert!(!decided(&full, &dropped).0.keep);
    let no_demand = Subject {
        priority: Some(-1.0),
        ..subject(HIGH, "")
    };
    assert!(decided(&full, &no_demand).0.keep);
    assert_eq!(prioritised(f64::NAN, "").0.reason, "outside rate");
}

#[test]
fn collector_hash_is_written_as_randomness_for_later_stages() {
    let stored = stored(Mode::HashSeed, 0.25, "v=x");

    assert_eq!(stored, "ot=th:c;rv:fdc80d0b42008d,v=x");
}

#[test]
fn second_tier_with_the_same_seed_keeps_the_same_spans() {
    let sampler = Sampler::new(Mode::HashSeed, 0.25, 22, Vec::new()).unwrap();
    for trace_id in 1..2_000 {
        let (first, trace_state) = decided(&sampler, &subject(trace_id, ""));
        if first.keep {
            let (second, again) = decided(&sampler, &subject(trace_id, &trace_state));

            assert!(second.keep);
            assert_eq!((second.weight, again), (first.weight, trace_state));
        }
    }
}

#[test]
fn malformed_tracestate_fields_are_listed() {
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (trace_state, ignored) in [
        ("ot=th:8;rv:9b8233f7e3a151", &[][..]),
        ("ot=th:xyz", &["th"]),
        ("ot=th:;rv:12", &["th", "rv"]),
        ("ot=p:8,x=th:zz", &[]),
    ] {
        let explanation = explained(id, "equalizing", 0.5, 0, trace_state).unwrap();

        assert_eq!(explanation.ignored, ignored, "{trace_state}");
    }
}

#[test]
fn invalid_trace_id_or_rate_is_an_error() {
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (trace_id, rate) in [
        ("4bf9", 1.0),
        (&id.replace('4', "+"), 1.0),
        (id, 1.1),
        (id, f64::NAN),
    ] {
        let refusal = explained(trace_id, "equalizing", rate, 0, "").unwrap_err();

        assert!(refusal.contains("; expected "), "{refusal}");
    }
    let upper = id.to_uppercase();
    assert!(explained(&upper, "off", 1.0, 0, "").unwrap().keep);
}

#[test]
fn an_explanation_names_the_rule_the_randomness_and_the_thresholds() {
    let rules = vec![
        (
            Match {
                project: Some("p".to_owned()),
                ..Match::default()
            },
            0.5,
        ),
        (
            Match {
                service: Some("s".to_owned()),
                ..Match::default()
            },
            0.25,
        ),
    ];
    let sampler = Sampler::new(Mode::Equalizing, 1.0, 0, rules).unwrap();
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let asked = Subject {
        service: "s",
        trace_state: b"ot=th:8",
        ..subject(1, "")
    };

    let found = explain(&sampler, id, &asked).unwrap();
    let other = explain(&sampler, id, &subject(1, "ot=rv:ffffffffffffff")).unwrap();

    assert_eq!((found.rule, found.keep), (Some(1), true));
    assert_eq!(found.threshold.as_deref(), Some("c"));
    assert_eq!(found.arriving_threshold.as_deref(), Some("8"));
    assert_eq!(found.randomness, "ce929d0e0e4736");
    assert_eq!(found.randomness_from, "last 7 bytes of the trace id");
    assert_eq!(
        (other.rule, other.randomness_from),
        (None, "rv of the trace state")
    );
}

/// The decision about a trace at one rate.
fn explained(
    id: &str,
    mode: &str,
    rate: f64,
    seed: u32,
    trace_state: &str,
) -> Result<Explained, String> {
    let mode = Mode::from_name(mode).unwrap();
    let sampler = Sampler::new(mode, rate, seed, Vec::new())?;
    explain(&sampler, id, &subject(0, trace_state))
}
