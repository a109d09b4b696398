//! The words a decoder speaks: both decoders (protobuf, JSON) tell a [`Visitor`] the same story.
//!
//! ```text
//! resource_begin  attribute(Resource)*  resource_ready
//!   scope_begin  scope_name  scope_version  attribute(Scope)*  scope_ready
//!     span_begin
//!       attribute(Span)*
//!       event_begin attribute(Event)* event_end
//!       link_begin  attribute(Link)*  link_end
//!     span_end(Span)
//!   scope_end(schema_url)
//! resource_end(schema_url)
//! ```
//!
//! Within a span, attributes, events and links come in any order. A decoder that meets a resource
//! or scope after its spans makes a second pass; schema URLs may come late because they arrive with
//! the end. Texts are raw bytes: whoever keeps one checks its UTF-8, once per distinct text.

use crate::refusal::Refusal;
use crate::text::Number;

/// Whose attribute it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The resource between `resource_begin` and `resource_ready`.
    Resource,
    /// The scope between `scope_begin` and `scope_ready`.
    Scope,
    /// The span begun last.
    Span,
    /// The event begun last.
    Event,
    /// The link begun last.
    Link,
}

/// An attribute's value as it is told.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Text, as it came off the wire.
    Text(&'a [u8]),
    /// A number that may have to be spelled out yet.
    Number(Number),
}

/// The fields of one span that are neither attribute, event nor link.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Sixteen bytes, not all zero, or why not.
    pub trace_id: Result<[u8; 16], Rejection>,
    /// Eight bytes, not all zero, or why not.
    pub span_id: Result<[u8; 8], Rejection>,
    /// `None` for a root. A bad parent is `None` too, after `warn(Warning::ParentDropped)`.
    pub parent_span_id: Option<[u8; 8]>,
    /// As sent.
    pub trace_state: &'a [u8],
    /// As sent; empty is allowed.
    pub name: &'a [u8],
    /// The enum's number, also outside the enum.
    pub kind: i32,
    /// Nanoseconds since 1970, as sent; 0 if absent.
    pub start_unix_nano: u64,
    /// Nanoseconds since 1970, as sent; 0 if absent.
    pub end_unix_nano: u64,
    /// The enum's number, also outside the enum.
    pub status_code: i32,
    /// As sent.
    pub status_message: &'a [u8],
    /// All 32 bits.
    pub flags: u32,
    /// What the sender says it dropped.
    pub dropped_attributes_count: u32,
    /// What the sender says it dropped.
    pub dropped_events_count: u32,
    /// What the sender says it dropped.
    pub dropped_links_count: u32,
}

impl Default for Span<'_> {
    fn default() -> Self {
        Self {
            trace_id: Err(Rejection::TraceIdMissing),
            span_id: Err(Rejection::SpanIdMissing),
            parent_span_id: None,
            trace_state: b"",
            name: b"",
            kind: 0,
            start_unix_nano: 0,
            end_unix_nano: 0,
            status_code: 0,
            status_message: b"",
            flags: 0,
            dropped_attributes_count: 0,
            dropped_events_count: 0,
            dropped_links_count: 0,
        }
    }
}

