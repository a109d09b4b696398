//! Rust core of the receiver: converts OTLP request bodies to `ClickHouse` Native blocks and counts.
//!
//! The modules, in the order in which a delivery passes through them:
//!
//! * [`group`] transcodes the deliveries of one commit; [`outcome`] is the result of one delivery, [`sums`] those of a group
//! * [`unpack`] decompresses a body
//! * [`limits`] defines every limit, [`refusal`] the reasons to refuse a delivery, [`visit`] the interface between decoders and [`rows`]
//! * [`wire`] and [`otlp`] decode protobuf, [`json`] decodes JSON
//! * [`text`], [`identity`] and [`base64`] convert attribute values and ids for both decoders
//! * [`policy`] holds the settings: [`resolve`] finds a span's project, [`clock`] checks its times, [`sample`] samples it
//! * [`rows`] receives the calls of a decoder and fills the [`columns`]; [`key`] limits the length of names; [`tally`] counts spans and warnings
//! * [`schema`] lists the columns, [`put`] serialises values, [`block`] serialises a block, [`compress`] compresses it
//! * [`frame`] is the format of a record, [`answers`] of the deliveries it acknowledges; [`scan`] reads a segment
//! * [`known_head`] finds the body of a request whose head was accepted before
//! * [`digest`] identifies a delivery; [`digests`] is a set of digests
//! * [`patterns`] searches texts for patterns of the operator
//! * [`days`] lists a segment's rows by day and [`shard`]; [`rewrite`] rewrites a segment, with blocks that [`native`] reads and [`merge`] merges
//!
//! Never: opens a file or socket, reads a clock or takes a lock; recurses on the depth of its input; allocates
//! memory from a declared length.

pub mod answers;
pub mod base64;
pub mod block;
pub mod clock;
pub mod columns;
pub mod compress;
pub mod days;
pub mod digest;
pub mod digests;
pub mod frame;
pub mod group;
pub mod identity;
pub mod json;
pub mod key;
pub mod known_head;
pub mod limits;
pub mod merge;
pub mod native;
pub mod otlp;
pub mod outcome;
pub mod patterns;
pub mod policy;
pub mod put;
#[cfg(feature = "python")]
mod python;
pub mod refusal;
pub mod resolve;
pub mod rewrite;
pub mod rows;
pub mod sample;
pub mod scan;
pub mod schema;
pub mod shard;
pub mod sums;
pub mod tally;
pub mod text;
pub mod unpack;
pub mod visit;
pub mod wire;
