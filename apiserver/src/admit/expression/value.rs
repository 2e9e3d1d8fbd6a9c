//! Values of expressions, from and to JSON; pure. Cloning one is cheap whatever its size.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::rights::Rights;

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint`.
    Uint(u64),
    /// `double`.
    Double(f64),
    /// `string`.
    String(Arc<str>),
    /// `bytes`.
    Bytes(Arc<[u8]>),
    /// `list`.
    List(Arc<Vec<Value>>),
    /// `map`.
    Map(Arc<BTreeMap<Key, Value>>),
    /// `duration`.
    Duration(SignedDuration),
    /// `timestamp`.
    Timestamp(Timestamp),
    /// A type.
    Type(Arc<str>),
    /// A value that may be absent.
    Optional(Option<Arc<Value>>),
    /// What an expression builds for a patch: its type's name and its fields.
    Object(Arc<str>, Arc<BTreeMap<String, Value>>),
    /// A value of the function library: a quantity, an address, a version, a URL.
    Foreign(Opaque),
    /// The authorizer, or what it was asked so far.
    Rights(Arc<Rights>),
    /// The variables of a policy.
    Variables,
}

/// A value only the function library understands.
#[derive(Clone)]
pub struct Opaque(pub(super) Arc<dyn cel::objects::Opaque>);

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.runtime_type_name())
    }
}

/// The key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `bool`.
    Bool(bool),
    /// `int`, and each `uint` that is one.
    Int(i64),
    /// A `uint` beyond every `int`.
    Uint(u64),
    /// `string`.
    String(Arc<str>),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::String(value) => f.write_str(value),
        }
    }
}

impl Key {
    /// The key a value is, if it can be one.
    pub(super) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Uint(value) => Some(i64::try_from(*value).map_or(Self::Uint(*value), Self::Int)),
            Value::Double(number) => whole(*number).map(Self::Int),
            Value::String(value) => Some(Self::String(value.clone())),
            Value::Null
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
            | Value::Type(_)
            | Value::Optional(_)
            | Value::Object(..)
            | Value::Foreign(_)
            | Value::Rights(_)
            | Value::Variables => None,
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::String(value) => Value::String(value.clone()),
        }
    }
}

/// The integer a double is, if it is one.
#[allow(clippy::cast_possible_truncation, reason = "the bounds are checked first")]
pub(super) fn whole(number: f64) -> Option<i64> {
    let bound = 9_223_372_036_854_775_808.0;
    (number.fract() == 0.0 && number >= -bound && number < bound).then_some(number as i64)
}

impl Value {
    /// A string.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::String(text.into())
    }

    /// A list.
    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }

    /// The value a JSON document is.
    #[must_use]
    pub fn of(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Self::Int(number),
                (None, Some(number)) => Self::Double(number),
                (None, None) => Self::Null,
            },
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::list(items.iter().map(Self::of).collect()),
            Json::Object(fields) => {
                let entry = |(name, value): (&String, &Json)| (Key::String(name.as_str().into()), Self::of(value));
                Self::Map(Arc::new(fields.iter().map(entry).collect()))
            }
        }
    }

    /// The JSON document a value is; a sentence for what is none.
    pub fn json(&self) -> Result<Json, String> {
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value).into(),
            Self::Uint(value) => (*value).into(),
            Self::Double(value) => serde_json::Number::from_f64(*value).map_or(Json::Null, Json::Number),
            Self::String(text) => Json::String(text.to_string()),
            Self::List(items) => Json::Array(items.iter().map(Self::json).collect::<Result<_, _>>()?),
            Self::Map(entries) => {
                let entry = |(key, value): (&Key, &Self)| match key {
                    Key::String(name) => Ok((name.to_string(), value.json()?)),
                    Key::Bool(_) | Key::Int(_) | Key::Uint(_) => {
                        Err(format!("map key \"{key}\" is of type {}, not string", key.value().kind()))
                    }
                };
                Json::Object(entries.iter().map(entry).collect::<Result<_, String>>()?)
            }
            Self::Object(_, fields) => {
                let field = |(name, value): (&String, &Self)| Ok((name.clone(), value.json()?));
                Json::Object(fields.iter().map(field).collect::<Result<_, String>>()?)
            }
            Self::Optional(Some(value)) => value.json()?,
            Self::Optional(None) => Json::Null,
            Self::Timestamp(time) => Json::String(time.to_string()),
            Self::Duration(time) => Json::String(seconds(*time)),
            Self::Bytes(_) | Self::Type(_) | Self::Foreign(_) | Self::Rights(_) | Self::Variables => {
                return Err(format!("a value of type {} has no JSON form", self.kind()));
            }
        })
    }

    /// The name of its type.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Object(name, _) => name,
            Self::Foreign(value) => value.0.runtime_type_name(),
            Self::Rights(rights) => rights.kind(),
            Self::Variables => "kubernetes.variables",
        }
    }

    /// Whether it is what its type is when nothing was said.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            Self::Duration(time) => time.is_zero(),
            Self::Optional(value) => value.is_none(),
            Self::Object(_, fields) => fields.is_empty(),
            Self::Timestamp(_) | Self::Type(_) | Self::Foreign(_) | Self::Rights(_) | Self::Variables => false,
        }
    }

    /// What it costs to walk over all of it: Kubernetes counts a tenth per character and one per item.
    pub(super) fn weight(&self) -> u64 {
        let sum = |weights: &mut dyn Iterator<Item = u64>| weights.fold(1_u64, u64::saturating_add);
        match self {
            Self::String(text) => tenth(text.len()),
            Self::Bytes(bytes) => tenth(bytes.len()),
            Self::List(items) => sum(&mut items.iter().map(Self::weight)),
            Self::Map(entries) => sum(&mut entries.iter().map(|(key, value)| {
                let key = if let Key::String(text) = key { tenth(text.len()) } else { 1 };
                key.saturating_add(value.weight())
            })),
            Self::Object(_, fields) => sum(&mut fields.values().map(Self::weight)),
            Self::Optional(Some(value)) => value.weight(),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Double(_)
            | Self::Duration(_)
            | Self::Timestamp(_)
            | Self::Type(_)
            | Self::Optional(None)
            | Self::Foreign(_)
            | Self::Rights(_)
            | Self::Variables => 1,
        }
    }

    /// A number of any type, for comparing it with one of another.
    fn number(&self) -> Option<Number> {
        match self {
            Self::Int(value) => Some(Number::Whole(i128::from(*value))),
            Self::Uint(value) => Some(Number::Whole(i128::from(*value))),
            Self::Double(value) => Some(Number::Broken(*value)),
            _not_a_number => None,
        }
    }

    /// Which of two comes first; `None`: they cannot be ordered.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        if let (Some(one), Some(two)) = (self.number(), other.number()) {
            return one.order(two);
        }
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => Some(one.cmp(two)),
            (Self::String(one), Self::String(two)) => Some(one.cmp(two)),
            (Self::Bytes(one), Self::Bytes(two)) => Some(one.cmp(two)),
            (Self::Duration(one), Self::Duration(two)) => Some(one.cmp(two)),
            (Self::Timestamp(one), Self::Timestamp(two)) => Some(one.cmp(two)),
            (_, _) => None,
        }
    }
}

/// A tenth, rounded up, and at least one.
pub(super) fn tenth(length: usize) -> u64 {
    u64::try_from(length.div_ceil(10)).unwrap_or(u64::MAX).max(1)
}

/// A duration as Kubernetes' CEL writes it: seconds.
pub(super) fn seconds(time: SignedDuration) -> String {
    let nanos = time.subsec_nanos().unsigned_abs();
    let sign = if time.is_negative() { "-" } else { "" };
    let whole = time.as_secs().unsigned_abs();
    if nanos == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{nanos:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}

#[derive(Clone, Copy)]
enum Number {
    Whole(i128),
    Broken(f64),
}

impl Number {
    #[allow(
        clippy::cast_precision_loss,
        reason = "beyond 2^53 a double has no fraction, and the order is by its value"
    )]
    fn order(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(one), Self::Whole(two)) => Some(one.cmp(&two)),
            (Self::Broken(one), Self::Broken(two)) => one.partial_cmp(&two),
            (Self::Whole(one), Self::Broken(two)) => (one as f64).partial_cmp(&two),
            (Self::Broken(one), Self::Whole(two)) => one.partial_cmp(&(two as f64)),
        }
    }
}

/// Equal as expressions see it: numbers by their value, everything else by type and content.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        if let (Some(one), Some(two)) = (self.number(), other.number()) {
            return one.order(two) == Some(Ordering::Equal);
        }
        match (self, other) {
            (Self::Null, Self::Null) | (Self::Variables, Self::Variables) => true,
            (Self::Bool(one), Self::Bool(two)) => one == two,
            (Self::String(one), Self::String(two)) | (Self::Type(one), Self::Type(two)) => one == two,
            (Self::Bytes(one), Self::Bytes(two)) => one == two,
            (Self::List(one), Self::List(two)) => one == two,
            (Self::Map(one), Self::Map(two)) => one == two,
            (Self::Duration(one), Self::Duration(two)) => one == two,
            (Self::Timestamp(one), Self::Timestamp(two)) => one == two,
            (Self::Optional(one), Self::Optional(two)) => one == two,
            (Self::Object(name, one), Self::Object(other, two)) => name == other && one == two,
            (Self::Foreign(_), Self::Foreign(_)) => super::foreign::is_same(self, other),
            (Self::Rights(one), Self::Rights(two)) => one == two,
            (_, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_comes_back_as_it_went_in() {
        let document = json!({"a": [1, -2, 1.5, "x", true, null], "b": {"c": {}}});
        assert_eq!(Value::of(&document).json(), Ok(document));
    }

    #[test]
    fn numbers_are_equal_by_value_and_other_types_never() {
        assert_eq!(Value::Int(1), Value::Double(1.0));
        assert_eq!(Value::Uint(1), Value::Int(1));
        assert_ne!(Value::Int(-1), Value::Uint(u64::MAX));
        assert_ne!(Value::text("1"), Value::Int(1));
        assert_ne!(Value::Double(f64::NAN), Value::Double(f64::NAN));
        assert_eq!(Value::Int(1).order(&Value::Double(1.5)), Some(Ordering::Less));
        assert_eq!(Value::Null.order(&Value::Int(1)), None);
    }
}
