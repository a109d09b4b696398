//! The whole way of a delivery: unpack, decode, columns, block, compression, record.

use std::cell::RefCell;
use std::collections::HashMap;

use _transcode::block::Segment;
use _transcode::group::{Delivery, Kind, Workspace, commit};
use _transcode::policy::{Policy, Wishes};

use crate::payload::{RECEIVED_AT_NS, SPANS};

thread_local! {
    static STATE: RefCell<(Policy, Workspace)> = RefCell::new((policy(), Workspace::default()));
}

fn policy() -> Policy {
    let platform = |what: &str| {
        vec![
            ("resource".to_owned(), format!("platform.{what}Id")),
            ("span".to_owned(), format!("platform.{what}.id")),
        ]
    };
    Policy::new(&Wishes {
        project: platform("project"),
        deployment: platform("deployment"),
        retention_days: 30,
        late_margin_days: 3,
        ahead_s_max: 3_600,
        sampling_mode: "off".to_owned(),
        sampling_rate: 1.0,
        codec: "lz4".to_owned(),
        limits: HashMap::new(),
        ..Wishes::default()
    })
    .expect("wishes that make sense")
}

fn committed(body: &[u8], kind: Kind) -> usize {
    let delivery = Delivery {
        drain: "bench",
        body,
        kind,
        encodings: Vec::new(),
        received_at_ns: RECEIVED_AT_NS,
        strict: true,
        body_bytes_max: 64 << 20,
    };
    STATE.with_borrow_mut(|(policy, workspace)| {
        let done = commit(policy, &[delivery], Segment::default(), workspace);
        assert_eq!(done.rows as usize, SPANS, "{:?}", done.outcomes);
        done.record.len()
    })
}

pub fn protobuf(body: &[u8]) -> usize {
    committed(body, Kind::Protobuf)
}

pub fn json(body: &[u8]) -> usize {
    committed(body, Kind::Json)
}
