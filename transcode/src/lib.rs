//! What the bytes mean: OTLP request bodies in, `ClickHouse` Native blocks and counts out.
//!
//! Holds no file, socket, clock or lock; never recurses on input depth; never allocates by an
//! announced length. The rooms, in the order a delivery walks through them:
//!
//! * [`unpack`] codings undone, [`sample`] which spans are kept
//! * [`limits`] every ceiling, [`refusal`] every no, [`visit`] the words a decoder speaks
//! * [`text`] values as stored text, [`identity`] ids, [`base64`]: what both decoders share
//! * [`wire`] protobuf's bytes, [`otlp`] the request in them
//! * [`json`] the decoder of `application/json` bodies

pub mod base64;
pub mod identity;
pub mod json;
pub mod limits;
pub mod otlp;
pub mod refusal;
pub mod sample;
pub mod text;
pub mod unpack;
pub mod visit;
pub mod wire;
