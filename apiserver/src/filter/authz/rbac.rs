//! Roles and bindings as rules, and what they allow; pure. Where they are kept is known elsewhere.
//!
//! Rights only add up: nothing here ever says no, it only fails to say yes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::table::covers_path;
use super::{Attributes, Decision, Target, combined, named};
use crate::request::{ResourcePath, User};

/// API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// What stands for everything.
const ALL: &str = "*";

/// What a role allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// Verbs.
    #[serde(default)]
    pub verbs: Vec<String>,
    /// API groups; `""` is the core group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// `pods`, `pods/status`, `*/status` or `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Only these objects; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are no resources.
    #[serde(default, rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// Whom a binding is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    #[serde(default)]
    pub kind: String,
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Namespace of a service account.
    #[serde(default)]
    pub namespace: String,
}

/// Which role a binding gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    #[serde(default)]
    pub kind: String,
    /// Name.
    #[serde(default)]
    pub name: String,
}

/// Gives a role to subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// Its namespace; absent for one that counts everywhere.
    pub namespace: Option<String>,
    /// To whom.
    pub subjects: Vec<Subject>,
    /// What.
    pub role: RoleRef,
}

/// All roles and bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Rules of a ClusterRole, by name.
    pub cluster_roles: BTreeMap<String, Vec<PolicyRule>>,
    /// Rules of a Role, by namespace and name.
    pub roles: BTreeMap<(String, String), Vec<PolicyRule>>,
    /// Bindings that count everywhere, by name.
    pub cluster_bindings: Vec<Binding>,
    /// Bindings that count in their namespace, by namespace and name.
    pub bindings: Vec<Binding>,
}

impl Policy {
    /// Whether somebody may do what is asked, and by which binding, in the words of Kubernetes.
    #[must_use]
    pub fn decide(&self, user: &User, asked: &Attributes) -> Decision {
        let namespace = match &asked.target {
            Target::Resource(path) => path.namespace.as_deref(),
            Target::Path(_) => None,
        };
        let mut broken = Vec::new();
        for (binding, subject) in self.bound(user, namespace) {
            match self.rules(binding) {
                None => broken.push(format!(
                    "{}.{GROUP} {:?} not found",
                    binding.role.kind.to_lowercase(),
                    binding.role.name
                )),
                Some(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return Decision::Allow(format!("RBAC: allowed by {}", described(binding, subject)));
                }
                Some(_) => {}
            }
        }
        broken.sort();
        broken.dedup();
        let reason = match broken.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
        Decision::NoOpinion(reason)
    }

    /// Every rule that somebody has in a namespace (or everywhere).
    #[must_use]
    pub fn rules_of(&self, user: &User, namespace: Option<&str>) -> Vec<&PolicyRule> {
        self.bound(user, namespace).filter_map(|(binding, _)| self.rules(binding)).flatten().collect()
    }

    /// The rules that a binding, or a role by itself, stands for; `None` if the role is not there.
    #[must_use]
    pub fn rules(&self, binding: &Binding) -> Option<&[PolicyRule]> {
        let role = match (&binding.namespace, binding.role.kind.as_str()) {
            (_, "ClusterRole") => self.cluster_roles.get(&binding.role.name),
            (Some(namespace), _) => self.roles.get(&(namespace.clone(), binding.role.name.clone())),
            (None, _) => None,
        };
        role.map(Vec::as_slice)
    }

    fn bound<'a>(
        &'a self,
        user: &'a User,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject)> {
        let local = self
            .bindings
            .iter()
            .filter(move |binding| namespace.is_some() && binding.namespace.as_deref() == namespace);
        self.cluster_bindings.iter().chain(local).filter_map(move |binding| {
            let in_namespace = binding.namespace.as_deref().unwrap_or_default();
            let subject = binding.subjects.iter().find(|subject| subject.is(user, in_namespace))?;
            Some((binding, subject))
        })
    }
}

impl Subject {
    /// A service account without a namespace is one of the binding's.
    fn is(&self, user: &User, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                !namespace.is_empty() && user.name == format!("system:serviceaccount:{namespace}:{}", self.name)
            }
            _ => false,
        }
    }
}

