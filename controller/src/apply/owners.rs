//! Who owns the fields of a child, as the API server keeps it in `metadata.managedFields`. Pure.
//!
//! An apply takes away what its manager applied before and leaves out now; what the same manager wrote by other requests is another
//! entry of the list, which no apply ever takes anything from. So what we made by a creation, or a former KUN by replacing, has to be
//! counted as applied first. Knows nothing of what the fields mean.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};

/// Operation of whoever applies.
const APPLY: &str = "Apply";
/// Operation of whoever creates, replaces or patches.
const UPDATE: &str = "Update";

/// Entries in which what `manager` has written in any way counts as applied by it; `None`: they are so already. As client-go's
/// `csaupgrade` does it. An entry in another version of the kind speaks of other fields and stays as it is; so does what was written
/// through a subresource.
#[must_use]
pub(super) fn as_applied(manager: &str, entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let is_ours = |entry: &ManagedFieldsEntry, operation: &str| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some(operation)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    let applied = entries.iter().find(|entry| is_ours(entry, APPLY));
    let first = applied.or_else(|| entries.iter().find(|entry| is_ours(entry, UPDATE)))?;
    let version = first.api_version.clone();
    let (written, mut others): (Vec<_>, Vec<_>) =
        entries.iter().cloned().partition(|entry| is_ours(entry, UPDATE) && entry.api_version == version);
    let last = written.last()?;
    let mut all = applied.unwrap_or(last).clone();
    all.operation = Some(APPLY.to_owned());
    all.fields_v1 = Some(union(applied.into_iter().chain(&written)));
    match others.iter_mut().find(|entry| is_ours(entry, APPLY)) {
        Some(entry) => *entry = all,
        None => others.push(all),
    }
    Some(others)
}

/// Managers from whom fields were taken between two states of an object, other than `manager` itself.
#[must_use]
pub(super) fn taken_from(manager: &str, before: &[ManagedFieldsEntry], after: &[ManagedFieldsEntry]) -> Vec<String> {
    let identity = |entry: &ManagedFieldsEntry| {
        let ManagedFieldsEntry { api_version, manager, operation, subresource, fields_type: _, fields_v1: _, time: _ } =
            entry.clone();
        (manager, operation, api_version, subresource)
    };
    let is_kept = |entry: &ManagedFieldsEntry| {
        after.iter().any(|other| identity(other) == identity(entry) && other.fields_v1 == entry.fields_v1)
    };
    let robbed = before.iter().filter(|entry| !is_kept(entry)).filter_map(|entry| entry.manager.clone());
    robbed.filter(|name| name != manager).collect::<BTreeSet<_>>().into_iter().collect()
}

fn union<'a>(entries: impl Iterator<Item = &'a ManagedFieldsEntry>) -> FieldsV1 {
    let sets = entries.filter_map(|entry| entry.fields_v1.as_ref()?.0.as_object());
    FieldsV1(Value::Object(sets.cloned().fold(Map::new(), members)))
}

/// The members of two sets below one place.
fn members(mut one: Map<String, Value>, other: Map<String, Value>) -> Map<String, Value> {
    for (step, below) in other {
        let both = match (one.remove(&step), below) {
            (Some(Value::Object(one)), Value::Object(other)) => Value::Object(place(one, other)),
            (_, below) => below,
        };
        one.insert(step, both);
    }
    one
}

