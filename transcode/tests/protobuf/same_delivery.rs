//! The same delivery as protobuf and as JSON gives the same result.

use _transcode::json::{self, Scratch};
use _transcode::limits::Limits;

use crate::payload::{self, Random, SPANS};
use crate::support::{Recorder, Recording};
use crate::{decode, json_form, protobuf_form};

fn decode_json(body: &[u8]) -> Recording {
    let limits = Limits::default();
    let mut recorder = Recorder::within(limits);
    json::decode(body, &limits, false, &mut Scratch::default(), &mut recorder).unwrap();
    recorder.recording
}

#[test]
fn both_decoders_report_the_same_delivery_equally() {
    let delivery = payload::delivery(&mut Random(7));

    let of_protobuf = decode(&protobuf_form::body(&delivery)).unwrap();
    let of_json = decode_json(&json_form::body(&delivery));

    assert_eq!(of_protobuf.kept_and_rejected(), (SPANS, 0));
    assert_eq!(of_protobuf, of_json);
}
