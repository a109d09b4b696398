//! Tests of segments that are truncated, corrupted or forged.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::frame::{Head, push_record};

const SEGMENT: Segment = Segment { epoch: 5, seq: 6 };

fn record_of(segment: Segment, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_record(
        &mut out,
        &Head {
            segment,
            rows: 2,
            received_ms: (1, 2),
        },
        b"answers",
        payload,
    );
    out
}

/// Returns an open segment with these payloads, and the end of each record.
fn open_of(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (mut out, mut ends) = (Vec::new(), vec![0]);
    for payload in payloads {
        out.extend(record_of(SEGMENT, payload));
        ends.push(out.len());
    }
    (out, ends)
}

fn sealed_of(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let (open, ends) = open_of(payloads);
    let footer = footer(&open).unwrap();
    ([open, footer].concat(), ends)
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 0..40), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn sealed_segment_round_trips(payloads in payloads()) {
        let (sealed, _) = sealed_of(&payloads);

        let result = scan(&sealed);

        prop_assert_eq!(result.records.iter().map(|record| record.payload.to_vec()).collect::<Vec<_>>(), payloads);
        prop_assert_eq!((result.good_bytes, result.segment, result.damage), (sealed.len(), SEGMENT, vec![]));
        prop_assert!(result.footer.is_some());
    }

    #[test]
    fn segment_cut_anywhere_has_a_torn_tail_and_no_damage(payloads in payloads(), cut in any::<prop::sample::Index>()) {
        let (sealed, ends) = sealed_of(&payloads);
        let cut = cut.index(sealed.len());

        let result = scan(&sealed[..cut]);

        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        prop_assert_eq!((result.records.len(), result.good_bytes, &result.damage), (whole, ends[whole], &vec![]));
        prop_assert!(result.footer.is_none());
    }

    #[test]
    fn flipped_bit_in_a_sealed_segment_is_damage_or_unseals_it(
        payloads in payloads(),
        bit in any::<prop::sample::Index>(),
    ) {
        let (mut sealed, ends) = sealed_of(&payloads);
        let bit = bit.index(sealed.len() * 8);
        sealed[bit / 8] ^= 1 << (bit % 8);

        let result = scan(&sealed);

        let corrupt_index = ends.iter().filter(|end| **end <= bit / 8).count() - 1;
        if corrupt_index == payloads.len() {
            prop_assert!(result.footer.is_none());
            prop_assert_eq!((result.records.len(), &result.damage), (payloads.len(), &vec![]));
        } else {
            let (offset, length) = (ends[corrupt_index], ends[corrupt_index + 1] - ends[corrupt_index]);
            prop_assert_eq!(result.records.len(), payloads.len() - 1);
            prop_assert_eq!((result.damage.len(), result.damage[0].offset, result.damage[0].length), (1, offset, length));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(prop::sample::select(b"\x54\x55\x2A\x4D\x18TDRJF\x00\x01".to_vec()), 0..200)) {
        let result = scan(&bytes);

        prop_assert_eq!((result.records.len(), result.good_bytes), (0, 0));
    }
}

#[test]
fn corrupt_last_record_of_an_open_segment_is_a_torn_tail() {
    let (mut open, ends) = open_of(&[vec![1], vec![2]]);
    let last = open.len() - 1;
    open[last] ^= 1;

    let result = scan(&open);

    assert_eq!(
        (result.records.len(), result.good_bytes, result.damage),
        (1, ends[1], vec![])
    );
}

#[test]
fn record_of_another_segment_inside_a_corrupt_record_is_ignored() {
    let forged = record_of(Segment { epoch: 1, seq: 1 }, b"forged");
    let (open, ends) = open_of(&[vec![1], forged, vec![3]]);
    let mut corrupt = open;
    corrupt[ends[1] + 20] ^= 1;

    let result = scan(&corrupt);

    assert_eq!(
        result
            .records
            .iter()
            .map(|record| record.payload)
            .collect::<Vec<_>>(),
        [&[1][..], &[3]]
    );
    assert_eq!(
        (result.damage[0].offset, result.damage[0].length),
        (ends[1], ends[2] - ends[1])
    );
}

#[test]
fn footer_of_other_records_is_damage() {
    let (open, ends) = open_of(&[vec![1], vec![2]]);
    let swapped = [&open[ends[1]..], &open[..ends[1]], &footer(&open).unwrap()].concat();

    assert_eq!(
        scan(&swapped).damage[0].reason,
        "records do not match the footer"
    );
}

#[test]
fn bytes_after_the_footer_are_damage() {
    let (mut sealed, _) = sealed_of(&[vec![1]]);
    let whole = sealed.len();
    sealed.push(0);

    let result = scan(&sealed);

    assert_eq!(
        result.damage,
        [Damage {
            offset: whole,
            length: 1,
            reason: "bytes follow the footer"
        }]
    );
}

#[test]
fn footer_from_heads_equals_the_footer_of_the_records() {
    let (open, _) = open_of(&[b"one".to_vec(), vec![], b"three".to_vec()]);
    let heads: Vec<u8> = scan(&open)
        .records
        .iter()
        .flat_map(|record| open[record.offset..record.offset + HEAD_BYTES].to_vec())
        .collect();

    assert_eq!(footer_for(&heads), footer(&open).unwrap());
}

#[test]
fn only_an_open_undamaged_segment_gets_a_footer() {
    let (open, _) = open_of(&[vec![1]]);
    let (sealed, _) = sealed_of(&[vec![1]]);

    assert!(footer(&sealed).is_err());
    assert!(footer(&open[..open.len() - 1]).is_err());
    assert_eq!(footer(b"").unwrap().len(), FOOTER_BYTES);
}
