//! Roles and bindings of the server's own store, as an authorizer.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;
use store::cache::{Object, Query};

use super::rbac::{Binding, GROUP, Policy, PolicyRule, RoleRef, Subject};
use super::{Attributes, Authorizer, Decision};
use crate::admit::select::{self, Selector};
use crate::error::{Error, Result};
use crate::object::meta;
use crate::parsed::Parsed;
use crate::request::User;
use crate::storage::{self, Storage};

/// The resources, in the order in which a policy takes them.
const RESOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

/// Authorization by what is stored. Before the store is open nobody may do anything.
#[derive(Default)]
pub struct Stored {
    storage: OnceLock<Arc<Storage>>,
    policy: Parsed<Object, Arc<Policy>>,
}

impl Stored {
    /// Reads from `storage` from now on. Only the first call counts.
    pub fn open(&self, storage: Arc<Storage>) {
        if self.storage.set(storage).is_err() {
            tracing::warn!("the rights were opened a second time; the first store stays");
        }
    }

    /// What is allowed now; made anew when one of its objects changes.
    ///
    /// # Errors
    /// When it cannot be read: then nobody is told that he may not.
    pub fn policy(&self) -> Result<Arc<Policy>> {
        let Some(storage) = self.storage.get() else { return Ok(Arc::default()) };
        let mut lists: [Vec<Arc<Object>>; 4] = Default::default();
        for (list, plural) in lists.iter_mut().zip(RESOURCES) {
            if let Some(resource) = storage.cache().resource(&format!("{GROUP}/{plural}")) {
                *list = resource.list(&Query::default()).map_err(storage::unavailable)?.items;
            }
        }
        self.policy.of(lists.concat(), |_all| policy(&lists).map(Arc::new))
    }
}

impl Authorizer for Stored {
    fn authorize<'a>(&'a self, user: &'a User, asked: &'a Attributes) -> BoxFuture<'a, Result<Decision>> {
        let decided = self.policy().map(|policy| policy.decide(user, asked));
        Box::pin(async move { decided })
    }

    fn rules(&self, user: &User, namespace: &str) -> Result<Vec<PolicyRule>> {
        Ok(self.policy()?.rules_of(user, Some(namespace)).into_iter().cloned().collect())
    }
}

fn policy(objects: &[Vec<Arc<Object>>; 4]) -> Result<Policy> {
    let [cluster_roles, roles, cluster_bindings, bindings] = objects;
    let read = |list: &[Arc<Object>]| list.iter().map(|object| storage::decode(object)).collect::<Result<Vec<Value>>>();
    let name = |object: &Value| meta::text(object, "name").to_owned();
    let cluster_roles = read(cluster_roles)?;
    let mut policy = Policy::default();
    for role in &cluster_roles {
        policy.cluster_roles.insert(name(role), aggregated(role, &cluster_roles)?);
    }
    for role in read(roles)? {
        policy.roles.insert((meta::text(&role, "namespace").to_owned(), name(&role)), rules(&role)?);
    }
    policy.cluster_bindings = read(cluster_bindings)?.iter().map(|one| binding(one, None)).collect::<Result<_>>()?;
    let local = |one: &Value| binding(one, Some(meta::text(one, "namespace").to_owned()));
    policy.bindings = read(bindings)?.iter().map(local).collect::<Result<_>>()?;
    Ok(policy)
}

/// The rules of a role, and those of the roles it collects. Kubernetes writes them into the role; here they are collected
/// when they are asked for.
fn aggregated(role: &Value, all: &[Value]) -> Result<Vec<PolicyRule>> {
    let mut found = rules(role)?;
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
    for selector in selectors.into_iter().flatten() {
        let selector = Selector::read(selector).map_err(|error| unreadable(role, &error))?;
        for other in all.iter().filter(|other| selector.selects(&select::labels(other))) {
            found.extend(rules(other)?);
        }
    }
    Ok(found)
}

fn rules(role: &Value) -> Result<Vec<PolicyRule>> {
    read(role, "rules")
}

fn binding(object: &Value, namespace: Option<String>) -> Result<Binding> {
    let (subjects, role): (Vec<Subject>, RoleRef) = (read(object, "subjects")?, read(object, "roleRef")?);
    Ok(Binding { name: meta::text(object, "name").to_owned(), namespace, subjects, role })
}

fn read<T: Default + for<'de> Deserialize<'de>>(object: &Value, member: &str) -> Result<T> {
    match object.get(member) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value).map_err(|error| unreadable(object, &error.to_string())),
    }
}

fn unreadable(object: &Value, error: &str) -> Error {
    Error::internal(format!("reading the rights in {}: {error}", meta::text(object, "name")))
}
