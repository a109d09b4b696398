//! Limits on one delivery, by name, with their defaults.

/// Limits on one delivery. The decoder checks them before it allocates memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a body after decompression. Above this, the delivery is too large (413).
    pub body_bytes_max: usize,
    /// Compressed members or frames in one body. Above this, the delivery is malformed (400).
    pub members_max: usize,
    /// Resources in one delivery. Above this, the delivery is too large (413).
    pub resources_max: u32,
    /// Scopes in one delivery. Above this, the delivery is too large (413).
    pub scopes_max: u32,
    /// Spans in one delivery. Above this, the delivery is too large (413).
    pub spans_max: u32,
    /// `AnyValue` nodes in one delivery: every attribute and every nested element. Above this, the delivery is too
    /// large (413).
    pub nodes_max: u32,
    /// Attributes of one span, resource, scope, event or link. Further ones are dropped and counted, with a warning.
    pub attributes_max: u32,
    /// Events of one span. Further ones are dropped and counted, with a warning.
    pub events_max: u32,
    /// Links of one span. Further ones are dropped and counted, with a warning.
    pub links_max: u32,
    /// Size of one delivery as rows, where every span repeats the attributes of its resource and scope.
    /// Above this, the delivery is too large (413).
    pub expanded_bytes_max: usize,
    /// Nesting depth of one attribute value. Deeper values become the text `…`, with a warning.
    pub value_depth_max: u32,
    /// Nesting depth of a JSON document. Above this, the delivery is malformed (400).
    pub json_depth_max: u32,
    /// Bytes of a JSON key or an attribute key. An attribute with a longer key is dropped with a
    /// warning; a longer JSON object key is malformed.
    pub key_bytes_max: usize,
    /// Bytes of one stored text. Longer strings are truncated between two characters, with a warning.
    pub text_bytes_max: usize,
    /// Bytes of a JSON number literal. Above this, the delivery is malformed (400).
    pub number_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 64 << 20,
            members_max: 16,
            resources_max: 10_000,
            scopes_max: 10_000,
            spans_max: 100_000,
            nodes_max: 4_000_000,
            attributes_max: 1_024,
            events_max: 1_024,
            links_max: 1_024,
            expanded_bytes_max: 512 << 20,
            value_depth_max: 64,
            json_depth_max: 1_024,
            key_bytes_max: 64 << 10,
            text_bytes_max: 4 << 20,
            number_bytes_max: 400,
        }
    }
}

impl Limits {
    /// Sets the limit with this name; returns false if there is none. A value that does not fit means "no
    /// limit".
    pub fn set(&mut self, name: &str, value: usize) -> bool {
        let narrow = u32::try_from(value).unwrap_or(u32::MAX);
        match name {
            "body_bytes_max" => self.body_bytes_max = value,
            "members_max" => self.members_max = value,
            "resources_max" => self.resources_max = narrow,
            "scopes_max" => self.scopes_max = narrow,
            "spans_max" => self.spans_max = narrow,
            "nodes_max" => self.nodes_max = narrow,
            "attributes_max" => self.attributes_max = narrow,
            "events_max" => self.events_max = narrow,
            "links_max" => self.links_max = narrow,
            "expanded_bytes_max" => self.expanded_bytes_max = value,
            "value_depth_max" => self.value_depth_max = narrow,
            "json_depth_max" => self.json_depth_max = narrow,
            "key_bytes_max" => self.key_bytes_max = value,
            "text_bytes_max" => self.text_bytes_max = value,
            "number_bytes_max" => self.number_bytes_max = value,
            _ => return false,
        }
        true
    }
}
