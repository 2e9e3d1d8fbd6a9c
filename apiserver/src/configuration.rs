//! Files of configuration in Kubernetes' shape, read strictly: what is wrong is told with the file and the field, and
//! what nobody knows is wrong. Pure, but for reading the file.
//!
//! A message never repeats a value, because some are secrets.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zeroize::{Zeroize, Zeroizing};

use crate::wire::yaml;

/// Largest file that is read; real ones have a few kilobytes.
const FILE_MAX: u64 = 4 << 20;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("reading {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What it says cannot be used.
    #[error("{}: {fault}", .path.display())]
    Fault {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        fault: Fault,
    },
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field, such as `resources[0].providers`; empty for the whole document.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.why),
            field => write!(f, "{field}: {}", self.why),
        }
    }
}

impl std::error::Error for Fault {}

/// The text of a file, wiped when it is dropped.
pub fn text(path: &Path) -> Result<Zeroizing<String>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_MAX {
        let why = format!("the file has more than {FILE_MAX} bytes");
        return Err(Error::Fault { path: path.to_owned(), fault: Fault { field: String::new(), why } });
    }
    std::fs::read_to_string(path).map(Zeroizing::new).map_err(failed)
}

/// A document of one kind, wiped when it is dropped.
pub struct Document(Value);

impl Document {
    /// Reads YAML or JSON that says it is `kind` of `api_version`.
    pub fn read(text: &str, api_version: &str, kind: &str) -> Result<Self, Fault> {
        let whole = |why: String| Fault { field: String::new(), why };
        let read = yaml::read(text).map_err(|_| whole("not one YAML or JSON document".to_owned()))?;
        let document = Self(read.value);
        if let Some(repeated) = read.repeated.first() {
            return Err(whole(repeated.clone()));
        }
        let root = document.root();
        for (name, expected) in [("apiVersion", api_version), ("kind", kind)] {
            let field = root.at(name);
            if field.text()? != Some(expected) {
                return Err(field.fault(format!("must be {expected}")));
            }
        }
        Ok(document)
    }

    /// The whole.
    #[must_use]
    pub fn root(&self) -> Field<'_> {
        Field { value: Some(&self.0), path: String::new() }
    }
}

impl Drop for Document {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(members) => members.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A place in a document, whether there is something or not.
#[derive(Clone)]
pub struct Field<'a> {
    value: Option<&'a Value>,
    path: String,
}

impl<'a> Field<'a> {
    /// What is wrong with this field.
    #[must_use]
    pub fn fault(&self, why: impl Into<String>) -> Fault {
        Fault { field: self.path.clone(), why: why.into() }
    }

    /// Whether there is anything but null.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    /// The member `name` of a mapping.
    #[must_use]
    pub fn at(&self, name: &str) -> Field<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Field { value: self.value.and_then(|value| value.get(name)), path: format!("{}{dot}{name}", self.path) }
    }

    /// The names of a mapping's members, each of which must be one of `known`.
    pub fn names(&self, known: &[&str]) -> Result<Vec<&'a str>, Fault> {
        let members = match self.value {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(members)) => members,
            Some(_) => return Err(self.fault("must be a mapping")),
        };
        match members.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(self.at(name).fault("unknown field")),
            None => Ok(members.keys().map(String::as_str).collect()),
        }
    }

    /// The items of a list; none if it is absent.
    pub fn items(&self) -> Result<Vec<Field<'a>>, Fault> {
        let items = match self.value {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.fault("must be a list")),
        };
        let item = |(at, value)| Field { value: Some(value), path: format!("{}[{at}]", self.path) };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// A text.
    pub fn text(&self) -> Result<Option<&'a str>, Fault> {
        match self.value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.fault("must be a string")),
        }
    }

    /// A list of texts.
    pub fn texts(&self) -> Result<Vec<String>, Fault> {
        let text = |item: Field<'a>| Ok(item.text()?.unwrap_or_default().to_owned());
        self.items()?.into_iter().map(text).collect()
    }

    /// True or false.
    pub fn flag(&self) -> Result<Option<bool>, Fault> {
        match self.value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.fault("must be true or false")),
        }
    }
}
