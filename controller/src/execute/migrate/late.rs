//! Commands of before that may still be carried out.
//!
//! MIGRATE is one command of the source's only thread, which serves nobody else until the target has answered or its time is up. A
//! connection that is given up (the controller died, a deadline passed) may still hold some: Redis carries out what it has read of a client
//! before it sees that the client has gone, and what it has not read yet when it gets to it.
//!
//! - **The source still owns the slot, in the same process.** Such a command does no harm. Whatever the source answers over another
//!   connection it answers between two commands, so none is half done then. One that comes later finds a key at the source, and then
//!   its copy is the truth (`migrate`, 1 and 3), or finds none (NOKEY). A slot that was handed over has no key there, and never gets one.
//!   If it has come back since, the target has no mark and answers MOVED, or is being sent just these keys.
//! - **The process has ended.** With it went what it had read, and what its sockets held.
//! - **The source stood still, and a replica of it was elected.** It goes on where it was as soon as it wakes up, before it hears that it
//!   has been replaced: it sends keys as they were when it stopped, with REPLACE maybe, to a target that imports the slot or owns it. What
//!   clients have written there meanwhile is overwritten, and what they have deleted comes back. Nothing at the target prevents that: Redis opens a
//!   new connection where its own has been closed. So a slot of the heir waits until it is proven that its former owner does nothing of
//!   the kind any more: it has ended, or answers as a replica, or as a primary without the slot, either of which refuses MIGRATE (READONLY, MOVED). What
//!   has moved already is served meanwhile, by marks, and each key that the heir has is served by the heir alone: a late copy of it is
//!   replaced when that key moves. What nobody has begun to move is not begun.
//!
//! - **The target stood still with `SETSLOT … NODE` unread, and a replica of it was elected.** As it wakes up it takes a new epoch, without votes:
//!   one more than the newest that it had heard of, so none above that with which its heir was elected, but the same maybe. Of two with one
//!   epoch Redis raises the one with the lower ID, and if that is the former primary, it has all slots of its shard again, with the data
//!   of before the election. So an heir whose predecessor is silent is raised above the epoch with which it was first seen (`Step::RaiseEpoch`),
//!   which is the same for `BUMPEPOCH`.
//!
//! Who was the owner is in the tables: a node that has been replaced stays a primary there, without slots, until it says itself that it
//! follows; and the target's mark names from whom it imports until we mark it anew.
//!
//! What remains: a key that clients make under the marks, at the target, while the former owner stands still with a command about that
//! key's predecessor; a former primary that wakes up before its heir is raised, which takes two or three looks after the election; and a
//! process of which Kubernetes says that it has ended, and which runs on.

use plan::{NodeId, Open};

use super::Table;

/// Who of these may have been the owner of slots that are half moved, by the tables of both ends. Pure.
pub(super) fn former(unproven: &[NodeId], ends: [&Table; 2]) -> Option<NodeId> {
    let gives = |table: &Table, id: NodeId| table.open.values().any(|mark| *mark == Open::Importing(id));
    let may = |id: &NodeId| ends.iter().any(|table| table.primaries.contains(id) || gives(table, *id));
    unproven.iter().copied().find(may)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use plan::SlotSet;

    use super::*;
    use crate::testing::id;

    fn table(primaries: &[NodeId], open: &[(u16, Open)]) -> Table {
        Table {
            mine: SlotSet::EMPTY,
            theirs: SlotSet::EMPTY,
            epochs: BTreeMap::new(),
            primaries: BTreeSet::from_iter(primaries.iter().copied()),
            open: BTreeMap::from_iter(open.iter().copied()),
        }
    }

    #[test]
    fn who_was_the_owner_is_told_by_the_tables_and_a_replica_never_was() {
        let [heir, target, former_one, replica] = [id(0, 1), id(1, 0), id(0, 0), id(0, 2)];
        let unproven = [replica, former_one];
        let both = table(&[heir, target], &[]);
        assert_eq!(former(&unproven, [&both, &both]), None);
        let named = table(&[heir, target], &[(7, Open::Importing(former_one))]);
        let stays = table(&[heir, target, former_one], &[]);
        for ends in [[&both, &named], [&both, &stays], [&stays, &both]] {
            assert_eq!(former(&unproven, ends), Some(former_one));
            assert_eq!(former(&[replica], ends), None);
        }
    }
}
