//! Visitor that stores nothing, so that only the decoder is measured.

use _transcode::refusal::Refusal;
use _transcode::text::Number;
use _transcode::visit::{Owner, Span, Visitor, Warning};

/// Counts its input, so that the compiler cannot remove the decoding.
#[derive(Default)]
pub struct NullVisitor {
    pub span_count: usize,
    pub input_bytes: usize,
}

impl Visitor for NullVisitor {
    fn warn(&mut self, _: Warning) {}
    fn unknown_content(&mut self) {}
    fn restart(&mut self) {
        *self = Self::default();
    }
    fn spend_nodes(&mut self, _: u32) -> Result<(), Refusal> {
        Ok(())
    }
    fn attribute(&mut self, _: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.input_bytes += key.len() + value.len();
        Ok(())
    }
    fn number(&mut self, _: Owner, key: &[u8], number: Number) -> Result<(), Refusal> {
        self.input_bytes += key.len() + usize::from(number.bits().0);
        Ok(())
    }
    fn resource_begin(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
    fn resource_ready(&mut self) {}
    fn resource_end(&mut self, _: &[u8]) {}
    fn scope_begin(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
    fn scope_ready(&mut self, name: &[u8], _: &[u8]) {
        self.input_bytes += name.len();
    }
    fn scope_end(&mut self, _: &[u8]) {}
    fn span_begin(&mut self) -> Result<(), Refusal> {
        self.span_count += 1;
        Ok(())
    }
    fn span_end(&mut self, span: &Span<'_>) {
        let is_root = span.parent_span_id.is_none();
        self.input_bytes +=
            span.name.len() + usize::from(is_root) + usize::from(span.trace_id.is_ok());
    }
    fn event_begin(&mut self) {}
    fn event_end(&mut self, _: u64, name: &[u8]) {
        self.input_bytes += name.len();
    }
    fn link_begin(&mut self) {}
    fn link_end(&mut self, _: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        self.input_bytes += trace_state.len();
    }
}
