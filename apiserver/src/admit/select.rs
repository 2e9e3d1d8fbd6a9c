//! Which webhooks and policies an operation concerns, and in which version they see it; pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::config::Webhook;
use crate::admission::Attributes;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// What a webhook wants to see, as one rule of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<Pattern>,
    scope: Scope,
}

/// `resource/subresource`, each a word or `*`. Without a subresource, the pattern is of the resource itself only.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    resource: String,
    subresource: String,
}

/// Which resources a rule is about, by scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    /// A rule that concerns everything.
    pub(super) fn everything() -> Self {
        let all = || vec!["*".to_owned()];
        let resources = vec![Pattern { resource: "*".to_owned(), subresource: "*".to_owned() }];
        Self { operations: all(), groups: all(), versions: all(), resources, scope: Scope::All }
    }

    /// A rule from its fields, or the field that is wrong and why.
    pub(super) fn read(
        operations: &[String],
        groups: &[String],
        versions: &[String],
        resources: &[String],
        scope: Option<&str>,
    ) -> Result<Self, (&'static str, String)> {
        let known = ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"];
        if let Some(unknown) = operations.iter().find(|operation| !known.contains(&operation.as_str())) {
            return Err(("operations", format!("{unknown:?} is not one of {}", known.join(", "))));
        }
        for (field, list) in
            [("operations", operations), ("apiGroups", groups), ("apiVersions", versions), ("resources", resources)]
        {
            if list.is_empty() {
                return Err((field, "at least one is required".to_owned()));
            }
        }
        let scope = match scope {
            None | Some("*") => Scope::All,
            Some("Cluster") => Scope::Cluster,
            Some("Namespaced") => Scope::Namespaced,
            Some(other) => return Err(("scope", format!("{other:?} is not one of Cluster, Namespaced, *"))),
        };
        let (operations, groups, versions) = (operations.to_vec(), groups.to_vec(), versions.to_vec());
        Ok(Self {
            operations,
            groups,
            versions,
            resources: resources.iter().map(|text| Pattern::read(text)).collect(),
            scope,
        })
    }

    /// Whether the rule concerns the operation.
    #[must_use]
    pub fn covers(&self, attributes: &Attributes) -> bool {
        self.covers_in(&attributes.resource.version, attributes)
    }

    /// The same, were the resource of this version.
    #[must_use]
    pub fn covers_in(&self, version: &str, attributes: &Attributes) -> bool {
        let Attributes { operation, resource, subresource, .. } = attributes;
        holds(&self.operations, operation.as_str())
            && holds(&self.groups, &resource.group)
            && holds(&self.versions, version)
            && self
                .resources
                .iter()
                .any(|pattern| pattern.covers(&resource.name, subresource.as_deref().unwrap_or_default()))
            && self.scope_covers(attributes)
    }

    fn scope_covers(&self, attributes: &Attributes) -> bool {
        let is_namespaced = attributes.namespace.is_some() && !is_namespace(attributes);
        match self.scope {
            Scope::All => true,
            Scope::Cluster => !is_namespaced,
            Scope::Namespaced => is_namespaced,
        }
    }
}

impl Pattern {
    fn read(text: &str) -> Self {
        let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
        Self { resource: resource.to_owned(), subresource: subresource.to_owned() }
    }

    fn covers(&self, resource: &str, subresource: &str) -> bool {
        let Self { resource: wanted, subresource: wanted_sub } = self;
        (wanted == "*" || wanted == resource) && (wanted_sub == "*" || wanted_sub == subresource)
    }
}

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn is_namespace(attributes: &Attributes) -> bool {
    attributes.resource.group.is_empty() && attributes.resource.name == "namespaces"
}

/// A `metav1.LabelSelector`. The empty one, as the absent one, selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSelector {
    #[serde(default)]
    match_labels: Labels,
    #[serde(default)]
    match_expressions: Vec<RawRequirement>,
}

#[derive(Deserialize)]
struct RawRequirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

