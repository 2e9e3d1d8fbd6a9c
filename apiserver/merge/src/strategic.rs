//! Strategic merge patches: merge patches that know which lists are maps by a key, and carry directives (`$patch`,
//! `$retainKeys`, `$deleteFromPrimitiveList/…`, `$setElementOrder/…`).
//!
//! `kubectl apply`, `diff`, `edit` and `rollout` send them for the kinds compiled into kubectl, whatever the server
//! offers. The merge keys are those that Kubernetes' own types carry; this module must not know which kinds read them.

use serde_json::{Map, Value};

use crate::PatchError as Error;

/// Most items of one list of a patch. Each is looked up in the live list, and no list of a pod, Service or webhook
/// configuration comes near.
pub const STRATEGIC_ITEMS_MAX: usize = 1_000;

/// Lists of objects, with the field that tells their items apart. Lists that are not here are replaced as a whole.
const KEYS: [(&str, &str); 16] = [
    ("addresses", "type"),
    ("conditions", "type"),
    ("containers", "name"),
    ("env", "name"),
    ("ephemeralContainers", "name"),
    ("hostAliases", "ip"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("ownerReferences", "uid"),
    ("podIPs", "ip"),
    ("secrets", "name"),
    ("topologySpreadConstraints", "topologyKey"),
    ("volumeDevices", "devicePath"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
    ("webhooks", "name"),
];
/// Lists of texts that are sets.
const SETS: [&str; 1] = ["finalizers"];

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// How a list of the object takes in that of the patch.
enum List {
    /// Item by item; the field tells them apart.
    Keyed(&'static str),
    /// Each value once.
    Set,
    /// As a whole.
    Atomic,
}

/// Applies a strategic merge patch.
///
/// # Errors
/// `Malformed` for directives that make no sense, `TooManyItems` for a list past [`STRATEGIC_ITEMS_MAX`].
pub fn strategic_merge_patch(object: &mut Value, patch: &Value) -> Result<(), Error> {
    let Value::Object(patch) = patch else { return Err(malformed("it is not an object")) };
    map(object, patch)
}

fn map(object: &mut Value, patch: &Map<String, Value>) -> Result<(), Error> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return Ok(()) };
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some("delete")) => {
            fields.clear();
            return Ok(());
        }
        Some(Some("replace")) => fields.clear(),
        Some(_) => return Err(malformed("$patch is none of delete, merge, replace")),
    }
    if let Some(retained) = patch.get(RETAIN) {
        let retained = items(RETAIN, retained)?;
        fields.retain(|name, _| retained.iter().any(|item| item == name));
    }
    for (name, change) in patch {
        field(fields, name, change)?;
    }
    for (name, order) in patch {
        if let Some(name) = name.strip_prefix(ORDER) {
            sort(fields, name, items(name, order)?);
        }
    }
    Ok(())
}

fn field(fields: &mut Map<String, Value>, name: &str, change: &Value) -> Result<(), Error> {
    if let Some(of) = name.strip_prefix(DELETE) {
        let gone = items(of, change)?;
        if let Some(Value::Array(list)) = fields.get_mut(of) {
            list.retain(|item| !gone.contains(item));
        }
        return Ok(());
    }
    if name == DIRECTIVE || name == RETAIN || name.starts_with(ORDER) {
        return Ok(());
    }
    match change {
        Value::Null => {
            fields.remove(name);
            Ok(())
        }
        Value::Object(change) => map(fields.entry(name).or_insert(Value::Null), change),
        Value::Array(_) => list(fields.entry(name).or_insert(Value::Null), name, items(name, change)?),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            fields.insert(name.to_owned(), change.clone());
            Ok(())
        }
    }
}

fn list(live: &mut Value, name: &str, patch: &[Value]) -> Result<(), Error> {
    let how = list_of(name, patch);
    let replaces = patch.iter().any(|item| item.get(DIRECTIVE).and_then(Value::as_str) == Some("replace"));
    if replaces || matches!(how, List::Atomic) || !live.is_array() {
        *live = Value::Array(Vec::new());
    }
    let Value::Array(live) = live else { return Ok(()) };
    match how {
        List::Keyed(key) => patch.iter().try_for_each(|change| item(live, name, key, change)),
        List::Set => {
            patch.iter().for_each(|value| {
                if !live.contains(value) {
                    live.push(value.clone());
                }
            });
            Ok(())
        }
        List::Atomic => {
            live.extend(patch.iter().filter(|item| item.get(DIRECTIVE).is_none()).cloned());
            Ok(())
        }
    }
}

/// One item of a keyed list: taken away, merged into the live one of the same key, or added.
fn item(live: &mut Vec<Value>, name: &str, key: &str, change: &Value) -> Result<(), Error> {
    let Value::Object(change) = change else { return Err(malformed(&format!("an item of {name} is not an object"))) };
    let Some(wanted) = change.get(key) else {
        // `{"$patch": "replace"}` alone says only that the list is replaced.
        let is_directive = change.keys().all(|field| field == DIRECTIVE);
        return if is_directive { Ok(()) } else { Err(malformed(&format!("an item of {name} has no {key}"))) };
    };
    if change.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") {
        live.retain(|item| item.get(key) != Some(wanted));
        return Ok(());
    }
    match live.iter_mut().find(|item| item.get(key) == Some(wanted)) {
        Some(item) => map(item, change),
        None => {
            let mut new = Value::Null;
            map(&mut new, change)?;
            live.push(new);
            Ok(())
        }
    }
}

