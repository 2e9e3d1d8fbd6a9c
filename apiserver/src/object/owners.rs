//! `metadata.ownerReferences`: what is wrong with them, and those that are named twice.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::meta;
use crate::error::Cause;

/// Controllers beyond the first that are told one by one.
const CONTESTED_MOST: usize = 4;

/// Removes references to an owner that is named before; the uids of those that were, each once.
pub fn dedup(object: &mut Value) -> Vec<String> {
    let owners = meta::map(object).and_then(|map| map.get_mut("ownerReferences")).and_then(Value::as_array_mut);
    let (mut seen, mut told, mut uids) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    owners.into_iter().for_each(|owners| {
        owners.retain(|owner| {
            let is_new = seen.insert(identity(owner));
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
            if !is_new && told.insert(uid.to_owned()) {
                uids.push(uid.to_owned());
            }
            is_new
        });
    });
    uids
}

/// The same text for equal owners, whatever the order of their members.
fn identity(owner: &Value) -> String {
    match owner.as_object() {
        Some(map) => format!("{:?}", map.iter().collect::<BTreeMap<_, _>>()),
        None => owner.to_string(),
    }
}

/// The version in an apiVersion, as Kubernetes takes it apart: none where it is not `version` or `group/version`.
fn version(text: &str) -> &str {
    let mut parts = text.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(version), None, _) => version,
        (Some(_), Some(version), None) => version,
        (Some(_) | None, _, _) => "",
    }
}

const FIELD: &str = "metadata.ownerReferences";

/// The faults of the owners.
pub fn faults(object: &Value) -> impl Iterator<Item = Cause> {
    let owners = meta::get(object, "ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut controller: Option<String> = None;
    let mut contested = 0;
    owners.iter().flat_map(move |owner| {
        let mut faults = of_owner(owner);
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{}/{}", part(owner, "kind"), part(owner, "name"));
            match &controller {
                None => controller = Some(this),
                // Each of these tells all owners: few of them say it as well as all.
                Some(_) if contested >= CONTESTED_MOST => {}
                Some(first) => {
                    contested += 1;
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    let list: Vec<String> = owners.iter().map(owner_text).collect();
                    faults.push(Cause::invalid(FIELD, &format!("[{}]", list.join(",")), &detail));
                }
            }
        }
        faults
    })
}

fn of_owner(owner: &Value) -> Vec<Cause> {
    let mut faults = Vec::new();
    for field in ["apiVersion", "kind", "name", "uid"] {
        let given = part(owner, field);
        let (value, detail) = match field {
            "apiVersion" => (version(given), "version must not be empty"),
            _ => (given, "must not be empty"),
        };
        if value.is_empty() {
            faults.push(Cause::invalid(&format!("{FIELD}.{field}"), &meta::quoted(given), detail));
        }
    }
    // Events come and go by themselves: what they owned would go with them.
    if (part(owner, "apiVersion"), part(owner, "kind")) == ("v1", "Event") {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        faults.push(Cause::invalid(FIELD, &owner_text(owner), detail));
    }
    faults
}

fn part<'a>(owner: &'a Value, field: &str) -> &'a str {
    owner.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// An owner as messages show it: its members in the order of Kubernetes' type.
fn owner_text(owner: &Value) -> String {
    let members = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let shown = members.iter().filter_map(|name| Some(format!("{name:?}:{}", owner.get(*name)?)));
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_owner_named_twice_is_named_once_afterwards() {
        let owner = json!({"apiVersion": "v1", "kind": "A", "name": "n", "uid": "1"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner]}});
        assert_eq!(dedup(&mut object), ["1"]);
        assert!(dedup(&mut object).is_empty());
        let other = json!({"uid": "1", "name": "n", "kind": "A", "apiVersion": "v1"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, other, {"uid": "2"}]}});
        assert_eq!(dedup(&mut object), ["1"]);
    }

    #[test]
    fn an_owner_needs_a_version_as_kubernetes_takes_it_apart() {
        let versions = ["v1", "apps/v1", "", "apps/", "a/b/c", "/"].map(version);
        assert_eq!(versions, ["v1", "v1", "", "", "", ""]);
    }

    /// 172 kB were answered with 751 MB and took 2.4 GiB.
    #[test]
    fn many_controllers_are_told_in_an_answer_not_much_longer_than_the_request() {
        let owner = |n: usize| json!({"apiVersion": "v1", "kind": "A", "name": n.to_string(), "uid": n.to_string(), "controller": true});
        let owners: Vec<Value> = (0..2_000).map(owner).collect();
        let request = json!({"metadata": {"ownerReferences": owners}});
        let found: Vec<Cause> = faults(&request).collect();
        let bytes: usize = found.iter().map(|cause| cause.message.len()).sum();
        assert!(found.len() == 4 && bytes < 5 * request.to_string().len(), "{} causes, {bytes} bytes", found.len());
    }
}
