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
const LEFT_OUT: [&str; 4] = ["/spec/mode", "/spec/engine", "/spec/deletion/protected", "/spec/version"];

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";

/// The fields that requests change.
struct Material {
    spec: Vec<Leaf>,
    status: Vec<Leaf>,
}

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
    let leaves = |of: &str| {
        let mut leaves = Vec::new();
        collect(&format!("/{of}"), &kind.schema["properties"][of], &mut leaves);
        leaves.retain(|leaf| !LEFT_OUT.contains(&leaf.pointer.as_str()));
        leaves
    };
    let material = Material { spec: leaves("spec"), status: leaves("status") };
    let mut numbers = Numbers(seed.wrapping_mul(2).wrapping_add(1));
    let mut family = |name: &str, legal: bool| Family {
        name: format!("random-{name}"),
        scenarios: (1..=scenarios).map(|at| scenario(seed, at, &material, legal, &mut numbers)).collect(),
    };
    vec![family("legal", true), family("illegal", false)]
}

fn scenario(seed: u64, at: usize, material: &Material, legal: bool, numbers: &mut Numbers) -> Scenario {
    let mut steps = vec![Step {
        method: Some("POST".to_owned()),
        path: "${clusters}".to_owned(),
        object: Some("cluster".to_owned()),
        save: Some("live".to_owned()),
        ..Step::default()
    }];
    // An apply and a scale own the same field: the oracle mixes the owners up, one way or another.
    let applies = numbers.below(2) == 0;
    steps.extend((0..STEPS).map(|at| step(at, applies, material, legal, numbers)));
    Scenario { name: format!("seed {seed}, scenario {at}"), steps }
}

fn step(at: u64, applies: bool, material: &Material, legal: bool, numbers: &mut Numbers) -> Step {
    let changes = changes(&material.spec, legal, numbers);
    let mut step = match numbers.below(16) {
        0 | 1 => read(numbers),
        2 => request("DELETE", OBJECT),
        3 => sent("POST", "${clusters}", Some("cluster"), nested(&changes)),
        4 | 5 => sent("PUT", OBJECT, Some("live"), nested(&changes)),
        6 | 7 => patch(OBJECT, MERGE, nested(&changes)),
        8 => patch(OBJECT, JSON, operations(&changes)),
        9 => patch("${clusters}/orders/status", MERGE, nested(&self::changes(&material.status, true, numbers))),
        10 => patch(OBJECT, MERGE, finalizers(numbers)),
        _ if applies => apply(&changes, numbers),
        // Never the number that is there: the oracle then mixes up the owners, too.
        _ => patch("${clusters}/orders/scale", MERGE, json!({"spec": {"replicas": 4 + at}})),
    };
    let is_write = step.method.as_deref() != Some("GET");
    // What is put later starts from what was answered last; an answer to a dry run is none.
    let is_whole = step.path == OBJECT && step.body.is_some();
    if is_write && numbers.below(8) == 0 {
        step.query.insert("dryRun".to_owned(), "All".to_owned());
    } else if is_whole {
        step.save = Some("live".to_owned());
    }
    step
}

fn request(method: &str, path: &str) -> Step {
    Step { method: Some(method.to_owned()), path: path.to_owned(), ..Step::default() }
}

fn sent(method: &str, path: &str, object: Option<&str>, body: Value) -> Step {
    Step { object: object.map(str::to_owned), body: Some(body), ..request(method, path) }
}

fn patch(path: &str, media_type: &str, body: Value) -> Step {
    let headers = BTreeMap::from([("content-type".to_owned(), Some(media_type.to_owned()))]);
    Step { headers, ..sent("PATCH", path, None, body) }
}

/// The object or all of them, by what they are called, as themselves or as a table.
fn read(numbers: &mut Numbers) -> Step {
    let mut step = request("GET", if numbers.below(2) == 0 { OBJECT } else { "${clusters}" });
    let selectors = [
        ("labelSelector", "random=v1"),
        ("labelSelector", "random in (v0,v2)"),
        ("labelSelector", "!random"),
        ("labelSelector", "random,random!=v0"),
        ("fieldSelector", "metadata.name=orders"),
        ("fieldSelector", "metadata.name!=orders"),
    ];
    if let Some((name, selector)) = numbers.pick(&selectors).filter(|_| step.path != OBJECT) {
        step.query.insert((*name).to_owned(), (*selector).to_owned());
    }
    let views = ["Table", "PartialObjectMetadata", "PartialObjectMetadataList"];
    let fits = |view: &&&str| step.path == OBJECT && **view != views[2] || step.path != OBJECT && **view != views[1];
    if let Some(view) = numbers.pick(&views).filter(fits).filter(|_| numbers.below(3) == 0) {
        let accept = format!("application/json;as={view};v=v1;g=meta.k8s.io");
        step.headers.insert("accept".to_owned(), Some(accept));
    }
    step
}

/// Holds the object back from its deletion, or lets it go.
fn finalizers(numbers: &mut Numbers) -> Value {
    let lists = [json!(["kun.io/hold"]), json!(["kun.io/hold", "kun.io/more"]), json!([]), json!(null)];
    json!({"metadata": {"finalizers": numbers.pick(&lists)}})
}

/// One of two managers applies the changes, now and then by force.
fn apply(changes: &[(String, Value)], numbers: &mut Numbers) -> Step {
    let mut body = json!({
        "apiVersion": "redis.kun.io/v1",
        "kind": "RedisCluster",
        "metadata": {"name": "orders"},
        "spec": {"version": "8.0", "shards": 3, "replicasPerShard": 1},
    });
    json_patch::merge(&mut body, &nested(changes));
    let mut step = patch(OBJECT, "application/apply-patch+yaml", body);
    let manager = if numbers.below(2) == 0 { "one" } else { "two" };
    step.query.insert("fieldManager".to_owned(), manager.to_owned());
    if numbers.below(3) == 0 {
        step.query.insert("force".to_owned(), "true".to_owned());
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
