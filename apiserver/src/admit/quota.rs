//! ResourceQuota, for counts of objects. Last of all admission: what is refused is never charged.
//!
//! As in Kubernetes, what counts is `status.used`, charged by compare-and-swap before the object is written, so that of
//! two creates at the limit one is refused. Where the status is not known, lags behind the spec, or says that nothing is
//! left, it is first computed anew: from the objects there are and those that are on their way, which the [`Ledger`]
//! knows until their writes are over. So a status that is too high (an object was deleted, a create failed after it was
//! charged) refuses nobody, and no two creates make one that is too low.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::count::Counts;
use super::{lifecycle, validate};
use crate::admission::{Attributes, Operation};
use crate::error::{Error, Result};

/// Resources that a quota may also name alone, as `pods`.
const BARE: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];
/// Most attempts to charge. Each lost race means that somebody else wrote the quota meanwhile.
const ATTEMPTS_MAX: usize = 100;

/// The resource and group that an entry of a quota counts; `None`: it counts something else than objects.
#[must_use]
pub fn counted(entry: &str) -> Option<(&str, &str)> {
    if BARE.contains(&entry) {
        return Some((entry, ""));
    }
    let of = entry.strip_prefix("count/")?;
    let (resource, group) = of.split_once('.').unwrap_or((of, ""));
    (!resource.is_empty()).then_some((resource, group))
}

/// A count: an integer that is not negative.
#[must_use]
pub fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A quota as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Version it was read in.
    pub revision: u64,
    /// Itself.
    pub object: Value,
}

/// Where quotas are, and what there is to count.
pub trait Quotas: Send + Sync {
    /// The quotas of a namespace, or all, by name, at least as new as every write acknowledged before the call.
    fn quotas<'a>(&'a self, namespace: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Quota>>>;

    /// The names of the objects of a resource in a namespace, as new; none of a resource that is not served.
    fn names<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<BTreeSet<String>>>;

    /// Writes a quota's status; false: it has changed since it was read.
    fn set_status<'a>(&'a self, quota: &'a Quota, status: Value) -> BoxFuture<'a, Result<bool>>;
}

/// An object on its way: group, resource, namespace, name.
type Key = (String, String, String, String);

/// What was charged and is not written yet. One per process.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Held while quotas are judged and charged, and while they are computed anew.
    turn: tokio::sync::Mutex<()>,
    underway: Arc<Mutex<BTreeMap<Key, usize>>>,
}

/// One object on its way, until it is dropped.
struct Underway(Arc<Mutex<BTreeMap<Key, usize>>>, Key);

impl Drop for Underway {
    fn drop(&mut self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.1) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                all.remove(&self.1);
            }
        }
    }
}

/// Counts by entry.
type Tally = BTreeMap<String, u64>;

fn tally(object: &Value, pointer: &str) -> Tally {
    let entries = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect()
}

/// What a quota says about a create that needs one of each of these entries.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is about something else.
    Elsewhere,
    /// Its status does not say what its spec asks.
    Stale,
    /// There is room: the status with one more.
    Room(Tally),
    /// There is none for these.
    Full(Vec<String>),
}

/// Judges one quota; pure.
fn judge(quota: &Value, wanted: &[String]) -> Verdict {
    let (spec, hard, used) = (tally(quota, "/spec/hard"), tally(quota, "/status/hard"), tally(quota, "/status/used"));
    let mine: Vec<&String> = wanted.iter().filter(|entry| spec.contains_key(*entry)).collect();
    if mine.is_empty() {
        return Verdict::Elsewhere;
    }
    if hard != spec || mine.iter().any(|entry| !used.contains_key(*entry)) {
        return Verdict::Stale;
    }
    let more = |entry: &String| used.get(entry).copied().unwrap_or(0).saturating_add(1);
    let is_full = |entry: &&&String| more(entry) > hard.get(**entry).copied().unwrap_or(0);
    let full: Vec<String> = mine.iter().filter(is_full).map(|entry| (*entry).clone()).collect();
    if !full.is_empty() {
        return Verdict::Full(full);
    }
    let mut charged = used.clone();
    for entry in mine {
        charged.insert(entry.clone(), more(entry));
    }
    Verdict::Room(charged)
}

