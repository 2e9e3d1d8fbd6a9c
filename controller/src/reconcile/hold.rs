//! Where what exists does not belong to what the API server shows: nothing is touched, and it is said, once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use types::RedisCluster;

use super::{Context, Error, has_finalizer, pace};
use crate::delete;
use crate::events::Tone;
use crate::gather::{Gathered, gather};
use crate::metrics::Metrics;
use crate::queue::{Key, Next};
use crate::report::{Urgency, set_aside, urgency};
use crate::standing::{Sets, Standing, standing};

/// What is held back now. Bounded by the number of clusters that exist or have children.
#[derive(Debug, Default)]
pub struct Held {
    all: Mutex<BTreeMap<Key, Standing>>,
}

impl Held {
    /// Notes how a cluster stands; says whether that is news.
    fn note(&self, metrics: &Metrics, key: &Key, standing: Standing) -> bool {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match standing {
            Standing::Ours => all.remove(key),
            Standing::Absent { .. } | Standing::Another { .. } | Standing::Behind { .. } => {
                all.insert(key.clone(), standing.clone())
            }
        };
        let mut counts = BTreeMap::new();
        for held in all.values() {
            let count: &mut i64 = counts.entry(held.reason()).or_default();
            *count = count.saturating_add(1);
        }
        metrics.held(&counts);
        before.unwrap_or(Standing::Ours) != standing
    }
}

/// What exists of one RedisCluster, if it is there and all of that belongs to it.
pub(super) fn gather_ours(context: &Context, key: &Key) -> Result<Option<Gathered>, Error> {
    let gathered = gather(&context.kubernetes.caches, key)?;
    Ok(gathered.filter(|gathered| standing(Some(&gathered.cluster), &gathered.stateful_sets) == Standing::Ours))
}

/// Whether a cluster must be left alone; `Some`: nothing is done for it in this round. Objects reach the caches in any
/// order, so what speaks against a cluster is looked up in the API server before it is believed.
pub(super) async fn hold(context: &Context, key: &Key, gathered: Option<&Gathered>) -> Result<Option<Next>, Error> {
    let owner = gathered.map(|gathered| &*gathered.cluster);
    let sets = match gathered {
        Some(gathered) => gathered.stateful_sets.clone(),
        None => context.kubernetes.caches.stateful_sets.of(key),
    };
    let seen = standing(owner, &sets);
    let Some(witness) = seen.witness() else {
        if context.held.note(&context.metrics, key, Standing::Ours) {
            tracing::info!(cluster = %key, "what exists of it belongs to it again");
        }
        return Ok(None);
    };
    let (owner, sets) = look(context, key, sets, witness).await?;
    if standing(owner.as_ref(), &sets) != seen {
        return Ok(Some(Next::After(pace::AGAIN)));
    }
    let is_news = context.held.note(&context.metrics, key, seen.clone());
    tell(context, key, owner.as_ref(), &sets, &seen, is_news).await?;
    if let (Standing::Another { .. }, Some(owner)) = (&seen, &owner)
        && is_going(owner)
    {
        // Nothing was made for it, so nothing is left to do before it goes.
        delete::let_go(&context.kubernetes, owner).await?;
    }
    Ok(Some(Next::After(pace::HELD)))
}

/// The object and the StatefulSet that speaks against it, as the API server has them; of the others what was seen.
async fn look(
    context: &Context,
    key: &Key,
    mut sets: Sets,
    witness: &str,
) -> Result<(Option<RedisCluster>, Sets), Error> {
    let owner = context.kubernetes.live::<RedisCluster>(&key.namespace, &key.name).await?;
    match context.kubernetes.live::<StatefulSet>(&key.namespace, witness).await? {
        Some(set) => sets.insert(witness.to_owned(), Arc::new(set)),
        None => sets.remove(witness),
    };
    Ok((owner, sets))
}

/// Says it in the log and in an event when it is news, and on the object if there is one.
async fn tell(
    context: &Context,
    key: &Key,
    owner: Option<&RedisCluster>,
    sets: &Sets,
    standing: &Standing,
    is_news: bool,
) -> Result<(), Error> {
    let (reason, sentence) = (standing.reason(), standing.sentence(key));
    if is_news {
        tracing::warn!(cluster = %key, reason, "{sentence}");
        match (owner, standing.witness().and_then(|witness| sets.get(witness))) {
            (Some(owner), _) => context.events.tell(owner, Tone::Warning, reason, &sentence),
            (None, Some(set)) => context.events.tell(&**set, Tone::Warning, reason, &sentence),
            (None, None) => {}
        }
    }
    // One that goes at once is gone before anybody reads it.
    let goes_now = |owner: &&RedisCluster| is_going(owner) && matches!(standing, Standing::Another { .. });
    let Some(owner) = owner.filter(|owner| !goes_now(owner)) else { return Ok(()) };
    let status = set_aside(owner, reason, &sentence, Timestamp::now());
    if urgency(owner.status.as_ref(), &status, Duration::MAX) != Urgency::Never {
        context.kubernetes.replace_status(&RedisCluster { status: Some(status), ..owner.clone() }).await?;
    }
    Ok(())
}

fn is_going(owner: &RedisCluster) -> bool {
    owner.metadata.deletion_timestamp.is_some() && has_finalizer(owner)
}
