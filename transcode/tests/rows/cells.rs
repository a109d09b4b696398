//! Cells of a block as text.

use _transcode::native::{Block, Data};

/// Returns every row as `column=value` lines.
pub fn rows(block: &Block<'_>) -> Vec<Vec<String>> {
    let row = |row: usize| {
        block
            .columns
            .iter()
            .map(|column| format!("{}={}", column.name, cell(&column.data, row)))
            .collect()
    };
    (0..block.rows).map(row).collect()
}

fn cell(data: &Data<'_>, row: usize) -> String {
    match data {
        Data::Fixed(16, bytes) => String::from_utf8_lossy(&bytes[row * 16..][..16])
            .trim_end_matches('\0')
            .to_owned(),
        Data::Fixed(8, bytes) => {
            i64::from_le_bytes(bytes[row * 8..][..8].try_into().unwrap()).to_string()
        }
        Data::Fixed(width, bytes) => {
            u32::from_le_bytes(bytes[row * width..][..*width].try_into().unwrap()).to_string()
        }
        Data::Dictionary(texts, ids) => {
            String::from_utf8(texts[ids[row] as usize].to_vec()).unwrap()
        }
        Data::Nullable(nulls, _) if nulls[row] == 1 => "NULL".to_owned(),
        Data::Nullable(_, inner) => cell(inner, row),
        Data::Lists(ends, fields) => {
            let first = row.checked_sub(1).map_or(0, |before| ends[before]);
            let entry = |at: usize| {
                fields
                    .iter()
                    .map(|field| cell(field, at))
                    .collect::<Vec<_>>()
                    .join(": ")
            };
            let entries: Vec<String> = (first..ends[row]).map(entry).collect();
            format!("[{}]", entries.join(", "))
        }
    }
}
