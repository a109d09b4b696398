//! Interface between a decoder (protobuf or JSON) and a [`Visitor`], which receives the content in this order:
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
//! Within a span, attributes, events and links come in any order. A decoder that finds a resource or scope after
//! its spans makes a second pass; a schema URL may follow the spans, because it is reported at the end. Texts are
//! raw bytes: the visitor checks their UTF-8, once per distinct text.

use crate::refusal::Refusal;
use crate::text::Number;

/// Element that an attribute belongs to.
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

/// Value of an attribute as the decoder reports it.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Text as sent.
    Text(&'a [u8]),
    /// A number, not formatted yet.
    Number(Number),
}

/// The fields of one span that are neither attribute, event nor link.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Sixteen bytes, not all zero, or the reason why the id is invalid.
    pub trace_id: Result<[u8; 16], Rejection>,
    /// Eight bytes, not all zero, or the reason why the id is invalid.
    pub span_id: Result<[u8; 8], Rejection>,
    /// `None` for a root span, and for an invalid id after `warn(Warning::ParentDropped)`.
    pub parent_span_id: Option<[u8; 8]>,
    /// Tracestate as sent.
    pub trace_state: &'a [u8],
    /// Name as sent; may be empty.
    pub name: &'a [u8],
    /// Number of the span kind, which may be outside the enum.
    pub kind: i32,
    /// Start in nanoseconds since 1970, as sent; 0 if absent.
    pub start_unix_nano: u64,
    /// End in nanoseconds since 1970, as sent; 0 if absent.
    pub end_unix_nano: u64,
    /// Number of the status code, which may be outside the enum.
    pub status_code: i32,
    /// Status message as sent.
    pub status_message: &'a [u8],
    /// Flags, all 32 bits.
    pub flags: u32,
    /// Attributes that the sender dropped.
    pub dropped_attributes_count: u32,
    /// Events that the sender dropped.
    pub dropped_events_count: u32,
    /// Links that the sender dropped.
    pub dropped_links_count: u32,
}

