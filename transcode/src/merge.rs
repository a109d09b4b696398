//! Merger of the rows of several blocks into one block: copies fixed-width columns and merges dictionaries.

use crate::block::Segment;
use crate::columns::dictionary::Dictionary;
use crate::native::{Block, Column, Data};
use crate::put;
use crate::schema::Field;

/// Data of a column of the merged block.
enum MergedData {
    Fixed(Vec<u8>),
    Dictionary(Dictionary, Vec<u32>),
    Nullable(Vec<u8>, Box<MergedData>),
    Lists(Vec<u64>, Vec<MergedData>),
}

/// A block under construction, with the columns of the first block.
pub struct Merged {
    /// Number of rows so far.
    pub rows: usize,
    columns: Vec<(String, String, MergedData)>,
}

impl Merged {
    /// Returns an empty block with the columns of `block`.
    #[must_use]
    pub fn empty_like(block: &Block<'_>) -> Self {
        let column = |column: &Column<'_>| {
            (
                column.name.to_owned(),
                column.type_name.to_owned(),
                MergedData::empty_like(&column.data),
            )
        };
        Self {
            rows: 0,
            columns: block.columns.iter().map(column).collect(),
        }
    }

    /// Returns whether the block has the same columns.
    #[must_use]
    pub fn has_same_columns(&self, block: &Block<'_>) -> bool {
        let same =
            |((name, type_name, _), column): (&(String, String, MergedData), &Column<'_>)| {
                name == column.name && type_name == column.type_name
            };
        self.columns.len() == block.columns.len()
            && self.columns.iter().zip(&block.columns).all(same)
    }

    /// Appends the rows from `start` up to `end` of a block with the same columns.
    ///
    /// # Errors
    /// If the block's data does not match its types or row count.
    pub fn append(&mut self, block: &Block<'_>, start: usize, end: usize) -> Result<(), String> {
        for ((_, _, merged), column) in self.columns.iter_mut().zip(&block.columns) {
            merged.append(&column.data, start, end)?;
        }
        self.rows += end - start;
        Ok(())
    }

    /// Overwrites the segment identity in every row.
    pub fn set_segment(&mut self, segment: Segment) {
        let own = [
            (Field::SegmentEpoch, segment.epoch),
            (Field::SegmentSeq, segment.seq),
        ];
        for (field, value) in own {
            let same = |(name, _, _): &&mut (String, String, MergedData)| name == field.name();
            if let Some((_, _, MergedData::Fixed(bytes))) = self.columns.iter_mut().find(same) {
                *bytes = value.to_le_bytes().repeat(self.rows);
            }
        }
    }

    /// Appends the serialised block to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        put::varint(out, self.columns.len() as u64);
        put::varint(out, self.rows as u64);
        for (name, type_name, merged) in &self.columns {
            put::text(out, name.as_bytes());
            put::text(out, type_name.as_bytes());
            merged.write_prefixes(out);
            merged.write(out);
        }
    }
}

impl MergedData {
    fn empty_like(data: &Data<'_>) -> Self {
        match data {
            Data::Fixed(..) => Self::Fixed(Vec::new()),
            Data::Dictionary(..) => Self::Dictionary(Dictionary::default(), Vec::new()),
            Data::Nullable(_, inner) => {
                Self::Nullable(Vec::new(), Box::new(Self::empty_like(inner)))
            }
            Data::Lists(_, fields) => {
                Self::Lists(Vec::new(), fields.iter().map(Self::empty_like).collect())
            }
        }
    }

    fn append(&mut self, data: &Data<'_>, start: usize, end: usize) -> Result<(), String> {
        match (self, data) {
            (Self::Fixed(out), Data::Fixed(width, bytes)) => {
                out.extend_from_slice(part(bytes, start * width, end * width)?);
            }
            (Self::Nullable(out, merged), Data::Nullable(nulls, inner)) => {
                out.extend_from_slice(part(nulls, start, end)?);
                merged.append(inner, start, end)?;
            }
            (Self::Dictionary(dictionary, out), Data::Dictionary(texts, ids)) => {
                append_texts(dictionary, out, texts, part(ids, start, end)?)?;
            }
            (Self::Lists(out, merged), Data::Lists(ends, fields)) => {
                let (first, last) = append_ends(out, ends, start, end)?;
                for (merged, field) in merged.iter_mut().zip(fields) {
                    merged.append(field, first, last)?;
                }
            }
            _ => return Err("column data does not match the column type".to_owned()),
        }
        Ok(())
    }

    fn write_prefixes(&self, out: &mut Vec<u8>) {
        match self {
            Self::Fixed(_) => {}
            Self::Dictionary(..) => put::number(out, put::DICTIONARY_VERSION),
            Self::Nullable(_, inner) => inner.write_prefixes(out),
            Self::Lists(_, fields) => fields.iter().for_each(|field| field.write_prefixes(out)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Fixed(bytes) => out.extend_from_slice(bytes),
            Self::Dictionary(dictionary, ids) => put::codes(out, dictionary, ids),
            Self::Nullable(nulls, inner) => {
                out.extend_from_slice(nulls);
                inner.write(out);
            }
            Self::Lists(ends, fields) => {
                put::ends(out, ends);
                for field in fields {
                    field.write(out);
                }
            }
        }
    }
}

fn part<T>(all: &[T], start: usize, end: usize) -> Result<&[T], String> {
    all.get(start..end)
        .ok_or_else(|| "block has fewer rows than it declares".to_owned())
}

/// Appends rows of another dictionary column, adding only the strings that they use.
fn append_texts(
    dictionary: &mut Dictionary,
    out: &mut Vec<u32>,
    texts: &[&[u8]],
    ids: &[u32],
) -> Result<(), String> {
    // Each string is looked up once, however many rows use it.
    let mut known: Vec<Option<u32>> = vec![None; texts.len()];
    for id in ids {
        let slot = known
            .get_mut(*id as usize)
            .ok_or("dictionary has no text for an index")?;
        let merged = if let Some(merged) = *slot {
            merged
        } else {
            let text = texts.get(*id as usize).copied().unwrap_or_default();
            let text = std::str::from_utf8(text).map_err(|_| "text is not UTF-8")?;
            *slot.insert(dictionary.id_of_text(text))
        };
        out.push(merged);
    }
    Ok(())
}

/// Appends the ends of some lists. Returns the range of their elements.
fn append_ends(
    out: &mut Vec<u64>,
    ends: &[usize],
    start: usize,
    end: usize,
) -> Result<(usize, usize), String> {
    let first = start
        .checked_sub(1)
        .and_then(|before| ends.get(before))
        .copied()
        .unwrap_or_default();
    let (base, added) = (
        out.last().copied().unwrap_or_default(),
        part(ends, start, end)?,
    );
    // The ends in the source count from its first row; convert them to continue after the lists already merged.
    out.extend(added.iter().map(|end| base + (end - first) as u64));
    Ok((first, added.last().copied().unwrap_or(first)))
}
