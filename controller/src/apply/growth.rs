//! Raises the size of existing claims; Kubernetes grows the volumes. Claims never shrink.
//!
//! Nothing waits for a volume to grow, so a class that cannot grow, or a quota that is used up, keeps nothing else from being done: it is
//! told, and asked for again now and then.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use tokio::time;

use super::{Error, Hand, claims, label};
use crate::gather::{Gathered, asks_for};
use crate::resolve::Resolved;

/// Asks for as many as are granted, and for no more after the first refusal: the next round goes on with the next claim.
pub(super) async fn grow(hand: &mut Hand<'_>, gathered: &Gathered, resolved: &Resolved) -> Result<(), Error> {
    let Some(volume) = &resolved.storage else { return Ok(()) };
    let is_small = |claim: &&PersistentVolumeClaim| asks_for(claim).is_some_and(|size| size.bytes() < volume.bytes);
    let is_members = |claim: &&PersistentVolumeClaim| claims::place_of(claim, &resolved.key.name).is_some();
    let small: Vec<_> = gathered.claims.values().map(Arc::as_ref).filter(is_members).filter(is_small).collect();
    if small.is_empty() {
        hand.repairs.forget_refusals("PersistentVolumeClaim");
    }
    let mut left = small.len();
    for live in &small {
        let name = label(*live);
        if hand.repairs.refusal(&name, &volume.size, hand.now).is_some() {
            continue;
        }
        if hand.has_asked_enough() {
            hand.applied.put_off.push(name);
            break;
        }
        // A claim was made by the StatefulSet controller: of it only this is ours.
        let grown = json!({"spec": {"resources": {"requests": {"storage": volume.size}}}});
        let begun = time::Instant::now();
        match hand.kubernetes.patch("growing", *live, grown).await.map_err(Error::from) {
            Ok(_) => {
                left = left.saturating_sub(1);
                hand.applied.changed.push(name);
            }
            Err(error) if error.is_of_one_object() => {
                hand.refused(&name, volume.size.clone(), &error, begun);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(why) = small.iter().find_map(|live| hand.repairs.refusal(&label(*live), &volume.size, hand.now)) {
        hand.applied.refused.push(format!("{left} claims do not grow to {}; the first: {why}", volume.size));
    }
    Ok(())
}
