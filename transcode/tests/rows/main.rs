//! Random deliveries become the rows that a simple model computes, even if other deliveries are rolled back
//! in between and the segment is rewritten.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic fails the test"
)]

mod attribute_cache;
mod cells;
mod deliveries;
mod model;

use _transcode::block::{self, Segment};
use _transcode::columns::Columns;
use _transcode::compress::{Codec, decompress};
use _transcode::frame::{Head, push_record};
use _transcode::limits::Limits;
use _transcode::native;
use _transcode::policy::{Policy, Settings};
use _transcode::rewrite::{NewIdentity, rewrite};
use _transcode::rows::Rows;
use _transcode::scan;
use deliveries::ResourceData;
use proptest::collection::vec;
use proptest::prelude::*;

const RECEIVED_AT_NS: i64 = 1_800_000_000_123_456_789;
const DRAIN: &str = "drain";
const SEGMENT: Segment = Segment {
    epoch: 1 << 63,
    seq: 7,
};

fn policy() -> Policy {
    let places = |keys: &[(&str, &str)]| {
        keys.iter()
            .map(|(place, key)| ((*place).to_owned(), (*key).to_owned()))
            .collect::<Vec<_>>()
    };
    let settings = Settings {
        project: places(&[
            ("span", "p.span"),
            ("resource", "p.resource"),
            ("span", "sampling.priority"),
        ]),
        deployment: places(&[("span", "d.span")]),
        retention_days: 30,
        late_margin_days: 3,
        ahead_s_max: 3_600,
        sampling_mode: "off".to_owned(),
        sampling_rate: 1.0,
        codec: "lz4".to_owned(),
        ..Settings::default()
    };
    let limits = Limits {
        attributes_max: 5,
        events_max: 3,
        links_max: 3,
        key_bytes_max: 40,
        text_bytes_max: 41,
        ..Limits::default()
    };
    Policy {
        limits,
        ..Policy::new(&settings).unwrap()
    }
}

/// Decodes deliveries into one set of columns and rolls back those that are not kept.
fn fill_columns(policy: &Policy, deliveries: &[(Vec<ResourceData>, bool)], columns: &mut Columns) {
    for (delivery, is_kept) in deliveries {
        let mark = columns.mark();
        let mut rows = Rows::new(policy, columns, DRAIN, RECEIVED_AT_NS, None);
        deliveries::report(delivery, &mut rows).unwrap();
        rows.finish().unwrap();
        if !is_kept {
            columns.truncate(mark);
        }
    }
}

fn block_of(columns: &Columns) -> Vec<u8> {
    let mut raw = Vec::new();
    block::write(&mut raw, columns, SEGMENT);
    raw
}

fn read(raw: &[u8]) -> Vec<Vec<String>> {
    cells::rows(&native::read(raw).unwrap())
}

fn rows_of(columns: &Columns) -> Vec<Vec<String>> {
    if columns.rows() == 0 {
        Vec::new()
    } else {
        read(&block_of(columns))
    }
}

/// Returns a sealed segment with one record per delivery.
fn segment_of(policy: &Policy, deliveries: &[Vec<ResourceData>]) -> Vec<u8> {
    let mut segment = Vec::new();
    for delivery in deliveries {
        let mut columns = Columns::default();
        fill_columns(policy, &[(delivery.clone(), true)], &mut columns);
        let mut payload = Vec::new();
        if columns.rows() > 0 {
            payload = Codec::Lz4
                .compress(&block_of(&columns), &mut Vec::new())
                .to_vec();
        }
        let head = Head {
            segment: SEGMENT,
            rows: u32::try_from(columns.rows()).unwrap(),
            received_ms: (1, 2),
        };
        push_record(&mut segment, &head, b"\x91\x01", &payload);
    }
    let footer = scan::footer(&segment).unwrap();
    [segment, footer].concat()
}

