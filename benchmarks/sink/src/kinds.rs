//! Column types that occur in tables of spans.

use crate::cursor::Flaw;

#[derive(Debug)]
pub enum Kind {
    Fixed(usize),
    Text,
    LowCardinality(Box<Kind>),
    Nullable(Box<Kind>),
    Array(Box<Kind>),
    Map(Box<Kind>, Box<Kind>),
}

/// Parses a ClickHouse type name.
pub fn parse(text: &str) -> Result<Kind, Flaw> {
    let (name, inner) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or(rest)),
        None => (text, ""),
    };
    Ok(match name {
        "String" => Kind::Text,
        "FixedString" => Kind::Fixed(inner.parse().unwrap_or_default()),
        "DateTime64" | "UInt64" | "Int64" | "Float64" => Kind::Fixed(8),
        "UInt32" | "Int32" | "DateTime" => Kind::Fixed(4),
        "UInt8" | "Bool" => Kind::Fixed(1),
        "LowCardinality" => Kind::LowCardinality(Box::new(parse(inner)?)),
        "Nullable" => Kind::Nullable(Box::new(parse(inner)?)),
        "Array" => Kind::Array(Box::new(parse(inner)?)),
        "Map" => {
            let (key, value) = split_pair(inner)?;
            Kind::Map(Box::new(parse(key)?), Box::new(parse(value)?))
        }
        _ => return Err(Flaw::Invalid(format!("unsupported column type {text}"))),
    })
}

/// Splits at the comma outside of parentheses.
fn split_pair(text: &str) -> Result<(&str, &str), Flaw> {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            // a comma in parentheses belongs to an inner type, such as a map of maps
            ',' if depth == 0 => return Ok((text[..at].trim(), text[at + 1..].trim())),
            _ => {}
        }
    }
    Err(Flaw::Invalid(format!(
        "map type without two arguments: {text}"
    )))
}
