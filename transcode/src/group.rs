//! One commit: the deliveries that wait become one record, and each gets its outcome.
//!
//! Keeps: a delivery that is refused leaves no trace in the block, and one that makes us panic costs
//! only itself. A group is bounded as a whole too: small compressed bodies inflate to anything.

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

/// What a body is, once unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One request.
    Protobuf,
    /// One request.
    Json,
    /// One request a line.
    Ndjson,
}

impl Kind {
    /// The kind with this name.
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

/// One request body from a drain, as it came off the wire.
#[derive(Clone, Debug)]
pub struct Delivery<'a> {
    /// Who sent it.
    pub drain: &'a str,
    /// As it came.
    pub body: &'a [u8],
    /// What it is once unpacked.
    pub kind: Kind,
    /// In the order they were applied.
    pub encodings: Vec<Encoding>,
    /// Nanoseconds since 1970.
    pub received_at_ns: i64,
    /// Whether a warning is a refusal.
    pub strict: bool,
    /// The drain's limit, before and after unpacking.
    pub body_bytes_max: usize,
}

/// One record, ready to append, and what became of each delivery.
#[derive(Debug, Default)]
pub struct Commit {
    /// Empty if there is nothing to journal.
    pub record: Vec<u8>,
    /// Rows of its block.
    pub rows: u32,
    /// In the order of the deliveries.
    pub outcomes: Vec<Outcome>,
}

/// Memory that one commit leaves to the next.
#[derive(Default)]
pub struct Workspace {
    columns: Columns,
    buffers: Buffers,
    scratch: json::Scratch,
    raw: Vec<u8>,
    room: Vec<u8>,
    answers: Vec<u8>,
    /// What this group came to, unpacked and as rows, refused deliveries included.
    spent_bytes: usize,
}

/// Buffers beyond this are given back between commits.
const KEPT_BYTES_MAX: usize = 64 << 20;

impl Workspace {
    fn clear(&mut self) {
        self.columns.clear();
        self.spent_bytes = 0;
        self.answers.clear();
        self.raw.clear();
        for buffer in [&mut self.raw, &mut self.room] {
            buffer.truncate(KEPT_BYTES_MAX);
            buffer.shrink_to(KEPT_BYTES_MAX);
        }
        if self.buffers.held_bytes() > KEPT_BYTES_MAX {
            self.buffers = Buffers::default();
        }
    }
}

/// Once a group has cost so much, unpacked and as rows, it takes no further delivery.
const GROUP_BYTES_MAX: usize = 128 << 20;

