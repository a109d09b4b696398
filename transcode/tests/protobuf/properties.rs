//! Properties: random bytes never panic, and the order of fields is irrelevant.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::encode::{double, fixed32, fixed64, int, len};
use crate::{SPAN, TRACE, decode};

/// A field of a message, so that a message can be encoded in other equivalent ways.
#[derive(Clone, Debug)]
enum Field {
    Leaf(u32, Vec<u8>),
    Message(u32, Vec<Field>),
}

impl Field {
    fn number(&self) -> u32 {
        match self {
            Self::Leaf(number, _) | Self::Message(number, _) => *number,
        }
    }
}

/// Another equivalent encoding of a message.
#[derive(Clone, Copy, Default)]
struct Encoding {
    shuffles: bool,
    inserts: bool,
    state: u64,
}

impl Encoding {
    fn below(&mut self, bound: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap() % bound
    }

    fn write(&mut self, fields: &[Field]) -> Vec<u8> {
        let mut order: Vec<&Field> = fields.iter().collect();
        if self.shuffles {
            self.shuffle(&mut order, fields);
        }
        let mut out = Vec::new();
        for field in order {
            out.extend(self.unknown());
            match field {
                Field::Leaf(_, bytes) => out.extend(bytes),
                Field::Message(number, fields) => out.extend(len(*number, self.write(fields))),
            }
        }
        out.extend(self.unknown());
        out
    }

    /// Shuffles the fields, except that repeated fields keep their order.
    fn shuffle<'f>(&mut self, order: &mut [&'f Field], fields: &'f [Field]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last + 1));
        }
        for number in 0..20 {
            let of_number = |field: &&Field| field.number() == number;
            let slots = order.iter_mut().filter(|field| of_number(field));
            for (slot, field) in slots.zip(fields.iter().filter(of_number)) {
                *slot = field;
            }
        }
    }

    fn unknown(&mut self) -> Vec<u8> {
        let choices = [
            vec![],
            int(600, -3),
            fixed64(601, 1),
            fixed32(602, 2),
            len(603, "x"),
            b"\xe3\x25\xe5\x25\0\0\0\0\xe4\x25".to_vec(),
        ];
        if self.inserts {
            choices[self.below(choices.len())].clone()
        } else {
            vec![]
        }
    }
}

fn leaf(number: u32, write: fn(u32, Vec<u8>) -> Vec<u8>) -> impl Strategy<Value = Field> {
    vec(any::<u8>(), 0..9).prop_map(move |raw| Field::Leaf(number, write(number, raw)))
}

fn text(number: u32) -> impl Strategy<Value = Field> {
    leaf(number, len)
}

fn number_of(raw: &[u8]) -> u64 {
    raw.iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn any_value() -> impl Strategy<Value = Vec<Field>> {
    let scalar = prop_oneof![
        Just(vec![]),
        text(1).prop_map(|field| vec![field]),
        leaf(2, |number, raw| int(number, i64::from(raw.len() > 4))).prop_map(|field| vec![field]),
        leaf(3, |number, raw| int(number, number_of(&raw).cast_signed()))
            .prop_map(|field| vec![field]),
        any::<f64>().prop_map(|value| vec![Field::Leaf(4, double(4, value))]),
        text(7).prop_map(|field| vec![field]),
    ];
    scalar.prop_recursive(4, 20, 4, |inner| {
        let array = vec(
            inner.clone().prop_map(|value| Field::Message(1, value)),
            0..4,
        )
        .prop_map(|elements| vec![Field::Message(5, elements)]);
        let list = vec(
            key_value(inner).prop_map(|pair| Field::Message(1, pair)),
            0..4,
        )
        .prop_map(|pairs| vec![Field::Message(6, pairs)]);
        prop_oneof![array, list]
    })
}

fn key_value(value: impl Strategy<Value = Vec<Field>>) -> impl Strategy<Value = Vec<Field>> {
    (text(1), value).prop_map(|(key, value)| vec![key, Field::Message(2, value)])
}

fn attributes(number: u32) -> impl Strategy<Value = Vec<Field>> {
    vec(
        key_value(any_value()).prop_map(move |pair| Field::Message(number, pair)),
        0..4,
    )
}

fn span() -> impl Strategy<Value = Vec<Field>> {
    let event = (attributes(3), text(2)).prop_map(|(fields, name)| [fields, vec![name]].concat());
    let link = (attributes(4), text(1)).prop_map(|(fields, id)| [fields, vec![id]].concat());
    let status = text(2).prop_map(|message| vec![Field::Leaf(3, int(3, 2)), message]);
    let parts = (
        attributes(9),
        vec(event.prop_map(|event| Field::Message(11, event)), 0..3),
        vec(link.prop_map(|link| Field::Message(13, link)), 0..3),
        status.prop_map(|status| vec![Field::Message(15, status)]),
    );
    parts.prop_map(|(attributes, events, links, status)| {
        let scalars = vec![
            Field::Leaf(1, len(1, TRACE)),
            Field::Leaf(2, len(2, SPAN)),
            Field::Leaf(6, int(6, 3)),
            Field::Leaf(7, fixed64(7, 1)),
            Field::Leaf(16, fixed32(16, 1)),
        ];
        [scalars, attributes, events, links, status].concat()
    })
}

fn request() -> impl Strategy<Value = Vec<Field>> {
    let scope = (attributes(3), text(1)).prop_map(|(fields, name)| [fields, vec![name]].concat());
    let spans = vec(span().prop_map(|span| Field::Message(2, span)), 0..3);
    let scope_spans = (scope, spans, text(3))
        .prop_map(|(scope, spans, url)| [vec![Field::Message(1, scope), url], spans].concat());
    let scopes = vec(scope_spans.prop_map(|scope| Field::Message(2, scope)), 0..3);
    let resource_spans = (attributes(1), scopes)
        .prop_map(|(resource, scopes)| [vec![Field::Message(1, resource)], scopes].concat());
    vec(
        resource_spans.prop_map(|resource| Field::Message(1, resource)),
        0..3,
    )
}

proptest! {
    #[test]
    fn random_bytes_never_panic(body in vec(any::<u8>(), 0..400)) {
        let _ = decode(&body);
    }

    #[test]
    fn truncated_body_never_panics(request in request(), cut: prop::sample::Index) {
        let body = Encoding::default().write(&request);

        let _ = decode(&body[..cut.index(body.len() + 1)]);
    }

    #[test]
    fn body_with_a_changed_byte_never_panics(request in request(), at: prop::sample::Index, bits in 1u8..) {
        let mut body = Encoding::default().write(&request);
        prop_assume!(!body.is_empty());

        let at = at.index(body.len());
        body[at] ^= bits;

        let _ = decode(&body);
    }

    #[test]
    fn unknown_fields_do_not_change_the_result(request in request(), state: u64) {
        let plain = decode(&Encoding::default().write(&request)).unwrap();
        let mut recording = decode(&Encoding { inserts: true, state, ..Encoding::default() }.write(&request)).unwrap();

        recording.unknown_count = 0;

        prop_assert_eq!(recording, plain);
    }

    #[test]
    fn order_of_fields_does_not_change_the_result(request in request(), state: u64) {
        let plain = decode(&Encoding::default().write(&request)).unwrap();
        let recording = decode(&Encoding { shuffles: true, state, ..Encoding::default() }.write(&request)).unwrap();

        prop_assert_eq!(recording, plain);
    }
}
