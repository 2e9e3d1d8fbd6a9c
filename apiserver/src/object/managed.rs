//! What may be wrong with an entry of `metadata.managedFields` whose types are right.

use serde_json::Value;

use super::meta;
use crate::error::Cause;

/// Longest name of a manager, as in Kubernetes.
pub const MANAGER_MAX: usize = 128;
/// Longest name of a subresource, as in Kubernetes.
const SUBRESOURCE_MAX: usize = 256;

/// The faults of every entry.
pub fn faults(object: &Value) -> impl Iterator<Item = Cause> {
    let entries = meta::get(object, "managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().enumerate().flat_map(|(at, entry)| of_entry(at, entry))
}

fn of_entry(at: usize, entry: &Value) -> Vec<Cause> {
    let mut faults = Vec::new();
    let place = |field: &str| format!("metadata.managedFields[{at}].{field}");
    let part = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let operation = part("operation");
    if !matches!(operation, "Apply" | "Update") {
        let detail = "must be `Apply` or `Update`";
        faults.push(Cause::invalid(&place("operation"), &meta::quoted(operation), detail));
    }
    if !matches!(part("fieldsType"), "" | "FieldsV1") {
        let given = meta::quoted(part("fieldsType"));
        faults.push(Cause::invalid(&place("fieldsType"), &given, "must be `FieldsV1`"));
    }
    manager(part("manager"), &place("manager"), &mut faults);
    if part("subresource").len() > SUBRESOURCE_MAX {
        faults.push(too_long(&place("subresource"), SUBRESOURCE_MAX));
    }
    faults
}

/// The faults of a manager's name.
pub fn manager(name: &str, place: &str, faults: &mut Vec<Cause>) {
    if name.len() > MANAGER_MAX {
        faults.push(too_long(place, MANAGER_MAX));
    }
    if let Some((at, odd)) = name.char_indices().find(|(_, odd)| odd.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(odd));
        faults.push(Cause::invalid(place, &meta::quoted(name), &detail));
    }
}

fn too_long(place: &str, most: usize) -> Cause {
    let message = format!("Too long: may not be more than {most} bytes");
    Cause { reason: "FieldValueTooLong".to_owned(), message, field: place.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_fault_of_an_entry_is_found() {
        let entry = json!({"manager": "x".repeat(129), "operation": "Frob", "fieldsType": "V2", "subresource": "s".repeat(257)});
        let good = json!({"manager": "me", "operation": "Apply", "fieldsType": "FieldsV1", "subresource": "status"});
        let object = json!({"metadata": {"managedFields": [good, entry]}});
        let told: Vec<String> = faults(&object).map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(
            told,
            [
                "metadata.managedFields[1].operation: Invalid value: \"Frob\": must be `Apply` or `Update`",
                "metadata.managedFields[1].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
                "metadata.managedFields[1].manager: Too long: may not be more than 128 bytes",
                "metadata.managedFields[1].subresource: Too long: may not be more than 256 bytes",
            ]
        );
    }
}
