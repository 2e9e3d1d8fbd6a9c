#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Schema;

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-02T00:00:00Z";

mod versions;

fn node() -> Node {
    Schema::compile(&schema()).unwrap().shared().clone()
}

fn schema() -> Value {
    let text = json!({"type": "string"});
    json!({"type": "object", "properties": {
        "status": {"type": "object", "properties": {"phase": text}},
        "spec": {"type": "object", "properties": {
            "count": {"type": "integer"}, "name": text,
            "labels": {"type": "object", "additionalProperties": text},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": text, "note": text}}},
        }},
    }})
}

/// An object as a server would keep it.
#[derive(Clone, Debug, Default)]
struct Stored(Option<Value>);

impl Stored {
    fn try_apply(&mut self, manager: &str, spec: &Value, now: &str, force: bool) -> Result<bool, String> {
        let (node, reset) = (node(), Set::of([Path::of(&["status"])]));
        let frame = Frame { node: &node, api_version: "g/v1", versions: &Single, reset: &reset };
        let author = Author { name: manager, subresource: "", now };
        let config = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}, "spec": spec});
        let applied = apply(frame, self.0.as_ref(), &config, author, force).map_err(|error| error.to_string())?;
        self.keep(applied.object, &applied.managed);
        Ok(applied.is_changed)
    }

    fn apply(&mut self, manager: &str, spec: &Value) {
        self.try_apply(manager, spec, LATE, true).unwrap();
    }

    fn update(&mut self, manager: &str, now: &str, change: impl FnOnce(&mut Value)) {
        let (node, reset) = (node(), Set::of([Path::of(&["status"])]));
        let frame = Frame { node: &node, api_version: "g/v1", versions: &Single, reset: &reset };
        let base = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}});
        let mut new = self.0.clone().unwrap_or(base);
        change(&mut new);
        let managed = update(frame, self.0.as_ref(), &new, Author { name: manager, subresource: "", now });
        self.keep(plain(&new), &managed);
    }

    fn keep(&mut self, mut object: Value, managed: &Managed) {
        if let Some(list) = managed.encode() {
            object["metadata"]["managedFields"] = list;
        }
        self.0 = Some(object);
    }

    fn spec(&self) -> Value {
        self.0.as_ref().unwrap()["spec"].clone()
    }

    /// manager operation → fields of the spec.
    fn owners(&self) -> BTreeMap<String, Value> {
        let list = self.0.as_ref().unwrap().pointer("/metadata/managedFields").cloned().unwrap_or(json!([]));
        let entry = |entry: &Value| {
            let name = format!("{} {}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
            (name, entry["fieldsV1"]["f:spec"].clone())
        };
        list.as_array().unwrap().iter().map(entry).collect()
    }

    fn times(&self) -> Vec<String> {
        let list = self.0.as_ref().unwrap()["metadata"]["managedFields"].clone();
        list.as_array().unwrap().iter().map(|entry| entry["time"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn owners(expected: &[(&str, Value)]) -> BTreeMap<String, Value> {
    expected.iter().map(|(name, fields)| ((*name).to_owned(), fields.clone())).collect()
}

#[test]
fn who_applies_owns_what_is_applied_and_a_second_time_changes_nothing() {
    let mut stored = Stored::default();
    assert_eq!(stored.try_apply("a", &json!({"count": 1, "labels": {"x": "1"}}), EARLY, false), Ok(true));
    let before = stored.0.clone();
    assert_eq!(stored.owners(), owners(&[("a Apply", json!({"f:count": {}, "f:labels": {"f:x": {}}}))]));
    assert_eq!(stored.try_apply("a", &json!({"count": 1, "labels": {"x": "1"}}), LATE, false), Ok(false));
    assert_eq!(stored.0, before);
}

#[test]
fn another_value_is_a_conflict_and_the_same_value_is_shared() {
    let mut stored = Stored::default();
    stored.apply("a", &json!({"count": 1, "name": "n"}));
    let conflict = "Apply failed with 1 conflict: conflict with \"a\": .spec.count";
    assert_eq!(stored.try_apply("b", &json!({"count": 2}), LATE, false), Err(conflict.to_owned()));
    assert_eq!(stored.try_apply("b", &json!({"count": 1}), LATE, false), Ok(false));
    let both = owners(&[("a Apply", json!({"f:count": {}, "f:name": {}})), ("b Apply", json!({"f:count": {}}))]);
    assert_eq!(stored.owners(), both);
    assert_eq!(
        stored.try_apply("c", &json!({"count": 3, "name": "m"}), LATE, false).unwrap_err(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.count\n- .spec.name\nconflicts with \"b\":\n- .spec.count"
    );
    assert_eq!(stored.try_apply("c", &json!({"count": 3}), LATE, true), Ok(true));
    assert_eq!(stored.owners(), owners(&[("a Apply", json!({"f:name": {}})), ("c Apply", json!({"f:count": {}}))]));
}

#[test]
fn what_is_left_out_goes_unless_somebody_else_owns_it() {
    let mut stored = Stored::default();
    stored.apply("a", &json!({"count": 1, "labels": {"x": "1", "y": "2"}, "tags": ["t", "u"]}));
    stored.apply("b", &json!({"labels": {"y": "2"}, "tags": ["u"]}));
    stored.apply("a", &json!({"labels": {"z": "3"}}));
    assert_eq!(stored.spec(), json!({"labels": {"y": "2", "z": "3"}, "tags": ["u"]}));
    stored.apply("b", &json!({"count": 5}));
    assert_eq!(stored.spec(), json!({"count": 5, "labels": {"z": "3"}}));
}

#[test]
fn items_with_keys_have_owners_of_their_own() {
    let mut stored = Stored::default();
    stored.apply("a", &json!({"ports": [{"port": 1, "name": "one"}]}));
    stored.apply("b", &json!({"ports": [{"port": 1, "note": "b"}, {"port": 2}]}));
    assert_eq!(stored.spec(), json!({"ports": [{"port": 1, "name": "one", "note": "b"}, {"port": 2}]}));
    stored.apply("a", &json!({"count": 1}));
    assert_eq!(stored.spec(), json!({"count": 1, "ports": [{"port": 1, "note": "b"}, {"port": 2}]}));
    stored.apply("b", &json!({"count": 1}));
    assert_eq!(stored.spec(), json!({"count": 1}));
}

#[test]
fn an_update_takes_what_it_changes_and_keeps_what_it_had() {
    let mut stored = Stored::default();
    stored.apply("a", &json!({"count": 1, "name": "n"}));
    stored.update("u", EARLY, |object| object["spec"]["count"] = json!(2));
    stored.update("u", LATE, |object| object["spec"]["labels"] = json!({"x": "1"}));
    stored.update("v", LATE, |_| {});
    let expected = owners(&[
        ("a Apply", json!({"f:name": {}})),
        ("u Update", json!({"f:count": {}, "f:labels": {".": {}, "f:x": {}}})),
    ]);
    assert_eq!(stored.owners(), expected);
    let conflict = "Apply failed with 1 conflict: conflict with \"u\" using g/v1: .spec.count";
    assert_eq!(stored.try_apply("a", &json!({"count": 1}), LATE, false), Err(conflict.to_owned()));
}

#[test]
fn what_was_there_before_the_first_apply_has_an_owner_of_that_name() {
    let mut stored = Stored::default();
    stored.update("u", EARLY, |object| object["spec"] = json!({"count": 1}));
    stored.update("u", EARLY, |object| object["metadata"]["managedFields"] = json!([]));
    assert_eq!(stored.owners(), owners(&[]));
    stored.update("u", EARLY, |object| object["spec"]["name"] = json!("n"));
    assert_eq!(stored.owners(), owners(&[]), "an object nobody tracks stays so");
    stored.try_apply("a", &json!({"name": "n"}), LATE, false).unwrap();
    let expected = owners(&[
        ("a Apply", json!({"f:name": {}})),
        ("before-first-apply Update", json!({".": {}, "f:count": {}, "f:name": {}})),
    ]);
    assert_eq!(stored.owners(), expected);
}

#[test]
fn the_eleventh_updater_folds_the_two_oldest() {
    let mut stored = Stored::default();
    stored.update("u0", EARLY, |object| object["spec"] = json!({"labels": {"k0": "v"}}));
    for number in 1..=10 {
        let time = format!("2026-01-01T00:00:{number:02}Z");
        stored
            .update(&format!("u{number}"), &time, |object| object["spec"]["labels"][format!("k{number}")] = json!("v"));
    }
    let found = stored.owners();
    assert_eq!(found.len(), 10);
    let ancient = json!({".": {}, "f:labels": {".": {}, "f:k0": {}, "f:k1": {}}});
    assert_eq!(found["ancient-changes Update"], ancient);
    assert_eq!(stored.times()[0], "2026-01-01T00:00:01Z");
}

#[test]
fn what_an_endpoint_does_not_write_has_no_owner_there() {
    let node = node();
    let reset = Set::of([Path::of(&["spec"])]);
    let frame = Frame { node: &node, api_version: "g/v1", versions: &Single, reset: &reset };
    let live = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "managedFields": [
        {"manager": "u", "operation": "Update", "apiVersion": "g/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]}});
    let mut new = live.clone();
    (new["spec"], new["status"]) = (json!({"count": 1}), json!({"phase": "Ready"}));
    let managed = update(frame, Some(&live), &new, Author { name: "s", subresource: "status", now: LATE });
    let list = managed.encode().unwrap();
    let entry = list.as_array().unwrap().iter().find(|entry| entry["manager"] == "s").unwrap();
    assert_eq!(
        (&entry["subresource"], &entry["fieldsV1"]),
        (&json!("status"), &json!({"f:status": {".": {}, "f:phase": {}}}))
    );
}

#[test]
fn fields_that_an_old_kubectl_applied_are_no_conflict() {
    let last = json!({"spec": {"count": 1, "name": "n"}});
    let live = json!({"spec": {"count": 2, "name": "n", "labels": {}}});
    let allowed = still_as(&node(), &last, &live);
    assert_eq!(allowed.to_json(), json!({"f:spec": {"f:name": {}}}));
    let manager = Manager::of("kubectl-client-side-apply", Operation::Update, "g/v1", "");
    let conflict = |name| Conflict { manager: manager.clone(), path: Path::of(&["spec", name]) };
    assert_eq!(beyond(vec![conflict("name"), conflict("count")], &allowed), [conflict("count")]);
}

/// Nothing in it is empty: as in Kubernetes, an empty list has no owner, and a field of which nothing is left becomes null.
fn any_spec() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["a", "b", "c"]);
    let number = 1_i64..4;
    (
        number.clone(),
        prop::option::of(prop::collection::btree_map(text(), text(), 1..3)),
        prop::option::of(prop::collection::btree_set(text(), 1..3)),
        prop::option::of(prop::collection::btree_map(number, prop::option::of(text()), 1..3)),
    )
        .prop_map(|(count, labels, tags, ports)| {
            let ports = ports.map(|ports| {
                let port = |(port, name): (&i64, &Option<&str>)| match name {
                    Some(name) => json!({"port": port, "name": name}),
                    None => json!({"port": port}),
                };
                ports.iter().map(port).collect::<Vec<Value>>()
            });
            let all = json!({"count": count, "labels": labels, "tags": tags, "ports": ports});
            let fields = all.as_object().unwrap().clone();
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
        })
}

/// Applies of three managers in any order.
fn any_history() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    prop::collection::vec((prop::sample::select(vec!["a", "b", "c"]), any_spec()), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_again_changes_nothing(history in any_history()) {
        let mut stored = Stored::default();
        for (manager, spec) in &history {
            stored.apply(manager, spec);
        }
        let before = stored.0.clone();
        let (manager, spec) = history.last().unwrap();
        prop_assert_eq!(stored.try_apply(manager, spec, EARLY, false), Ok(false));
        prop_assert_eq!(stored.0, before);
    }

    #[test]
    fn everything_applied_last_is_there_and_what_others_own_stays(history in any_history()) {
        let mut stored = Stored::default();
        for (manager, spec) in &history {
            let before = stored.clone();
            stored.apply(manager, spec);
            let object = stored.0.clone().unwrap();
            let now = typed::places(&node(), &object);
            let config = json!({"spec": spec});
            let merged = typed::merge(&node(), Some(&object), Some(&config));
            prop_assert!(typed::compare(&node(), &object, &merged.unwrap()) == Comparison::default(), "{config} is in {object}");
            let Some(old) = before.0 else { continue };
            let managed = Managed::decode(old.pointer("/metadata/managedFields")).unwrap();
            let others = managed.0.iter().filter(|(owner, _)| owner.name != *manager);
            let owned = others.fold(Set::default(), |all, (_, owned)| all.union(&owned.set));
            let places = typed::places(&node(), &old).intersection(&owned);
            let gone = typed::named(&node(), &places).difference(&typed::named(&node(), &now));
            prop_assert!(gone.is_empty(), "{manager} removed {:?} of others", gone.paths());
        }
    }
}

#[test]
fn conflicts_are_told_by_manager_those_of_its_subresources_first() {
    let conflict = |subresource: &str, path: &[&str]| Conflict {
        manager: Manager::of("a", Operation::Update, "g/v1", subresource),
        path: Path::of(path),
    };
    let conflicts =
        [conflict("", &["spec", "a"]), conflict("status", &["metadata", "labels"]), conflict("", &["spec", "b"])];
    assert_eq!(
        message(&conflicts),
        "Apply failed with 3 conflicts: conflicts with \"a\" with subresource \"status\" using g/v1:\n- .metadata.labels\n\
         conflicts with \"a\" using g/v1:\n- .spec.a\n- .spec.b"
    );
}
