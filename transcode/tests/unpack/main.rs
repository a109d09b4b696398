//! Guarantees of unpacking: completely or not at all, never over the limit, never a panic.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic fails the test, also in its helpers"
)]

mod completeness;
mod declared;
mod hostile;
mod limits;
mod streams;

use _transcode::limits::Limits;
use _transcode::refusal::{Refusal, Verdict};
use _transcode::unpack::{Buffers, Encoding, Expect, unpack};
use _transcode::visit::Warning;

/// Unpacks with fresh buffers. Returns the body and the warning.
fn unpacked(
    body: &[u8],
    encodings: &[Encoding],
    limits: &Limits,
) -> Result<(Vec<u8>, Option<Warning>), Refusal> {
    let mut buffers = Buffers::default();
    let unpacked = unpack(body, encodings, Expect::Protobuf, limits, &mut buffers)?;
    Ok((unpacked.body.to_vec(), unpacked.warning))
}

fn plain(body: &[u8], encoding: Encoding) -> Vec<u8> {
    unpacked(body, &[encoding], &Limits::default())
        .expect("a complete body")
        .0
}

/// Returns the verdict on a body; `None` if it is accepted.
fn verdict(body: &[u8], encoding: Encoding) -> Option<Verdict> {
    verdict_within(body, &[encoding], &Limits::default())
}

fn verdict_within(body: &[u8], encodings: &[Encoding], limits: &Limits) -> Option<Verdict> {
    unpacked(body, encodings, limits)
        .err()
        .map(|refusal| refusal.verdict)
}

fn up_to(body_bytes_max: usize) -> Limits {
    Limits {
        body_bytes_max,
        ..Limits::default()
    }
}
