//! Raises the size of existing claims; Kubernetes grows the volumes. Claims never shrink.
//!
//! Nothing waits for a volume to grow, so a class that cannot grow, or a quota that is used up, keeps nothing else from being done: it is
//! told, and asked for again now and then.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::{Applied, Error, Repairs, claims, label};
use crate::api::Kubernetes;
use crate::chain;
use crate::gather::{Gathered, asks_for};
use crate::resolve::Resolved;

/// Asks for as many as are granted, and for no more after the first refusal: the next round goes on with the next claim.
pub(super) async fn grow(
    kubernetes: &Kubernetes,
    gathered: &Gathered,
    resolved: &Resolved,
    (repairs, now): (&mut Repairs, Instant),
    applied: &mut Applied,
) -> Result<(), Error> {
    let Some(volume) = &resolved.storage else { return Ok(()) };
    let is_small = |claim: &&PersistentVolumeClaim| asks_for(claim).is_some_and(|size| size.bytes() < volume.bytes);
    let is_members = |claim: &&PersistentVolumeClaim| claims::place_of(claim, &resolved.key.name).is_some();
    let small: Vec<_> = gathered.claims.values().map(Arc::as_ref).filter(is_members).filter(is_small).collect();
    if small.is_empty() {
        repairs.forget_refusals("PersistentVolumeClaim");
    }
    let mut left = small.len();
    for live in &small {
        let name = label(*live);
        if repairs.refusal(&name, &volume.size, now).is_some() {
            continue;
        }
        // A claim was made by the StatefulSet controller: of it only this is ours.
        let grown = json!({"spec": {"resources": {"requests": {"storage": volume.size}}}});
        match kubernetes.patch("growing", *live, grown).await {
            Ok(_) => {
                left = left.saturating_sub(1);
                applied.changed.push(name);
            }
            Err(error) if error.is_refusal() => {
                repairs.refused(&name, volume.size.clone(), chain(&error), now);
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(why) = small.iter().find_map(|live| repairs.refusal(&label(*live), &volume.size, now)) {
        applied.refused.push(format!("{left} claims do not grow to {}; the first: {why}", volume.size));
    }
    Ok(())
}
