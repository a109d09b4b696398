//! Group commit: transcodes all pending deliveries into one record and returns the outcome of each.
//!
//! Invariant: a refused delivery leaves no byte in the block, and a delivery on which the decoder panics does
//! not affect the others. The size of a group is limited, because small compressed bodies can expand a lot.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::answers;
use crate::block::{self, Segment};
use crate::columns::Columns;
use crate::digest::DigestKey;
use crate::frame::{self, Head};
use crate::json;
use crate::otlp;
use crate::outcome::{Outcome, Verdict};
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::rows::Rows;
use crate::tally::Tally;
use crate::unpack::{self, Buffers, Encoding, Expect};

/// Content type of a decompressed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One request in protobuf.
    Protobuf,
    /// One request in JSON.
    Json,
    /// One JSON request per line.
    Ndjson,
}

impl Kind {
    /// Returns the kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "protobuf" => Some(Self::Protobuf),
            "json" => Some(Self::Json),
            "ndjson" => Some(Self::Ndjson),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Protobuf => "protobuf",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
        }
    }

    const fn expect(self) -> Expect {
        match self {
            Self::Protobuf => Expect::Protobuf,
            Self::Json | Self::Ndjson => Expect::Json,
        }
    }
}

/// One request body from a drain.
#[derive(Clone, Debug)]
pub struct Delivery<'a> {
    /// Name of the drain.
    pub drain: &'a str,
    /// Body as received, possibly compressed.
    pub body: &'a [u8],
    /// Content type of the decompressed body.
    pub kind: Kind,
    /// Content codings, in the order in which they were applied.
    pub encodings: Vec<Encoding>,
    /// Receive time in nanoseconds since 1970.
    pub received_at_ns: i64,
    /// Whether a delivery with a warning is refused.
    pub strict: bool,
    /// Size limit of the drain, before and after decompression.
    pub body_bytes_max: usize,
}

/// One record, ready to append, and the outcome of each delivery.
#[derive(Debug, Default)]
pub struct Commit {
    /// Bytes to append; empty if there is nothing to journal.
    pub record: Vec<u8>,
    /// Number of rows in the block of the record.
    pub rows: u32,
    /// Outcomes in the order of the deliveries.
    pub outcomes: Vec<Outcome>,
}

/// Buffers that are reused by the next commit.
#[derive(Default)]
pub struct Workspace {
    columns: Columns,
    buffers: Buffers,
    scratch: json::Scratch,
    raw: Vec<u8>,
    compressed: Vec<u8>,
    answers: Vec<u8>,
    /// Size of this group, decompressed and as rows, including refused deliveries.
    group_bytes: usize,
}

/// Buffers larger than this are freed after each commit.
const KEPT_BYTES_MAX: usize = 64 << 20;

impl Workspace {
    fn clear(&mut self) {
        self.columns.clear();
        self.group_bytes = 0;
        self.answers.clear();
        self.raw.clear();
        // `compressed` is overwritten by the next commit, so its content need not be cleared.
        for buffer in [&mut self.raw, &mut self.compressed] {
            buffer.truncate(KEPT_BYTES_MAX);
            buffer.shrink_to(KEPT_BYTES_MAX);
        }
        if self.buffers.held_bytes() > KEPT_BYTES_MAX {
            self.buffers = Buffers::default();
        }
    }
}

/// Size, decompressed and as rows, at which a group accepts no further delivery.
const GROUP_BYTES_MAX: usize = 128 << 20;

