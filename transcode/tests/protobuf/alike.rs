//! The same delivery as protobuf and as JSON: two decoders, one story.

use _transcode::json::{self, Scratch};
use _transcode::limits::Limits;

use crate::payload::{self, Dice, SPANS};
use crate::support::{Recorder, Story};
use crate::{decode, json_form, protobuf_form};

fn decode_json(body: &[u8]) -> Story {
    let limits = Limits::default();
    let mut recorder = Recorder::within(limits);
    json::decode(body, &limits, false, &mut Scratch::default(), &mut recorder).unwrap();
    recorder.story
}

#[test]
fn both_decoders_tell_the_same_of_the_same_delivery() {
    let delivery = payload::delivery(&mut Dice(7));

    let of_protobuf = decode(&protobuf_form::body(&delivery)).unwrap();
    let of_json = decode_json(&json_form::body(&delivery));

    assert_eq!(of_protobuf.kept_and_rejected(), (SPANS, 0));
    assert_eq!(of_protobuf, of_json);
}
