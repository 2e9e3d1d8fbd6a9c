//! A JSON value with Kubernetes' total order, so that it can name an item of a list.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// A value as a name. Numbers compare by what they say: 1 and 1.0 are the same.
#[derive(Clone, Debug)]
pub struct Atom(pub Value);

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Atom {}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}

/// Numbers, texts, booleans, lists, maps, null; within a type by value.
pub(crate) fn order(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or(f64::MAX).total_cmp(&b.as_f64().unwrap_or(f64::MAX)),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| order.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            // Both are sorted by name: that is how serde_json keeps them here.
            let by_entry =
                |((a, x), (b, y)): ((&String, &Value), (&String, &Value))| a.cmp(b).then_with(|| order(x, y));
            a.iter().zip(b).map(by_entry).find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

const fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// As in messages: texts in quotes.
impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| Self(item.clone()).to_string()).collect();
                write!(f, "[{}]", items.join(","))
            }
            Value::Object(map) => map.iter().try_for_each(|(name, value)| write!(f, "{name}={}", Self(value.clone()))),
            other => write!(f, "{other}"),
        }
    }
}