fn described(binding: &Binding, subject: &Subject) -> String {
    let (kind, name) = match &binding.namespace {
        None => ("ClusterRoleBinding", binding.name.clone()),
        Some(namespace) => ("RoleBinding", format!("{}/{namespace}", binding.name)),
    };
    let who = match subject.kind.as_str() {
        "ServiceAccount" => {
            let namespace = Some(subject.namespace.as_str()).filter(|namespace| !namespace.is_empty());
            let namespace = namespace.or(binding.namespace.as_deref()).unwrap_or_default();
            format!("{}/{namespace}", subject.name)
        }
        _ => subject.name.clone(),
    };
    format!("{kind} {name:?} of {} {:?} to {} {who:?}", binding.role.kind, binding.role.name, subject.kind)
}

impl PolicyRule {
    /// What an administrator may do: one rule for resources, one for paths.
    #[must_use]
    pub fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        let resources = Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() };
        [resources, Self { verbs: all(), non_resource_urls: all(), ..Self::default() }]
    }

    /// Whether the rule allows what is asked.
    #[must_use]
    pub fn allows(&self, asked: &Attributes) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|entry| entry == ALL || entry == wanted);
        if !has(&self.verbs, &asked.verb) {
            return false;
        }
        match &asked.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|pattern| covers_path(pattern, path)),
            Target::Resource(path) => {
                has(&self.api_groups, &path.group)
                    && self.names(&combined(path), path.subresource.as_deref())
                    && self.allows_name(path)
            }
        }
    }

    /// Whether a resource, such as `pods` or `pods/status`, is among those of the rule.
    fn names(&self, resource: &str, subresource: Option<&str>) -> bool {
        let of_any = subresource.map(|subresource| format!("*/{subresource}"));
        let is_it = |entry: &String| entry == ALL || entry == resource || of_any.as_ref() == Some(entry);
        self.resources.iter().any(is_it)
    }

    fn allows_name(&self, path: &ResourcePath) -> bool {
        self.resource_names.is_empty()
            || named(path).is_some_and(|name| self.resource_names.iter().any(|entry| entry == name))
    }

    /// Whether all that `other` allows is allowed by `mine` together (who may not do something may not allow it others).
    #[must_use]
    pub fn is_covered(&self, mine: &[&Self]) -> bool {
        self.pieces().iter().all(|piece| mine.iter().any(|rule| rule.covers(piece)))
    }

    /// One rule for each verb, group, resource and name, and for each verb and path.
    fn pieces(&self) -> Vec<Self> {
        let mut pieces = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for verb in &self.verbs {
            for url in &self.non_resource_urls {
                pieces.push(Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() });
            }
            for (group, resource) in self.api_groups.iter().flat_map(|g| self.resources.iter().map(move |r| (g, r))) {
                let piece =
                    Self { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Self::default() };
                if self.resource_names.is_empty() {
                    pieces.push(piece);
                } else {
                    let named = |name| Self { resource_names: one(name), ..piece.clone() };
                    pieces.extend(self.resource_names.iter().map(named));
                }
            }
        }
        pieces
    }

    fn covers(&self, piece: &Self) -> bool {
        let has = |list: &[String], wanted: &[String]| {
            list.iter().any(|entry| entry == ALL) || wanted.iter().all(|entry| list.contains(entry))
        };
        let is_url_covered =
            |wanted: &String| self.non_resource_urls.iter().any(|pattern| covers_path(pattern, wanted));
        let names = self.resource_names.is_empty()
            || (!piece.resource_names.is_empty()
                && piece.resource_names.iter().all(|n| self.resource_names.contains(n)));
        has(&self.verbs, &piece.verbs)
            && has(&self.api_groups, &piece.api_groups)
            && piece
                .resources
                .iter()
                .all(|whole| self.names(whole, whole.split_once('/').map(|(_, subresource)| subresource)))
            && piece.non_resource_urls.iter().all(is_url_covered)
            && names
    }
}

#[cfg(test)]
mod tests;
