//! Cursor over bytes, and the values it can read.

/// The bytes are truncated, or invalid.
#[derive(Debug)]
pub enum Flaw {
    Truncated,
    Invalid(String),
}

impl From<Flaw> for std::io::Error {
    fn from(flaw: Flaw) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, format!("{flaw:?}"))
    }
}

pub struct Cursor<'a> {
    pub rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Flaw::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, Flaw> {
        self.take(1).map(|byte| byte[0])
    }

    pub fn u32(&mut self) -> Result<u32, Flaw> {
        self.take(4)
            .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    pub fn u64(&mut self) -> Result<u64, Flaw> {
        self.take(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// Reads an element count.
    pub fn size(&mut self) -> Result<usize, Flaw> {
        usize::try_from(self.u64()?)
            .map_err(|_| Flaw::Invalid("size exceeds the address space".into()))
    }

    pub fn varint(&mut self) -> Result<usize, Flaw> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Flaw::Invalid("varint has more than nine bytes".into()))
    }

    pub fn text(&mut self) -> Result<&'a str, Flaw> {
        let length = self.varint()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| Flaw::Invalid("text is not UTF-8".into()))
    }

    pub fn skip_text(&mut self) -> Result<(), Flaw> {
        let length = self.varint()?;
        self.take(length).map(|_| ())
    }
}

/// Writes a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

/// Writes a text with its length.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len());
    out.extend_from_slice(text.as_bytes());
}
