//! Whose a PersistentVolumeClaim is. A StatefulSet takes whatever has the name of a member's claim, and asks nobody: so before there is one,
//! or a larger one, the claims that its new members would get are looked at. Claims carry our labels, by which those that an earlier cluster
//! of this name left behind are found again, and are taken over as docs/operations.md says; whoever else's they are, they are left alone.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use types::names;

use super::{Error, Hand, label};
use crate::gather::{Gathered, shard_of};

/// What is wished of a StatefulSet whose new members' claims are somebody else's.
const MEMBERS: &str = "more members";

/// The StatefulSet as it may be written: without new members if one of them would get somebody else's volume; `None`: not at all.
pub(super) async fn admit(
    hand: &mut Hand<'_>,
    gathered: &Gathered,
    mut set: StatefulSet,
) -> Result<Option<StatefulSet>, Error> {
    let (Some(spec), Some(shard)) = (set.spec.as_ref(), shard_of(&set.metadata)) else { return Ok(Some(set)) };
    let live = gathered.stateful_set(shard).map(size);
    let new = live.unwrap_or(0)..size(&set);
    if spec.volume_claim_templates.as_ref().is_none_or(Vec::is_empty) || new.is_empty() {
        return Ok(Some(set));
    }
    let name = label(&set);
    let members = format!("members of {name}");
    if hand.repairs.refusal(&members, MEMBERS, hand.now).is_none() {
        let Some(why) = in_the_way(hand, gathered, shard, new).await? else { return Ok(Some(set)) };
        hand.repairs.refused(&members, MEMBERS.to_owned(), why, hand.now);
    }
    let why = hand.repairs.refusal(&members, MEMBERS, hand.now).unwrap_or_default();
    hand.applied.refused.push(format!("{name} gets no new member: {why}"));
    // What there is goes on, and is kept as it is to be.
    Ok(live.map(|live| {
        set.spec.iter_mut().for_each(|spec| spec.replicas = Some(i32::from(live)));
        set
    }))
}

fn size(set: &StatefulSet) -> u16 {
    let size = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    u16::try_from(size).unwrap_or(0)
}

/// The first of these members' claims that is there and not ours, and what to do.
async fn in_the_way(
    hand: &Hand<'_>,
    gathered: &Gathered,
    shard: u16,
    ordinals: std::ops::Range<u16>,
) -> Result<Option<String>, Error> {
    let key = gathered.key();
    for ordinal in ordinals {
        let name = names::claim(&key.name, shard, ordinal);
        // Caches hold what carries our labels; somebody else's claim does not.
        let claim = match gathered.claims.get(&name) {
            Some(claim) => Some((**claim).clone()),
            None => hand.kubernetes.named::<PersistentVolumeClaim>(&key.namespace, &name).await?,
        };
        if let Some(whose) = claim.and_then(|claim| foreign(&claim, &key.name, shard)) {
            let label = names::LABEL_CLUSTER;
            return Ok(Some(format!(
                "there is a PersistentVolumeClaim {name}, {whose}, and its member would use that volume. Delete the claim; or, if it \
                 holds what this cluster is to have, give it the labels {label}={} and {}={shard}; or call the RedisCluster otherwise",
                key.name,
                names::LABEL_SHARD,
            )));
        }
    }
    Ok(None)
}

/// Why a claim of that name is somebody else's; `None`: it is of this shard, as one of this cluster or of an earlier one of its name.
fn foreign(claim: &PersistentVolumeClaim, cluster: &str, shard: u16) -> Option<String> {
    let of = claim.metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_CLUSTER));
    let owner = claim
        .metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind != "StatefulSet" && owner.kind != "Pod");
    match (of, owner) {
        (None, _) => Some("which no RedisCluster has made".to_owned()),
        (Some(of), _) if of != cluster => Some(format!("which is of the RedisCluster {of}")),
        (Some(_), _) if shard_of(&claim.metadata) != Some(shard) => Some("which is of another shard".to_owned()),
        (Some(_), Some(owner)) => Some(format!("which belongs to the {} {}", owner.kind, owner.name)),
        (Some(_), None) => None,
    }
}

/// The place of the member whose claim this is; `None`: it is called or labelled otherwise, and nothing of it is ours to change.
pub(crate) fn place_of(claim: &PersistentVolumeClaim, cluster: &str) -> Option<(u16, u16)> {
    let (name, shard) = (claim.metadata.name.as_deref()?, shard_of(&claim.metadata)?);
    let ordinal = name.rsplit_once('-')?.1.parse().ok()?;
    let is_called_so = name == names::claim(cluster, shard, ordinal);
    (is_called_so && foreign(claim, cluster, shard).is_none()).then_some((shard, ordinal))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn claim(name: &str, metadata: &Value) -> PersistentVolumeClaim {
        let mut claim: PersistentVolumeClaim = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        claim.metadata.name = Some(name.to_owned());
        claim
    }

    fn labels(cluster: &str, shard: u16) -> Value {
        json!({names::LABEL_CLUSTER: cluster, names::LABEL_SHARD: shard.to_string()})
    }

    #[test]
    fn a_claim_is_ours_by_its_labels_unless_something_else_owns_it() {
        let owned = |kind: &str| json!({"labels": labels("orders", 1), "ownerReferences": [{"kind": kind, "name": "x", "apiVersion": "v1", "uid": "u"}]});
        let table = [
            (json!({"labels": labels("orders", 1)}), None),
            (owned("StatefulSet"), None),
            (owned("Pod"), None),
            (json!({}), Some("which no RedisCluster has made")),
            (json!({"labels": {"app": "postgres"}}), Some("which no RedisCluster has made")),
            (json!({"labels": labels("carts", 1)}), Some("which is of the RedisCluster carts")),
            (json!({"labels": labels("orders", 2)}), Some("which is of another shard")),
            (json!({"labels": {names::LABEL_CLUSTER: "orders"}}), Some("which is of another shard")),
            (owned("VirtualMachine"), Some("which belongs to the VirtualMachine x")),
        ];
        for (metadata, whose) in table {
            assert_eq!(foreign(&claim("data-orders-1-0", &metadata), "orders", 1).as_deref(), whose, "{metadata}");
        }
    }

    #[test]
    fn only_a_claim_that_is_called_as_a_members_is_one() {
        let ours = json!({"labels": labels("orders", 1)});
        let place = |name: &str| place_of(&claim(name, &ours), "orders");
        assert_eq!(place("data-orders-1-0"), Some((1, 0)));
        for name in ["data-orders-2-0", "scratch-orders-1-0", "data-orders-1-00", "data-orders-1-x", "mine"] {
            assert_eq!(place(name), None, "{name}");
        }
        assert_eq!(place_of(&claim("data-orders-1-0", &json!({})), "orders"), None);
    }
}
