//! Skips a value: checks that it is JSON and ignores its content. No recursion; one byte of state per level.

use super::cursor::{Cursor, Shape};
use super::stop::ReadResult;
use super::strings;

/// Skips the next value, whatever its type. `nesting` is scratch space.
pub(super) fn value(cursor: &mut Cursor<'_>, nesting: &mut Vec<Shape>) -> ReadResult<()> {
    nesting.clear();
    loop {
        let mut is_first = match cursor.shape()? {
            container @ (Shape::Object | Shape::Array) => {
                cursor.open()?;
                nesting.push(container);
                true
            }
            scalar => {
                self::scalar(cursor, scalar)?;
                false
            }
        };
        while let Some(&container) = nesting.last() {
            if next(cursor, container, &mut is_first)? {
                break;
            }
            nesting.pop();
            is_first = false;
        }
        if nesting.is_empty() {
            return Ok(());
        }
    }
}

/// Returns whether the container has another value.
fn next(cursor: &mut Cursor<'_>, container: Shape, is_first: &mut bool) -> ReadResult<bool> {
    if container == Shape::Array {
        return cursor.element(is_first);
    }
    match cursor.member(is_first)? {
        // the cursor finds the end of a string without checking its escapes
        Some(name) if name.escaped => check(cursor, name.raw).map(|()| true),
        name => Ok(name.is_some()),
    }
}

fn scalar(cursor: &mut Cursor<'_>, shape: Shape) -> ReadResult<()> {
    match shape {
        Shape::String => {
            let string = cursor.string()?;
            if string.escaped {
                check(cursor, string.raw)
            } else {
                Ok(())
            }
        }
        Shape::Number => cursor.number().map(|_| ()),
        Shape::True => cursor.word("true"),
        Shape::False => cursor.word("false"),
        _ => cursor.word("null"),
    }
}

fn check(cursor: &Cursor<'_>, raw: &[u8]) -> ReadResult<()> {
    strings::check_escapes(raw).map_err(|_| cursor.bad_escape())
}
