#![allow(clippy::unwrap_used)]

use plan::{Member, Pod, Role, Site};

use super::*;
use crate::testing::a_node;

fn node(number: u8, slots: SlotSet) -> Node {
    let node = a_node(NodeId::from_bytes([number; 20]), Role::Primary { slots }, u64::from(number));
    Node { address: format!("10.0.0.{number}:6379"), keys: 9, ..node }
}

fn observed(nodes: Vec<Node>) -> Observed {
    let member = |node: Node| Member {
        outdated: false,
        terminating: false,
        last_id: Some(node.id),
        site: Site::Nowhere,
        seen: Seen::Node(Box::new(node)),
        waits: false,
        stuck: false,
    };
    let members = nodes.into_iter().zip(0..).map(|(node, shard)| (Pod::new(shard, 0), member(node)));
    Observed { members: members.collect(), ..Observed::default() }
}

/// One that was replaced, with keys of three slots, of which one has two owners and one has none.
fn former() -> Vec<Node> {
    let held = BTreeMap::from([(1, 2), (5, 1), (9, 6), (7, 0)]);
    let former = Node { foreign_keys: held, ..node(1, SlotSet::EMPTY) };
    vec![former, node(2, SlotSet::range(0, 5)), node(3, SlotSet::range(5, 7))]
}

#[test]
fn what_is_compared_is_asked_of_the_one_owner_until_it_is_known() {
    let (mut known, seen) = (Known::default(), observed(former()));
    let (me, owner) = (former()[0].id, former()[1].id);
    let at = |number: u8| SocketAddr::from(([10, 0, 0, number], 6379));
    assert_eq!(known.asked(&seen), [((me, at(1)), vec![(1, (owner, at(2)), 2)])]);
    known.note(me, 1, 2, true);
    assert_eq!(known.asked(&seen), []);
    assert_eq!(known.of(&former()[0]), BTreeMap::from([(1, true)]));
    // Another number of keys is another question.
    known.note(me, 1, 3, true);
    assert_eq!((known.of(&former()[0]).len(), known.asked(&seen).len()), (0, 1));
}

#[test]
fn only_primaries_without_slots_whose_keys_are_counted_are_compared() {
    let changes: [fn(&mut Node); 4] = [
        |node| node.role = Role::Primary { slots: SlotSet::range(8, 8) },
        |node| node.keys = 0,
        |node| node.uncounted = SlotSet::range(3, 3),
        |node| node.loading = true,
    ];
    for change in changes {
        let mut nodes = former();
        change(&mut nodes[0]);
        assert_eq!(Known::default().asked(&observed(nodes)), []);
    }
}
