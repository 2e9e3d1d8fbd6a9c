//! Shape of a RedisPolicy.

use std::collections::BTreeSet;

use super::{Faults, text};
use crate::{
    config,
    field::{Fault, Path},
    policy::{IntRange, LabelOperator, LabelRequirement, LabelSelector, QuantityRange, RedisPolicy},
    version,
};

/// Most entries in each list of a policy: every request is held against all of them.
const ENTRIES_MAX: usize = 256;
/// Longest image prefix, as the longest image reference.
const IMAGE_MAX: usize = 512;
/// Longest message.
const MESSAGE_MAX: usize = 1024;

/// All faults of a RedisPolicy.
#[must_use]
pub fn policy(object: &RedisPolicy) -> Vec<Fault> {
    let mut faults = Faults::default();
    if let Some(name) = object.metadata.name.as_deref().filter(|name| !name.is_empty() && !text::is_subdomain(name)) {
        faults.push(Fault::invalid(Path::new("metadata.name"), name, text::SUBDOMAIN));
    }
    let path = Path::new("spec");
    let spec = &object.spec;
    if let Some(given) = &spec.namespace_selector {
        selector(&mut faults, &path.child("namespaceSelector"), given);
    }
    duplicates(&mut faults, &path.child("engines"), &spec.engines);
    list(&mut faults, &path.child("versions"), &spec.versions, |text| {
        text.parse::<version::Range>().err().map(|error| error.to_string())
    });
    list(&mut faults, &path.child("images"), &spec.images, |text| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b':' | b'@');
        let fine = !text.is_empty() && text.len() <= IMAGE_MAX && text.bytes().all(plain);
        (!fine).then(|| "must be the beginning of an image reference, such as \"docker.io/library/redis:\"".to_owned())
    });
    numbers(&mut faults, &path.child("shards"), spec.shards);
    numbers(&mut faults, &path.child("replicasPerShard"), spec.replicas_per_shard);
    quantities(&mut faults, &path.child("memoryPerPod"), spec.memory_per_pod.as_ref());
    quantities(&mut faults, &path.child("storagePerPod"), spec.storage_per_pod.as_ref());
    if let Some(most) = &spec.namespace_memory {
        faults.quantity(&path.child("namespaceMemory"), most);
    }
    duplicates(&mut faults, &path.child("require"), &spec.require);
    list(&mut faults, &path.child("forbiddenConfig"), &spec.forbidden_config, |name| {
        let refusal = || "must be the name of a redis.conf parameter that spec.config may set".to_owned();
        config::parameter(name).is_none().then(refusal)
    });
    faults.prose(path.child("message"), spec.message.as_deref(), MESSAGE_MAX);
    faults.0
}

fn list(faults: &mut Faults, path: &Path, entries: &[String], refuse: impl Fn(&str) -> Option<String>) {
    if entries.len() > ENTRIES_MAX {
        faults.push(Fault::too_many(path.clone(), entries.len(), ENTRIES_MAX));
        return;
    }
    for (at, entry) in entries.iter().enumerate() {
        if let Some(why) = refuse(entry) {
            faults.push(Fault::invalid(path.index(at), entry.as_str(), why));
        }
    }
}

fn duplicates<T: Ord + std::fmt::Debug>(faults: &mut Faults, path: &Path, entries: &[T]) {
    let mut seen = BTreeSet::new();
    for (at, entry) in entries.iter().enumerate() {
        if !seen.insert(entry) {
            faults.push(Fault::duplicate(path.index(at), format!("{entry:?}")));
            return;
        }
    }
}

fn numbers(faults: &mut Faults, path: &Path, range: Option<IntRange>) {
    let Some(IntRange { min, max }) = range else { return };
    for (name, number) in [("min", min), ("max", max)] {
        if let Some(number) = number.filter(|number| *number < 0) {
            faults.push(Fault::invalid(path.child(name), number, "must not be negative"));
        }
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        faults.push(Fault::invalid(path.child("max"), max, format!("must be at least min, which is {min}")));
    }
}

fn quantities(faults: &mut Faults, path: &Path, range: Option<&QuantityRange>) {
    let Some(QuantityRange { min, max }) = range else { return };
    let least = min.as_deref().and_then(|text| faults.quantity(&path.child("min"), text));
    let most = max.as_deref().and_then(|text| faults.quantity(&path.child("max"), text));
    if let (Some(least), Some(most)) = (least, most)
        && least.bytes() > most.bytes()
    {
        let why = format!("must be at least min, which is {least}");
        faults.push(Fault::invalid(path.child("max"), most.to_string(), why));
    }
}

fn selector(faults: &mut Faults, path: &Path, given: &LabelSelector) {
    let LabelSelector { match_labels, match_expressions } = given;
    let count = match_labels.len() + match_expressions.len();
    if count > ENTRIES_MAX {
        faults.push(Fault::too_many(path.clone(), count, ENTRIES_MAX));
        return;
    }
    for (key, value) in match_labels {
        let path = path.child("matchLabels").key(key);
        label_key(faults, path.clone(), key);
        label_value(faults, path, value);
    }
    for (at, requirement) in match_expressions.iter().enumerate() {
        expression(faults, &path.child("matchExpressions").index(at), requirement);
    }
}

fn expression(faults: &mut Faults, path: &Path, requirement: &LabelRequirement) {
    let LabelRequirement { key, operator, values } = requirement;
    label_key(faults, path.child("key"), key);
    let path = path.child("values");
    match operator {
        LabelOperator::In | LabelOperator::NotIn if values.is_empty() => {
            faults.push(Fault::required(path.clone(), "must be given with operator In or NotIn"));
        }
        LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
            faults.push(Fault::forbidden(path.clone(), "may not be given with operator Exists or DoesNotExist"));
        }
        LabelOperator::In | LabelOperator::NotIn | LabelOperator::Exists | LabelOperator::DoesNotExist => {}
    }
    if values.len() > ENTRIES_MAX {
        faults.push(Fault::too_many(path, values.len(), ENTRIES_MAX));
        return;
    }
    for (at, value) in values.iter().enumerate() {
        label_value(faults, path.index(at), value);
    }
}

fn label_key(faults: &mut Faults, path: Path, key: &str) {
    if !text::is_label_key(key) {
        faults.push(Fault::invalid(path, key, "must be a label key: [prefix/]name"));
    }
}

fn label_value(faults: &mut Faults, path: Path, value: &str) {
    if !text::is_label_value(value) {
        faults.push(Fault::invalid(path, value, "must be a label value of at most 63 characters"));
    }
}
