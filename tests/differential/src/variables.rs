//! Placeholders of a scenario: what was captured on one side, and its place in later requests.

use std::collections::BTreeMap;

use serde_json::Value;

/// Values by name, on one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Remembers a value.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// The text with every placeholder filled in. What was never captured is named, so that the difference shows why.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let (inside, tail) = after.split_once('}').unwrap_or((after, ""));
            out.push_str(&self.value(inside));
            rest = tail;
        }
        out.push_str(rest);
        out
    }

    /// The same in every text of a JSON value.
    pub(crate) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.fill_value(item)).collect()),
            Value::Object(fields) => {
                let filled = fields.iter().map(|(name, field)| (self.fill(name), self.fill_value(field)));
                Value::Object(filled.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn value(&self, inside: &str) -> String {
        let (name, add) = inside.split_once('+').unwrap_or((inside, "0"));
        match (self.0.get(name), add.parse::<u64>()) {
            (None, _) => format!("missing-{name}"),
            (Some(value), Ok(add)) if add > 0 => {
                value.parse::<u64>().map_or_else(|_| value.clone(), |number| (number + add).to_string())
            }
            (Some(value), _) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_filled_in_texts_and_names_and_numbers_can_be_counted_up() {
        let mut variables = Variables::default();
        variables.set("rv", "41");
        variables.set("name", "a");
        assert_eq!(variables.fill("${name}/${rv+1}/${rv}"), "a/42/41");
        assert_eq!(variables.fill("${absent}"), "missing-absent");
        assert_eq!(variables.fill_value(&json!({"${name}": ["${rv}", 1]})), json!({"a": ["41", 1]}));
    }
}
