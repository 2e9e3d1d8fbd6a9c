#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use super::*;

fn entry(manager: &str, operation: &str, time: &str) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "g/v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}})
}

#[test]
fn the_list_is_sorted_by_operation_time_and_name() {
    let (late, early) = ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z");
    let list = json!([
        entry("b", "Update", late),
        entry("a", "Update", late),
        entry("c", "Update", early),
        entry("d", "Apply", late)
    ]);
    let managed = Managed::decode(Some(&list)).unwrap();
    let encoded = managed.encode().unwrap();
    let names: Vec<&str> = encoded.as_array().unwrap().iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(names, ["d", "c", "a", "b"]);
    assert_eq!(Managed::decode(Some(&encoded)), Ok(managed));
    assert_eq!(Managed::default().encode(), None);
}

#[test]
fn entries_that_are_none_are_named() {
    let with = |name: &str, value: Value| {
        let mut entry = entry("a", "Apply", "2026-01-01T00:00:00Z");
        entry[name] = value;
        Managed::decode(Some(&json!([entry]))).unwrap_err().to_string()
    };
    assert_eq!(with("operation", json!("Guess")), "operation must be `Apply` or `Update`");
    assert_eq!(with("apiVersion", json!("")), "apiVersion must not be empty");
    assert_eq!(with("fieldsType", json!("")), "missing fieldsType in managed fields entry 0");
    assert_eq!(with("fieldsType", json!("V2")), "invalid fieldsType \"V2\" in managed fields entry 0");
    assert!(with("fieldsV1", json!({"spec": {}})).starts_with("error decoding versioned set: "));
}

#[test]
fn an_empty_list_or_one_empty_entry_asks_to_forget() {
    assert!(is_reset(Some(&json!([]))) && is_reset(Some(&json!([{}]))));
    assert!(!is_reset(None) && !is_reset(Some(&json!([{}, {}]))) && !is_reset(Some(&json!([{"manager": "a"}]))));
}
