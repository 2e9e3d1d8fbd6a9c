//! One object, written through two versions whose fields have other names.

use super::*;

/// Names in v1 and in v2.
const RENAMED: [(&str, &str); 3] = [("count", "size"), ("labels", "marks"), ("ports", "doors")];

#[derive(Debug)]
struct Two {
    v1: Node,
    v2: Node,
}

impl Two {
    fn new() -> Self {
        let mut spec = schema();
        let fields = spec["properties"]["spec"]["properties"].as_object_mut().unwrap();
        for (old, new) in RENAMED {
            let field = fields.remove(old).unwrap();
            fields.insert(new.to_owned(), field);
        }
        Self { v1: node(), v2: Schema::compile(&spec).unwrap().shared().clone() }
    }
}

impl Versions for Two {
    fn node(&self, api_version: &str) -> Option<&Node> {
        match api_version {
            "g/v1" => Some(&self.v1),
            "g/v2" => Some(&self.v2),
            _other => None,
        }
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Value {
        let mut object = object.clone();
        object["apiVersion"] = json!(to);
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return object };
        for (v1, v2) in RENAMED {
            let (old, new) = if (from, to) == ("g/v1", "g/v2") { (v1, v2) } else { (v2, v1) };
            if let Some(value) = spec.remove(old) {
                spec.insert(new.to_owned(), value);
            }
        }
        object
    }
}

/// An object kept in v1 and written through both.
#[derive(Clone, Debug, Default)]
struct Kept(Option<Value>);

impl Kept {
    fn live(&self, two: &Two, version: &str) -> Option<Value> {
        self.0.as_ref().map(|kept| if version == "g/v1" { kept.clone() } else { two.convert(kept, "g/v1", version) })
    }

    fn keep(&mut self, two: &Two, version: &str, object: Value, managed: &Managed) {
        let mut kept = if version == "g/v1" { object } else { two.convert(&object, version, "g/v1") };
        kept["metadata"]["managedFields"] = managed.encode().unwrap_or(json!([]));
        self.0 = Some(kept);
    }

    fn apply(&mut self, version: &str, manager: &str, spec: &Value, force: bool) -> Result<bool, String> {
        let (two, reset) = (Two::new(), Set::default());
        let frame = Frame { node: two.node(version).unwrap(), api_version: version, versions: &two, reset: &reset };
        let config = json!({"apiVersion": version, "kind": "K", "metadata": {"name": "a"}, "spec": spec});
        let author = Author { name: manager, subresource: "", now: LATE };
        let applied =
            apply(frame, self.live(&two, version).as_ref(), &config, author, force).map_err(|e| e.to_string())?;
        self.keep(&two, version, applied.object, &applied.managed);
        Ok(applied.is_changed)
    }

    fn update(&mut self, version: &str, manager: &str, change: impl FnOnce(&mut Value)) {
        let (two, reset) = (Two::new(), Set::default());
        let frame = Frame { node: two.node(version).unwrap(), api_version: version, versions: &two, reset: &reset };
        let live = self.live(&two, version);
        let mut new = live.clone().unwrap();
        change(&mut new);
        let managed = update(frame, live.as_ref(), &new, Author { name: manager, subresource: "", now: LATE });
        self.keep(&two, version, plain(&new), &managed);
    }

    fn spec(&self) -> Value {
        self.0.as_ref().unwrap()["spec"].clone()
    }

    /// (manager, version) → fields of the spec, as written.
    fn owners(&self) -> Vec<(String, String, Value)> {
        let list = self.0.as_ref().unwrap()["metadata"]["managedFields"].clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let entry = |e: &Value| (text(&e["manager"]), text(&e["apiVersion"]), e["fieldsV1"]["f:spec"].clone());
        let mut found: Vec<_> = list.as_array().unwrap().iter().map(entry).collect();
        found.sort_by_key(|(manager, version, _)| (manager.clone(), version.clone()));
        found
    }
}

fn entry(manager: &str, version: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), version.to_owned(), fields)
}

#[test]
fn an_update_through_one_version_takes_the_field_from_its_owner_in_another() {
    let mut kept = Kept::default();
    kept.apply("g/v1", "a", &json!({"count": 1, "name": "n"}), false).unwrap();
    kept.update("g/v2", "u", |object| object["spec"]["size"] = json!(2));
    assert_eq!(kept.spec(), json!({"count": 2, "name": "n"}));
    let expected = [entry("a", "g/v1", json!({"f:name": {}})), entry("u", "g/v2", json!({"f:size": {}}))];
    assert_eq!(kept.owners(), expected);
}

