//! What must hold of every object, whoever wrote it: all faults at once, each with its field path and the numbers.
//!
//! The API server enforces this itself, with or without the webhook. What depends on other objects, on measurements or
//! on a policy is the webhook's business and is not known here.

mod backup;
mod cluster;
mod network;
mod operation;
mod placement;
mod policy;
mod selector;
mod text;
mod update;

pub use backup::backup;
pub use cluster::{MEMBERS_MAX, REPLICAS_MAX, SHARDS_MAX, SHARDS_MIN_CLUSTER, cluster};
pub use operation::operation;
pub use policy::policy;
pub use text::{is_label, is_subdomain};
pub use update::{backup_update, cluster_update, deletable, operation_update};

use std::ops::RangeInclusive;

use crate::{
    duration,
    field::{Fault, Path},
    quantity::Quantity,
};

/// Longest name of an object: a DNS subdomain.
const NAME_MAX: usize = 253;
/// Longest time to live: a mistake of unit, if longer.
const TTL_HOURS_MAX: u64 = 24 * 3660;

/// Collects the faults of one object.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    fn range(&mut self, path: Path, number: i32, range: &RangeInclusive<i32>, why: &str) {
        if !range.contains(&number) {
            let (least, most) = (range.start(), range.end());
            self.push(Fault::invalid(path, number, format!("must be from {least} to {most}: {why}")));
        }
    }

    /// A quantity that is legible and not negative; a fault otherwise.
    fn quantity(&mut self, path: &Path, text: &str) -> Option<Quantity> {
        match Quantity::parse(text) {
            Ok(quantity) if quantity.is_negative() => {
                self.push(Fault::invalid(path.clone(), text, "must not be negative"));
                None
            }
            Ok(quantity) => Some(quantity),
            Err(error) => {
                self.push(Fault::invalid(path.clone(), text, error.to_string()));
                None
            }
        }
    }

    /// As [`Self::quantity`], at least `least` bytes.
    fn bytes(&mut self, path: &Path, text: &str, least: u64, why: &str) -> Option<u64> {
        let bytes = self.quantity(path, text)?.bytes();
        if bytes < least {
            let least = Quantity::from_bytes(least);
            self.push(Fault::invalid(path.clone(), text, format!("must be at least {least}: {why}")));
            return None;
        }
        Some(bytes)
    }

    fn ttl(&mut self, path: Path, text: Option<&str>) {
        let Some(text) = text else { return };
        match duration::parse(text) {
            Ok(span) if span.as_secs() > TTL_HOURS_MAX * 3600 => {
                self.push(Fault::invalid(path, text, format!("must be at most {TTL_HOURS_MAX}h")));
            }
            Ok(_) => {}
            Err(error) => self.push(Fault::invalid(path, text, error.to_string())),
        }
    }

    /// A name of another object.
    fn reference(&mut self, path: Path, name: &str) {
        if name.is_empty() {
            self.push(Fault::required(path, "must be the name of an object of the same namespace"));
        } else if name.len() > NAME_MAX {
            self.push(Fault::too_long(path, NAME_MAX));
        } else if !is_subdomain(name) {
            self.push(Fault::invalid(path, name, text::SUBDOMAIN));
        }
    }

    /// Every item of a list that is not too long.
    fn each<T>(&mut self, path: &Path, items: &[T], judge: impl Fn(&mut Self, &Path, &T)) {
        if items.len() > placement::ENTRIES_MAX {
            self.push(Fault::too_many(path.clone(), items.len(), placement::ENTRIES_MAX));
            return;
        }
        for (at, item) in items.iter().enumerate() {
            judge(self, &path.index(at), item);
        }
    }

    /// What [`crate::label`] finds in a text.
    fn words(&mut self, path: &Path, text: &str, found: Vec<String>) {
        for fault in found {
            self.push(Fault::invalid(path.clone(), text, fault));
        }
    }

    /// A text for people.
    fn prose(&mut self, path: Path, prose: Option<&str>, most: usize) {
        let Some(prose) = prose else { return };
        if prose.len() > most {
            self.push(Fault::too_long(path, most));
        } else if prose.chars().any(char::is_control) {
            self.push(Fault::invalid(path, prose, "must not contain control characters"));
        }
    }
}

#[cfg(test)]
mod tests;
