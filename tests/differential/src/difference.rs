//! Where two JSON values differ, as JSON pointers.

use std::collections::BTreeSet;

use serde_json::Value;

/// One place where the two sides differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// What the oracle has there; `None` for nothing.
    pub oracle: Option<Value>,
    /// What we have there.
    pub ours: Option<Value>,
}

/// Every difference, at the deepest place that tells it.
pub(crate) fn differences(oracle: &Value, ours: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(String::new(), Some(oracle), Some(ours), &mut found);
    found
}

fn walk(pointer: String, oracle: Option<&Value>, ours: Option<&Value>, found: &mut Vec<Difference>) {
    match (oracle, ours) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let place = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                walk(place, one.get(name), other.get(name), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for at in 0..one.len().max(other.len()) {
                walk(format!("{pointer}/{at}"), one.get(at), other.get(at), found);
            }
        }
        (oracle, ours) if oracle == ours => {}
        (oracle, ours) => found.push(Difference { pointer, oracle: oracle.cloned(), ours: ours.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_at_the_deepest_place() {
        let found = differences(&json!({"a": {"b/c": 1, "d": [1, 2]}}), &json!({"a": {"b/c": 2, "d": [1]}, "e": null}));
        let place = |pointer: &str, oracle, ours| Difference { pointer: pointer.to_owned(), oracle, ours };
        assert_eq!(
            found,
            [
                place("/a/b~1c", Some(json!(1)), Some(json!(2))),
                place("/a/d/1", Some(json!(2)), None),
                place("/e", None, Some(json!(null))),
            ]
        );
    }
}