/// Transcodes deliveries into one record of this segment. The first delivery is always processed; once the
/// group reaches its size limit, the remaining deliveries are postponed.
pub fn commit(
    policy: &Policy,
    key: &DigestKey,
    deliveries: &[Delivery<'_>],
    segment: Segment,
    workspace: &mut Workspace,
) -> Commit {
    // Panics are rare: the deliveries are tried separately only after the whole group panicked.
    let whole = catch_panic(workspace, |workspace| {
        transcode(policy, key, deliveries, segment, workspace)
    });
    whole.unwrap_or_else(|Panicked| {
        commit_without_panicking(policy, key, deliveries, segment, workspace)
    })
}

/// The work panicked, and the workspace was replaced.
struct Panicked;

fn catch_panic<T>(
    workspace: &mut Workspace,
    work: impl FnOnce(&mut Workspace) -> T,
) -> Result<T, Panicked> {
    // Sound although the workspace is not unwind-safe: it is the only state that `work` changes, and a panic
    // replaces it.
    catch_unwind(AssertUnwindSafe(|| work(workspace))).map_err(|_| {
        *workspace = Workspace::default();
        Panicked
    })
}

/// Isolates the deliveries on which the decoder panics, and commits the others.
fn commit_without_panicking(
    policy: &Policy,
    key: &DigestKey,
    deliveries: &[Delivery<'_>],
    segment: Segment,
    workspace: &mut Workspace,
) -> Commit {
    let survives = |delivery: &Delivery<'_>| {
        let alone = std::slice::from_ref(delivery);
        catch_panic(&mut Workspace::default(), |workspace| {
            transcode(policy, key, alone, segment, workspace)
        })
        .is_ok()
    };
    let survivors: Vec<bool> = deliveries.iter().map(survives).collect();
    let chosen = deliveries
        .iter()
        .zip(&survivors)
        .filter(|(_, survives)| **survives);
    let chosen: Vec<Delivery<'_>> = chosen.map(|(delivery, _)| delivery.clone()).collect();
    let done = catch_panic(workspace, |workspace| {
        transcode(policy, key, &chosen, segment, workspace)
    });
    // If the remaining deliveries panic only in combination, none has an outcome, so all of them count as crashed.
    let Commit {
        record,
        rows,
        outcomes,
    } = done.unwrap_or_default();
    let mut outcomes = outcomes.into_iter();
    let outcome = |survives: bool| {
        survives
            .then(|| outcomes.next())
            .flatten()
            .unwrap_or_else(Outcome::crashed)
    };
    Commit {
        record,
        rows,
        outcomes: survivors.into_iter().map(outcome).collect(),
    }
}

fn transcode(
    policy: &Policy,
    key: &DigestKey,
    deliveries: &[Delivery<'_>],
    segment: Segment,
    workspace: &mut Workspace,
) -> Commit {
    workspace.clear();
    let mut acknowledged = Acknowledged::default();
    let outcomes = deliveries
        .iter()
        .map(|delivery| {
            if workspace.group_bytes >= GROUP_BYTES_MAX {
                return Outcome::postponed();
            }
            append_delivery(policy, key, delivery, workspace, &mut acknowledged)
        })
        .collect();
    let rows = u32::try_from(workspace.columns.rows()).unwrap_or(u32::MAX);
    let record = if acknowledged.deliveries == 0 {
        Vec::new()
    } else {
        record(policy, segment, workspace, &acknowledged)
    };
    Commit {
        record,
        rows,
        outcomes,
    }
}

/// Deliveries that the record acknowledges so far.
#[derive(Default)]
struct Acknowledged {
    deliveries: usize,
    received_ms: Option<(i64, i64)>,
}

impl Acknowledged {
    fn add(&mut self, received_at_ns: i64) {
        let ms = received_at_ns.div_euclid(1_000_000);
        let (min, max) = self.received_ms.unwrap_or((ms, ms));
        self.received_ms = Some((min.min(ms), max.max(ms)));
        self.deliveries += 1;
    }
}

/// Appends one delivery to the columns, or restores them if the delivery is refused.
fn append_delivery(
    policy: &Policy,
    key: &DigestKey,
    delivery: &Delivery<'_>,
    workspace: &mut Workspace,
    acknowledged: &mut Acknowledged,
) -> Outcome {
    let mark = workspace.columns.mark();
    let (first_row, answers_start) = (workspace.columns.rows(), workspace.answers.len());
    let decoded = decode(policy, key, delivery, workspace);
    let outcome = Outcome::of(decoded.as_ref().map(|(_, tally)| tally), delivery.strict);
    match decoded {
        Ok((digest, tally)) if outcome.verdict == Verdict::Accepted => {
            // A request without spans leaves nothing to journal, so it needs no entry.
            if tally.received > 0 {
                let rows = workspace.columns.rows() - first_row;
                push_acknowledgement(
                    &mut workspace.answers,
                    delivery,
                    digest,
                    rows,
                    &tally,
                    &workspace.columns,
                );
                acknowledged.add(delivery.received_at_ns);
            }
        }
        _ => {
            if outcome.verdict == Verdict::TooLarge {
                // A refused delivery also used this much memory, so it counts towards the size limit of the group.
                workspace.group_bytes = workspace
                    .group_bytes
                    .saturating_add(delivery.body_bytes_max);
            }
            workspace.columns.truncate(mark);
            workspace.answers.truncate(answers_start);
        }
    }
    outcome
}

fn decode(
    policy: &Policy,
    key: &DigestKey,
    delivery: &Delivery<'_>,
    workspace: &mut Workspace,
) -> Result<(u128, Tally), Refusal> {
    let mut limits = policy.limits;
    limits.body_bytes_max = delivery.body_bytes_max;
    let Workspace {
        columns,
        buffers,
        scratch,
        group_bytes,
        ..
    } = workspace;
    let unpacked = unpack::unpack(
        delivery.body,
        &delivery.encodings,
        delivery.kind.expect(),
        &limits,
        buffers,
    )?;
    // Counted before decoding, so that a delivery that is refused counts too.
    *group_bytes = group_bytes.saturating_add(unpacked.body.len());
    #[cfg(test)]
    assert!(
        unpacked.body != tests::PANICKING_BODY,
        "the test body on which decoding panics"
    );
    // Hashed first: a sequential read loads the body into the processor's cache before the decoder reads it in
    // random order.
    let digest = key.digest(delivery.drain, delivery.kind.name(), unpacked.body);
    let (drain, received_at_ns) = (delivery.drain, delivery.received_at_ns);
    let mut rows = Rows::new(policy, columns, drain, received_at_ns, unpacked.warning);
    match delivery.kind {
        Kind::Protobuf => otlp::decode(unpacked.body, &limits, &mut rows)?,
        Kind::Json => json::decode(unpacked.body, &limits, false, scratch, &mut rows)?,
        Kind::Ndjson => json::decode(unpacked.body, &limits, true, scratch, &mut rows)?,
    }
    let tally = rows.finish()?;
    *group_bytes = group_bytes.saturating_add(tally.expanded_bytes);
    Ok((digest, tally))
}

fn push_acknowledgement(
    out: &mut Vec<u8>,
    delivery: &Delivery<'_>,
    digest: u128,
    rows: usize,
    tally: &Tally,
    columns: &Columns,
) {
    answers::array(out, 5);
    answers::text(out, delivery.drain);
    answers::digest(out, digest);
    answers::integer(out, delivery.received_at_ns);
    answers::integer(out, i64::try_from(rows).unwrap_or(i64::MAX));
    answers::array(out, tally.projects.len());
    for project in &tally.projects {
        answers::array(out, 5);
        answers::text(out, columns.projects.dictionary.text(project.project));
        for count in [
            project.received,
            project.stored,
            project.sampled_out,
            project.rejected,
        ] {
            answers::integer(out, i64::from(count));
        }
    }
}

fn record(
    policy: &Policy,
    segment: Segment,
    workspace: &mut Workspace,
    acknowledged: &Acknowledged,
) -> Vec<u8> {
    let Workspace {
        columns,
        raw,
        compressed,
        answers: entries,
        ..
    } = workspace;
    let mut payload = &[][..];
    // Without rows the record only acknowledges deliveries whose spans were all sampled out.
    if columns.rows() > 0 {
        block::write(raw, columns, segment);
        payload = policy.codec.compress(raw, compressed);
    }
    let mut answers = Vec::with_capacity(entries.len() + 5);
    answers::array(&mut answers, acknowledged.deliveries);
    answers.extend_from_slice(entries);
    let rows = u32::try_from(columns.rows()).unwrap_or(u32::MAX);
    let head = Head {
        segment,
        rows,
        received_ms: acknowledged.received_ms.unwrap_or_default(),
    };
    let mut out = Vec::with_capacity(frame::HEAD_BYTES + answers.len() + payload.len());
    frame::push_record(&mut out, &head, &answers, payload);
    out
}

#[cfg(test)]
mod tests;
