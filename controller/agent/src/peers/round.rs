//! Whom to ask what becomes of a member, and in which order. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    net::SocketAddr,
};

use resp::{Node, NodeId};

/// So many peers are asked in each round, if there are as many: those of a large cluster know enough long before the last. But no election is decided
/// without a majority of those who vote, however many they are.
const PEERS_MAX: usize = 128;

/// So many of those are asked at a time.
const MORE: usize = 32;

/// Whom to ask.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    first: Vec<(NodeId, SocketAddr)>,
    /// Those who vote, if there are more of them: for as long as too few have answered.
    voters: VecDeque<(NodeId, SocketAddr)>,
    /// All who vote.
    voting: BTreeSet<NodeId>,
    /// So many had answered before the last ones were asked.
    answered: Option<usize>,
}

impl Round {
    /// Who was not `tried` before, of those that these lines name. Of many those come first who may have the data of `me`, then those who vote.
    pub(super) fn of<'a>(
        lines: impl Iterator<Item = &'a Node>,
        me: &NodeId,
        tried: &BTreeSet<(NodeId, SocketAddr)>,
    ) -> Self {
        let mut nodes: Vec<&Node> = lines.filter(|node| node.id != *me && !node.flags.handshake).collect();
        nodes.sort_by_key(|node| (node.primary.as_ref() != Some(me), node.slots.is_empty()));
        let (mut round, mut named) = (Self::default(), BTreeSet::new());
        for node in nodes {
            let votes = !node.slots.is_empty();
            if votes {
                round.voting.insert(node.id.clone());
            }
            let Some(address) = node.address.filter(|address| named.insert((&node.id, *address))) else { continue };
            let target = (node.id.clone(), address);
            if tried.contains(&target) {
            } else if round.first.len() < PEERS_MAX {
                round.first.push(target);
            } else if votes {
                round.voters.push_back(target);
            }
        }
        round
    }

    /// Who is asked now, by who has `answered` until now; `None`: nobody any more. Those who vote are asked on until two thirds have answered: a majority,
    /// and some of that may not know yet who follows whom; or until none of the last ones has answered, as the next would be as silent, for a second each.
    pub(super) fn next<P>(&mut self, answered: &BTreeMap<NodeId, P>) -> Option<Vec<(NodeId, SocketAddr)>> {
        let before = self.answered.replace(answered.len());
        if before.is_none() {
            return Some(mem::take(&mut self.first));
        }
        let heard = self.voting.iter().filter(|id| answered.contains_key(*id)).count();
        let is_enough = heard * 3 >= self.voting.len() * 2 || before == Some(answered.len());
        let count = if is_enough { 0 } else { self.voters.len().min(MORE) };
        (count > 0).then(|| self.voters.drain(..count).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn id(number: usize) -> NodeId {
        NodeId::parse(&format!("{number:040x}")).unwrap()
    }

    fn at(number: usize) -> SocketAddr {
        SocketAddr::from(([198, 18, u8::try_from(number / 200).unwrap(), u8::try_from(number % 200).unwrap()], 6379))
    }

    fn line(number: usize, address: SocketAddr, of: Option<usize>, slots: &str) -> Node {
        let (role, of) = of.map_or(("master", "-".to_owned()), |of| ("slave", id(of).to_string()));
        Node::parse(&format!("{} {address}@16379 {role} {of} 0 0 5 connected {slots}", id(number))).unwrap()
    }

    /// The primaries are 1 to 300, each with one slot; 301 to 600 are their replicas; 0 asks, whose replica is 999.
    fn large() -> Vec<Node> {
        let primaries = (1..=300).map(|number| line(number, at(number), None, &number.to_string()));
        let replicas = (301..=600).map(|number| line(number, at(number), Some(number - 300), ""));
        replicas.chain(primaries).chain([line(999, at(999), Some(0), "")]).collect()
    }

    fn ids(targets: &[(NodeId, SocketAddr)]) -> Vec<NodeId> {
        targets.iter().map(|(id, _)| id.clone()).collect()
    }

    fn answered(numbers: impl Iterator<Item = usize>) -> BTreeMap<NodeId, ()> {
        numbers.map(|number| (id(number), ())).collect()
    }

    /// Before, of more than 254 primaries no majority was ever heard, and a replica that was ahead of a snapshot was waited for in vain.
    #[test]
    fn own_replicas_are_asked_first_and_then_as_many_as_vote() {
        let mut round = Round::of(large().iter(), &id(0), &BTreeSet::new());
        let mut asked = Vec::new();
        // The first fifty are silent, and all others answer.
        while let Some(next) = round.next(&answered(51..51 + asked.len().saturating_sub(51))) {
            asked.extend(ids(&next));
        }
        let expected: Vec<NodeId> = [999].into_iter().chain(1..=255).map(id).collect();
        assert_eq!((asked.len(), asked), (256, expected), "205 of 300 have answered");
    }

    #[test]
    fn where_none_of_the_last_answers_no_more_are_asked() {
        let mut round = Round::of(large().iter(), &id(0), &BTreeSet::new());
        let answered = answered(1..=100);
        let counts = [(); 3].map(|()| round.next(&answered).map(|next| next.len()));
        assert_eq!(counts, [Some(128), None, None]);
        let mut round = Round::of(large().iter(), &id(0), &BTreeSet::new());
        let counts = [0, 100, 100].map(|count| round.next(&self::answered(1..=count)).map(|next| next.len()));
        assert_eq!(counts, [Some(128), Some(MORE), None]);
    }

    /// Before, the second round asked nobody where the first had asked 128, though it is there for those who have moved.
    #[test]
    fn a_replica_at_a_new_address_is_asked_in_however_large_a_cluster() {
        let none = BTreeMap::<NodeId, ()>::new();
        let tried: BTreeSet<_> =
            Round::of(large().iter(), &id(0), &BTreeSet::new()).next(&none).unwrap().into_iter().collect();
        let moved = line(999, at(1000), Some(0), "");
        let told: Vec<Node> = large().into_iter().chain([moved]).collect();
        let first = Round::of(told.iter().chain(&told), &id(0), &tried).next(&none).unwrap();
        let expected: Vec<_> = [(id(999), at(1000))].into_iter().chain((128..255).map(|n| (id(n), at(n)))).collect();
        assert_eq!(first, expected);
    }

    #[test]
    fn of_few_everybody_is_asked_once_but_who_asks_and_who_is_not_known_yet() {
        let mut lines = vec![
            line(1, at(1), None, "1"),
            line(0, at(9), None, "2"),
            line(2, at(2), Some(1), ""),
            line(3, at(3), Some(0), ""),
        ];
        lines.push(Node::parse(&format!("{} {}@16379 handshake - 0 0 0 connected", id(4), at(4))).unwrap());
        let none = BTreeMap::<NodeId, ()>::new();
        let mut round = Round::of(lines.iter().chain(&lines), &id(0), &BTreeSet::new());
        let first = round.next(&none).unwrap();
        assert_eq!((ids(&first), round.next(&none)), ([3, 1, 2].map(id).to_vec(), None));
        let again = Round::of(lines.iter(), &id(0), &first.into_iter().collect()).next(&none);
        assert_eq!(again, Some(vec![]));
    }
}
