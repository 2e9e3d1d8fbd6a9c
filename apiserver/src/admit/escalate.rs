//! Nobody gives away more rights than he has: the check in front of writes of roles and bindings.
//!
//! As in Kubernetes, the verbs `escalate` (on roles) and `bind` (on the role that is given) lift it.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use crate::admission::{Admission, Attributes, Operation};
use crate::error::{Error, Qualified, Result};
use crate::filter::authn::MASTERS;
use crate::filter::authz::rbac::{Binding, GROUP, PolicyRule, RoleRef};
use crate::filter::authz::stored::Stored;
use crate::filter::authz::{Attributes as Asked, Authorizer, Decision, Target};
use crate::request::ResourcePath;

/// An admission chain with the check in front of its judgement.
pub struct Escalation {
    rest: Arc<dyn Admission>,
    rights: Arc<Stored>,
}

impl Escalation {
    /// Checks, then asks `rest`.
    #[must_use]
    pub fn before(rest: Arc<dyn Admission>, rights: Arc<Stored>) -> Self {
        Self { rest, rights }
    }

    async fn check(&self, attributes: &Attributes) -> Result<()> {
        let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
        let (true, GROUP, Some(object)) = (is_write, attributes.resource.group.as_str(), &attributes.object) else {
            return Ok(());
        };
        if attributes.user.is_in(MASTERS) || is_same(attributes, object) {
            return Ok(());
        }
        let (given, lifted_by) = match attributes.resource.name.as_str() {
            "roles" | "clusterroles" => {
                (self.rules(object)?, self.lifts("escalate", attributes, &attributes.resource.name, &attributes.name))
            }
            "rolebindings" | "clusterrolebindings" => {
                let role = RoleRef::deserialize(object.get("roleRef").unwrap_or(&Value::Null)).unwrap_or_default();
                let plural = format!("{}s", role.kind.to_lowercase());
                (self.given(attributes, &role)?, self.lifts("bind", attributes, &plural, &role.name))
            }
            _ => return Ok(()),
        };
        if self.may(lifted_by, attributes).await? {
            return Ok(());
        }
        self.compare(attributes, &given)
    }

    fn lifts(&self, verb: &'static str, attributes: &Attributes, resource: &str, name: &str) -> Asked {
        let path = ResourcePath {
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: attributes.namespace.clone().filter(|_| resource != "clusterroles" || verb == "bind"),
            name: Some(name.to_owned()),
            ..ResourcePath::default()
        };
        Asked::new(verb, Target::Resource(path))
    }

    async fn may(&self, asked: Asked, attributes: &Attributes) -> Result<bool> {
        Ok(matches!(self.rights.authorize(&attributes.user, &asked).await?, Decision::Allow(_)))
    }

    fn rules(&self, object: &Value) -> Result<Vec<PolicyRule>> {
        let rules = object.get("rules").filter(|rules| !rules.is_null());
        let rules = rules.map(Vec::<PolicyRule>::deserialize).transpose();
        rules.map(Option::unwrap_or_default).map_err(|error| Error::bad_request(format!("reading the rules: {error}")))
    }

    /// What a binding would give. A role that is not there gives nothing that could be compared: it takes the verb `bind`.
    fn given(&self, attributes: &Attributes, role: &RoleRef) -> Result<Vec<PolicyRule>> {
        let binding = Binding { namespace: attributes.namespace.clone(), role: role.clone(), ..Binding::default() };
        let policy = self.rights.policy()?;
        let resource = Qualified::new(GROUP, &format!("{}s", role.kind.to_lowercase()));
        let rules = policy.rules(&binding).ok_or(Error::NotFound { resource, name: role.name.clone() })?;
        Ok(rules.to_vec())
    }

    fn compare(&self, attributes: &Attributes, given: &[PolicyRule]) -> Result<()> {
        let policy = self.rights.policy()?;
        let mine = policy.rules_of(&attributes.user, attributes.namespace.as_deref());
        let missing: Vec<String> = given.iter().filter(|rule| !rule.is_covered(&mine)).map(shown).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let resource = Qualified::new(GROUP, &attributes.resource.name);
        let groups: Vec<String> = attributes.user.groups.iter().map(|group| format!("{group:?}")).collect();
        let message = format!(
            "{resource} {:?} is forbidden: user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            attributes.name,
            attributes.user.name,
            groups.join(" "),
            missing.join("\n")
        );
        Err(Error::Forbidden { resource, name: attributes.name.clone(), message, causes: Vec::new() })
    }
}

/// A change that leaves the rights alone (labels, finalizers) takes no rights.
fn is_same(attributes: &Attributes, object: &Value) -> bool {
    let Some(old) = &attributes.old_object else { return false };
    ["rules", "aggregationRule", "roleRef", "subjects"].iter().all(|member| old.get(*member) == object.get(*member))
}

/// A rule as Kubernetes prints it.
fn shown(rule: &PolicyRule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("Verbs", &rule.verbs),
    ];
    let list = |texts: &[String]| texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" ");
    let parts = parts.iter().filter(|(_, texts)| !texts.is_empty());
    let parts: Vec<String> = parts.map(|(name, texts)| format!("{name}:[{}]", list(texts))).collect();
    format!("{{{}}}", parts.join(", "))
}

impl Admission for Escalation {
    fn mutate<'a>(&'a self, attributes: &'a Attributes, object: Value) -> BoxFuture<'a, Result<Value>> {
        self.rest.mutate(attributes, object)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.check(attributes).await?;
            self.rest.validate(attributes).await
        })
    }
}
