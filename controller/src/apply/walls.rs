//! The NetworkPolicy of a cluster. Its first members are not started without it; members that run already do not wait for it: a quota, a
//! rule of the installation or somebody else's object of that name leaves them as reachable as they were, which is told, and asked for
//! again now and then.

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{Error, Hand, Owner, owner_uid};
use crate::gather::Gathered;

/// What is so while it is not what it should be.
pub(super) const AS_BEFORE: &str = ", and members are reached as before";

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
        hand.deleted(policy, AS_BEFORE).await?;
    }
    Ok(())
}
