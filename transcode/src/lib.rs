//! What the bytes mean: OTLP request bodies in, `ClickHouse` Native blocks and counts out.
//!
//! Holds no file, socket, clock or lock; never recurses on input depth; never allocates by an
//! announced length. The rooms, in the order a delivery walks through them:
//!
//! * [`group`] one commit, and so the order of all that follows; [`outcome`] what each sender is told, [`sums`] what is counted
//! * [`unpack`] codings undone
//! * [`limits`] every ceiling, [`refusal`] every no, [`visit`] the words a decoder speaks
//! * [`wire`] and [`otlp`] read protobuf, [`json`] reads JSON
//! * [`text`] values as stored text, [`identity`] ids, [`base64`]: what both decoders share
//! * [`policy`] what the operator wants: [`resolve`] whose span, [`clock`] which times, [`sample`] which spans
//! * [`rows`] listens to a decoder and fills the [`columns`]; [`key`] bounds names; [`tally`] counts what happened
//! * [`schema`] names the columns, [`put`] writes them, [`block`] puts them together, [`compress`] shrinks them
//! * [`frame`] one record, [`answers`] what it answers for, [`scan`] a segment of them
//! * [`digest`] when two deliveries are the same one; [`digests`] what was accepted before: the one room that remembers anything between two calls
//! * [`days`] its rows by day; [`rewrite`] a segment anew: blocks read back by [`native`], put together by [`merge`]

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
pub mod limits;
pub mod merge;
pub mod native;
pub mod otlp;
pub mod outcome;
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
pub mod sums;
pub mod tally;
pub mod text;
pub mod unpack;
pub mod visit;
pub mod wire;
