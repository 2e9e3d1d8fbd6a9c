//! Writing one object after the other. Of a cluster that runs, one that cannot be written stops no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::json;
use tokio::time;

use super::{Applied, Error, Owner, Repairs, annotation, differs, label, owner_uid, owners, value};
use crate::api::{self, FIELD_MANAGER, Kubernetes};
use crate::build::{self, ANNOTATION_DIGEST};
use crate::cache::Cached;
use crate::chain;

/// How long one look may ask in vain before it leaves the rest to the next: webhooks of others that say nothing take many seconds each, in which
/// nobody looks after the members.
const IN_VAIN_MOST: Duration = Duration::from_secs(5);

/// What is wished of an object that is to go.
const GONE: &str = "gone";
/// What is wished of one that the caches do not show.
const SEEN: &str = "seen";

/// What it takes to write one object after the other.
pub(super) struct Hand<'a> {
    pub(super) kubernetes: &'a Kubernetes,
    pub(super) repairs: &'a mut Repairs,
    pub(super) now: Instant,
    /// The cluster has StatefulSets.
    runs: bool,
    /// How long was asked for what was refused.
    in_vain: Duration,
    pub(super) applied: Applied,
}

impl<'a> Hand<'a> {
    pub(super) fn new(kubernetes: &'a Kubernetes, repairs: &'a mut Repairs, now: Instant, runs: bool) -> Self {
        Self { kubernetes, repairs, now, runs, in_vain: Duration::ZERO, applied: Applied::default() }
    }

    /// As [`Hand::one`], but for a cluster that runs: what cannot be written now is told, with what `then` is so, and asked for again after a pause.
    /// Says whether the object is as it should be.
    pub(super) async fn tried<K: Cached>(
        &mut self,
        live: &BTreeMap<String, Arc<K>>,
        desired: &K,
        owner: Owner<'_>,
        keep: fn(&mut K, &K),
        then: &str,
    ) -> Result<bool, Error> {
        let name = label(desired);
        let wish = if self.repairs.is_refused(&name) { Some(digest(desired)?) } else { None };
        let is_asked = wish.as_ref().is_none_or(|wish| self.repairs.refusal(&name, wish, self.now).is_none());
        if !self.runs || is_asked {
            let begun = time::Instant::now();
            match self.one(live, desired, owner, keep).await {
                // What was said of it last is told until it is asked for again.
                Ok(()) if self.applied.put_off.contains(&name) => {}
                Ok(()) => {
                    self.repairs.granted(&name);
                    return Ok(true);
                }
                Err(error) if self.runs && error.is_of_one_object() => {
                    self.refused(&name, digest(desired)?, &error, begun);
                }
                Err(error) => return Err(error),
            }
        }
        self.tell(&name, &digest(desired)?, "written", then);
        Ok(false)
    }

    /// Deletes an object of ours, or tells why not.
    pub(super) async fn deleted<K: Cached>(&mut self, object: &K, then: &str) -> Result<(), Error> {
        let name = label(object);
        if self.repairs.refusal(&name, GONE, self.now).is_none() {
            let begun = time::Instant::now();
            if self.has_asked_enough() {
                self.applied.put_off.push(name.clone());
            } else {
                match self.kubernetes.delete(object).await.map_err(Error::from) {
                    Ok(()) => {
                        self.repairs.granted(&name);
                        self.applied.deleted.push(name);
                        return Ok(());
                    }
                    Err(error) if error.is_of_one_object() => self.refused(&name, GONE.to_owned(), &error, begun),
                    Err(error) => return Err(error),
                }
            }
        }
        self.tell(&name, GONE, "deleted", then);
        Ok(())
    }

    /// This look leaves the rest to the next.
    pub(super) fn has_asked_enough(&self) -> bool {
        self.in_vain >= IN_VAIN_MOST
    }

    /// What was asked for since `begun` was refused. The pause begins now, by seconds: else it would be over as soon as this look.
    pub(super) fn refused(&mut self, name: &str, wish: String, error: &Error, begun: time::Instant) {
        self.in_vain = self.in_vain.saturating_add(begun.elapsed());
        let at = self.now + Duration::from_secs(self.in_vain.as_secs());
        self.repairs.refused(name, wish, chain(error), at);
    }

    /// Tells what was said of this wish last, if it was asked for.
    fn tell(&mut self, name: &str, wish: &str, done: &str, then: &str) {
        if let Some(why) = self.repairs.why(name, wish) {
            self.applied.refused.push(format!("{name} cannot be {done}{then}: {why}"));
        }
    }

    /// Creates or changes one object. `keep` carries over what the live object has and may not be changed here.
    pub(super) async fn one<K: Cached>(
        &mut self,
        live: &BTreeMap<String, Arc<K>>,
        desired: &K,
        owner: Owner<'_>,
        keep: fn(&mut K, &K),
    ) -> Result<(), Error> {
        let label = label(desired);
        let live = live.get(desired.meta().name.as_deref().unwrap_or_default());
        if let Some(live) = live
            && owner_uid(&**live) != Some(owner.uid)
            && !owner.inherits
        {
            return Err(foreign(&**live));
        }
        let Some(live) = live else {
            if self.has_asked_enough() {
                self.applied.put_off.push(label);
                return Ok(());
            }
            return self.create(desired, owner, label).await;
        };
        let mut next = desired.clone();
        keep(&mut next, live);
        if !differs(&next, &**live)? {
            return Ok(());
        }
        let wish = digest(desired)?;
        if self.has_asked_enough() || !self.repairs.may(&label, &wish, self.now) {
            self.applied.put_off.push(label);
            return Ok(());
        }
        let is_drift = annotation(desired, ANNOTATION_DIGEST) == annotation(&**live, ANNOTATION_DIGEST);
        let others = change(self.kubernetes, next, live).await?;
        self.repairs.made(&label, wish, self.now);
        if is_drift && !others.is_empty() {
            self.applied.repaired.push(format!("{label}, which had been changed by {}", others.join(", ")));
        }
        self.applied.changed.push(label);
        Ok(())
    }

