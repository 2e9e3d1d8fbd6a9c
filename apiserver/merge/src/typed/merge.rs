//! One value over another: what the second says counts, what it leaves out stays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{View, entry_or_open, list, map, name};
use crate::fields::Element;
use crate::schema::{Array, Node};

/// Merges `new` over `old`. `None` if neither is there.
#[must_use]
pub fn merge(node: &Node, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    match View::of(node, new.or(old)) {
        View::Leaf => new.or(old).cloned(),
        View::Map(object) => {
            let (lhs, rhs) = (map(old), map(new));
            if lhs.is_none_or(Map::is_empty) && rhs.is_none_or(Map::is_empty) {
                return new.or(old).cloned();
            }
            let names: BTreeSet<&String> = lhs.into_iter().chain(rhs).flat_map(Map::keys).collect();
            let entry = |name: &String| {
                let (old, new) = (lhs.and_then(|map| map.get(name)), rhs.and_then(|map| map.get(name)));
                merge(entry_or_open(object, name), old, new).map(|value| (name.clone(), value))
            };
            Some(Value::Object(names.into_iter().filter_map(entry).collect()))
        }
        View::List(array) => {
            let (lhs, rhs) = (list(old), list(new));
            if lhs.is_empty() && rhs.is_empty() {
                return new.or(old).cloned();
            }
            Some(Value::Array(merge_items(array, lhs, rhs)))
        }
    }
}

/// The items of a list with their names.
struct Items<'a> {
    order: Vec<(Element, &'a Value)>,
    by_name: BTreeMap<Element, &'a Value>,
}

impl<'a> Items<'a> {
    /// Of items with one name none is merged with another's.
    fn of(array: &Array, items: &'a [Value]) -> Self {
        let named = items.iter().filter_map(|item| Some((name(array, item).ok()?, item)));
        let order: Vec<(Element, &Value)> = named.collect();
        let mut by_name: BTreeMap<Element, &Value> = BTreeMap::new();
        for (element, item) in &order {
            by_name.entry(element.clone()).and_modify(|known| *known = &Value::Null).or_insert(item);
        }
        Self { order, by_name }
    }

    fn get(&self, element: &Element) -> Option<&'a Value> {
        self.by_name.get(element).copied()
    }
}

/// The new order counts for the items both have; what only the old list has keeps its place among them.
fn merge_items(array: &Array, lhs: &[Value], rhs: &[Value]) -> Vec<Value> {
    let (old, new) = (Items::of(array, lhs), Items::of(array, rhs));
    let both = |element: &Element| merge(&array.items, old.get(element), new.get(element));
    let mut shared: VecDeque<&Element> =
        new.order.iter().map(|(element, _)| element).filter(|element| old.get(element).is_some()).collect();
    let mut next = shared.pop_front();
    let (mut out, mut taken) = (Vec::new(), BTreeSet::new());
    let (mut l, mut r) = (0, 0);
    loop {
        let (left, right) = (old.order.get(l), new.order.get(r).map(|(element, _)| element));
        match (left, right) {
            (None, None) => return out,
            (Some((element, _)), Some(right)) if element == right => {
                taken.insert(right);
                out.extend(both(right));
                (l, r) = (l + 1, r + 1);
                next = shared.pop_front();
                continue;
            }
            // Shared, but another one comes first.
            (Some((element, _)), Some(_)) if new.get(element).is_some() && next.is_some_and(|next| next != element) => {
                l += 1;
                continue;
            }
            (Some((element, item)), _) if new.get(element).is_none() => {
                out.extend(merge(&array.items, Some(item), None));
                l += 1;
                continue;
            }
            (Some((element, _)), _) if taken.contains(element) => l += 1,
            (Some(_) | None, _) => {}
        }
        if let Some(right) = right {
            taken.insert(right);
            out.extend(both(right));
            r += 1;
            if next == Some(right) {
                next = shared.pop_front();
            }
        }
    }
}
