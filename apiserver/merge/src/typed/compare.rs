//! How two values differ, place by place.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use serde_json::{Map, Value};

use super::{View, entry_or_open, list, map, name};
use crate::fields::{Element, Set, order};
use crate::schema::{Array, Node, Object};

/// Places that only the old value has, that differ, and that only the new one has. No place is in two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only in the old one.
    pub removed: Set,
    /// In both, different.
    pub modified: Set,
    /// Only in the new one.
    pub added: Set,
}

impl Comparison {
    /// The same without some places and all below them.
    #[must_use]
    pub fn without(&self, places: &Set) -> Self {
        Self {
            removed: self.removed.recursive_difference(places),
            modified: self.modified.recursive_difference(places),
            added: self.added.recursive_difference(places),
        }
    }
}

/// Compares two values.
#[must_use]
pub fn compare(node: &Node, old: &Value, new: &Value) -> Comparison {
    let mut walk = Walk { path: Vec::new(), found: Comparison::default() };
    walk.both(node, Some(old), Some(new));
    walk.found
}

struct Walk {
    path: Vec<Element>,
    found: Comparison,
}

impl Walk {
    /// A value that changed its form is compared in both.
    fn both(&mut self, node: &Node, old: Option<&Value>, new: Option<&Value>) {
        // Most of an object does not change in a write.
        if old.is_some() && old == new {
            return;
        }
        let (before, after) = (View::of(node, old), View::of(node, new));
        let is_leaf = if new.is_none() {
            self.one(before, old, new)
        } else {
            // Of one node: their forms can differ, their schemas cannot.
            if old.is_some() && discriminant(&before) != discriminant(&after) {
                self.one(before, old, new);
            }
            self.one(after, old, new)
        };
        match (old, new) {
            (None, Some(_)) if !is_leaf => self.found.added.insert(&self.path),
            (Some(_), None) if !is_leaf => self.found.removed.insert(&self.path),
            _ => {}
        }
    }

    /// True if the place is a leaf. Two empty lists or maps are one: that keeps empty and null apart.
    fn one(&mut self, view: View<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        match view {
            View::Leaf => {}
            View::Map(object) => {
                let (lhs, rhs) = (map(old), map(new));
                if !(lhs.is_none_or(Map::is_empty) && rhs.is_none_or(Map::is_empty)) {
                    self.entries(object, lhs, rhs);
                    return false;
                }
            }
            View::List(array) => {
                let (lhs, rhs) = (list(old), list(new));
                if !(lhs.is_empty() && rhs.is_empty()) {
                    self.items(array, lhs, rhs);
                    return false;
                }
            }
        }
        self.leaf(old, new);
        true
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            (Some(old), Some(new)) if order(old, new).is_ne() => self.found.modified.insert(&self.path),
            (Some(_), Some(_)) => {}
        }
    }

    fn entries(&mut self, object: Option<&Object>, lhs: Option<&Map<String, Value>>, rhs: Option<&Map<String, Value>>) {
        let names: BTreeSet<&String> = lhs.into_iter().chain(rhs).flat_map(Map::keys).collect();
        for key in names {
            self.path.push(Element::field(key));
            let (old, new) = (lhs.and_then(|map| map.get(key)), rhs.and_then(|map| map.get(key)));
            self.both(entry_or_open(object, key), old, new);
            self.path.pop();
        }
    }

    /// Items with one name are compared as a whole with their likes.
    fn items(&mut self, array: &Array, lhs: &[Value], rhs: &[Value]) {
        let (old, new) = (by_name(array, lhs), by_name(array, rhs));
        let names: BTreeSet<&Element> = old.keys().chain(new.keys()).collect();
        for element in names {
            let none = Vec::new();
            let (before, after) = (old.get(element).unwrap_or(&none), new.get(element).unwrap_or(&none));
            self.path.push(element.clone());
            match (before.as_slice(), after.as_slice()) {
                ([] | [_], [] | [_]) => self.both(&array.items, before.first().copied(), after.first().copied()),
                ([_, _, ..], [_, _, ..]) => {
                    let is_same = |(one, other): (&&Value, &&Value)| order(one, other).is_eq();
                    if before.len() != after.len() || !before.iter().zip(after.iter()).all(is_same) {
                        self.found.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], rest) => {
                    rest.iter().for_each(|item| self.both(&array.items, None, Some(item)));
                    self.found.removed.insert(&self.path);
                }
                (rest, [_, _, ..]) => {
                    rest.iter().for_each(|item| self.both(&array.items, Some(item), None));
                    self.found.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
    }
}

fn by_name<'a>(array: &Array, items: &'a [Value]) -> BTreeMap<Element, Vec<&'a Value>> {
    let mut found: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = name(array, item) {
            found.entry(element).or_default().push(item);
        }
    }
    found
}