fn rows_of_segment(segment: &[u8]) -> Vec<Vec<String>> {
    let records = scan::scan(segment).records;
    let with_rows = records.iter().filter(|record| record.head.rows > 0);
    with_rows
        .flat_map(|record| read(&decompress(record.payload).unwrap()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn rows_equal_those_of_the_model(deliveries in vec((deliveries::delivery(), any::<bool>()), 1..5)) {
        let (policy, mut columns) = (policy(), Columns::default());
        let kept = deliveries.iter().filter(|(_, is_kept)| *is_kept);
        let expected: Vec<_> = kept.flat_map(|(delivery, _)| model::rows(delivery, &policy.limits)).collect();

        fill_columns(&policy, &deliveries, &mut columns);

        prop_assert_eq!(rows_of(&columns), expected);
    }

    #[test]
    fn rolled_back_delivery_leaves_no_trace(deliveries in vec((deliveries::delivery(), any::<bool>()), 1..4)) {
        let (policy, mut mixed, mut pure) = (policy(), Columns::default(), Columns::default());
        let kept: Vec<_> = deliveries.iter().filter(|(_, is_kept)| *is_kept).cloned().collect();

        fill_columns(&policy, &deliveries, &mut mixed);
        fill_columns(&policy, &kept, &mut pure);

        prop_assert_eq!(block_of(&mixed), block_of(&pure));
    }

    #[test]
    fn cleared_columns_make_the_same_block_as_new_columns(first in deliveries::delivery(), second in deliveries::delivery()) {
        let (policy, mut fresh, mut used) = (policy(), Columns::default(), Columns::default());
        fill_columns(&policy, &[(first, true)], &mut used);
        used.clear();

        fill_columns(&policy, &[(second.clone(), true)], &mut used);
        fill_columns(&policy, &[(second, true)], &mut fresh);

        prop_assert_eq!(block_of(&used), block_of(&fresh));
    }

    #[test]
    fn restarted_delivery_is_stored_once(delivery in deliveries::delivery()) {
        let (policy, mut once, mut restarted) = (policy(), Columns::default(), Columns::default());
        fill_columns(&policy, &[(delivery.clone(), true)], &mut once);

        let mut rows = Rows::new(&policy, &mut restarted, DRAIN, RECEIVED_AT_NS, None);
        deliveries::report(&delivery, &mut rows).unwrap();
        _transcode::visit::Visitor::restart(&mut rows);
        deliveries::report(&delivery, &mut rows).unwrap();
        rows.finish().unwrap();

        prop_assert_eq!(rows_of(&restarted), rows_of(&once));
    }

    #[test]
    fn rewritten_segment_has_the_kept_rows_in_order(
        deliveries in vec(deliveries::delivery(), 1..5),
        cuts in vec(any::<prop::sample::Index>(), 0..6),
        block_rows_max in 1..9_usize,
    ) {
        let segment = segment_of(&policy(), &deliveries);
        let all = rows_of_segment(&segment);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(all.len() + 1)).collect();
        cuts.sort_unstable();
        let keep: Vec<_> = cuts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let expected: Vec<_> = keep.iter().flat_map(|&(start, end)| all[start..end].to_vec()).collect();

        let rewritten = rewrite(&segment, &keep, Codec::Zstd, block_rows_max, None).unwrap();

        let scanned = scan::scan(&rewritten);
        prop_assert_eq!(rows_of_segment(&rewritten), expected);
        prop_assert!(scanned.footer.is_some() && scanned.damage.is_empty() && scanned.segment == SEGMENT);
        prop_assert!(scanned.records.iter().all(|record| record.head.rows as usize <= block_rows_max));
        let acknowledged: usize = scanned.records.iter().map(|record| usize::from(record.answers[0] & 0xF)).sum();
        prop_assert_eq!(acknowledged, deliveries.len());
        prop_assert_eq!(rewrite(&segment, &keep, Codec::Zstd, block_rows_max, None).unwrap(), rewritten);
    }

    #[test]
    fn rows_rewritten_as_another_segment_differ_only_in_their_identity(
        deliveries in vec(deliveries::delivery(), 1..5),
        with_answers: bool,
    ) {
        let segment = segment_of(&policy(), &deliveries);
        let other = Segment { epoch: 5, seq: 1 << 40 };
        let all = rows_of_segment(&segment);
        let new_identity = Some(NewIdentity { segment: other, with_answers });

        let rewritten = rewrite(&segment, &[(0, all.len())], Codec::Lz4, 4, new_identity).unwrap();

        let scanned = scan::scan(&rewritten);
        let renamed = |cell: &String| match cell.split_once('=') {
            Some(("SegmentEpoch", _)) => format!("SegmentEpoch={}", other.epoch),
            Some(("SegmentSeq", _)) => format!("SegmentSeq={}", other.seq),
            _ => cell.clone(),
        };
        let expected: Vec<Vec<_>> = all.iter().map(|row| row.iter().map(renamed).collect()).collect();
        prop_assert_eq!(rows_of_segment(&rewritten), expected);
        prop_assert!(scanned.footer.is_some() && scanned.segment == other);
        let acknowledged: usize = scanned.records.iter().map(|record| usize::from(record.answers[0] & 0xF)).sum();
        prop_assert_eq!(acknowledged, if with_answers { deliveries.len() } else { 0 });
    }
}
