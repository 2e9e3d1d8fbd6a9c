//! Field sets: which places of an object a manager owns, as `metav1.FieldsV1` writes them down.
//!
//! A set knows two things of each place: whether the place itself is a member, and which places below it are. It must not know schemas
//! or managers.

mod atom;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

pub use atom::Atom;
pub(crate) use atom::order;
pub use wire::Error as WireError;

/// One step on the way to a place. The order is that of Kubernetes: names, then keys, then values, then indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A field of an object, or an entry of a map.
    Field(String),
    /// An item of an associative list, by the values of its key fields, sorted by name.
    Key(Vec<(String, Atom)>),
    /// An item of a set, by its value.
    Value(Atom),
    /// An item of a list, by its place. Nobody writes these; they are read.
    Index(i64),
}

impl Element {
    /// A field.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }
}

/// As in messages: `.spec`, `[name="a"]`, `[="x"]`, `[3]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// The way to a place, from the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<Element>);

impl Path {
    /// A path of field names.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        Self(names.iter().map(|name| Element::field(name)).collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// A set of places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Places right below that are members themselves.
    members: BTreeSet<Element>,
    /// Sets of places further below; none is empty.
    children: BTreeMap<Element, Set>,
}

impl Set {
    /// A set of these paths.
    #[must_use]
    pub fn of(paths: impl IntoIterator<Item = Path>) -> Self {
        let mut set = Self::default();
        paths.into_iter().for_each(|path| set.insert(&path.0));
        set
    }

    /// Adds a place. The root itself is no place.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => drop(self.members.insert(last.clone())),
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Whether a place is a member itself.
    #[must_use]
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// What is below one place.
    #[must_use]
    pub fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element)
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut both, less) = if self.is_empty() { (other.clone(), self) } else { (self.clone(), other) };
        both.add(less);
        both
    }

    fn add(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (element, theirs) in &other.children {
            match self.children.get_mut(element) {
                Some(mine) => mine.add(theirs),
                None => drop(self.children.insert(element.clone(), theirs.clone())),
            }
        }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let shared = |(element, child): (&Element, &Self)| {
            let theirs = other.children.get(element)?;
            Some((element.clone(), child.intersection(theirs)))
        };
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: full(self.children.iter().filter_map(shared)),
        }
    }

    /// What is in this one only. A place that is taken away leaves what is below it.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let left = |(element, child): (&Element, &Self)| {
            let rest = other.children.get(element).map_or_else(|| child.clone(), |theirs| child.difference(theirs));
            (element.clone(), rest)
        };
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: full(self.children.iter().map(left)),
        }
    }

    /// What is in this one only. A place that is taken away takes all below it along.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let kept = self.children.iter().filter(|(element, _)| !other.members.contains(element));
        let left = |(element, child): (&Element, &Self)| {
            let rest = other.children.get(element);
            (element.clone(), rest.map_or_else(|| child.clone(), |theirs| child.recursive_difference(theirs)))
        };
        Self { members: self.members.difference(&other.members).cloned().collect(), children: full(kept.map(left)) }
    }

    /// The members right below, and what is further below, in order.
    #[must_use]
    pub const fn parts(&self) -> (&BTreeSet<Element>, &BTreeMap<Element, Self>) {
        (&self.members, &self.children)
    }

    /// Every member: first those right below, then those of each child.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Element>, paths: &mut Vec<Path>) {
        for element in &self.members {
            paths.push(Path(prefix.iter().chain([element]).cloned().collect()));
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// Reads `fieldsV1`.
    ///
    /// # Errors
    /// When a key is no path element.
    pub fn from_json(json: &Value) -> Result<Self, WireError> {
        wire::read(json)
    }

    /// Writes `fieldsV1`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        wire::write(self, false)
    }
}

fn full(children: impl Iterator<Item = (Element, Set)>) -> BTreeMap<Element, Set> {
    children.filter(|(_, child)| !child.is_empty()).collect()
}

#[cfg(test)]
mod tests;