/// Whatever listens to a decoder. An `Err` ends the delivery: the decoder returns it at once.
pub trait Visitor {
    /// Notes, once per occurrence, that the sender broke a rule and we read on.
    fn warn(&mut self, warning: Warning);
    /// Notes content that was skipped because we do not know it, outside spans. A delivery without
    /// spans in which this happened is not an empty request but a misunderstanding.
    fn unknown_content(&mut self);
    /// Forgets all that was told of this delivery: a resource or scope came again after its spans, and
    /// the decoder begins anew, this time with two passes over each.
    fn restart(&mut self);
    /// Pays for `count` nested value nodes beyond the attribute itself.
    ///
    /// # Errors
    /// When the delivery has spent its nodes.
    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal>;
    /// One attribute, its value already as stored text ([`crate::visit`] callers render it).
    ///
    /// # Errors
    /// When the delivery has spent its nodes.
    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal>;
    /// One attribute whose value is a number that is not text yet: who has met it before need not have it
    /// spelled out.
    ///
    /// # Errors
    /// When the delivery has spent its nodes.
    #[inline]
    fn number(&mut self, owner: Owner, key: &[u8], number: Number) -> Result<(), Refusal> {
        let mut text = Vec::new();
        number.push(&mut text);
        self.attribute(owner, key, &text)
    }
    /// An attribute of the span, as the decoder found it spelled: true if it was spelled so before, and is
    /// taken as told; else it must be told.
    ///
    /// # Errors
    /// When the delivery has spent its nodes.
    #[inline]
    fn attribute_again(&mut self, _spelling: &[u8]) -> Result<bool, Refusal> {
        Ok(false)
    }
    /// How the attribute of the span told last was spelled. Whatever is spelled so means the same, and has
    /// no nested values.
    #[inline]
    fn spelled(&mut self, _spelling: &[u8], _key: &[u8], _value: Value<'_>) {}
    /// # Errors
    /// When there are too many.
    fn resource_begin(&mut self) -> Result<(), Refusal>;
    /// All attributes of the resource have been told; its spans follow.
    fn resource_ready(&mut self);
    /// The resource and all its spans are done.
    fn resource_end(&mut self, schema_url: &[u8]);
    /// # Errors
    /// When there are too many.
    fn scope_begin(&mut self) -> Result<(), Refusal>;
    /// Everything of the scope has been told; its spans follow.
    fn scope_ready(&mut self, name: &[u8], version: &[u8]);
    /// The scope and all its spans are done.
    fn scope_end(&mut self, schema_url: &[u8]);
    /// # Errors
    /// When there are too many.
    fn span_begin(&mut self) -> Result<(), Refusal>;
    /// The span is complete: kept, sampled out or rejected, as the listener decides.
    fn span_end(&mut self, span: &Span<'_>);
    /// An event of the span begins. Past the limit it is the listener that drops and counts it.
    fn event_begin(&mut self);
    /// The event is complete.
    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]);
    /// A link of the span begins.
    fn link_begin(&mut self);
    /// The link is complete; `None` for ids that are not valid: the listener drops and counts it.
    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]);
}

macro_rules! reasons {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $key:literal, $text:literal;)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them, in order: `ALL[reason as usize] == reason`.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name: a metric label, and what tests compare.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* }
            }

            /// What the sender is told.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// Why a span is rejected. Nothing else ever costs a span.
    Rejection {
        /// No or empty trace id.
        TraceIdMissing => "trace_id_missing", "span without a trace id; 16 bytes are required";
        /// Wrong length or not hex.
        TraceIdMalformed => "trace_id_malformed", "trace id is not 16 bytes (32 hex digits in JSON)";
        /// All zero.
        TraceIdZero => "trace_id_zero", "trace id is all zeros";
        /// No or empty span id.
        SpanIdMissing => "span_id_missing", "span without a span id; 8 bytes are required";
        /// Wrong length or not hex.
        SpanIdMalformed => "span_id_malformed", "span id is not 8 bytes (16 hex digits in JSON)";
        /// All zero.
        SpanIdZero => "span_id_zero", "span id is all zeros";
        /// A list element of `spans` that is no object.
        SpanNotObject => "span_not_object", "element of spans is not an object";
    }
}

