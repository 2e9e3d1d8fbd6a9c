//! ResourceQuota, for counts of objects. Last of all admission: what is refused is never charged.

use serde_json::Value;

/// Resources that a quota may also name alone, as `pods`.
const BARE: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// The resource and group that an entry of a quota counts; `None`: it counts something else than objects.
#[must_use]
pub fn counted(entry: &str) -> Option<(&str, &str)> {
    if BARE.contains(&entry) {
        return Some((entry, ""));
    }
    let of = entry.strip_prefix("count/")?;
    let (resource, group) = of.split_once('.').unwrap_or((of, ""));
    (!resource.is_empty()).then_some((resource, group))
}

/// A count: an integer that is not negative.
#[must_use]
pub fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