/// Puts the items that the order names into that order; all others keep their places.
fn sort(fields: &mut Map<String, Value>, name: &str, order: &[Value]) {
    let key = match list_of(name, order) {
        List::Keyed(key) => Some(key),
        List::Set => None,
        List::Atomic => return,
    };
    let Some(Value::Array(live)) = fields.get_mut(name) else { return };
    let rank = |item: &Value| match key {
        Some(key) => order.iter().position(|wanted| item.get(key).is_some() && wanted.get(key) == item.get(key)),
        None => order.iter().position(|wanted| wanted == item),
    };
    let mut named: Vec<(usize, Value)> = live.iter().filter_map(|item| Some((rank(item)?, item.clone()))).collect();
    named.sort_by_key(|(rank, _)| *rank);
    let places = live.iter_mut().filter(|item| rank(item).is_some());
    places.zip(named).for_each(|(place, (_, item))| *place = item);
}

/// Ports are told apart by one field in containers and by another in Services.
fn list_of(name: &str, items: &[Value]) -> List {
    if SETS.contains(&name) {
        return List::Set;
    }
    if name == "ports" {
        let in_container = items.iter().any(|item| item.get("containerPort").is_some());
        return List::Keyed(if in_container { "containerPort" } else { "port" });
    }
    KEYS.iter().find(|(list, _)| *list == name).map_or(List::Atomic, |(_, key)| List::Keyed(key))
}

fn items<'a>(name: &str, value: &'a Value) -> Result<&'a [Value], Error> {
    match value {
        Value::Array(items) if items.len() <= STRATEGIC_ITEMS_MAX => Ok(items),
        Value::Array(items) => Err(Error::TooManyItems { list: name.to_owned(), count: items.len() }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(malformed(&format!("{name} is not a list")))
        }
    }
}

fn malformed(why: &str) -> Error {
    Error::Malformed(why.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn patched(mut object: Value, patch: &Value) -> Value {
        strategic_merge_patch(&mut object, patch).unwrap();
        object
    }

    #[test]
    fn objects_merge_and_null_takes_away() {
        let object = json!({"data": {"a": "1", "b": "2"}, "x": [1, 2]});
        let patch = json!({"data": {"a": null, "c": "3"}, "x": [3], "new": {"n": {"o": 1}}});
        assert_eq!(patched(object, &patch), json!({"data": {"b": "2", "c": "3"}, "x": [3], "new": {"n": {"o": 1}}}));
    }

    #[test]
    fn items_of_a_keyed_list_are_merged_added_and_deleted_one_by_one() {
        let object = json!({"containers": [
            {"name": "a", "image": "1", "ports": [{"containerPort": 1, "name": "x"}]}, {"name": "b"}]});
        let patch = json!({"containers": [
            {"name": "a", "image": "2", "ports": [{"containerPort": 2}]},
            {"name": "b", "$patch": "delete"},
            {"name": "c"}]});
        let expected = json!({"containers": [
            {"name": "a", "image": "2", "ports": [{"containerPort": 1, "name": "x"}, {"containerPort": 2}]},
            {"name": "c"}]});
        assert_eq!(patched(object, &patch), expected);
    }

    #[test]
    fn a_directive_replaces_a_map_or_a_list() {
        let object = json!({"spec": {"a": 1}, "env": [{"name": "a"}]});
        let patch = json!({"spec": {"$patch": "replace", "b": 2}, "env": [{"name": "z"}, {"$patch": "replace"}]});
        assert_eq!(patched(object, &patch), json!({"spec": {"b": 2}, "env": [{"name": "z"}]}));
        assert_eq!(patched(json!({"s": {"a": 1}}), &json!({"s": {"$patch": "delete"}})), json!({"s": {}}));
        let retained = json!({"strategy": {"$retainKeys": ["type"], "type": "R"}});
        assert_eq!(patched(json!({"strategy": {"type": "D", "x": 1}}), &retained), json!({"strategy": {"type": "R"}}));
    }

    #[test]
    fn sets_take_in_and_give_up_values_and_an_order_moves_only_what_it_names() {
        let patch = json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b", "c"]});
        assert_eq!(patched(json!({"finalizers": ["a", "b"]}), &patch), json!({"finalizers": ["b", "c"]}));
        let live = json!({"env": [{"name": "a"}, {"name": "b"}, {"name": "theirs"}]});
        let patch =
            json!({"$setElementOrder/env": [{"name": "c"}, {"name": "b"}, {"name": "a"}], "env": [{"name": "c"}]});
        let expected = json!({"env": [{"name": "c"}, {"name": "b"}, {"name": "theirs"}, {"name": "a"}]});
        assert_eq!(patched(live, &patch), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for patch in [
            json!([]),
            json!({"a": {"$patch": "jump"}}),
            json!({"containers": [1]}),
            json!({"containers": [{"image": "x"}]}),
            json!({"$retainKeys": "a"}),
            json!({"$deleteFromPrimitiveList/finalizers": {}}),
        ] {
            let result = strategic_merge_patch(&mut json!({}), &patch);
            assert!(matches!(result, Err(Error::Malformed(_))), "{patch}");
        }
        let many = json!({"env": vec![json!({"name": "a"}); STRATEGIC_ITEMS_MAX + 1]});
        let expected = Error::TooManyItems { list: "env".into(), count: STRATEGIC_ITEMS_MAX + 1 };
        assert_eq!(strategic_merge_patch(&mut json!({}), &many), Err(expected));
    }
}
