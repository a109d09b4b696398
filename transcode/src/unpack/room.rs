//! Where unpacked bytes go: grows geometrically, never past the limit, and is reused.

use crate::refusal::Refusal;

/// The first allocation, unless a decoder asks for more.
const FIRST_BYTES: usize = 64 << 10;
/// What a room keeps for the next body.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// An announced length is believed up to this many times the compressed bytes; telemetry packs
/// 5 to 30 times. Beyond, the room grows as bytes are produced.
const RATIO_BELIEVED: usize = 64;

pub(super) fn too_large(body_bytes_max: usize) -> Refusal {
    Refusal::too_large(
        "body",
        format!("body exceeds the limit; at most {body_bytes_max} bytes are taken, also unpacked"),
    )
}

/// Bytes beyond `filled` are left over from earlier bodies: room to write into, never read.
#[derive(Default)]
pub(super) struct Room {
    bytes: Vec<u8>,
    filled: usize,
    bytes_max: usize,
}

impl Room {
    /// Starts a body of at most so many bytes.
    pub(super) fn open(&mut self, bytes_max: usize) {
        self.filled = 0;
        self.bytes_max = bytes_max;
        if self.bytes.len() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }

    /// One byte past the limit is room enough to tell that the limit is passed.
    fn ceiling(&self) -> usize {
        self.bytes_max.saturating_add(1)
    }

    fn grow_to(&mut self, wanted_bytes: usize) {
        let bytes = wanted_bytes.min(self.ceiling());
        if bytes > self.bytes.len() {
            self.bytes.reserve_exact(bytes - self.bytes.len());
            self.bytes.resize(bytes, 0);
        }
    }

    /// Makes room for the length a stream announces, as far as its compressed bytes make it likely.
    pub(super) fn expect(&mut self, announced_bytes: u64, compressed_bytes: usize) {
        let believed = compressed_bytes.saturating_mul(RATIO_BELIEVED);
        let announced = usize::try_from(announced_bytes).unwrap_or(usize::MAX);
        self.grow_to(self.filled.saturating_add(announced.min(believed)));
    }

    /// Makes so many bytes free, as far as the limit allows.
    pub(super) fn make_free(&mut self, bytes: usize) {
        let wanted = self.filled.saturating_add(bytes);
        if wanted > self.bytes.len() {
            self.grow_to(wanted.max(self.bytes.len().saturating_mul(2)));
        }
    }

    /// At least one byte to write to; doubles the room when it is full.
    pub(super) fn space(&mut self) -> Result<&mut [u8], Refusal> {
        if self.filled >= self.ceiling() {
            return Err(too_large(self.bytes_max));
        }
        if self.filled >= self.bytes.len() {
            self.make_free(FIRST_BYTES);
        }
        Ok(self.split().1)
    }

    /// What is written, and the room behind it.
    pub(super) fn split(&mut self) -> (&[u8], &mut [u8]) {
        let end = self.bytes.len().min(self.ceiling());
        let (filled, free) = self
            .bytes
            .get_mut(..end)
            .unwrap_or_default()
            .split_at_mut(self.filled);
        (filled, free)
    }

    /// So many more bytes of the space are written.
    pub(super) fn advance(&mut self, written_bytes: usize) {
        self.filled = self
            .filled
            .saturating_add(written_bytes)
            .min(self.bytes.len());
    }

    pub(super) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// Bytes still allowed.
    pub(super) fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.filled)
    }

    /// The refusal for a stream that does not fit.
    pub(super) fn too_large(&self) -> Refusal {
        too_large(self.bytes_max)
    }

    /// Ends the body: an output of one byte too many is noticed here.
    pub(super) fn close(&self) -> Result<(), Refusal> {
        if self.filled > self.bytes_max {
            Err(self.too_large())
        } else {
            Ok(())
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