impl Default for Span<'_> {
    fn default() -> Self {
        Self {
            // An id whose field does not occur is reported as missing.
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

/// Receives the content of a delivery from a decoder. An `Err` refuses the delivery: the decoder returns it
/// immediately.
pub trait Visitor {
    /// Reports a violation of OTLP that does not stop decoding, once per occurrence.
    fn warn(&mut self, warning: Warning);
    /// Reports that unknown content outside spans was skipped. A delivery with such content but without spans is
    /// probably not a trace export request.
    fn unknown_content(&mut self);
    /// Discards everything reported of this delivery. The decoder found a resource or scope again after its
    /// spans and starts over, with two passes over each resource and scope.
    fn restart(&mut self);
    /// Counts `count` nested values, in addition to the attribute itself, against the node limit.
    ///
    /// # Errors
    /// If the delivery exceeds the node limit.
    fn spend_nodes(&mut self, count: u32) -> Result<(), Refusal>;
    /// Reports an attribute with its value as stored text.
    ///
    /// # Errors
    /// If the delivery exceeds the node limit.
    fn attribute(&mut self, owner: Owner, key: &[u8], value: &[u8]) -> Result<(), Refusal>;
    /// Reports an attribute with a number as its value. The number is not formatted yet, so that a visitor can
    /// look up its text in a cache.
    ///
    /// # Errors
    /// If the delivery exceeds the node limit.
    #[inline]
    fn number(&mut self, owner: Owner, key: &[u8], number: Number) -> Result<(), Refusal> {
        let mut text = Vec::new();
        number.push(&mut text);
        self.attribute(owner, key, &text)
    }
    /// Offers a span attribute in its encoded form before parsing. Returns true if the visitor has cached
    /// this form and has added the attribute; otherwise the decoder parses and reports it.
    ///
    /// # Errors
    /// If the delivery exceeds the node limit.
    #[inline]
    fn repeated_attribute(&mut self, _encoded: &[u8]) -> Result<bool, Refusal> {
        Ok(false)
    }
    /// Offers the encoded form of the span attribute reported last for [`Self::repeated_attribute`]. The same
    /// bytes always mean the same attribute, and its value has no nested values.
    #[inline]
    fn cache_attribute(&mut self, _encoded: &[u8], _key: &[u8], _value: Value<'_>) {}
    /// Begins a resource.
    ///
    /// # Errors
    /// If there are too many resources.
    fn resource_begin(&mut self) -> Result<(), Refusal>;
    /// Reports that all attributes of the resource were reported; its spans follow.
    fn resource_ready(&mut self);
    /// Ends the resource, after all its spans.
    fn resource_end(&mut self, schema_url: &[u8]);
    /// Begins a scope.
    ///
    /// # Errors
    /// If there are too many scopes.
    fn scope_begin(&mut self) -> Result<(), Refusal>;
    /// Reports that all attributes of the scope were reported; its spans follow.
    fn scope_ready(&mut self, name: &[u8], version: &[u8]);
    /// Ends the scope, after all its spans.
    fn scope_end(&mut self, schema_url: &[u8]);
    /// Begins a span.
    ///
    /// # Errors
    /// If there are too many spans.
    fn span_begin(&mut self) -> Result<(), Refusal>;
    /// Ends the span. The visitor decides whether it is stored, sampled out or rejected.
    fn span_end(&mut self, span: &Span<'_>);
    /// Begins an event of the span. The visitor drops and counts events over the limit.
    fn event_begin(&mut self);
    /// Ends the event.
    fn event_end(&mut self, time_unix_nano: u64, name: &[u8]);
    /// Begins a link of the span.
    fn link_begin(&mut self);
    /// Ends the link. A link with invalid ids (`None`) is dropped and counted by the visitor.
    fn link_end(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]);
}

macro_rules! reasons {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $key:literal, $text:literal;)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All reasons, in order: `ALL[reason as usize] == reason`.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the stable key, used as a metric label and in tests.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* }
            }

            /// Returns the text for the sender.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    /// Reason to reject a span. No other error rejects a single span.
    Rejection {
        /// The trace id is absent or empty.
        TraceIdMissing => "trace_id_missing", "span without a trace id; 16 bytes are required";
        /// The id has the wrong length or is not hex.
        TraceIdMalformed => "trace_id_malformed", "trace id is not 16 bytes (32 hex digits in JSON)";
        /// The id is all zeros.
        TraceIdZero => "trace_id_zero", "trace id is all zeros";
        /// The span id is absent or empty.
        SpanIdMissing => "span_id_missing", "span without a span id; 8 bytes are required";
        /// The id has the wrong length or is not hex.
        SpanIdMalformed => "span_id_malformed", "span id is not 8 bytes (16 hex digits in JSON)";
        /// The id is all zeros.
        SpanIdZero => "span_id_zero", "span id is all zeros";
        /// An element of `spans` is not an object.
        SpanNotObject => "span_not_object", "element of spans is not an object";
    }
}

