//! Encodes protobuf by hand, field by field, so that tests control every byte.

/// Encodes a base-128 integer in its shortest form.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
    out
}

fn field(number: u32, wire_type: u32, content: &[u8]) -> Vec<u8> {
    [&varint(u64::from(number << 3 | wire_type)), content].concat()
}

/// Encodes a varint field.
pub fn int(number: u32, value: i64) -> Vec<u8> {
    field(number, 0, &varint(value.cast_unsigned()))
}

/// Encodes a fixed64 field.
pub fn fixed64(number: u32, value: u64) -> Vec<u8> {
    field(number, 1, &value.to_le_bytes())
}

/// Encodes a double field.
pub fn double(number: u32, value: f64) -> Vec<u8> {
    fixed64(number, value.to_bits())
}

/// Encodes a field of bytes, text or a message.
pub fn len(number: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    field(
        number,
        2,
        &[&varint(content.len() as u64), content].concat(),
    )
}

/// Encodes a fixed32 field.
pub fn fixed32(number: u32, value: u32) -> Vec<u8> {
    field(number, 5, &value.to_le_bytes())
}
