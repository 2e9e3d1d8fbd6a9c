//! Whom to ask what becomes of a member, and in which order. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use resp::{Node, NodeId};

/// So many peers are asked in each round, if there are as many: those of a large cluster know enough long before the last. But no election is decided
/// without a majority of those who vote, however many they are.
const PEERS_MAX: usize = 128;

/// Whom to ask.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) first: Vec<(NodeId, SocketAddr)>,
    /// Those who vote, if there are more of them: for as long as too few have answered.
    pub(super) voters: Vec<(NodeId, SocketAddr)>,
    pub(super) voting: Voting,
}

/// All who vote.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Voting(BTreeSet<NodeId>);

impl Round {
    /// Who was not `tried` before, of those that these lines name. Of many those come first who may have the data of `me`, then those who vote; and once
    /// so many were tried, of those who vote only whoever has not `answered`, if too few have, and nobody else.
    pub(super) fn of<'a, P>(
        lines: impl Iterator<Item = &'a Node>,
        me: &NodeId,
        tried: &BTreeSet<(NodeId, SocketAddr)>,
        answered: &BTreeMap<NodeId, P>,
    ) -> Self {
        let mut nodes: Vec<&Node> = lines.filter(|node| node.id != *me && !node.flags.handshake).collect();
        nodes.sort_by_key(|node| (node.primary.as_ref() != Some(me), node.slots.is_empty()));
        let votes = |node: &&Node| !node.slots.is_empty();
        let voting = Voting(nodes.iter().copied().filter(votes).map(|node| node.id.clone()).collect());
        let is_full = tried.len() >= PEERS_MAX;
        let is_open = !voting.has_heard_enough(answered);
        let counts = |node: &Node| {
            let is_missed = is_open && votes(&node) && !answered.contains_key(&node.id);
            !is_full || is_missed || node.primary.as_ref() == Some(me)
        };
        let (mut first, mut voters, mut named) = (Vec::new(), Vec::new(), BTreeSet::new());
        for node in nodes.into_iter().filter(|node| counts(node)) {
            let Some(address) = node.address.filter(|address| named.insert((&node.id, *address))) else { continue };
            let target = (node.id.clone(), address);
            let is_first = first.len() < PEERS_MAX;
            if tried.contains(&target) || !(is_first || votes(&node)) {
                continue;
            }
            if is_first { first.push(target) } else { voters.push(target) }
        }
        Self { first, voters, voting }
    }
}

impl Voting {
    /// Whether two thirds of them have answered: a majority, and some of that may not know yet who follows whom.
    pub(super) fn has_heard_enough<P>(&self, answered: &BTreeMap<NodeId, P>) -> bool {
        let heard = self.0.iter().filter(|id| answered.contains_key(*id)).count();
        heard * 3 >= self.0.len() * 2
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
        let round = Round::of(large().iter(), &id(0), &BTreeSet::new(), &answered(0..0));
        let first: Vec<NodeId> = [999].into_iter().chain(1..=127).map(id).collect();
        assert_eq!((ids(&round.first), ids(&round.voters)), (first, (128..=300).map(id).collect()));
        let is_enough = [199, 200].map(|last| round.voting.has_heard_enough(&answered(1..last + 1)));
        assert_eq!(is_enough, [false, true], "of 300");
    }

    /// Before, the second round asked nobody where the first had asked 128, though it is there for those who have moved.
    #[test]
    fn a_replica_at_a_new_address_is_asked_in_however_large_a_cluster() {
        let Round { first, voters, .. } = Round::of(large().iter(), &id(0), &BTreeSet::new(), &answered(0..0));
        let tried: BTreeSet<_> = first.into_iter().chain(voters).collect();
        let moved = [line(999, at(1000), Some(0), ""), line(300, at(1001), None, "300")];
        let told: Vec<Node> = large().into_iter().chain(moved).collect();
        let round = |heard: usize| {
            let round = Round::of(told.iter().chain(&told), &id(0), &tried, &answered(1..heard + 1));
            (round.first, round.voters)
        };
        let (replica, voter) = ((id(999), at(1000)), (id(300), at(1001)));
        assert_eq!(round(200), (vec![replica.clone()], vec![]), "enough have answered");
        assert_eq!(round(199), (vec![replica, voter], vec![]));
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
        let round = Round::of(lines.iter().chain(&lines), &id(0), &BTreeSet::new(), &answered(0..0));
        assert_eq!((ids(&round.first), ids(&round.voters)), ([3, 1, 2].map(id).to_vec(), vec![]));
        let moved = line(2, at(5), Some(1), "");
        let again =
            Round::of(lines.iter().chain([&moved]), &id(0), &round.first.into_iter().collect(), &answered(1..4));
        assert_eq!((again.first, again.voters), (vec![(id(2), at(5))], vec![]));
    }
}
