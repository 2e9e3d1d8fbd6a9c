//! `fieldsV1`: a tree of objects whose keys are `f:<name>`, `k:<JSON object>`, `v:<JSON value>`, `i:<number>`, and `.` for a place that is
//! a member itself and has members below.

use serde_json::{Map, Value};

use super::{Atom, Element, Set};

/// Why `fieldsV1` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a tree of objects.
    #[error("reading fieldsV1: an object is expected")]
    NotAnObject,
    /// A key that is no path element.
    #[error("reading fieldsV1: {0:?} is no path element")]
    Element(String),
}

pub(super) fn read(json: &Value) -> Result<Set, Error> {
    let mut set = Set::default();
    for (key, below) in json.as_object().ok_or(Error::NotAnObject)? {
        if key == "." {
            continue;
        }
        // Elements of a later version are dropped.
        let Some(element) = element(key)? else { continue };
        let child = read(below)?;
        if child.is_empty() || below.get(".").is_some() {
            set.members.insert(element.clone());
        }
        if !child.is_empty() {
            set.children.insert(element, child);
        }
    }
    Ok(set)
}

fn element(key: &str) -> Result<Option<Element>, Error> {
    let fault = || Error::Element(key.to_owned());
    let (kind, rest) = key.split_once(':').filter(|(kind, _)| kind.len() == 1).ok_or_else(fault)?;
    let json = || serde_json::from_str::<Value>(rest).map_err(|_| fault());
    Ok(Some(match kind {
        "f" => Element::field(rest),
        "v" => Element::Value(Atom(json()?)),
        "i" => Element::Index(rest.parse().map_err(|_| fault())?),
        "k" => {
            let Value::Object(fields) = json()? else { return Err(fault()) };
            let mut keys: Vec<(String, Atom)> = fields.into_iter().map(|(name, value)| (name, Atom(value))).collect();
            keys.sort();
            Element::Key(keys)
        }
        _ => return Ok(None),
    }))
}

pub(super) fn write(set: &Set, is_member: bool) -> Value {
    let mut tree = Map::new();
    if is_member && !set.is_empty() {
        tree.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for element in &set.members {
        tree.insert(text(element), Value::Object(Map::new()));
    }
    for (element, child) in &set.children {
        tree.insert(text(element), write(child, set.members.contains(element)));
    }
    Value::Object(tree)
}

fn text(element: &Element) -> String {
    match element {
        Element::Field(name) => format!("f:{name}"),
        Element::Value(value) => format!("v:{}", json(&value.0)),
        Element::Index(index) => format!("i:{index}"),
        Element::Key(keys) => {
            let keys: Vec<String> = keys
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::String(name.clone()), json(&value.0)))
                .collect();
            format!("k:{{{}}}", keys.join(","))
        }
    }
}

/// Go writes these characters escaped, and what it writes is compared as text.
fn json(value: &Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => text.push(other),
        }
    }
    text
}