reasons! {
    /// Violation of OTLP in content that is accepted with a warning. A strict drain refuses the delivery.
    Warning {
        /// A parent id of the wrong length.
        ParentDropped => "parent_dropped", "parent span id is not 8 bytes (16 hex digits in JSON); parent dropped";
        /// A link without valid ids.
        LinkDropped => "link_dropped", "link without a valid trace and span id; link dropped and counted";
        /// ASCII hex in a protobuf id.
        IdAsciiHex => "id_ascii_hex", "id sent as hex text in protobuf; send the raw bytes";
        /// Base64 in a JSON id.
        IdBase64 => "id_base64", "id sent as base64 in JSON; OTLP/JSON requires hex";
        /// A dashed UUID as trace id.
        IdUuid => "id_uuid", "trace id sent as a dashed UUID; OTLP/JSON requires 32 hex digits";
        /// JSON keys in `snake_case` instead of `lowerCamelCase`.
        SnakeCaseKeys => "snake_case_keys", "snake_case keys; OTLP/JSON requires lowerCamelCase";
        /// An enum name in place of its number.
        EnumName => "enum_name", "enum sent by name; OTLP/JSON requires the number";
        /// An enum value that is neither a number nor a known name.
        EnumUnreadable => "enum_unreadable", "enum is neither a number nor a known name; read as unspecified";
        /// A Long object in place of a 64-bit integer.
        LongObject => "long_object", "64-bit integer sent as a {low, high} object; send a decimal string";
        /// A time with a fraction.
        TimeFractional => "time_fractional", "time is not a whole number of nanoseconds; fraction dropped";
        /// A time that is not a number.
        TimeUnreadable => "time_unreadable", "time is not a number; read as 0";
        /// A start time that is absent or outside the plausible range.
        StartImplausible => "start_implausible", "start time is absent, before 1990 or in the future; stored under the receive time";
        /// An end time beyond `DateTime64`.
        EndImplausible => "end_implausible", "end time is beyond the year 2262; duration stored as 0";
        /// An integer attribute that does not fit into 64 bits or has a fraction.
        IntAsDouble => "int_as_double", "intValue is not a 64-bit integer; kept as a double";
        /// A number in a notation that JSON does not allow, like `+1`.
        NumberNotation => "number_spelling", "number in a notation that JSON does not allow; stored as its numeric value";
        /// A `doubleValue` beyond the range of a double.
        DoubleRange => "double_range", "doubleValue is out of range; kept as text";
        /// A scalar whose type differs from the type that its member name declares.
        ValueType => "value_type", "attribute value has another type than its key declares; kept with its own type";
        /// A `bytesValue` that is not base64.
        BytesNotBase64 => "bytes_not_base64", "bytesValue is not base64; kept as text";
        /// Several members in one `AnyValue`.
        ValueAmbiguous => "value_ambiguous", "attribute value has several members; the last wins";
        /// A bare value in place of an `AnyValue`.
        ValueBare => "value_bare", "attribute value sent bare; OTLP/JSON requires {\"stringValue\": ...}";
        /// Attributes sent as an object instead of a list.
        AttributesAsMap => "attributes_as_map", "attributes sent as an object; OTLP/JSON requires a list of key and value";
        /// An element of attributes that is neither null nor an object.
        AttributeUnreadable => "attribute_unreadable", "element of attributes is not a key and a value; dropped";
        /// A value nested too deep.
        ValueTooDeep => "value_too_deep", "attribute value is nested too deep; the rest is replaced by \"…\"";
        /// An escape that is half of a surrogate pair.
        LoneSurrogate => "lone_surrogate", "text with half of a surrogate pair; replaced by U+FFFD";
        /// Bytes that are not UTF-8.
        InvalidUtf8 => "invalid_utf8", "text is not UTF-8; bad bytes replaced by U+FFFD";
        /// A count or flags that do not fit into 32 bits.
        CountClamped => "count_clamped", "count or flags outside 32 bits; clamped";
        /// A null in a list.
        NullElement => "null_element", "null in a list; skipped";
        /// A field inside a span whose type is not the one in OTLP.
        FieldType => "field_type", "field of another type than OTLP declares; converted if possible, else ignored";
        /// The list of spans of OTLP before 0.19.
        InstrumentationLibrary => "instrumentation_library", "instrumentationLibrarySpans is obsolete since 2022; read as scopeSpans, or ignored if scopeSpans is present";
        /// A gzip body without a `Content-Encoding` header.
        GzipUndeclared => "gzip_undeclared", "body is gzip but has no Content-Encoding: gzip";
        /// A `Content-Encoding` header on a body that is not compressed.
        EncodingUnneeded => "encoding_unneeded", "Content-Encoding names a compression, but the body is not compressed";
        /// A body with content but without spans.
        NoSpans => "no_spans", "the body has content but no spans; is it a trace export request?";
        /// More attributes than the limit.
        AttributesOverLimit => "attributes_over_limit", "more attributes than the limit; the rest is dropped and counted";
        /// More events than the limit.
        EventsOverLimit => "events_over_limit", "more events than the limit; the rest is dropped and counted";
        /// More links than the limit.
        LinksOverLimit => "links_over_limit", "more links than the limit; the rest is dropped and counted";
        /// A string longer than the limit.
        TextCut => "text_cut", "text longer than the limit; cut";
        /// An attribute key longer than the limit.
        KeyTooLong => "key_too_long", "attribute key longer than the limit; attribute dropped";
        /// A project, deployment or service name longer than 256 bytes.
        NameShortened => "name_shortened", "project, deployment or service name longer than 256 bytes; shortened with a hash in its column, complete in the attributes";
    }
}
