//! What the bytes mean: OTLP request bodies in, `ClickHouse` Native blocks and counts out.
//!
//! Holds no file, socket, clock or lock; never recurses on input depth; never allocates by an
//! announced length. The rooms, in the order a delivery walks through them:
//!
//! * [`limits`] every ceiling, [`refusal`] every no, [`visit`] the words a decoder speaks
//! * [`policy`] what the operator wants: [`resolve`] whose span, [`clock`] which times, [`sample`] which spans
//! * [`rows`] listens to a decoder and fills the [`columns`]; [`tally`] counts what happened
//! * [`schema`] names the columns, [`put`] writes them, [`block`] puts them together, [`compress`] shrinks them

pub mod block;
pub mod clock;
pub mod columns;
pub mod compress;
pub mod limits;
pub mod policy;
pub mod put;
pub mod refusal;
pub mod resolve;
pub mod rows;
pub mod sample;
pub mod schema;
pub mod tally;
pub mod visit;