#[test]
fn a_conflict_is_told_as_its_owner_wrote_the_field() {
    let mut kept = Kept::default();
    kept.apply("g/v1", "a", &json!({"count": 1}), false).unwrap();
    let conflict = "Apply failed with 1 conflict: conflict with \"a\": .spec.count";
    assert_eq!(kept.apply("g/v2", "b", &json!({"size": 2}), false), Err(conflict.to_owned()));
    assert_eq!(kept.apply("g/v2", "b", &json!({"size": 1}), false), Ok(false));
    let expected = [entry("a", "g/v1", json!({"f:count": {}})), entry("b", "g/v2", json!({"f:size": {}}))];
    assert_eq!(kept.owners(), expected);
}

#[test]
fn what_was_applied_in_one_version_and_is_left_out_in_another_goes_unless_somebody_owns_it() {
    let mut kept = Kept::default();
    kept.apply("g/v1", "a", &json!({"count": 1, "name": "n", "labels": {"x": "1", "y": "1"}}), false).unwrap();
    kept.apply("g/v2", "b", &json!({"marks": {"y": "1"}}), false).unwrap();
    kept.apply("g/v2", "a", &json!({"size": 1}), false).unwrap();
    assert_eq!(kept.spec(), json!({"count": 1, "labels": {"y": "1"}}));
    let expected = [entry("a", "g/v2", json!({"f:size": {}})), entry("b", "g/v2", json!({"f:marks": {"f:y": {}}}))];
    assert_eq!(kept.owners(), expected);
}

#[test]
fn entries_of_a_version_that_is_not_served_any_more_are_dropped_and_take_nothing_along() {
    let mut kept = Kept::default();
    kept.apply("g/v1", "a", &json!({"count": 1, "name": "n"}), false).unwrap();
    let list = kept.0.as_mut().unwrap().pointer_mut("/metadata/managedFields/0/apiVersion").unwrap();
    *list = json!("g/v0");
    let (before, mut updated) = (kept.clone(), kept.clone());
    updated.update("g/v1", "u", |object| object["spec"]["name"] = json!("m"));
    assert_eq!(updated.owners(), [entry("u", "g/v1", json!({"f:name": {}}))]);
    let mut others = before.clone();
    assert_eq!(others.apply("g/v1", "b", &json!({"count": 2}), false), Ok(true));
    assert_eq!(others.owners(), [entry("b", "g/v1", json!({"f:count": {}}))]);
    let mut own = before;
    own.apply("g/v1", "a", &json!({"count": 1}), false).unwrap();
    assert_eq!(own.spec(), json!({"count": 1, "name": "n"}), "what it owned there is not known any more");
    assert_eq!(own.owners(), [entry("a", "g/v1", json!({"f:count": {}}))]);
}

/// A spec of v1 with the names of v2.
fn in_v2(spec: &Value) -> Value {
    Two::new().convert(&json!({"spec": spec}), "g/v1", "g/v2")["spec"].clone()
}

/// Owned fields with the names of v1.
fn in_v1(fields: &Value) -> Value {
    let mut text = fields.to_string();
    for (v1, v2) in RENAMED {
        text = text.replace(&format!("\"f:{v2}\""), &format!("\"f:{v1}\""));
    }
    serde_json::from_str(&text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_makes_no_difference_through_which_version_something_is_applied(
        history in any_history(), through_v2 in prop::collection::vec(any::<bool>(), 8)
    ) {
        let (mut mixed, mut plain) = (Kept::default(), Kept::default());
        for ((manager, spec), is_v2) in history.iter().zip(through_v2) {
            plain.apply("g/v1", manager, spec, true).unwrap();
            if is_v2 {
                mixed.apply("g/v2", manager, &in_v2(spec), true).unwrap();
            } else {
                mixed.apply("g/v1", manager, spec, true).unwrap();
            }
        }
        prop_assert_eq!(mixed.spec(), plain.spec());
        let owned = |kept: &Kept| -> BTreeMap<String, Value> {
            kept.owners().iter().map(|(manager, _, fields)| (manager.clone(), in_v1(fields))).collect()
        };
        prop_assert_eq!(owned(&mixed), owned(&plain));
    }
}