/// The status a quota has with these counts.
fn status(quota: &Value, used: &Tally) -> Value {
    let text = |tally: &Tally| -> Map<String, Value> {
        tally.iter().map(|(entry, count)| (entry.clone(), json!(count.to_string()))).collect()
    };
    json!({"hard": text(&tally(quota, "/spec/hard")), "used": text(used)})
}

/// `a=1,b=2`, as messages show counts.
fn shown(entries: &[String], counts: impl Fn(&String) -> u64) -> String {
    let mut texts: Vec<String> = entries.iter().map(|entry| format!("{entry}={}", counts(entry))).collect();
    texts.sort();
    texts.join(",")
}

/// The entries that count an object of this resource.
fn entries(group: &str, resource: &str) -> Vec<String> {
    let mut entries =
        vec![if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") }];
    if group.is_empty() && BARE.contains(&resource) {
        entries.push(resource.to_owned());
    }
    entries
}

impl Ledger {
    /// Charges a create to every quota it concerns, or refuses it. A dry run is judged and not charged.
    pub(super) async fn charge(&self, attributes: &Attributes, quotas: &dyn Quotas, counts: &Counts) -> Result<()> {
        let (Operation::Create, None, Some(namespace)) =
            (attributes.operation, &attributes.subresource, &attributes.namespace)
        else {
            return Ok(());
        };
        let wanted = entries(&attributes.resource.group, &attributes.resource.name);
        let concerns =
            |quota: &Quota| wanted.iter().any(|entry| tally(&quota.object, "/spec/hard").contains_key(entry));
        if !quotas.quotas(Some(namespace)).await?.iter().any(concerns) {
            return Ok(());
        }
        let mut charged = BTreeSet::new();
        let mut held = None;
        for _ in 0..ATTEMPTS_MAX {
            let _turn = self.turn.lock().await;
            let mut writes = Vec::new();
            for quota in quotas.quotas(Some(namespace)).await? {
                if charged.contains(&quota.name) {
                    continue;
                }
                if let Some(used) = self.room(&quota, &wanted, attributes, quotas, counts).await? {
                    writes.push((quota, used));
                }
            }
            if attributes.dry_run {
                return Ok(());
            }
            // From here on the object counts, stored or not.
            held.get_or_insert_with(|| self.hold(attributes, namespace));
            let mut all_written = true;
            for (quota, used) in writes {
                if quotas.set_status(&quota, status(&quota.object, &used)).await? {
                    charged.insert(quota.name);
                } else {
                    all_written = false;
                }
            }
            if all_written {
                attributes.holds.keep(held);
                return Ok(());
            }
        }
        let name = lifecycle::shown_name(attributes, attributes.object.as_deref().unwrap_or(&Value::Null));
        Err(Error::Conflict {
            resource: crate::error::Qualified::new(&attributes.resource.group, &attributes.resource.name),
            name,
            message: "its quota changes too often to be charged".to_owned(),
            retry_after: Some(1),
        })
    }

    /// The counts of a quota with one more; `None`: it is about something else.
    async fn room(
        &self,
        quota: &Quota,
        wanted: &[String],
        attributes: &Attributes,
        quotas: &dyn Quotas,
        counts: &Counts,
    ) -> Result<Option<Tally>> {
        match judge(&quota.object, wanted) {
            Verdict::Elsewhere => return Ok(None),
            Verdict::Room(used) => return Ok(Some(used)),
            Verdict::Stale | Verdict::Full(_) => {}
        }
        let mut fresh = quota.object.clone();
        let used = self.count(quota, quotas).await?;
        if let Some(map) = fresh.as_object_mut() {
            map.insert("status".to_owned(), status(&quota.object, &used));
        }
        let full = match judge(&fresh, wanted) {
            Verdict::Room(used) => return Ok(Some(used)),
            Verdict::Elsewhere => return Ok(None),
            Verdict::Stale => wanted.to_vec(),
            Verdict::Full(full) => full,
        };
        counts.quota_refused(&quota.namespace, &quota.name);
        let hard = tally(&fresh, "/spec/hard");
        let of = |tally: &Tally, entry: &String| tally.get(entry).copied().unwrap_or(0);
        let why = format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota.name,
            shown(&full, |_| 1),
            shown(&full, |entry| of(&used, entry)),
            shown(&full, |entry| of(&hard, entry)),
        );
        let object = attributes.object.as_deref().unwrap_or(&Value::Null);
        Err(validate::forbidden(attributes, &lifecycle::shown_name(attributes, object), &why))
    }

    /// What there is and what is on its way, for every entry of a quota.
    async fn count(&self, quota: &Quota, quotas: &dyn Quotas) -> Result<Tally> {
        let mut used = Tally::new();
        for entry in tally(&quota.object, "/spec/hard").into_keys() {
            let Some((resource, group)) = counted(&entry) else { continue };
            // What is on its way is looked at first: what was written in between is in the store then.
            let mut names = self.underway(group, resource, &quota.namespace);
            names.extend(quotas.names(group, resource, &quota.namespace).await?);
            used.insert(entry, u64::try_from(names.len()).unwrap_or(u64::MAX));
        }
        Ok(used)
    }

    fn underway(&self, group: &str, resource: &str, namespace: &str) -> BTreeSet<String> {
        let all = self.underway.lock().unwrap_or_else(PoisonError::into_inner);
        let is_here = |(own_group, own_resource, own_namespace, _): &&Key| {
            own_group == group && own_resource == resource && own_namespace == namespace
        };
        all.keys().filter(is_here).map(|(_, _, _, name)| name.clone()).collect()
    }

    fn hold(&self, attributes: &Attributes, namespace: &str) -> Underway {
        let (group, resource) = (attributes.resource.group.clone(), attributes.resource.name.clone());
        let key = (group, resource, namespace.to_owned(), attributes.name.clone());
        let mut all = self.underway.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        Underway(Arc::clone(&self.underway), key)
    }

    /// Brings the status of every quota up to date: what was deleted no longer counts.
    pub(super) async fn refresh(&self, quotas: &dyn Quotas) -> Result<()> {
        for listed in quotas.quotas(None).await? {
            let _turn = self.turn.lock().await;
            let now = quotas.quotas(Some(&listed.namespace)).await?;
            let Some(quota) = now.into_iter().find(|quota| quota.name == listed.name) else { continue };
            let fresh = status(&quota.object, &self.count(&quota, quotas).await?);
            if quota.object.get("status") != Some(&fresh) {
                // Whoever was faster will be seen the next time.
                quotas.set_status(&quota, fresh).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(spec: &Value, hard: &Value, used: &Value) -> Value {
        json!({"spec": {"hard": spec}, "status": {"hard": hard, "used": used}})
    }

    #[test]
    fn entries_name_what_they_count() {
        assert_eq!(counted("count/redisclusters.redis.kun.io"), Some(("redisclusters", "redis.kun.io")));
        assert_eq!(counted("count/pods"), Some(("pods", "")));
        assert_eq!(counted("pods"), Some(("pods", "")));
        assert_eq!((counted("requests.cpu"), counted("count/"), counted("cpu")), (None, None, None));
        assert_eq!(entries("", "pods"), ["count/pods", "pods"]);
        assert_eq!(entries("redis.kun.io", "redisclusters"), ["count/redisclusters.redis.kun.io"]);
    }

    #[test]
    fn a_quota_has_room_is_full_or_does_not_know() {
        let wanted = entries("", "pods");
        let two = json!({"pods": "2"});
        let judged = |used: &Value| judge(&quota(&two, &two, used), &wanted);
        assert_eq!(judged(&json!({"pods": "1"})), Verdict::Room(Tally::from([("pods".to_owned(), 2)])));
        assert_eq!(judged(&json!({"pods": 2})), Verdict::Full(vec!["pods".to_owned()]));
        assert_eq!(judged(&json!({})), Verdict::Stale);
        assert_eq!(judge(&quota(&two, &json!({"pods": "3"}), &json!({"pods": "0"})), &wanted), Verdict::Stale);
        assert_eq!(judge(&quota(&json!({"secrets": 1}), &json!({}), &json!({})), &wanted), Verdict::Elsewhere);
        let none = json!({"pods": 0, "count/pods": 0});
        let full = Verdict::Full(vec!["count/pods".to_owned(), "pods".to_owned()]);
        assert_eq!(judge(&quota(&none, &none, &none), &wanted), full);
    }
}