reasons! {
    /// What was read although the sender broke a rule. In strict drains each is a refusal.
    Warning {
        /// A parent id of the wrong length.
        ParentDropped => "parent_dropped", "parent span id is not 8 bytes (16 hex digits in JSON); parent dropped";
        /// A link without valid ids.
        LinkDropped => "link_dropped", "link without a valid trace and span id; link dropped and counted";
        /// ASCII hex in a protobuf id.
        IdAsciiHex => "id_ascii_hex", "id sent as hex text in protobuf; send the raw bytes";
        /// base64 in a JSON id.
        IdBase64 => "id_base64", "id sent as base64 in JSON; OTLP/JSON wants hex";
        /// A dashed UUID as trace id.
        IdUuid => "id_uuid", "trace id sent as a dashed UUID; OTLP/JSON wants 32 hex digits";
        /// `snake_case` JSON keys.
        SnakeCaseKeys => "snake_case_keys", "snake_case keys; OTLP/JSON wants lowerCamelCase";
        /// An enum's name in place of its number.
        EnumName => "enum_name", "enum sent by name; OTLP/JSON wants the number";
        /// An enum that cannot be read at all.
        EnumUnreadable => "enum_unreadable", "enum is neither a number nor a known name; read as unspecified";
        /// A Long object in place of a 64-bit integer.
        LongObject => "long_object", "64-bit integer sent as a {low, high} object; send a decimal string";
        /// A time that is no whole number.
        TimeFractional => "time_fractional", "time is not a whole number of nanoseconds; fraction dropped";
        /// A time that cannot be read at all.
        TimeUnreadable => "time_unreadable", "time is not a number; read as 0";
        /// A start time that cannot be true.
        StartImplausible => "start_implausible", "start time is absent, before 1990 or in the future; stored under the receive time";
        /// An end time beyond `DateTime64`.
        EndImplausible => "end_implausible", "end time is beyond the year 2262; duration stored as 0";
        /// An integer attribute that does not fit int64 or has a fraction.
        IntAsDouble => "int_as_double", "intValue is not a 64-bit integer; kept as a double";
        /// A number in a spelling JSON does not know, like `+1`.
        NumberSpelling => "number_spelling", "number in a spelling that JSON does not know; kept as the value it looks like";
        /// A double beyond what a double holds.
        DoubleRange => "double_range", "doubleValue is out of range; kept as text";
        /// A scalar of another type than its key says.
        ValueType => "value_type", "attribute value is of another type than its key says; kept as what it is";
        /// bytesValue that is no base64.
        BytesNotBase64 => "bytes_not_base64", "bytesValue is not base64; kept as text";
        /// Two members in one `AnyValue`.
        ValueAmbiguous => "value_ambiguous", "attribute value has several members; the last wins";
        /// A bare value in place of an `AnyValue`.
        ValueBare => "value_bare", "attribute value sent bare; OTLP/JSON wants {\"stringValue\": ...}";
        /// Attributes as an object.
        AttributesAsMap => "attributes_as_map", "attributes sent as an object; OTLP/JSON wants a list of key and value";
        /// An element of attributes that is neither null nor an object.
        AttributeUnreadable => "attribute_unreadable", "element of attributes is not a key and a value; dropped";
        /// A value nested too deep.
        ValueTooDeep => "value_too_deep", "attribute value is nested too deep; the rest is replaced by \"…\"";
        /// Lone surrogates.
        LoneSurrogate => "lone_surrogate", "text with half of a surrogate pair; replaced by U+FFFD";
        /// Bytes that are not UTF-8.
        InvalidUtf8 => "invalid_utf8", "text is not UTF-8; bad bytes replaced by U+FFFD";
        /// A negative or overlarge count or flags.
        CountClamped => "count_clamped", "count or flags outside 32 bits; clamped";
        /// null in a list.
        NullElement => "null_element", "null in a list; skipped";
        /// A field of another type than OTLP says, inside a span.
        FieldType => "field_type", "field of another type than OTLP says; read as what it looks like, or ignored";
        /// The pre-0.19 list of spans.
        InstrumentationLibrary => "instrumentation_library", "instrumentationLibrarySpans is from before 2022; read as scopeSpans, or ignored beside them (senders put the same spans in both)";
        /// A gzip body without the header.
        GzipUndeclared => "gzip_undeclared", "body is gzip but Content-Encoding does not say so";
        /// A Content-Encoding that was already undone.
        EncodingUnneeded => "encoding_unneeded", "Content-Encoding names a compression, but the body is not compressed";
        /// Nothing in a body that is not empty.
        NoSpans => "no_spans", "the body has content but no spans; is it a trace export request?";
        /// More attributes than we keep.
        AttributesOverLimit => "attributes_over_limit", "more attributes than the limit; the rest is dropped and counted";
        /// More events than we keep.
        EventsOverLimit => "events_over_limit", "more events than the limit; the rest is dropped and counted";
        /// More links than we keep.
        LinksOverLimit => "links_over_limit", "more links than the limit; the rest is dropped and counted";
        /// A text longer than we keep.
        TextCut => "text_cut", "text longer than the limit; cut";
        /// An attribute key longer than we keep.
        KeyTooLong => "key_too_long", "attribute key longer than the limit; attribute dropped";
        /// A project, deployment or service name longer than a key may be.
        NameShortened => "name_shortened", "project, deployment or service name longer than 256 bytes; shortened with a hash in its column, whole in the attributes";
    }
}
