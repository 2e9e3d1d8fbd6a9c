//! Marks of half-moved slots as several looks show them.
//!
//! Only the two ends of a move have them (a replica of Redis 7 or 8 knows nothing of its primary's). Where both ends are gone at once, what they
//! showed last is all that says where the keys are that have moved.

use std::collections::{BTreeMap, BTreeSet};

use plan::{NodeId, Observed, Open, SlotSet};

/// Nodes that are remembered beyond those that answer; more than a cluster loses at once.
const SPARE: usize = 64;

/// The marks of each node, by slot.
pub(super) type OfNodes = BTreeMap<NodeId, BTreeMap<u16, Open>>;

/// What is remembered between looks. Without it the heir of an end that is gone knows of no mark until the slot is gone on with.
#[derive(Debug, Default)]
pub(super) struct Marks {
    nodes: OfNodes,
}

impl Marks {
    /// A move of these slots was begun: it may have marked all of them since the last look.
    pub(super) fn moved(&mut self, from: NodeId, to: NodeId, slots: &SlotSet) {
        let marks = slots.iter().map(|slot| (slot, Open::Migrating(to)));
        self.nodes.entry(from).or_default().extend(marks);
    }

    /// Takes in one look, and gives what those showed last who do not answer. Who does is believed, whatever was there before.
    pub(super) fn note(&mut self, observed: &Observed) -> OfNodes {
        let seen: BTreeSet<NodeId> = super::nodes(observed).map(|node| node.id).collect();
        if self.nodes.len() > seen.len().saturating_add(SPARE) {
            self.nodes.clear();
        }
        self.nodes.retain(|id, _| !seen.contains(id));
        for (id, open) in &mut self.nodes {
            // It was gone on with meanwhile, through the heirs of both.
            open.retain(|slot, mark| !plan::has_arrived(&observed.members, *slot, mark.receiver(*id)));
        }
        let silent = self.nodes.clone();
        let open = super::nodes(observed).filter(|node| node.is_primary() && !node.open.is_empty());
        self.nodes.extend(open.map(|node| (node.id, node.open.clone())));
        silent
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use plan::{Pod, Seen};

    use super::*;
    use crate::probe::Probed;
    use crate::testing::{healthy, id, node};

    fn silence(probed: &mut Probed, shard: u16) {
        let member = probed.observed.members.get_mut(&Pod::new(shard, 0)).unwrap();
        member.seen = Seen::Unknown { since_millis: 0 };
    }

    #[test]
    fn marks_are_kept_of_those_who_do_not_answer_as_they_were_last() {
        let [giver, receiver] = [id(0, 0), id(1, 0)];
        let (mut memory, mut probed) = (Marks::default(), healthy(3, 2));
        node(&mut probed, 0, 0).open.insert(9, Open::Migrating(receiver));
        node(&mut probed, 1, 0).open.insert(9, Open::Importing(giver));
        assert_eq!(memory.note(&probed.observed), OfNodes::new(), "both say it themselves");
        silence(&mut probed, 1);
        let of_receiver = (receiver, BTreeMap::from([(9, Open::Importing(giver))]));
        assert_eq!(memory.note(&probed.observed), [of_receiver.clone()].into());
        // By the next look it has given another slot, of which that look would have shown the mark.
        memory.moved(giver, receiver, &SlotSet::range(10, 10));
        silence(&mut probed, 0);
        let of_giver = (giver, BTreeMap::from([(9, Open::Migrating(receiver)), (10, Open::Migrating(receiver))]));
        for _ in 0..2 {
            assert_eq!(memory.note(&probed.observed), [of_giver.clone(), of_receiver.clone()].into());
        }
        // Their heirs have gone on with one of them.
        let mut heirs = probed.observed.clone();
        heirs.members.get_mut(&Pod::new(1, 0)).unwrap().last_id = Some(receiver);
        let heir = heirs.members.get_mut(&Pod::new(1, 1)).unwrap();
        if let Seen::Node(node) = &mut heir.seen {
            node.role = plan::Role::Primary { slots: SlotSet::range(10, 10) };
        }
        let left = (giver, BTreeMap::from([(9, Open::Migrating(receiver))]));
        assert_eq!(memory.note(&heirs), [left, of_receiver].into());
        // They are back, and the slot is handed over.
        assert_eq!(memory.note(&healthy(3, 2).observed), OfNodes::new());
        assert_eq!(memory.note(&probed.observed), OfNodes::new());
    }
}
