//! A primary without slots to which its first are on their way. Pure.
//!
//! What has moved is gone at the giver, and clients make new keys here: but for its own disk its replicas alone have that, as with an owner. So it does
//! not come back over them with less. But Redis elects nobody in its place (`clusterHandleSlaveFailover` asks for the slots of the primary), and makes no
//! replica of it by itself once somebody leads. So a replica takes over by itself, which gives it no slot that anybody could dispute, and gets the marks
//! of what was on its way.

use super::Facts;
use crate::identity::Identity;

/// Whether it owned nothing when it died, by its record and by all others: an older record may not know of slots that it has got since.
pub(super) fn owned_nothing(me: &Identity, facts: &Facts) -> bool {
    let mut told = facts.peers.values().flat_map(|peer| &peer.table);
    me.was_given_its_first() && !told.any(|line| line.id == me.id && !line.slots.is_empty())
}
