//! Output buffer for decompressed bytes: grows geometrically, never past the limit, and is reused.

use crate::refusal::Refusal;

/// Size of the first allocation, unless a decoder requests more.
const FIRST_BYTES: usize = 64 << 10;
/// A buffer larger than this is freed before the next body.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// A declared length is trusted up to this many times the compressed bytes; telemetry compresses 5 to 30
/// times. Beyond that, the buffer grows as bytes are produced.
const PLAUSIBLE_RATIO: usize = 64;

pub(super) fn too_large(body_bytes_max: usize) -> Refusal {
    Refusal::too_large(
        "body",
        format!(
            "body exceeds the limit; at most {body_bytes_max} bytes are accepted, before and after decompression"
        ),
    )
}

/// Bytes after `filled` are left over from earlier bodies; they are overwritten, never read.
#[derive(Default)]
pub(super) struct OutputBuffer {
    bytes: Vec<u8>,
    filled: usize,
    bytes_max: usize,
}

impl OutputBuffer {
    /// Starts a body of at most this many bytes.
    pub(super) fn open(&mut self, bytes_max: usize) {
        self.filled = 0;
        self.bytes_max = bytes_max;
        if self.bytes.len() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }

    /// Returns the maximum size of the buffer: one byte more than the limit, which is enough to detect a body that
    /// exceeds it.
    fn ceiling(&self) -> usize {
        self.bytes_max.saturating_add(1)
    }

    fn grow_to(&mut self, wanted_bytes: usize) {
        let bytes = wanted_bytes.min(self.ceiling());
        if bytes > self.bytes.len() {
            // `reserve_exact`, because `reserve` could allocate more than the limit.
            self.bytes.reserve_exact(bytes - self.bytes.len());
            self.bytes.resize(bytes, 0);
        }
    }

    /// Reserves the length that a stream declares, up to what is plausible for the number of compressed bytes.
    pub(super) fn expect(&mut self, declared_bytes: u64, compressed_bytes: usize) {
        let plausible = compressed_bytes.saturating_mul(PLAUSIBLE_RATIO);
        let declared = usize::try_from(declared_bytes).unwrap_or(usize::MAX);
        self.grow_to(self.filled.saturating_add(declared.min(plausible)));
    }

    /// Reserves this many free bytes, as far as the limit allows.
    pub(super) fn reserve(&mut self, bytes: usize) {
        let wanted = self.filled.saturating_add(bytes);
        if wanted > self.bytes.len() {
            // At least doubles, so that growing costs constant time per byte on average.
            self.grow_to(wanted.max(self.bytes.len().saturating_mul(2)));
        }
    }

    /// Returns the free part, at least one byte; doubles the buffer if it is full.
    pub(super) fn free_space(&mut self) -> Result<&mut [u8], Refusal> {
        if self.filled >= self.ceiling() {
            return Err(too_large(self.bytes_max));
        }
        if self.filled >= self.bytes.len() {
            self.reserve(FIRST_BYTES);
        }
        Ok(self.split().1)
    }

    /// Returns the written bytes and the free part after them.
    pub(super) fn split(&mut self) -> (&[u8], &mut [u8]) {
        // The buffer can be larger than the limit: it may be kept from a drain with a higher limit.
        let end = self.bytes.len().min(self.ceiling());
        let (filled, free) = self
            .bytes
            .get_mut(..end)
            .unwrap_or_default()
            .split_at_mut(self.filled);
        (filled, free)
    }

    /// Marks this many bytes of the free part as written.
    pub(super) fn advance(&mut self, written_bytes: usize) {
        self.filled = self
            .filled
            .saturating_add(written_bytes)
            .min(self.bytes.len());
    }

    pub(super) fn filled(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// Returns the number of bytes still allowed.
    pub(super) fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.filled)
    }

    /// Refusal of a stream that exceeds the limit.
    pub(super) fn too_large(&self) -> Refusal {
        too_large(self.bytes_max)
    }

    /// Ends the body; returns an error if the output exceeds the limit.
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
