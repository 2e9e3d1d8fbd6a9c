//! `metadata.managedFields`: who owns which fields, by which kind of write, since when.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::fields::{Set, WireError};

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Anything else.
    Update,
}

impl Operation {
    const fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who wrote, where and how. Two writes of one manager belong together when all of it is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// How it wrote.
    pub operation: Operation,
    /// In which version; of an applier it does not matter and is empty.
    pub api_version: String,
    /// Through which subresource; empty: the object itself.
    pub subresource: String,
}

/// As in messages.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which places.
    pub set: Set,
    /// In the form of which version.
    pub api_version: String,
    /// Since when (RFC 3339, seconds).
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managed(pub BTreeMap<Manager, Owned>);

/// Why `managedFields` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// No form of the fields.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// An unknown form of the fields.
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    /// Fields that cannot be read.
    #[error("error decoding versioned set: {0}")]
    Fields(#[from] WireError),
}

impl Managed {
    /// Reads the list; nothing is an empty one.
    ///
    /// # Errors
    /// At the first entry that is none.
    pub fn decode(list: Option<&Value>) -> Result<Self, Error> {
        let entries = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let entries: Result<_, Error> = entries.iter().enumerate().map(|(index, entry)| read(index, entry)).collect();
        Ok(Self(entries?))
    }

    /// The list as it is stored; `None` if there is nobody.
    #[must_use]
    pub fn encode(&self) -> Option<Value> {
        let mut entries: Vec<(&Manager, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(manager, owned)| {
            // RFC 3339 in UTC and seconds sorts as text; what is absent comes first.
            (manager.operation, owned.time.as_deref(), &manager.name, &owned.api_version, &manager.subresource)
        });
        let list: Vec<Value> = entries.into_iter().map(|(manager, owned)| write(manager, owned)).collect();
        (!list.is_empty()).then_some(Value::Array(list))
    }
}

/// A client asks to forget all managers: an empty list, or a list with one empty entry.
#[must_use]
pub fn is_reset(list: Option<&Value>) -> bool {
    match list.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        Some(_) | None => false,
    }
}

fn text<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn read(index: usize, entry: &Value) -> Result<(Manager, Owned), Error> {
    let operation = match text(entry, "operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(Error::Operation),
    };
    let api_version = text(entry, "apiVersion");
    if api_version.is_empty() {
        return Err(Error::ApiVersion);
    }
    match text(entry, "fieldsType") {
        "FieldsV1" => {}
        "" => return Err(Error::NoFieldsType(index)),
        other => return Err(Error::FieldsType(index, other.to_owned())),
    }
    let manager = Manager::of(text(entry, "manager"), operation, api_version, text(entry, "subresource"));
    let set = entry.get("fieldsV1").map_or_else(|| Ok(Set::default()), Set::from_json)?;
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Ok((manager, Owned { set, api_version: api_version.to_owned(), time }))
}

impl Manager {
    /// A manager of this name.
    #[must_use]
    pub fn of(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        Self {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }
}

fn write(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = json!({
        "apiVersion": owned.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.set.to_json(),
        "operation": manager.operation.text(),
    });
    let optional = [
        ("manager", Some(manager.name.as_str())),
        ("subresource", Some(manager.subresource.as_str())),
        ("time", owned.time.as_deref()),
    ];
    if let Some(fields) = entry.as_object_mut() {
        for (name, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                fields.insert(name.to_owned(), Value::String(value.to_owned()));
            }
        }
    }
    entry
}

#[cfg(test)]
mod tests;
