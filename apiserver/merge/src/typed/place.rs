//! The places a value has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{OPEN, View, entry_or_open, is_field, list, map, name};
use crate::fields::{Element, Set};
use crate::schema::Node;

/// Every place of a value that can be owned: leaves, entries of maps, items of lists.
#[must_use]
pub fn places(node: &Node, value: &Value) -> Set {
    let mut set = Set::default();
    walk(node, value, &mut Vec::new(), &mut set);
    set
}

fn walk(node: &Node, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    match View::of(node, Some(value)) {
        View::Leaf => set.insert(path),
        View::Map(object) => {
            for (key, value) in map(Some(value)).into_iter().flatten() {
                path.push(Element::field(key));
                walk(entry_or_open(object, key), value, path, set);
                let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if is_empty || !is_field(object, key) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        View::List(array) => {
            let mut count: BTreeMap<Element, usize> = BTreeMap::new();
            let items = list(Some(value)).iter().filter_map(|item| Some((name(array, item).ok()?, item)));
            let items: Vec<(Element, &Value)> = items.collect();
            items.iter().for_each(|(element, _)| *count.entry(element.clone()).or_default() += 1);
            for (element, item) in items {
                // Of items with one name, only that there are some.
                let is_single = count.get(&element) == Some(&1);
                path.push(element);
                if is_single {
                    walk(&array.items, item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// The same set, and of each field of the schema that something is owned below: the field itself.
#[must_use]
pub fn named(node: &Node, set: &Set) -> Set {
    let mut out = Set::default();
    walk_named(node, set, &mut Vec::new(), &mut out);
    out
}

fn walk_named(node: &Node, set: &Set, path: &mut Vec<Element>, out: &mut Set) {
    let (members, children) = set.parts();
    let fields = |element: &&Element| {
        let (View::Map(object), Element::Field(name)) = (View::of(node, None), element) else { return false };
        is_field(object, name)
    };
    let all: BTreeSet<&Element> = members.iter().chain(children.keys().filter(fields)).collect();
    for element in all {
        path.push(element.clone());
        out.insert(path);
        path.pop();
    }
    for (element, child) in children {
        let below = match (View::of(node, None), element) {
            (View::Map(object), Element::Field(name)) => entry_or_open(object, name),
            (View::List(array), Element::Key(_)) => &array.items,
            (View::Map(_), Element::Key(_) | Element::Value(_) | Element::Index(_))
            | (View::List(_), Element::Field(_) | Element::Value(_) | Element::Index(_))
            | (View::Leaf, _) => &OPEN,
        };
        path.push(element.clone());
        walk_named(below, child, path, out);
        path.pop();
    }
}