impl Selector {
    /// A selector from its object, or why it is none.
    pub(crate) fn read(object: &Value) -> Result<Self, String> {
        if object.is_null() {
            return Ok(Self::default());
        }
        let raw = RawSelector::deserialize(object).map_err(|error| error.to_string())?;
        let equal = |(key, value): (String, String)| Requirement { key, operator: Operator::In, values: vec![value] };
        let mut requirements: Vec<Requirement> = raw.match_labels.into_iter().map(equal).collect();
        for RawRequirement { key, operator, values } in raw.match_expressions {
            match (operator, values.is_empty()) {
                (Operator::In | Operator::NotIn, true) => return Err(format!("values of {key:?} must not be empty")),
                (Operator::Exists | Operator::DoesNotExist, false) => {
                    return Err(format!("values of {key:?} must be empty"));
                }
                (_, _) => requirements.push(Requirement { key, operator, values }),
            }
        }
        Ok(Self { requirements })
    }

    /// True if it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether it selects something with these labels.
    #[must_use]
    pub fn selects(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|Requirement { key, operator, values }| {
            let value = labels.get(key);
            match operator {
                Operator::In => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn => !value.is_some_and(|value| values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

/// Which versions of a resource rules are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    /// Those they name.
    Exact,
    /// Those that show the same objects as one they name.
    #[default]
    Equivalent,
}

impl MatchPolicy {
    /// The word of the API; Kubernetes' default is Equivalent.
    pub(super) fn read(word: Option<&str>) -> Self {
        if word == Some("Exact") { Self::Exact } else { Self::Equivalent }
    }

    /// The version of the resource in which the operation is covered: the request's own if it is, else, if that is all the
    /// same, the first that is.
    pub(super) fn version(self, attributes: &Attributes, covers: impl Fn(&str) -> bool) -> Option<&str> {
        let own = attributes.resource.version.as_str();
        if covers(own) {
            return Some(own);
        }
        match self {
            Self::Exact => None,
            Self::Equivalent => {
                attributes.aspect.versions.iter().map(|version| version.name).find(|name| *name != own && covers(name))
            }
        }
    }
}

/// An operation as a webhook wants to see it; `None` if none of its rules is about it.
pub(super) fn view<'a>(webhook: &Webhook, attributes: &'a Attributes) -> Option<Cow<'a, Attributes>> {
    let covers = |version: &str| webhook.rules.iter().any(|rule| rule.covers_in(version, attributes));
    webhook.match_policy.version(attributes, covers).map(|version| attributes.in_version(version))
}

/// Whether a webhook concerns an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// No.
    No,
    /// Yes.
    Yes,
    /// Yes, if its namespace selector selects these labels.
    IfSelected(Labels),
    /// Yes, if its namespace selector selects the labels of this namespace.
    IfNamespace(String),
}

/// Judges everything that is in the operation itself; only a namespace's labels may be left to look up.
#[must_use]
pub fn concern(webhook: &Webhook, attributes: &Attributes, object: Option<&Value>) -> Concern {
    if !webhook.rules.iter().any(|rule| rule.covers(attributes)) {
        return Concern::No;
    }
    placed(&webhook.namespace_selector, &webhook.object_selector, attributes, object)
}

/// The same for what is covered by rules: by labels of the object, and by where it lies.
pub(super) fn placed(
    namespaces: &Selector,
    objects: &Selector,
    attributes: &Attributes,
    object: Option<&Value>,
) -> Concern {
    let selects = |object: Option<&Value>| object.is_some_and(|object| objects.selects(&labels(object)));
    if !(objects.is_empty() || selects(object) || selects(attributes.old_object.as_deref())) {
        return Concern::No;
    }
    if namespaces.is_empty() {
        return Concern::Yes;
    }
    match (is_namespace(attributes), object, &attributes.namespace) {
        (true, Some(object), _) => Concern::IfSelected(labels(object)),
        (true, None, _) => Concern::IfSelected(attributes.old_object.as_deref().map(labels).unwrap_or_default()),
        (false, _, Some(namespace)) => Concern::IfNamespace(namespace.clone()),
        // What lies in no namespace cannot be exempted by one.
        (false, _, None) => Concern::Yes,
    }
}

/// The labels of an object.
pub(crate) fn labels(object: &Value) -> Labels {
    let pairs = object.pointer("/metadata/labels").and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    pairs.map(|pairs| pairs.iter().filter_map(text).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
