//! Tests of attribute maps: storing, reading back, rolling back.

use super::*;

fn put_all(column: &mut MapColumn, attributes: &[(&str, &str)]) {
    let (roles, mut tally) = (Roles::default(), Tally::default());
    column.open();
    for (key, value) in attributes {
        let value = Value::Text(value.as_bytes());
        column.put(key.as_bytes(), value, &roles, 100, &mut tally);
    }
    column.close();
}

fn read(column: &MapColumn, map: u32) -> Vec<(String, String)> {
    let (keys, values) = column.entries(map);
    let text = |(key, value): (&u32, &u32)| {
        (
            column.keys.text(*key).to_owned(),
            column.values.text(*value).to_owned(),
        )
    };
    keys.iter().zip(values).map(text).collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn maps_are_read_back_in_arrival_order() {
    let mut column = MapColumn::default();

    put_all(&mut column, &[("a", "1"), ("b", "2")]);
    put_all(&mut column, &[("b", "2"), ("a", "3"), ("c", "1")]);
    put_all(&mut column, &[]);

    assert_eq!(read(&column, 0), owned(&[("a", "1"), ("b", "2")]));
    assert_eq!(
        read(&column, 1),
        owned(&[("b", "2"), ("a", "3"), ("c", "1")])
    );
    assert_eq!(read(&column, 2), owned(&[]));
}

#[test]
fn duplicate_key_keeps_its_position_and_gets_the_last_value() {
    let mut column = MapColumn::default();

    put_all(&mut column, &[("a", "1"), ("b", "2"), ("a", "3")]);

    assert_eq!(read(&column, 0), owned(&[("a", "3"), ("b", "2")]));
}

#[test]
fn repeated_values_of_a_key_with_mostly_new_values_are_stored() {
    let mut column = MapColumn::default();
    let mut values: Vec<_> = (0..40).map(|id| format!("id {}", id % 30)).collect();
    values.extend((0..60).map(|_| "again".to_owned()));

    for value in &values {
        put_all(&mut column, &[("id", value), ("constant", "again")]);
    }

    for (map, value) in (0..).zip(&values) {
        assert_eq!(
            read(&column, map),
            owned(&[("id", value), ("constant", "again")])
        );
    }
    let texts: Vec<_> = column.values.texts().collect();
    assert!(texts.len() < 80, "{texts:?}");
}

#[test]
fn cached_numbers_that_a_roll_back_made_stale_are_not_used() {
    let mut column = MapColumn::default();
    put_all(&mut column, &[("a", "1")]);
    let mark = column.mark();
    put_all(&mut column, &[("a", "gone"), ("gone", "x")]);

    column.truncate(mark);
    put_all(&mut column, &[("a", "new"), ("other", "x"), ("gone", "y")]);

    assert_eq!(
        read(&column, 1),
        owned(&[("a", "new"), ("other", "x"), ("gone", "y")])
    );
    assert_eq!(
        column.keys.texts().collect::<Vec<_>>(),
        ["a", "other", "gone"]
    );
}

#[test]
fn roll_back_inside_a_map_removes_the_key() {
    let mut column = MapColumn::default();
    put_all(&mut column, &[("a", "1")]);
    let mark = column.mark();
    put_all(&mut column, &[("a", "2")]);

    column.truncate(mark);
    put_all(&mut column, &[("a", "3")]);

    assert_eq!(read(&column, 1), owned(&[("a", "3")]));
}

#[test]
fn cached_attribute_is_recognised_until_its_texts_are_rolled_back() {
    let mut column = MapColumn::default();
    put_all(&mut column, &[("a", "1"), ("b", "1")]);
    let (mark, value) = (column.mark(), Value::Text(b"2"));
    put_all(&mut column, &[("c", "2"), ("d", "2")]);
    column.remember(b"encoded d: 2", b"d", value);
    assert_eq!(column.put_repeated(b"encoded d: 2"), Some(2));
    column.truncate(mark);
    put_all(&mut column, &[("e", "3"), ("f", "3")]);

    assert_eq!(column.put_repeated(b"encoded d: 2"), None);
}

#[test]
fn attribute_stored_with_changes_is_not_cached() {
    let (mut column, mut tally) = (MapColumn::default(), Tally::default());
    for _ in 0..3 {
        let value = Value::Text(b"too long");
        column.put(b"key", value, &Roles::default(), 3, &mut tally);
        column.remember(b"key: too long", b"key", value);
    }

    assert_eq!(column.put_repeated(b"key: too long"), None);
    assert_eq!(tally.reasons(), [("text_cut", 3)]);
}
