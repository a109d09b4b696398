//! Resources, scopes, events and links: everything that owns attributes but is not a span.

use std::borrow::Cow;

use super::{ATTRIBUTE_BYTES, Found, Resource, Rows, Scope, rows_since};
use crate::clock;
use crate::columns::map::MapColumn;
use crate::columns::text::RunColumn;
use crate::key;
use crate::resolve::Best;
use crate::tally::Tally;
use crate::visit::{Owner, Value, Warning};

impl Rows<'_> {
    /// Puts an attribute into its owner's open map, or drops and counts it.
    #[inline(never)]
    pub(super) fn put(&mut self, owner: Owner, key: &[u8], value: Value<'_>) {
        let (limits, resolver) = (&self.policy.limits, &self.policy.resolver);
        let (map, roles) = match owner {
            Owner::Span => (&mut self.columns.attributes, &resolver.span),
            Owner::Resource => (&mut self.columns.resources.maps, &resolver.resource),
            Owner::Scope => (&mut self.columns.scopes.maps, &resolver.elsewhere),
            Owner::Event if self.open.event_is_dropped => return,
            Owner::Event => (&mut self.columns.events.attributes, &resolver.elsewhere),
            Owner::Link if self.open.link_is_dropped => return,
            Owner::Link => (&mut self.columns.links.attributes, &resolver.elsewhere),
        };
        let has_room = map.open_len() < limits.attributes_max as usize;
        if !has_room || key.len() > limits.key_bytes_max {
            self.drop_attribute(owner, has_room);
            return;
        }
        let value_bytes = map.put(key, value, roles, limits.text_bytes_max, &mut self.tally);
        self.open.expanded_bytes += key.len() + value_bytes + ATTRIBUTE_BYTES;
    }

    /// Puts an attribute of the span that is known by its spelling; false if it is not, or has no room.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one caller, for every attribute")]
    pub(super) fn put_again(&mut self, spelling: &[u8]) -> bool {
        let map = &mut self.columns.attributes;
        if map.open_len() >= self.policy.limits.attributes_max as usize {
            return false;
        }
        let text_bytes = map.put_again(spelling);
        self.open.expanded_bytes += text_bytes.map_or(0, |bytes| bytes + ATTRIBUTE_BYTES);
        text_bytes.is_some()
    }

    #[cold]
    fn drop_attribute(&mut self, owner: Owner, has_room: bool) {
        self.tally.warn(if has_room {
            Warning::KeyTooLong
        } else {
            Warning::AttributesOverLimit
        });
        if owner == Owner::Span {
            self.open.dropped_attributes = self.open.dropped_attributes.saturating_add(1);
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

    /// All attributes are told: whose spans follow?
    pub(super) fn close_resource(&mut self) {
        let maps = &mut self.columns.resources.maps;
        self.has_content |= maps.open_len() > 0;
        self.resource.expanded_bytes = map_bytes(maps);
        maps.close();
        let (mut project, mut deployment) = (Best::default(), Best::default());
        for &(role, position) in &maps.noted {
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
        self.resource.project = found(project, maps, columns.0, &mut self.tally);
        self.resource.deployment = found(deployment, maps, columns.1, &mut self.tally);
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

    /// All spans are told: what the resource says holds for them.
    pub(super) fn fill_resource(&mut self, schema_url: &[u8]) {
        let rows = rows_since(self.resource.first_row, self.columns);
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

    pub(super) fn fill_scope(&mut self, schema_url: &[u8]) {
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
        let (_, before, ..) = self.open.events.get_or_insert_with(|| events.mark());
        let told = events.times.len() - *before;
        self.open.event_is_dropped = told >= self.policy.limits.events_max as usize;
        if self.open.event_is_dropped {
            self.open.dropped_events = self.open.dropped_events.saturating_add(1);
            self.tally.warn(Warning::EventsOverLimit);
        } else {
            events.attributes.open();
        }
    }

    pub(super) fn close_event(&mut self, time_unix_nano: u64, name: &[u8]) {
        if self.open.event_is_dropped {
            return;
        }
        let events = &mut self.columns.events;
        self.open.expanded_bytes += name.len() + ATTRIBUTE_BYTES;
        events.attributes.close();
        events.times.push(clock::saturated(time_unix_nano));
        events
            .names
            .push(name, self.policy.limits.text_bytes_max, &mut self.tally);
    }

    pub(super) fn open_link(&mut self) {
        let links = &mut self.columns.links;
        let (_, _, before, ..) = self.open.links.get_or_insert_with(|| links.mark());
        let told = links.span_ids.len() - *before;
        self.open.link_is_dropped = told >= self.policy.limits.links_max as usize;
        if self.open.link_is_dropped {
            self.open.dropped_links = self.open.dropped_links.saturating_add(1);
            self.tally.warn(Warning::LinksOverLimit);
        } else {
            self.open.link_attributes = links.attributes.mark();
            links.attributes.open();
        }
    }

    pub(super) fn close_link(&mut self, ids: Option<([u8; 16], [u8; 8])>, trace_state: &[u8]) {
        if self.open.link_is_dropped {
            return;
        }
        let links = &mut self.columns.links;
        let Some((trace_id, span_id)) = ids else {
            links.attributes.truncate(self.open.link_attributes);
            self.open.dropped_links = self.open.dropped_links.saturating_add(1);
            self.tally.warn(Warning::LinkDropped);
            return;
        };
        self.open.expanded_bytes += trace_state.len() + ATTRIBUTE_BYTES;
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

/// The best attribute's value as a number of its column; the empty text if there is none.
fn found(best: Best, maps: &MapColumn, column: &mut RunColumn, tally: &mut Tally) -> Found {
    let value = best.0.map_or("", |(_, position)| maps.value_at(position));
    Found {
        rank: best.0.map(|(rank, _)| rank),
        id: id_of_name(value, column, tally),
    }
}

/// Returns the number of a name in its column. A long name is shortened, with a warning.
pub(super) fn id_of_name(name: &str, column: &mut RunColumn, tally: &mut Tally) -> u32 {
    let key = key::bounded(name);
    if matches!(key, Cow::Owned(_)) {
        tally.warn(Warning::NameShortened);
    }
    column.dictionary.id_of_text(&key)
}
