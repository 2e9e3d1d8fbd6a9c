//! What two servers may say differently, brought to one form: identities, times, versions, tokens, hashes.
//!
//! Identities and versions of objects are numbered in the order in which they appear, so that "the same again" and
//! "another one" stay visible. The versions of lists are not: the oracle writes objects of its own all the time.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What has appeared in one scenario on one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Normal {
    uids: Vec<String>,
    versions: Vec<String>,
    hidden: Vec<(String, String)>,
}

impl Normal {
    /// Shows a captured text under its name. Numbers and short texts would hide what has nothing to do with them.
    pub(crate) fn hide(&mut self, text: &str, name: &str) {
        let speaks = text.len() > 4 && !text.bytes().all(|byte| byte.is_ascii_digit());
        if speaks && !self.hidden.iter().any(|(have, _)| have == text) {
            self.hidden.push((text.to_owned(), format!("<{name}>")));
        }
    }

    /// A body or an event.
    pub(crate) fn body(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => self.object(fields),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.body(item)).collect()),
            Value::String(text) => Value::String(self.text(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Value {
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        let names_object = fields.get("metadata").is_some_and(|metadata| metadata.get("name").is_some());
        let collective = kind.ends_with("List") || kind == "Table" || !names_object;
        let mut out = Map::new();
        for (name, value) in fields {
            let value = match (name.as_str(), value) {
                ("metadata", Value::Object(metadata)) => self.metadata(metadata, collective),
                ("cells", Value::Array(cells)) => cells.iter().map(|cell| self.cell(cell)).collect(),
                ("verbs", Value::Array(verbs)) => sorted(verbs.clone()),
                // By name: a resource more must not move all others.
                ("resources", Value::Array(resources)) if kind == "APIResourceList" => self.by_name(resources),
                ("causes", Value::Array(causes)) => self.by_field(causes),
                ("message", Value::String(text)) if has_causes(fields) => {
                    // It strings them together in an order that is chance in the oracle; each is compared for itself.
                    let head = text.split_once(" is invalid: ").map_or(text.as_str(), |(head, _)| head);
                    json!(self.text(head))
                }
                ("storageVersionHash" | "hash", Value::String(_)) => json!("<hash>"),
                ("resourceVersion", Value::String(text)) => json!(self.version(text)),
                _ => self.body(value),
            };
            out.insert(name.clone(), value);
        }
        Value::Object(out)
    }

    fn by_name(&mut self, resources: &[Value]) -> Value {
        let name = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_owned();
        Value::Object(resources.iter().map(|resource| (name(resource), self.body(resource))).collect())
    }

    /// The causes of each field, and how often each is told: one more must not move all others.
    fn by_field(&mut self, causes: &[Value]) -> Value {
        let mut fields: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for cause in causes {
            let text = |name: &str| cause[name].as_str().unwrap_or_default();
            let told = self.text(&format!("{} {}", text("reason"), text("message")));
            *fields.entry(self.text(text("field"))).or_default().entry(told).or_default() += 1;
        }
        let shown = |(told, times): (String, usize)| if times == 1 { told } else { format!("{times} × {told}") };
        let list = |told: BTreeMap<String, usize>| told.into_iter().map(shown).collect::<Vec<_>>();
        fields.into_iter().map(|(field, told)| (field, json!(list(told)))).collect::<Map<_, _>>().into()
    }

    fn metadata(&mut self, metadata: &Map<String, Value>, collective: bool) -> Value {
        let mut out = Map::new();
        for (name, value) in metadata {
            let value = match (name.as_str(), value) {
                ("resourceVersion", Value::String(text)) if collective => {
                    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                    json!(if is_number { "<version>" } else { text })
                }
                ("resourceVersion", Value::String(text)) => json!(self.version(text)),
                ("managedFields", Value::Array(entries)) => self.managers(entries),
                ("continue", Value::String(text)) if !text.is_empty() => json!("<continue>"),
                _ => self.body(value),
            };
            out.insert(name.clone(), value);
        }
        Value::Object(out)
    }

    /// Entries of managedFields. Kubernetes sorts by operation, then time, then manager: whether a second ends between
    /// two requests is chance, so that the time does not count here.
    fn managers(&mut self, entries: &[Value]) -> Value {
        let mut entries: Vec<Value> = entries.iter().map(|entry| self.body(entry)).collect();
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        entries
            .sort_by_key(|entry| ["operation", "manager", "subresource", "apiVersion"].map(|name| text(entry, name)));
        Value::Array(entries)
    }

    /// A cell of a table: ages run on.
    fn cell(&mut self, cell: &Value) -> Value {
        let is_age = |text: &str| {
            let unit = |c: char| "smhdy".contains(c);
            text.ends_with(unit)
                && text.starts_with(|c: char| c.is_ascii_digit())
                && text.chars().all(|c| c.is_ascii_digit() || unit(c))
        };
        match cell.as_str() {
            Some(text) if is_age(text) => json!("<age>"),
            _ => self.body(cell),
        }
    }

    fn version(&mut self, text: &str) -> String {
        if text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_digit()) {
            return text.to_owned();
        }
        format!("<version {}>", number(&mut self.versions, text))
    }

    /// A text, with what is hidden, identities, times, and numbers of versions taken out.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (hidden, name) in &self.hidden {
            text = text.replace(hidden.as_str(), name);
        }
        let text = replace(&text, &UID, |found| format!("<uid {}>", number(&mut self.uids, found)));
        let text = in_any_order(text);
        let text = versions_within(replace(&text, &TIME, |_| "<time>".to_owned()));
        if text.contains("esource version") || text.contains("resourceVersion=") || text.contains("ResourceVersion in")
        {
            return digits(&text);
        }
        text
    }
}

