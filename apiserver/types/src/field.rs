//! Paths into an object and the faults found there, worded as Kubernetes' own field errors.
//!
//! It must not know what is checked or how a fault reaches the user; `validate` finds faults, the edges print them.

use std::fmt;

use serde_json::Value;

/// Longest bad value that is repeated to the user; the rest is cut (a fault must not echo a 3 MiB body).
const SHOWN_VALUE_MAX: usize = 256;

/// Where in an object: `spec.snapshots[0].seconds`, `spec.config[maxclients]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(String);

impl Path {
    /// A path that begins with `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The field `name` of this object; dots in `name` are kept, so `a.b` is a shorthand for two steps.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// An item of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An entry of this map; the key comes from the user and is cut and cleaned.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{}]", self.0, shown(key)))
    }

    /// The printed form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<&str> for Path {
    fn from(path: &str) -> Self {
        Self::new(path)
    }
}

/// What is wrong, in Kubernetes' categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// It must be given.
    Required,
    /// Its value is not acceptable.
    Invalid,
    /// Its JSON type is not acceptable.
    TypeInvalid,
    /// It is not one of the values that are known.
    NotSupported,
    /// It may not be set (or not to this) in the present state.
    Forbidden,
    /// It occurs twice.
    Duplicate,
    /// It refers to something that does not exist.
    NotFound,
    /// It has too many characters.
    TooLong,
    /// It has too many items.
    TooMany,
}

impl FaultKind {
    /// `reason` of the cause in a `Status`.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    /// The words a person reads.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// Whether the bad value is repeated.
    const fn shows_value(self) -> bool {
        match self {
            Self::Required | Self::Forbidden | Self::TooLong => false,
            Self::Invalid
            | Self::TypeInvalid
            | Self::NotSupported
            | Self::Duplicate
            | Self::NotFound
            | Self::TooMany => true,
        }
    }
}

/// One fault. Its `Display` is exactly Kubernetes' `field.Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub path: Path,
    /// What.
    pub kind: FaultKind,
    /// The value found; `None` where there is none to show.
    pub bad_value: Option<Value>,
    /// Why, with the numbers; may be empty.
    pub detail: String,
}

impl Fault {
    /// The field must be given.
    #[must_use]
    pub fn required(path: Path, detail: impl Into<String>) -> Self {
        Self { path, kind: FaultKind::Required, bad_value: None, detail: detail.into() }
    }

    /// The value is not acceptable.
    #[must_use]
    pub fn invalid(path: Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { path, kind: FaultKind::Invalid, bad_value: Some(value.into()), detail: detail.into() }
    }

    /// The value is not one of `supported`.
    #[must_use]
    pub fn not_supported<S: AsRef<str>>(path: Path, value: impl Into<Value>, supported: &[S]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let list: Vec<String> = supported.iter().map(|one| format!("{:?}", one.as_ref())).collect();
            format!("supported values: {}", list.join(", "))
        };
        Self { path, kind: FaultKind::NotSupported, bad_value: Some(value.into()), detail }
    }

    /// The field may not be set so in the present state.
    #[must_use]
    pub fn forbidden(path: Path, detail: impl Into<String>) -> Self {
        Self { path, kind: FaultKind::Forbidden, bad_value: None, detail: detail.into() }
    }

    /// The value occurs twice.
    #[must_use]
    pub fn duplicate(path: Path, value: impl Into<Value>) -> Self {
        Self { path, kind: FaultKind::Duplicate, bad_value: Some(value.into()), detail: String::new() }
    }

    /// The string is longer than `most` bytes.
    #[must_use]
    pub fn too_long(path: Path, most: usize) -> Self {
        let detail = format!("may not be more than {most} bytes");
        Self { path, kind: FaultKind::TooLong, bad_value: None, detail }
    }

    /// The list or map has more than `most` items.
    #[must_use]
    pub fn too_many(path: Path, count: usize, most: usize) -> Self {
        let detail = format!("must have at most {most} items");
        Self { path, kind: FaultKind::TooMany, bad_value: Some(count.into()), detail }
    }

    /// The text without the path: `message` of the cause in a `Status`.
    #[must_use]
    pub fn message(&self) -> String {
        let words = self.kind.words();
        let mut text = match &self.bad_value {
            Some(value) if self.kind.shows_value() => format!("{words}: {}", show_value(value)),
            Some(_) | None => words.to_owned(),
        };
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.message())
    }
}

/// Several faults as one sentence: one alone stands for itself, several stand in brackets (Kubernetes' aggregate).
#[must_use]
pub fn aggregate(faults: &[Fault]) -> String {
    match faults {
        [] => String::new(),
        [one] => one.to_string(),
        several => {
            let list: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("[{}]", list.join(", "))
        }
    }
}

fn show_value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", shown(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            shown_raw(&value.to_string())
        }
    }
}

/// A user's text as it may be repeated: control characters and quotes escaped, cut to a length.
fn shown(text: &str) -> String {
    shown_raw(&text.chars().take(SHOWN_VALUE_MAX + 1).flat_map(char::escape_debug).collect::<String>())
}

fn shown_raw(text: &str) -> String {
    if text.chars().count() <= SHOWN_VALUE_MAX {
        return text.to_owned();
    }
    let head: String = text.chars().take(SHOWN_VALUE_MAX).collect();
    format!("{head}…")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_fault_reads_like_kubernetes_own() {
        let spec = Path::new("spec");
        let table = [
            (
                Fault::invalid(spec.child("shards"), 0, "must be at least 3"),
                "spec.shards: Invalid value: 0: must be at least 3",
            ),
            (Fault::invalid(spec.child("version"), "x", "no"), "spec.version: Invalid value: \"x\": no"),
            (Fault::required(spec.child("storage.size"), ""), "spec.storage.size: Required value"),
            (Fault::forbidden(spec.child("mode"), "is immutable"), "spec.mode: Forbidden: is immutable"),
            (
                Fault::not_supported(spec.key("x"), "b", &["a", "c"]),
                "spec[x]: Unsupported value: \"b\": supported values: \"a\", \"c\"",
            ),
            (Fault::duplicate(spec.child("s").index(1), 60), "spec.s[1]: Duplicate value: 60"),
            (Fault::too_long(spec.child("m"), 5), "spec.m: Too long: may not be more than 5 bytes"),
            (Fault::too_many(spec.child("m"), 7, 5), "spec.m: Too many: 7: must have at most 5 items"),
        ];
        for (fault, text) in table {
            assert_eq!(fault.to_string(), text);
        }
    }

    #[test]
    fn several_faults_stand_in_brackets() {
        let one = Fault::required(Path::new("a"), "");
        let two = Fault::required(Path::new("b"), "x");
        assert_eq!(aggregate(std::slice::from_ref(&one)), "a: Required value");
        assert_eq!(aggregate(&[one, two]), "[a: Required value, b: Required value: x]");
    }

    #[test]
    fn a_bad_value_is_cut_and_its_control_characters_are_escaped() {
        let long = Fault::invalid(Path::new("a"), "x".repeat(10_000), "no").to_string();
        assert!(long.len() < 300, "{long}");
        let sly = Fault::invalid(Path::new("a"), "b\r\nsave \"\"", "no").to_string();
        assert_eq!(sly, r#"a: Invalid value: "b\r\nsave \"\"": no"#);
    }
}
