//! Properties that hold for every trace id: consistency, composition, unbiased weights.

use proptest::prelude::*;

use super::super::threshold::{from_hex, hex, hex_in_full};
use super::{Mode, Sampler, decided, sampler, subject};

const TRACES: u32 = 20_000;

/// Yields ids like a generator would: a multiplicative walk through all 128 bits.
fn trace_ids(seed: u64) -> impl Iterator<Item = u128> {
    let step = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128;
    let mut state = u128::from(seed) << 64 | 1;
    (0..TRACES).map(move |_| {
        state = state
            .wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645)
            .wrapping_add(step);
        state.rotate_right(58) ^ state
    })
}

fn keeps(sampler: &Sampler, trace_id: u128) -> bool {
    decided(sampler, &subject(trace_id, "")).0.keep
}

fn modes() -> impl Strategy<Value = Mode> {
    prop::sample::select(&[Mode::Equalizing, Mode::Proportional, Mode::HashSeed][..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn higher_rate_keeps_a_superset(
        mode in modes(), seed in any::<u64>(), first_rate in 0.0..=1.0, second_rate in 0.0..=1.0,
    ) {
        let lower = sampler(mode, f64::min(first_rate, second_rate));
        let higher = sampler(mode, f64::max(first_rate, second_rate));
        for trace_id in trace_ids(seed) {
            prop_assert!(keeps(&higher, trace_id) || !keeps(&lower, trace_id));
        }
    }

    #[test]
    fn kept_share_matches_the_rate_and_weights_sum_to_the_total(
        mode in modes(), seed in any::<u64>(), rate in 0.01..=1.0,
    ) {
        let sampler = sampler(mode, rate);
        let weights: Vec<f64> = trace_ids(seed)
            .filter_map(|trace_id| decided(&sampler, &subject(trace_id, "")).0.weight)
            .collect();
        let total = f64::from(TRACES);
        let kept = f64::from(u32::try_from(weights.len()).unwrap());
        let spread = (rate * (1.0 - rate) / total).sqrt();
        // Five standard deviations: the ids follow from the seed of the case, but there are many cases.
        prop_assert!((kept / total - rate).abs() <= 5.0 * spread + 2e-4);
        let variance: f64 = weights.iter().map(|weight| weight * (weight - 1.0)).sum();
        let error = (weights.iter().sum::<f64>() - total).abs();
        prop_assert!(error <= 5.0 * variance.sqrt() + 2e-4 * total);
    }

    #[test]
    fn equalizing_is_idempotent(seed in any::<u64>(), rate in 0.001..=1.0) {
        let sampler = sampler(Mode::Equalizing, rate);
        for trace_id in trace_ids(seed) {
            let (once, trace_state) = decided(&sampler, &subject(trace_id, ""));
            if once.keep {
                let (twice, again) = decided(&sampler, &subject(trace_id, &trace_state));
                prop_assert!(twice.keep && !twice.rewritten);
                prop_assert_eq!((twice.weight, again), (once.weight, trace_state));
            }
        }
    }

    #[test]
    fn proportional_stages_multiply_their_rates(
        seed in any::<u64>(), first_rate in 0.01..=1.0, second_rate in 0.01..=1.0,
    ) {
        let (first, second) = (sampler(Mode::Proportional, first_rate), sampler(Mode::Proportional, second_rate));
        let product = sampler(Mode::Proportional, first_rate * second_rate);
        let mut differing = 0;
        for trace_id in trace_ids(seed) {
            let (decision, trace_state) = decided(&first, &subject(trace_id, ""));
            let kept_by_both = decision.keep && decided(&second, &subject(trace_id, &trace_state)).0.keep;
            differing += u32::from(kept_by_both != keeps(&product, trace_id));
        }
        // Thresholds have four digits: the sets differ by at most about 2^-15 of the traces.
        prop_assert!(differing <= 5, "{} differ", differing);
    }

    #[test]
    fn decisions_do_not_depend_on_process_or_order(
        mode in modes(), seed in any::<u64>(), rate in 0.0..=1.0,
    ) {
        let (first_sampler, second_sampler) = (sampler(mode, rate), sampler(mode, rate));
        let mut ids: Vec<u128> = trace_ids(seed).collect();
        let mut kept_by_first: Vec<u128> = ids.iter().copied().filter(|id| keeps(&first_sampler, *id)).collect();
        ids.sort_unstable();
        let kept_by_second: Vec<u128> = ids.into_iter().filter(|id| keeps(&second_sampler, *id)).collect();
        kept_by_first.sort_unstable();
        prop_assert_eq!(kept_by_first, kept_by_second);
    }
}

proptest! {
    #[test]
    fn threshold_is_never_lowered(
        mode in modes(), trace_id in any::<u128>(), arriving in 0_u64..1 << 56, rate in 0.0..=1.0,
    ) {
        let trace_state = format!("ot=th:{}", hex(arriving).as_str());
        let tested_sampler = sampler(mode, rate);
        let (decision, _) = decided(&tested_sampler, &subject(trace_id, &trace_state));
        prop_assert!(decision.threshold.is_none_or(|threshold| threshold >= arriving));
    }

    #[test]
    fn all_spans_of_a_trace_get_the_same_decision(
        mode in modes(), trace_id in any::<u128>(), rate in 0.0..=1.0, spans in 1_usize..5,
    ) {
        let sampler = sampler(mode, rate);
        let decisions: Vec<bool> = (0..spans).map(|_| keeps(&sampler, trace_id)).collect();
        prop_assert!(decisions.iter().all(|decision| *decision == decisions[0]));
    }

    #[test]
    fn threshold_hex_round_trips(value in 0_u64..1 << 56) {
        prop_assert_eq!(from_hex(hex(value).as_bytes()), Some(value));
        prop_assert_eq!(from_hex(hex_in_full(value).as_bytes()), Some(value));
    }

    #[test]
    fn random_tracestates_never_panic_and_rewritten_ones_are_readable(
        trace_id in any::<u128>(),
        trace_state in "(ot=|th:|rv:|[a-f0-9]{0,15}|[,;: =Zx\u{e9}]){0,12}",
    ) {
        let sampler = sampler(Mode::Equalizing, 0.5);
        let (decision, stored) = decided(&sampler, &subject(trace_id, &trace_state));
        if decision.rewritten && decision.threshold.is_some() {
            let (again, _) = decided(&sampler, &subject(trace_id, &stored));
            prop_assert!(again.keep && !again.rewritten);
            prop_assert_eq!(again.threshold, decision.threshold);
        }
    }
}