/// Faults of a typed patch come in an order that is chance in the oracle.
fn in_any_order(text: String) -> String {
    const HEAD: &str = ": errors:\n  ";
    let Some((before, list)) = text.split_once(HEAD) else { return text };
    let mut faults: Vec<&str> = list.split("\n  ").collect();
    faults.sort_unstable();
    format!("{before}{HEAD}{}", faults.join("\n  "))
}

fn sorted(mut values: Vec<Value>) -> Value {
    values.sort_by_key(ToString::to_string);
    Value::Array(values)
}

/// True for a Status that names causes.
fn has_causes(status: &Map<String, Value>) -> bool {
    status.get("details").is_some_and(|details| details.get("causes").is_some())
}

/// Patterns: `x` is a hexadecimal digit, `0` a decimal one, everything else itself.
const UID: [u8; 36] = *b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const TIME: [u8; 19] = *b"0000-00-00T00:00:00";

fn number(seen: &mut Vec<String>, text: &str) -> usize {
    if let Some(at) = seen.iter().position(|have| have == text) {
        return at + 1;
    }
    seen.push(text.to_owned());
    seen.len()
}

fn replace(text: &str, pattern: &[u8], mut with: impl FnMut(&str) -> String) -> String {
    let fits = |window: &[u8]| {
        window.iter().zip(pattern).all(|(byte, pattern)| match pattern {
            b'x' => byte.is_ascii_hexdigit(),
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        })
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.as_bytes().windows(pattern.len()).position(fits) {
        let (before, tail) = rest.split_at(at);
        let (found, tail) = tail.split_at(pattern.len());
        out.push_str(before);
        out.push_str(&with(found));
        rest = tail;
    }
    out + rest
}

/// The versions of objects that a text quotes as JSON, however often it is quoted itself.
fn versions_within(text: String) -> String {
    const NAME: &str = "resourceVersion";
    let Some((before, rest)) = text.split_once(NAME) else { return text };
    let rest = versions_within(rest.to_owned());
    let is_quote = |c: char| c == '\\' || c == '"';
    let value = rest.trim_start_matches(is_quote).strip_prefix(':').map(|value| value.trim_start_matches(is_quote));
    let tail = value.map(|value| value.trim_start_matches(|c: char| c.is_ascii_digit()));
    match (value, tail) {
        (Some(value), Some(tail)) if tail.len() < value.len() && tail.starts_with(is_quote) => {
            let head = rest.get(..rest.len() - value.len()).unwrap_or_default();
            format!("{before}{NAME}{head}<version>{tail}")
        }
        _ => format!("{before}{NAME}{rest}"),
    }
}

/// Every run of decimal digits as `<n>`.
fn digits(text: &str) -> String {
    let mut out = String::new();
    let mut in_number = false;
    for c in text.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !in_number {
            out.push_str("<n>");
        }
        in_number = c.is_ascii_digit();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_identity_and_version_keep_their_number_and_others_get_the_next() {
        let uid = |digit: char| format!("{0}{0}{0}{0}{0}{0}{0}{0}-0000-4000-8000-000000000000", digit);
        let mut normal = Normal::default();
        let mut object = |uid: &str, version: &str| {
            normal.body(&json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": version}}))["metadata"].clone()
        };
        assert_eq!(object(&uid('a'), "7"), json!({"name": "a", "uid": "<uid 1>", "resourceVersion": "<version 1>"}));
        assert_eq!(object(&uid('a'), "9"), json!({"name": "a", "uid": "<uid 1>", "resourceVersion": "<version 2>"}));
        assert_eq!(object(&uid('b'), "7"), json!({"name": "a", "uid": "<uid 2>", "resourceVersion": "<version 1>"}));
    }

    #[test]
    fn versions_in_objects_that_a_text_quotes_have_no_value() {
        for (text, told) in [
            (r#"{"resourceVersion":"12","uid":"a"}"#, r#"{"resourceVersion":"<version>","uid":"a"}"#),
            (
                r#"Invalid value: "{\"resourceVersion\":\"12\"}""#,
                r#"Invalid value: "{\"resourceVersion\":\"<version>\"}""#,
            ),
            ("metadata.resourceVersion: Invalid value: 0", "metadata.resourceVersion: Invalid value: 0"),
            (r#""resourceVersion":"" "resourceVersion":"7""#, r#""resourceVersion":"" "resourceVersion":"<version>""#),
        ] {
            assert_eq!(versions_within(text.to_owned()), told);
        }
    }

    #[test]
    fn faults_that_come_in_any_order_are_sorted() {
        assert_eq!(in_any_order("x: errors:\n  .b: c\n  .a: b".to_owned()), "x: errors:\n  .a: b\n  .b: c");
        assert_eq!(in_any_order("no errors".to_owned()), "no errors");
    }

    #[test]
    fn times_tokens_ages_and_versions_of_lists_have_no_value() {
        let list = json!({
            "kind": "Table",
            "metadata": {"resourceVersion": "12", "continue": "abc"},
            "rows": [{"cells": ["a", "3m5s", "8s", "8.2"]}],
            "at": "2026-01-01T00:00:00Z and 2026-01-01T00:00:00.123Z",
            "message": "too old resource version: 1 (22)",
        });
        let normal = Normal::default().body(&list);
        assert_eq!(normal["metadata"], json!({"resourceVersion": "<version>", "continue": "<continue>"}));
        assert_eq!(normal["rows"][0]["cells"], json!(["a", "<age>", "<age>", "8.2"]));
        assert_eq!(normal["at"], "<time>Z and <time>.123Z");
        assert_eq!(normal["message"], "too old resource version: <n> (<n>)");
    }
}