/// Two sets at one place that is in both. Nothing below a place means the place itself; if there is something below it in the other
/// set, that is what the step "." means.
fn place(mut one: Map<String, Value>, mut other: Map<String, Value>) -> Map<String, Value> {
    if one.is_empty() != other.is_empty() {
        let itself = || Value::Object(Map::new());
        if one.is_empty() {
            one.insert(".".to_owned(), itself());
        } else {
            other.insert(".".to_owned(), itself());
        }
    }
    members(one, other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn entries(all: &[Value]) -> Vec<ManagedFieldsEntry> {
        all.iter().map(|entry| serde_json::from_value(entry.clone()).unwrap()).collect()
    }

    fn folded(all: &[Value]) -> Option<Vec<ManagedFieldsEntry>> {
        as_applied("us", &entries(all))
    }

    #[test]
    fn what_we_created_counts_as_applied_and_what_others_wrote_stays_theirs() {
        let theirs = entry("them", "Update", &json!({"f:b": {}}));
        let created = entry("us", "Update", &json!({"f:a": {}}));
        let expected = [theirs.clone(), entry("us", "Apply", &json!({"f:a": {}}))];
        assert_eq!(folded(&[created, theirs]), Some(entries(&expected)));
    }

    #[test]
    fn what_we_applied_and_what_we_wrote_later_is_one() {
        let applied =
            entry("us", "Apply", &json!({"f:spec": {"f:a": {}, "f:list": {"k:{\"n\":1}": {".": {}, "f:x": {}}}}}));
        let written = entry("us", "Update", &json!({"f:spec": {"f:b": {}, "f:list": {"k:{\"n\":1}": {"f:y": {}}}}}));
        let both =
            json!({"f:spec": {"f:a": {}, "f:b": {}, "f:list": {"k:{\"n\":1}": {".": {}, "f:x": {}, "f:y": {}}}}});
        assert_eq!(folded(&[applied.clone(), written.clone()]), Some(entries(&[entry("us", "Apply", &both)])));
        assert_eq!(folded(&[written, applied]), Some(entries(&[entry("us", "Apply", &both)])));
    }

    #[test]
    fn a_place_without_members_is_the_place_itself_also_beside_members_of_it() {
        let itself = entry("us", "Apply", &json!({"f:a": {}}));
        let below = entry("us", "Update", &json!({"f:a": {"f:b": {}}}));
        let both = entries(&[entry("us", "Apply", &json!({"f:a": {".": {}, "f:b": {}}}))]);
        assert_eq!(folded(&[itself, below]), Some(both.clone()));
        let below = entry("us", "Apply", &json!({"f:a": {"f:b": {}}}));
        let itself = entry("us", "Update", &json!({"f:a": {}}));
        assert_eq!(folded(&[below, itself]), Some(both));
        // An empty set is of no place at all.
        let nothing = entry("us", "Apply", &json!({}));
        let something = entry("us", "Update", &json!({"f:a": {}}));
        let expected = entries(&[entry("us", "Apply", &json!({"f:a": {}}))]);
        assert_eq!(folded(&[nothing, something]), Some(expected));
    }

    #[test]
    fn what_is_applied_already_is_left_and_so_is_what_was_written_elsewhere() {
        assert_eq!(folded(&[]), None);
        assert_eq!(folded(&[entry("us", "Apply", &json!({"f:a": {}})), entry("them", "Update", &json!({}))]), None);
        let mut status = entry("us", "Update", &json!({"f:status": {}}));
        status["subresource"] = json!("status");
        assert_eq!(folded(&[status]), None);
        let mut older = entry("us", "Update", &json!({"f:a": {}}));
        older["apiVersion"] = json!("v1beta1");
        assert_eq!(folded(&[entry("us", "Apply", &json!({"f:a": {}})), older]), None);
    }

    #[test]
    fn whoever_owns_less_than_before_was_taken_from() {
        let applied = |fields: &Value| entry("us", "Apply", fields);
        let before = [
            applied(&json!({"f:b": {}})),
            entry("editor", "Update", &json!({"f:a": {}, "f:mine": {}})),
            entry("patcher", "Apply", &json!({"f:c": {}})),
            entry("friend", "Update", &json!({"f:d": {}})),
        ];
        let after = [
            applied(&json!({"f:a": {}, "f:b": {}, "f:c": {}})),
            entry("friend", "Update", &json!({"f:d": {}})),
            entry("editor", "Update", &json!({"f:mine": {}})),
        ];
        assert_eq!(taken_from("us", &entries(&before), &entries(&after)), ["editor", "patcher"]);
        assert_eq!(taken_from("us", &entries(&after), &entries(&after)), Vec::<String>::new());
    }
}