/// Transcodes deliveries into one record of this segment. The first is always taken; what the group has
/// no room for is postponed.
pub fn commit(
    policy: &Policy,
    key: &DigestKey,
    deliveries: &[Delivery<'_>],
    segment: Segment,
    workspace: &mut Workspace,
) -> Commit {
    let whole = caught(workspace, |workspace| {
        transcode(policy, key, deliveries, segment, workspace)
    });
    whole.unwrap_or_else(|Panicked| one_by_one(policy, key, deliveries, segment, workspace))
}

/// Something below panicked; what it worked on is gone.
struct Panicked;

fn caught<T>(
    workspace: &mut Workspace,
    work: impl FnOnce(&mut Workspace) -> T,
) -> Result<T, Panicked> {
    // Nothing that was touched survives a panic: the workspace is replaced.
    catch_unwind(AssertUnwindSafe(|| work(workspace))).map_err(|_| {
        *workspace = Workspace::default();
        Panicked
    })
}

/// Finds those that make us panic, and commits the others.
fn one_by_one(
    policy: &Policy,
    key: &DigestKey,
    deliveries: &[Delivery<'_>],
    segment: Segment,
    workspace: &mut Workspace,
) -> Commit {
    let survives = |delivery: &Delivery<'_>| {
        let alone = std::slice::from_ref(delivery);
        caught(&mut Workspace::default(), |fresh| {
            transcode(policy, key, alone, segment, fresh)
        })
        .is_ok()
    };
    let innocent: Vec<bool> = deliveries.iter().map(survives).collect();
    let chosen = deliveries
        .iter()
        .zip(&innocent)
        .filter(|(_, innocent)| **innocent);
    let chosen: Vec<Delivery<'_>> = chosen.map(|(delivery, _)| delivery.clone()).collect();
    let done = caught(workspace, |workspace| {
        transcode(policy, key, &chosen, segment, workspace)
    });
    // Should they panic only together, each of them is told to come again.
    let Commit {
        record,
        rows,
        outcomes,
    } = done.unwrap_or_default();
    let mut outcomes = outcomes.into_iter();
    let outcome = |innocent: bool| {
        innocent
            .then(|| outcomes.next())
            .flatten()
            .unwrap_or_else(Outcome::crashed)
    };
    Commit {
        record,
        rows,
        outcomes: innocent.into_iter().map(outcome).collect(),
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
    let mut answered = Answered::default();
    let outcomes = deliveries
        .iter()
        .map(|delivery| {
            if workspace.spent_bytes >= GROUP_BYTES_MAX {
                return Outcome::postponed();
            }
            take_in(policy, key, delivery, workspace, &mut answered)
        })
        .collect();
    let rows = u32::try_from(workspace.columns.rows()).unwrap_or(u32::MAX);
    let record = if answered.deliveries == 0 {
        Vec::new()
    } else {
        record(policy, segment, workspace, &answered)
    };
    Commit {
        record,
        rows,
        outcomes,
    }
}

/// What the record answers for so far.
#[derive(Default)]
struct Answered {
    deliveries: usize,
    received_ms: Option<(i64, i64)>,
}

impl Answered {
    fn add(&mut self, received_at_ns: i64) {
        let ms = received_at_ns.div_euclid(1_000_000);
        let (min, max) = self.received_ms.unwrap_or((ms, ms));
        self.received_ms = Some((min.min(ms), max.max(ms)));
        self.deliveries += 1;
    }
}

/// Takes one delivery into the columns, or takes nothing of it.
fn take_in(
    policy: &Policy,
    key: &DigestKey,
    delivery: &Delivery<'_>,
    workspace: &mut Workspace,
    answered: &mut Answered,
) -> Outcome {
    let mark = workspace.columns.mark();
    let (first_row, answers_start) = (workspace.columns.rows(), workspace.answers.len());
    let told = decode(policy, key, delivery, workspace);
    let outcome = Outcome::of(told.as_ref().map(|(_, tally)| tally), delivery.strict);
    match told {
        Ok((digest, tally)) if outcome.verdict == Verdict::Accepted => {
            if tally.received > 0 {
                let rows = workspace.columns.rows() - first_row;
                answer(
                    &mut workspace.answers,
                    delivery,
                    digest,
                    rows,
                    &tally,
                    &workspace.columns,
                );
                answered.add(delivery.received_at_ns);
            }
        }
        _ => {
            if outcome.verdict == Verdict::TooLarge {
                workspace.spent_bytes = workspace
                    .spent_bytes
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
        spent_bytes,
        ..
    } = workspace;
    let unpacked = unpack::unpack(
        delivery.body,
        &delivery.encodings,
        delivery.kind.expect(),
        &limits,
        buffers,
    )?;
    *spent_bytes = spent_bytes.saturating_add(unpacked.body.len());
    #[cfg(test)]
    assert!(
        unpacked.body != tests::PANICKING_BODY,
        "a test asked for it"
    );
    // First, because it reads the body front to back: the decoder, which leaps, then finds it in the cache.
    let digest = key.digest(delivery.drain, delivery.kind.name(), unpacked.body);
    let (drain, received_at_ns) = (delivery.drain, delivery.received_at_ns);
    let mut rows = Rows::new(policy, columns, drain, received_at_ns, unpacked.warning);
    match delivery.kind {
        Kind::Protobuf => otlp::decode(unpacked.body, &limits, &mut rows)?,
        Kind::Json => json::decode(unpacked.body, &limits, false, scratch, &mut rows)?,
        Kind::Ndjson => json::decode(unpacked.body, &limits, true, scratch, &mut rows)?,
    }
    let tally = rows.finish()?;
    *spent_bytes = spent_bytes.saturating_add(tally.expanded_bytes);
    Ok((digest, tally))
}

fn answer(
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
    answered: &Answered,
) -> Vec<u8> {
    let Workspace {
        columns,
        raw,
        room,
        answers: entries,
        ..
    } = workspace;
    let mut payload = &[][..];
    if columns.rows() > 0 {
        block::write(raw, columns, segment);
        payload = policy.codec.compress(raw, room);
    }
    let mut answers = Vec::with_capacity(entries.len() + 5);
    answers::array(&mut answers, answered.deliveries);
    answers.extend_from_slice(entries);
    let rows = u32::try_from(columns.rows()).unwrap_or(u32::MAX);
    let head = Head {
        segment,
        rows,
        received_ms: answered.received_ms.unwrap_or_default(),
    };
    let mut out = Vec::with_capacity(frame::HEAD_BYTES + answers.len() + payload.len());
    frame::push_record(&mut out, &head, &answers, payload);
    out
}

#[cfg(test)]
mod tests;
