//! Reader of `ClickHouse`'s Native format (see [`crate::put`] for the layout): one block whose columns
//! borrow its bytes.
//!
//! Supports only the types that the receiver writes. Never allocates memory from a declared length.

/// Deepest nesting of a type that the receiver writes.
const DEPTH_MAX: usize = 4;

/// Structure of a column type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A fixed number of bytes per row.
    Fixed(usize),
    /// A dictionary of strings and one index per row.
    Dictionary,
    /// One byte per row (1: null), and the values.
    Nullable(Box<Type>),
    /// Lists (one field) or maps (two fields).
    Lists(Vec<Type>),
}

/// A column's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Width, and the bytes of all rows.
    Fixed(usize, &'a [u8]),
    /// Strings, and the index of each row.
    Dictionary(Vec<&'a [u8]>, Vec<u32>),
    /// Nulls and values.
    Nullable(&'a [u8], Box<Data<'a>>),
    /// The end of each row's list, and the fields of all lists.
    Lists(Vec<usize>, Vec<Data<'a>>),
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Column name.
    pub name: &'a str,
    /// Name of the column type.
    pub type_name: &'a str,
    /// Column data.
    pub data: Data<'a>,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Number of rows.
    pub rows: usize,
    /// The columns, in the order of the block.
    pub columns: Vec<Column<'a>>,
}

impl Type {
    /// Parses a type name; `None` if the receiver does not write this type.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::parse_within(name, DEPTH_MAX)
    }

    fn parse_within(name: &str, depth: usize) -> Option<Self> {
        // A damaged type name must not exhaust the call stack.
        let depth = depth.checked_sub(1)?;
        let argument = |of: &str| name.strip_prefix(of)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(bytes) = argument("FixedString") {
            return bytes.parse().ok().map(Self::Fixed);
        }
        if let Some(inner) = argument("Nullable") {
            return Some(Self::Nullable(Box::new(Self::parse_within(inner, depth)?)));
        }
        if let Some(inner) = argument("Array") {
            return Some(Self::Lists(vec![Self::parse_within(inner, depth)?]));
        }
        if let Some((key, value)) = argument("Map").and_then(|inner| inner.split_once(", ")) {
            return Some(Self::Lists(vec![
                Self::parse_within(key, depth)?,
                Self::parse_within(value, depth)?,
            ]));
        }
        match name {
            "LowCardinality(String)" => Some(Self::Dictionary),
            "UInt64" | "Float64" => Some(Self::Fixed(8)),
            "UInt32" => Some(Self::Fixed(4)),
            _ if argument("DateTime64").is_some() => Some(Self::Fixed(8)),
            _ => None,
        }
    }
}

/// Reads the single block in `bytes`.
///
/// # Errors
/// If `bytes` are not exactly one block.
pub fn read(bytes: &[u8]) -> Result<Block<'_>, String> {
    let mut reader = Reader { rest: bytes };
    let columns = reader.varint()?;
    let rows =
        usize::try_from(reader.varint()?).map_err(|_| "block declares too many rows".to_owned())?;
    let mut block = Block {
        rows,
        columns: Vec::new(),
    };
    // A false count fails at the end of the bytes: every column takes at least one byte.
    for _ in 0..columns {
        let (name, type_name) = (reader.name()?, reader.name()?);
        let kind = Type::parse(type_name).ok_or_else(|| {
            format!("column {name} has type {type_name}; expected a type that this build writes")
        })?;
        reader.prefixes(&kind)?;
        let data = reader.data(&kind, rows)?;
        block.columns.push(Column {
            name,
            type_name,
            data,
        });
    }
    if !reader.rest.is_empty() {
        return Err(format!(
            "{} bytes after the block; expected none",
            reader.rest.len()
        ));
    }
    Ok(block)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(|| {
            format!(
                "block ends {} bytes before a field of {bytes} does",
                self.rest.len()
            )
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_rows(&mut self, rows: usize, width: usize) -> Result<&'a [u8], String> {
        self.take(
            // the product of a false row count may overflow
            rows.checked_mul(width)
                .ok_or("block declares too many rows")?,
        )
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.take(1)?.first().copied().unwrap_or_default());
            value |= (byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("number of more than 10 bytes".to_owned())
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let bytes = self.varint()?;
        self.take(usize::try_from(bytes).map_err(|_| "text declares too many bytes")?)
    }

    fn name(&mut self) -> Result<&'a str, String> {
        std::str::from_utf8(self.text()?).map_err(|_| "name of a column is not UTF-8".to_owned())
    }

    fn number(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?.first_chunk().copied().unwrap_or_default();
        Ok(u64::from_le_bytes(bytes))
    }

    fn count(&mut self) -> Result<usize, String> {
        usize::try_from(self.number()?).map_err(|_| "block declares too many entries".to_owned())
    }

    fn prefixes(&mut self, kind: &Type) -> Result<(), String> {
        match kind {
            Type::Fixed(_) => Ok(()),
            Type::Nullable(inner) => self.prefixes(inner),
            Type::Lists(fields) => fields.iter().try_for_each(|field| self.prefixes(field)),
            Type::Dictionary => match self.number()? {
                crate::put::DICTIONARY_VERSION => Ok(()),
                other => Err(format!(
                    "dictionary version {other}; expected {}",
                    crate::put::DICTIONARY_VERSION
                )),
            },
        }
    }

    fn data(&mut self, kind: &Type, rows: usize) -> Result<Data<'a>, String> {
        Ok(match kind {
            Type::Fixed(width) => Data::Fixed(*width, self.take_rows(rows, *width)?),
            // Without rows there is only the prefix.
            Type::Dictionary if rows == 0 => Data::Dictionary(Vec::new(), Vec::new()),
            Type::Dictionary => self.dictionary(rows)?,
            Type::Nullable(inner) => {
                Data::Nullable(self.take(rows)?, Box::new(self.data(inner, rows)?))
            }
            Type::Lists(fields) => {
                let ends = self.ends(rows)?;
                let entries = ends.last().copied().unwrap_or_default();
                let fields = fields.iter().map(|field| self.data(field, entries));
                Data::Lists(ends, fields.collect::<Result<_, _>>()?)
            }
        })
    }

    fn ends(&mut self, rows: usize) -> Result<Vec<usize>, String> {
        let (cells, _) = self.take_rows(rows, 8)?.as_chunks::<8>();
        let ends: Result<Vec<usize>, _> = cells
            .iter()
            .map(|cell| usize::try_from(u64::from_le_bytes(*cell)))
            .collect();
        let ends = ends.map_err(|_| "list ends beyond memory")?;
        // Every list must end at or after its beginning.
        if ends.is_sorted() {
            Ok(ends)
        } else {
            Err("list ends before it begins".to_owned())
        }
    }

    fn dictionary(&mut self, rows: usize) -> Result<Data<'a>, String> {
        let flags = self.number()?;
        let width = match flags.checked_sub(crate::put::DICTIONARY_FLAGS) {
            Some(0) => 1,
            Some(1) => 2,
            Some(2) => 4,
            _ => {
                return Err(format!(
                    "dictionary has flags {flags:#x}, which this build does not write"
                ));
            }
        };
        // No capacity is reserved: the declared count may be false.
        let mut texts = Vec::new();
        for _ in 0..self.count()? {
            texts.push(self.text()?);
        }
        let declared = self.count()?;
        if declared != rows {
            return Err(format!("dictionary of {declared} rows; expected {rows}"));
        }
        let ids: Vec<u32> = self
            .take_rows(rows, width)?
            .chunks_exact(width)
            .map(little_endian)
            .collect();
        if ids.iter().any(|id| *id as usize >= texts.len()) {
            return Err("dictionary has no text for an index".to_owned());
        }
        Ok(Data::Dictionary(texts, ids))
    }
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Field;

    #[test]
    fn every_type_that_is_written_can_be_read() {
        for field in Field::ALL {
            assert!(Type::parse(field.wire_type()).is_some(), "{}", field.name());
        }
    }

    #[test]
    fn other_types_are_unknown() {
        for name in [
            "String",
            "Array(Array(Array(Array(UInt64))))",
            "Map(UInt64)",
            "FixedString(x)",
            "",
        ] {
            assert_eq!(Type::parse(name), None, "{name}");
        }
    }

    #[test]
    fn bytes_that_are_not_a_block_are_an_error() {
        for bytes in [
            &b""[..],
            b"\x01",
            b"\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x01a\x06UInt64",
            b"\x00\x00x",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
