//! The NetworkPolicy of a cluster. Its first members are not started without it; members that run already do not wait for it: a quota, a
//! rule of the installation or somebody else's object of that name leaves them as reachable as they were, which is told, and asked for
//! again now and then.

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{Error, Hand, Owner, label, owner_uid};
use crate::api;
use crate::build;
use crate::chain;
use crate::gather::Gathered;

/// What is wished of a policy that is to go.
const GONE: &str = "gone";

/// Makes the policy what it is to be.
pub(super) async fn raise(
    hand: &mut Hand<'_>,
    gathered: &Gathered,
    policy: &NetworkPolicy,
    owner: Owner<'_>,
) -> Result<(), Error> {
    let (name, wish) = (label(policy), build::digest(policy, "what a NetworkPolicy is to be")?);
    if gathered.stateful_sets.is_empty() {
        return hand.one(&gathered.network_policies, policy.clone(), owner, |_, _| ()).await;
    }
    if hand.repairs.refusal(&name, &wish, hand.now).is_none() {
        let written = hand.one(&gathered.network_policies, policy.clone(), owner, |_, _| ()).await;
        note(hand, &name, &wish, written)?;
    }
    tell(hand, &name, &wish, "written");
    Ok(())
}

/// Deletes policies of ours that are not asked for any more.
pub(super) async fn remove(
    hand: &mut Hand<'_>,
    gathered: &Gathered,
    wanted: Option<&NetworkPolicy>,
    owner: Owner<'_>,
) -> Result<(), Error> {
    let wanted = wanted.and_then(|policy| policy.metadata.name.as_ref());
    let idle = gathered.network_policies.iter().filter(|(name, _)| wanted != Some(name));
    for policy in idle.map(|(_, policy)| &**policy).filter(|policy| owner_uid(*policy) == Some(owner.uid)) {
        let name = label(policy);
        if hand.repairs.refusal(&name, GONE, hand.now).is_none() {
            let deleted = hand.kubernetes.delete(policy).await;
            hand.applied.deleted.extend(deleted.is_ok().then(|| name.clone()));
            note(hand, &name, GONE, deleted.map_err(Error::from))?;
        }
        tell(hand, &name, GONE, "deleted");
    }
    Ok(())
}

/// Remembers what cannot be done now.
///
/// # Errors
/// What says nothing of this object: it has changed, or this controller may not write or is at fault.
fn note(hand: &mut Hand<'_>, name: &str, wish: &str, outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error @ (Error::Foreign { .. } | Error::Api(api::Error::Refused { .. } | api::Error::Request { .. }))) => {
            hand.repairs.refused(name, wish.to_owned(), chain(&error), hand.now);
            Ok(())
        }
        other => other,
    }
}

fn tell(hand: &mut Hand<'_>, name: &str, wish: &str, done: &str) {
    if let Some(why) = hand.repairs.refusal(name, wish, hand.now) {
        let told = format!("{name} cannot be {done}, and members are reached as before: {why}");
        hand.applied.refused.push(told);
    }
}
