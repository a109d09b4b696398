//! Writer of resources, scopes, events and links, which have attributes as spans do.

use std::borrow::Cow;

use super::{ATTRIBUTE_BYTES, ResolvedName, Resource, Rows, Scope, rows_since};
use crate::clock;
use crate::columns::map::MapColumn;
use crate::columns::text::RunColumn;
use crate::key;
use crate::resolve::Best;
use crate::tally::Tally;
use crate::visit::{Owner, Value, Warning};

impl Rows<'_> {
    /// Adds an attribute to the open map of its owner. Drops and counts it if the owner has too many attributes.
    #[inline(never)]
    pub(super) fn put(&mut self, owner: Owner, key: &[u8], value: Value<'_>) {
        let (limits, resolver) = (&self.policy.limits, &self.policy.resolver);
        let (map, roles) = match owner {
            Owner::Span => (&mut self.columns.attributes, &resolver.span),
            Owner::Resource => (&mut self.columns.resources.maps, &resolver.resource),
            Owner::Scope => (&mut self.columns.scopes.maps, &resolver.no_roles),
            // If the event or link itself is over the limit, its attributes are dropped with it and not counted.
            Owner::Event if self.current_span.event_is_dropped => return,
            Owner::Event => (&mut self.columns.events.attributes, &resolver.no_roles),
            Owner::Link if self.current_span.link_is_dropped => return,
            Owner::Link => (&mut self.columns.links.attributes, &resolver.no_roles),
        };
        let is_below_limit = map.open_len() < limits.attributes_max as usize;
        if !is_below_limit || key.len() > limits.key_bytes_max {
            self.drop_attribute(owner, is_below_limit);
            return;
        }
        let value_bytes = map.put(key, value, roles, limits.text_bytes_max, &mut self.tally);
        // For a resource or scope this sum has no effect: `open_span` resets it.
        self.current_span.expanded_bytes += key.len() + value_bytes + ATTRIBUTE_BYTES;
    }

    /// Adds a span attribute whose encoded form is cached. Returns false if it is not cached or exceeds the limit.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, for every attribute")]
    pub(super) fn put_repeated(&mut self, encoded: &[u8]) -> bool {
        let map = &mut self.columns.attributes;
        // The decoder then reports the attribute itself, and `put` drops and counts it.
        if map.open_len() >= self.policy.limits.attributes_max as usize {
            return false;
        }
        let text_bytes = map.put_repeated(encoded);
        self.current_span.expanded_bytes += text_bytes.map_or(0, |bytes| bytes + ATTRIBUTE_BYTES);
        text_bytes.is_some()
    }

    #[cold]
    fn drop_attribute(&mut self, owner: Owner, is_below_limit: bool) {
        self.tally.warn(if is_below_limit {
            Warning::KeyTooLong
        } else {
            Warning::AttributesOverLimit
        });
        if owner == Owner::Span {
            self.current_span.dropped_attributes =
                self.current_span.dropped_attributes.saturating_add(1);
        }
    }

    pub(super) fn open_resource(&mut self) {
        let mark = Some(self.columns.resources.mark());
        self.resource = Resource {
            first_row: self.columns.rows(),
            mark,
            ..Resource::default()
        };
        self.columns.resources.maps.open();
    }

    /// Closes the attributes of the resource and resolves its project, deployment, environment and service.
    pub(super) fn close_resource(&mut self) {
        let maps = &mut self.columns.resources.maps;
        self.has_content |= maps.open_len() > 0;
        self.resource.expanded_bytes = map_bytes(maps);
        maps.close();
        let (mut project, mut deployment) = (Best::default(), Best::default());
        for &(role, position) in &maps.role_entries {
            let (role, value) = (
                self.policy.resolver.resource.get(role),
                maps.value_at(position),
            );
            project.offer(role.project, position, value);
            deployment.offer(role.deployment, position, value);
            self.resource
                .environment
                .offer(role.environment, position, value);
            if role.service {
                self.resource.service = Some(position);
            }
        }
        let columns = (&mut self.columns.projects, &mut self.columns.deployments);
        // Added even if no row follows, because rejected spans are counted by project too.
        self.resource.project = resolved_name(project, maps, columns.0, &mut self.tally);
        self.resource.deployment = resolved_name(deployment, maps, columns.1, &mut self.tally);
        let text_at = |position: Option<usize>| position.map_or("", |at| maps.value_at(at));
        let names = &mut self.names;
        let project = self
            .columns
            .projects
            .dictionary
            .text(self.resource.project.id);
        replace(&mut names.project, project);
        replace(
            &mut names.environment,
            text_at(position_of(self.resource.environment)),
        );
        replace(&mut names.service, text_at(self.resource.service));
    }

    /// Applies the values of the resource to all rows added since its beginning. Removes a resource without rows.
    pub(super) fn repeat_resource(&mut self, schema_url: &[u8]) {
        let rows = rows_since(self.resource.first_row, self.columns);
        // The strings of a resource without rows must not stay in the dictionaries of the block.
        if rows == 0 {
            if let Some(mark) = self.resource.mark.take() {
                self.columns.resources.truncate(mark);
            }
            return;
        }
        let columns = &mut *self.columns;
        columns.resources.push(rows);
        let service = self
            .resource
            .service
            .map_or("", |position| columns.resources.maps.value_at(position));
        let service = id_of_name(service, &mut columns.services, &mut self.tally);
        columns.services.runs.push(service, rows);
        let bytes_max = self.policy.limits.text_bytes_max;
        let url = columns
            .resource_urls
            .dictionary
            .id_of(schema_url, bytes_max, &mut self.tally);
        columns.resource_urls.runs.push(url, rows);
    }

    pub(super) fn open_scope(&mut self) {
        let mark = Some(self.columns.scopes.mark());
        self.scope = Scope {
            first_row: self.columns.rows(),
            mark,
            ..Scope::default()
        };
        self.columns.scopes.maps.open();
    }

    pub(super) fn close_scope(&mut self, name: &[u8], version: &[u8]) {
        let bytes_max = self.policy.limits.text_bytes_max;
        let columns = &mut *self.columns;
        self.has_content |= columns.scopes.maps.open_len() + name.len() + version.len() > 0;
        self.scope.expanded_bytes = map_bytes(&columns.scopes.maps) + name.len() + version.len();
        columns.scopes.maps.close();
        self.scope.name = columns
            .scope_names
            .dictionary
            .id_of(name, bytes_max, &mut self.tally);
        self.scope.version =
            columns
                .scope_versions
                .dictionary
                .id_of(version, bytes_max, &mut self.tally);
    }

    pub(super) fn repeat_scope(&mut self, schema_url: &[u8]) {
        let rows = rows_since(self.scope.first_row, self.columns);
        if rows == 0 {
            if let Some(mark) = self.scope.mark.take() {
                self.columns.scopes.truncate(mark);
            }
            return;
        }
        let columns = &mut *self.columns;
        columns.scopes.push(rows);
        columns.scope_names.runs.push(self.scope.name, rows);
        columns.scope_versions.runs.push(self.scope.version, rows);
        let bytes_max = self.policy.limits.text_bytes_max;
        let url = columns
            .scope_urls
            .dictionary
            .id_of(schema_url, bytes_max, &mut self.tally);
        columns.scope_urls.runs.push(url, rows);
    }

    pub(super) fn open_event(&mut self) {
        let events = &mut self.columns.events;
        let (_, before, ..) = self
            .current_span
            .events
            // at the first event: most spans have none and need no mark
            .get_or_insert_with(|| events.mark());
        let event_count = events.times.len() - *before;
        self.current_span.event_is_dropped = event_count >= self.policy.limits.events_max as usize;
        if self.current_span.event_is_dropped {
            self.current_span.dropped_events = self.current_span.dropped_events.saturating_add(1);
            self.tally.warn(Warning::EventsOverLimit);
        } else {
            events.attributes.open();
        }
    }

    pub(super) fn close_event(&mut self, time_unix_nano: u64, name: &[u8]) {
        if self.current_span.event_is_dropped {
            return;
        }
        let events = &mut self.columns.events;
        self.current_span.expanded_bytes += name.len() + ATTRIBUTE_BYTES;
        events.attributes.close();
        events.times.push(clock::saturated(time_unix_nano));
        events
            .names
            .push(name, self.policy.limits.text_bytes_max, &mut self.tally);
    }

    pub(super) fn open_link(&mut self) {
        let links = &mut self.columns.links;
        // Marked at the first link: most spans have none.
        let (_, _, before, ..) = self.current_span.links.get_or_insert_with(|| links.mark());
        let link_count = links.span_ids.len() - *before;
        self.current_span.link_is_dropped = link_count >= self.policy.limits.links_max as usize;
        if self.current_span.link_is_dropped {
            self.current_span.dropped_links = self.current_span.dropped_links.saturating_add(1);
            self.tally.warn(Warning::LinksOverLimit);
        } else {
            self.current_span.link_attributes = links.attributes.mark();
            links.attributes.open();
        }
    }

    pub(super) fn close_link(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        if self.current_span.link_is_dropped {
            return;
        }
        let links = &mut self.columns.links;
        let Some((trace_id, span_id)) = ids else {
            // The map is still open; truncating removes its entries.
            links.attributes.truncate(self.current_span.link_attributes);
            self.current_span.dropped_links = self.current_span.dropped_links.saturating_add(1);
            self.tally.warn(Warning::LinkDropped);
            return;
        };
        self.current_span.expanded_bytes += trace_state.len() + ATTRIBUTE_BYTES;
        links.attributes.close();
        links.trace_ids.push(trace_id);
        links.span_ids.push(span_id);
        links.trace_states.push(
            trace_state,
            self.policy.limits.text_bytes_max,
            &mut self.tally,
        );
    }
}

fn position_of(best: Best) -> Option<usize> {
    best.0.map(|(_, position)| position)
}

fn replace(text: &mut String, by: &str) {
    text.clear();
    text.push_str(by);
}

fn map_bytes(maps: &MapColumn) -> usize {
    maps.open_text_bytes() + maps.open_len() * ATTRIBUTE_BYTES
}

/// Returns the dictionary id of the value of the best attribute, or of the empty string if there is none.
fn resolved_name(
    best: Best,
    maps: &MapColumn,
    column: &mut RunColumn,
    tally: &mut Tally,
) -> ResolvedName {
    let value = best.0.map_or("", |(_, position)| maps.value_at(position));
    ResolvedName {
        rank: best.0.map(|(rank, _)| rank),
        id: id_of_name(value, column, tally),
    }
}

/// Returns the dictionary id of a name. Shortens a long name, with a warning.
pub(super) fn id_of_name(name: &str, column: &mut RunColumn, tally: &mut Tally) -> u32 {
    let key = key::bounded(name);
    if matches!(key, Cow::Owned(_)) {
        tally.warn(Warning::NameShortened);
    }
    column.dictionary.id_of_text(&key)
}
