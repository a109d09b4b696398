//! Resolver of project and deployment: the first attribute of an ordered list that is present and not empty.
//!
//! A key that occurs in a list has a role. Roles are looked up once per distinct key, so that they cost nothing
//! per span.

use std::collections::HashMap;

/// Index of a [`Role`].
pub type RoleId = u8;
/// The key has no role.
pub const NO_ROLE: RoleId = 0;
/// Maximum number of rules in a list: a rank is one byte, and one value means "none".
pub const RULES_MAX: usize = 100;
/// Attributes that name the deployment environment for sampling rules, in order of preference.
const ENVIRONMENT_KEYS: [&str; 4] = [
    "deployment.environment.name",
    "deployment.environment",
    "platform.environment",
    "vercel.environment",
];

/// Where an attribute is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the resource.
    Resource,
    /// On the span.
    Span,
}

/// One entry of an ordered list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where to look it up.
    pub place: Place,
    /// Key of the attribute.
    pub key: String,
}

/// Role of a key: its rank in each list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Rank in the list of project attributes.
    pub project: Option<u8>,
    /// Rank in the list of deployment attributes.
    pub deployment: Option<u8>,
    /// Rank in the list of environment attributes.
    pub environment: Option<u8>,
    /// Whether it is the service name.
    pub service: bool,
    /// Whether it is `sampling.priority`.
    pub priority: bool,
}

/// Roles of the keys of resources, or of spans.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    by_key: HashMap<String, RoleId>,
    roles: Vec<Role>,
}

impl Roles {
    /// Returns the role of a key.
    #[must_use]
    pub fn of(&self, key: &str) -> RoleId {
        // Scopes, events and links have no roles: their keys are not even hashed.
        if self.by_key.is_empty() {
            return NO_ROLE;
        }
        self.by_key.get(key).copied().unwrap_or(NO_ROLE)
    }

    /// Returns the role with this index.
    #[must_use]
    pub fn get(&self, id: RoleId) -> Role {
        usize::from(id)
            .checked_sub(1)
            .and_then(|at| self.roles.get(at))
            .copied()
            .unwrap_or_default()
    }

    fn of_mut(&mut self, key: &str) -> Option<&mut Role> {
        // Numbers begin at 1, because 0 is `NO_ROLE`.
        // Never fails: two lists of `RULES_MAX` keys and the fixed keys are fewer than 255.
        let next = RoleId::try_from(self.roles.len() + 1).ok()?;
        let id = *self.by_key.entry(key.to_owned()).or_insert(next);
        if id == next {
            self.roles.push(Role::default());
        }
        self.roles.get_mut(usize::from(id) - 1)
    }
}

/// Roles derived from the configured lists.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// Roles of resource attributes.
    pub resource: Roles,
    /// Roles of span attributes.
    pub span: Roles,
    /// Roles of all other attributes: none.
    pub no_roles: Roles,
}

impl Resolver {
    /// Builds the roles from the ordered lists.
    ///
    /// # Errors
    /// If a list is longer than [`RULES_MAX`] or has an empty key.
    pub fn new(project: &[Rule], deployment: &[Rule]) -> Result<Self, String> {
        for (name, rules) in [("project", project), ("deployment", deployment)] {
            if rules.len() > RULES_MAX {
                return Err(format!(
                    "{name} has {} attributes; expected at most {RULES_MAX}",
                    rules.len()
                ));
            }
            if rules.iter().any(|rule| rule.key.is_empty()) {
                return Err(format!(
                    "{name} has an attribute with an empty key; expected a key"
                ));
            }
        }
        let mut resolver = Self::default();
        resolver.add(project, |role| &mut role.project);
        resolver.add(deployment, |role| &mut role.deployment);
        let on_resource = |key: &&str| Rule {
            place: Place::Resource,
            key: (*key).to_owned(),
        };
        let environment: Vec<Rule> = ENVIRONMENT_KEYS.iter().map(on_resource).collect();
        resolver.add(&environment, |role| &mut role.environment);
        if let Some(role) = resolver.resource.of_mut("service.name") {
            role.service = true;
        }
        if let Some(role) = resolver.span.of_mut("sampling.priority") {
            role.priority = true;
        }
        Ok(resolver)
    }

    fn add(&mut self, rules: &[Rule], rank_of: impl Fn(&mut Role) -> &mut Option<u8>) {
        for (rank, rule) in (0_u8..).zip(rules) {
            let place = match rule.place {
                Place::Resource => &mut self.resource,
                Place::Span => &mut self.span,
            };
            if let Some(role) = place.of_mut(&rule.key) {
                // A key that is listed twice keeps its first rank.
                rank_of(role).get_or_insert(rank);
            }
        }
    }
}

/// The best attribute so far: its rank and the position of its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Best(pub Option<(u8, usize)>);

impl Best {
    /// Takes a candidate if it ranks before the best so far and its value is not empty.
    pub fn offer(&mut self, rank: Option<u8>, position: usize, value: &str) {
        let Some(rank) = rank.filter(|_| !value.is_empty()) else {
            return;
        };
        if self.0.is_none_or(|(best, _)| rank < best) {
            self.0 = Some((rank, position));
        }
    }

    /// Returns whether this attribute ranks before `other_rank`.
    #[must_use]
    pub fn beats(self, other_rank: Option<u8>) -> bool {
        match (self.0, other_rank) {
            (Some((rank, _)), Some(other)) => rank < other,
            (found, None) => found.is_some(),
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(place: Place, key: &str) -> Rule {
        Rule {
            place,
            key: key.to_owned(),
        }
    }

    #[test]
    fn ranks_follow_the_list_across_resource_and_span_attributes() {
        let list = [
            rule(Place::Span, "a"),
            rule(Place::Resource, "b"),
            rule(Place::Span, "c"),
        ];
        let resolver = Resolver::new(&list, &[]).unwrap();

        let rank = |roles: &Roles, key: &str| roles.get(roles.of(key)).project;

        assert_eq!(rank(&resolver.span, "a"), Some(0));
        assert_eq!(rank(&resolver.resource, "b"), Some(1));
        assert_eq!(rank(&resolver.span, "c"), Some(2));
        assert_eq!(rank(&resolver.resource, "a"), None);
    }

    #[test]
    fn one_key_may_have_several_roles() {
        let list = [rule(Place::Resource, "service.name")];
        let resolver = Resolver::new(&list, &list).unwrap();

        let role = resolver.resource.get(resolver.resource.of("service.name"));

        assert_eq!(
            (role.project, role.deployment, role.service),
            (Some(0), Some(0), true)
        );
    }

    #[test]
    fn invalid_lists_are_refused() {
        assert!(Resolver::new(&[rule(Place::Span, "")], &[]).is_err());
        assert!(Resolver::new(&vec![rule(Place::Span, "x"); RULES_MAX + 1], &[]).is_err());
    }

    #[test]
    fn empty_values_are_skipped() {
        let mut best = Best::default();

        best.offer(Some(0), 1, "");
        best.offer(Some(2), 2, "x");
        best.offer(Some(1), 3, "y");
        best.offer(None, 4, "z");

        assert_eq!(best.0, Some((1, 3)));
        assert!(
            best.beats(Some(2))
                && best.beats(None)
                && !best.beats(Some(1))
                && !Best::default().beats(None)
        );
    }
}