    /// Not by an apply: that would take over an object of somebody else, which caches of what carries our labels do not show.
    async fn create<K: Cached>(&mut self, desired: &K, owner: Owner<'_>, label: String) -> Result<(), Error> {
        let changed = match self.kubernetes.create(desired).await {
            Ok(_) => {
                self.applied.created.push(label);
                return Ok(());
            }
            Err(changed @ api::Error::Changed { .. }) => changed,
            Err(error) => return Err(error.into()),
        };
        let meta = desired.meta();
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        match self.kubernetes.live::<K>(namespace, name).await? {
            Some(live) if owner_uid(&live) != Some(owner.uid) => Err(foreign(&live)),
            Some(live) if !carries_labels(&live, desired) => self.show(desired, &live, label).await,
            // It is on its way to the caches, or has gone again.
            Some(_) | None => Err(changed.into()),
        }
    }

    /// Gives an object of ours its labels back, by which alone the caches see it. Nothing else: what it is to be was computed without it, as
    /// new passwords are where nobody sees those in use. The next look sees it.
    async fn show<K: Cached>(&mut self, desired: &K, live: &K, label: String) -> Result<(), Error> {
        let hidden =
            Error::Hidden { kind: K::kind(&()).into_owned(), name: desired.meta().name.clone().unwrap_or_default() };
        let labels = format!("labels of {label}");
        let may = self.repairs.may(&labels, SEEN, self.now);
        if may {
            let ours = json!({"metadata": {"labels": desired.meta().labels}});
            let after = self.kubernetes.patch("labelling", live, ours).await?;
            self.repairs.made(&labels, SEEN.to_owned(), self.now);
            if !carries_labels(&after, desired) {
                return Err(hidden);
            }
            let others = owners::taken_from(FIELD_MANAGER, fields(live), fields(&after));
            if !others.is_empty() {
                self.applied.repaired.push(format!("{labels}, which had been changed by {}", others.join(", ")));
            }
        }
        if !hidden.is_of_one_object() {
            return Err(hidden);
        }
        if may {
            self.applied.changed.push(label.clone());
        }
        // Of what else it should be nothing is written yet.
        self.applied.put_off.push(label);
        Ok(())
    }
}

/// Whether it has all labels that are asked for.
fn carries_labels<K: Cached>(live: &K, desired: &K) -> bool {
    let has = live.meta().labels.as_ref();
    desired.meta().labels.iter().flatten().all(|(name, value)| has.and_then(|has| has.get(name)) == Some(value))
}

/// Who owns what of an object.
fn fields<K: Cached>(object: &K) -> &[ManagedFieldsEntry] {
    object.meta().managed_fields.as_deref().unwrap_or_default()
}

fn digest<K: Cached>(desired: &K) -> Result<String, Error> {
    Ok(build::digest(desired, "what an object is to be")?)
}

/// Applies an object to the one that the caches show, and says from which other managers fields were taken.
///
/// Caches do not hold who owns what, so it is read; if there is another version by now, what was computed from the one in the caches
/// is worth nothing. What we own by other requests than applies is counted as applied first: at the first change, not when the object
/// is created, for most are never changed. If we end between the two writes, only a list of owners has changed, and what differs still does.
async fn change<K: Cached>(kubernetes: &Kubernetes, mut desired: K, cached: &K) -> Result<Vec<String>, Error> {
    let mut live = kubernetes.whole(cached).await?;
    let before = fields(&live).to_vec();
    if let Some(entries) = owners::as_applied(FIELD_MANAGER, &before) {
        let owned = json!({"metadata": {"managedFields": entries}});
        live = kubernetes.patch("taking over what we wrote of", &live, owned).await?;
    }
    let (meta, base) = (desired.meta_mut(), live.meta());
    (meta.uid, meta.resource_version) = (base.uid.clone(), base.resource_version.clone());
    let after = match kubernetes.apply(&desired).await {
        // Somebody gave an item of ours another key, as a port another number: it is his item now, which an apply leaves in place, and
        // both of one name are refused. Lists are ours as a whole then.
        Err(error) if error.is_duplicate() => {
            let whole = value(&desired)?;
            kubernetes.patch("replacing the lists of", &live, whole).await?
        }
        answer => answer?,
    };
    Ok(owners::taken_from(FIELD_MANAGER, &before, fields(&after)))
}

fn foreign<K: Cached>(live: &K) -> Error {
    let owner = owner_uid(live).map_or_else(|| "somebody else".to_owned(), |uid| format!("the RedisCluster {uid}"));
    let name = live.meta().name.clone().unwrap_or_default();
    Error::Foreign { kind: K::kind(&()).into_owned(), name, owner }
}
