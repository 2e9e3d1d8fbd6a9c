//! `metadata.ownerReferences`: what is wrong with them, and those that are named twice.

use serde_json::Value;

use super::meta;
use crate::error::Cause;

/// Removes references to an owner that is named before; the uids of those that were, each once.
pub fn dedup(object: &mut Value) -> Vec<String> {
    let owners = meta::map(object).and_then(|map| map.get_mut("ownerReferences")).and_then(Value::as_array_mut);
    let (mut seen, mut uids): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    owners.into_iter().for_each(|owners| {
        owners.retain(|owner| {
            let is_new = !seen.contains(owner);
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
            if is_new {
                seen.push(owner.clone());
            } else if !uids.iter().any(|known| known == uid) {
                uids.push(uid.to_owned());
            }
            is_new
        });
    });
    uids
}

/// The faults of the owners.
pub fn faults(object: &Value, faults: &mut Vec<Cause>) {
    const FIELD: &str = "metadata.ownerReferences";
    let owners = meta::get(object, "ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut controller: Option<String> = None;
    for owner in owners {
        let part = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            if part(field).is_empty() {
                let detail = if field == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                faults.push(Cause::invalid(&format!("{FIELD}.{field}"), &meta::quoted(""), detail));
            }
        }
        // Events come and go by themselves: what they owned would go with them.
        if (part("apiVersion"), part("kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            faults.push(Cause::invalid(FIELD, &owner_text(owner), detail));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let this = format!("{}/{}", part("kind"), part("name"));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    let list: Vec<String> = owners.iter().map(owner_text).collect();
                    faults.push(Cause::invalid(FIELD, &format!("[{}]", list.join(",")), &detail));
                }
            }
        }
    }
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
    }
}
