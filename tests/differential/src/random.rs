//! Random requests from the schema: legal ones, and ones that the schema refuses. The same seed makes the same ones.
//!
//! Only values that nothing but the schema judges are chosen as legal ones: our own validation knows more than a schema
//! can say, and would refuse what the oracle takes.

use std::collections::BTreeMap;

use apiserver::registry::Registry;
use serde_json::{Value, json};

use crate::corpus::{Family, Scenario, Step};

/// Requests of one scenario after the first, which makes the object.
const STEPS: u64 = 10;
/// Where the scenarios' objects are.
const OBJECT: &str = "${clusters}/orders";
/// Fields that our validation or our deletion knows more about than the schema.
const LEFT_OUT: [&str; 3] = ["/spec/mode", "/spec/deletion/protected", "/spec/version"];

/// A small generator of numbers (xorshift64*): its numbers need only look different.
struct Numbers(u64);

/// A field of the schema that holds no other fields.
struct Leaf {
    pointer: String,
    schema: Value,
}

/// One family of each sort.
pub(crate) fn families(seed: u64, scenarios: usize, registry: &Registry) -> Vec<Family> {
    let Some(kind) = registry.kinds().find(|kind| kind.kind == "RedisCluster") else { return Vec::new() };
    let mut leaves = Vec::new();
    collect("/spec", &kind.schema["properties"]["spec"], &mut leaves);
    leaves.retain(|leaf| !LEFT_OUT.contains(&leaf.pointer.as_str()));
    let mut numbers = Numbers(seed.wrapping_mul(2).wrapping_add(1));
    let mut family = |name: &str, legal: bool| Family {
        name: format!("random-{name}"),
        scenarios: (1..=scenarios).map(|at| scenario(seed, at, &leaves, legal, &mut numbers)).collect(),
    };
    vec![family("legal", true), family("illegal", false)]
}

fn scenario(seed: u64, at: usize, leaves: &[Leaf], legal: bool, numbers: &mut Numbers) -> Scenario {
    let mut steps = vec![Step {
        method: Some("POST".to_owned()),
        path: "${clusters}".to_owned(),
        object: Some("cluster".to_owned()),
        save: Some("live".to_owned()),
        ..Step::default()
    }];
    steps.extend((0..STEPS).map(|at| step(at, leaves, legal, numbers)));
    Scenario { name: format!("seed {seed}, scenario {at}"), steps }
}

fn step(at: u64, leaves: &[Leaf], legal: bool, numbers: &mut Numbers) -> Step {
    let changes = changes(leaves, legal, numbers);
    let (method, path, content) = match numbers.below(10) {
        0 => ("GET", OBJECT, None),
        1 => ("GET", "${clusters}", None),
        2 => ("DELETE", OBJECT, None),
        3 => ("POST", "${clusters}", Some((Some("cluster"), nested(&changes), None))),
        4 | 5 => ("PUT", OBJECT, Some((Some("live"), nested(&changes), None))),
        6 | 7 => ("PATCH", OBJECT, Some((None, nested(&changes), Some("application/merge-patch+json")))),
        8 => ("PATCH", OBJECT, Some((None, operations(&changes), Some("application/json-patch+json")))),
        _ => {
            // Never the number that is there: the oracle then mixes up the owners, one way or another.
            let replicas = json!({"spec": {"replicas": 4 + at}});
            ("PATCH", "${clusters}/orders/scale", Some((None, replicas, Some("application/merge-patch+json"))))
        }
    };
    let mut step = Step { method: Some(method.to_owned()), path: path.to_owned(), ..Step::default() };
    if let Some((object, body, media_type)) = content {
        step.object = object.map(str::to_owned);
        step.body = Some(body);
        step.headers = media_type.map(|kind| ("content-type".to_owned(), Some(kind.to_owned()))).into_iter().collect();
        step.save = (step.path == OBJECT).then(|| "live".to_owned());
    }
    if numbers.below(8) == 0 && method != "GET" {
        step.query = BTreeMap::from([("dryRun".to_owned(), "All".to_owned())]);
        step.save = None;
    }
    step
}

/// One to three fields with new values, and now and then a label.
fn changes(leaves: &[Leaf], legal: bool, numbers: &mut Numbers) -> Vec<(String, Value)> {
    let mut changes = Vec::new();
    let usable: Vec<&Leaf> = leaves.iter().filter(|leaf| !legal || !choices(&leaf.schema).is_empty()).collect();
    for _ in 0..=numbers.below(3) {
        if let Some(leaf) = numbers.pick(&usable) {
            let value =
                if legal { numbers.pick(&choices(&leaf.schema)).cloned() } else { wrong(&leaf.schema, numbers) };
            changes.extend(value.map(|value| (leaf.pointer.clone(), value)));
        }
    }
    if numbers.below(3) == 0 {
        let label = json!(format!("v{}", numbers.below(3)));
        changes.push(("/metadata/labels".to_owned(), json!({"random": label})));
    }
    changes
}

/// Values that a leaf may have whatever the others are.
fn choices(schema: &Value) -> Vec<Value> {
    match (schema.get("enum").and_then(Value::as_array), schema["type"].as_str()) {
        (Some(values), _) => values.clone(),
        (None, Some("boolean")) => vec![json!(true), json!(false)],
        (None, _) => Vec::new(),
    }
}

/// A value that the schema of a leaf refuses.
fn wrong(schema: &Value, numbers: &mut Numbers) -> Option<Value> {
    let wrong: &[Value] = &match schema["type"].as_str() {
        Some("boolean") => [json!("true"), json!(1), json!({})],
        Some("string") if schema.get("enum").is_some() => [json!("Bogus"), json!(7), json!(true)],
        Some("string") => [json!(7), json!(false), json!([])],
        Some("integer") => [json!("7"), json!(true), json!(2.5)],
        Some("array") => [json!({}), json!("x"), json!(1)],
        Some("object") => [json!([]), json!("x"), json!(1)],
        _ => [json!(true), json!({}), json!([])],
    };
    numbers.pick(wrong).cloned()
}

fn collect(pointer: &str, schema: &Value, leaves: &mut Vec<Leaf>) {
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
        leaves.push(Leaf { pointer: pointer.to_owned(), schema: schema.clone() });
        return;
    };
    for (name, field) in fields {
        collect(&format!("{pointer}/{name}"), field, leaves);
    }
}

/// The changes as one object, which is a merge patch.
fn nested(changes: &[(String, Value)]) -> Value {
    let mut out = json!({});
    for (pointer, value) in changes {
        let wrapped =
            pointer.rsplit('/').filter(|part| !part.is_empty()).fold(value.clone(), |inner, part| json!({part: inner}));
        json_patch::merge(&mut out, &wrapped);
    }
    out
}

fn operations(changes: &[(String, Value)]) -> Value {
    changes.iter().map(|(pointer, value)| json!({"op": "add", "path": pointer, "value": value})).collect()
}

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(u64::try_from(from.len()).ok()?);
        from.get(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_requests_and_another_one_others() {
        let registry = apiserver::registry::redis::registry().unwrap();
        let told = |seed| format!("{:?}", families(seed, 3, &registry));
        assert_eq!(told(7), told(7));
        assert_ne!(told(7).replace("seed 7", ""), told(8).replace("seed 8", ""));
    }
}
