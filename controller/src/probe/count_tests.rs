#![allow(clippy::unwrap_used)]

use plan::Role;

use super::*;

/// A primary of the first slots of this many.
fn primary(slots: u16, epoch: u64) -> Node {
    let role = Role::Primary { slots: SlotSet::range(0, slots - 1) };
    crate::testing::a_node(NodeId::from_bytes([1; 20]), role, epoch)
}

/// Counts one pipeline of this many of the slots that are asked for.
fn look(counts: &mut Counts, node: &mut Node, marked: &SlotSet, answered: usize, keys: u64) -> Vec<u16> {
    let (mut count, asked) = counts.begin(node, marked, Instant::now());
    let answered = &asked[..answered.min(asked.len())];
    count.note(answered, &vec![keys; answered.len()], Duration::ZERO);
    counts.end(node, count);
    asked
}

#[test]
fn what_one_look_has_counted_the_next_one_goes_on_from() {
    let (mut counts, mut node) = (Counts::default(), primary(16_000, 3));
    let none = SlotSet::EMPTY;
    assert_eq!(look(&mut counts, &mut node, &none, 100, 0).len(), 384);
    assert_eq!(node.uncounted, SlotSet::range(16_100, 16_383));
    assert_eq!(look(&mut counts, &mut node, &none, 300, 0), SlotSet::range(16_100, 16_383).iter().collect::<Vec<_>>());
    assert_eq!((node.uncounted.clone(), node.foreign_keys.len()), (SlotSet::EMPTY, 0));
    assert_eq!(look(&mut counts, &mut node, &none, 0, 0).len(), 0);
    // A slot that it has lost since is counted; the others have been.
    let mut fewer = primary(15_999, 3);
    assert_eq!(look(&mut counts, &mut fewer, &none, 1, 7), [15_999]);
    assert_eq!(fewer.foreign_keys, BTreeMap::from([(15_999, 7)]));
}

#[test]
fn marked_slots_and_those_with_keys_are_counted_at_every_look_and_first() {
    let (mut counts, mut node) = (Counts::default(), primary(16_380, 3));
    let marked = SlotSet::range(16_382, 16_382);
    assert_eq!(look(&mut counts, &mut node, &marked, 1, 5), [16_382, 16_380, 16_381, 16_383]);
    assert_eq!(node.foreign_keys, BTreeMap::from([(16_382, 5)]));
    assert_eq!(look(&mut counts, &mut node, &SlotSet::EMPTY, 4, 0), [16_382, 16_380, 16_381, 16_383]);
    assert_eq!(node.foreign_keys, BTreeMap::new());
    assert_eq!(look(&mut counts, &mut node, &marked, 0, 0), [16_382]);
    assert_eq!(node.uncounted, marked, "what it holds of that slot is not known now");
}

#[test]
fn its_own_slots_that_are_half_moved_are_counted_at_every_look_and_apart() {
    let (mut counts, mut node) = (Counts::default(), primary(16_380, 3));
    let (to, from) = (NodeId::from_bytes([2; 20]), NodeId::from_bytes([3; 20]));
    node.open = BTreeMap::from([
        (5, Open::Migrating(to)),
        (6, Open::Migrating(to)),
        (7, Open::Importing(from)),
        (16_381, Open::Migrating(to)),
    ]);
    let marked = SlotSet::range(16_381, 16_381);
    assert_eq!(look(&mut counts, &mut node, &marked, 6, 9), [5, 6, 16_381, 16_380, 16_382, 16_383]);
    assert_eq!(node.leaving, BTreeMap::from([(5, 9), (6, 9)]));
    assert_eq!(node.foreign_keys, (16_380..16_384).map(|slot| (slot, 9)).collect());
    assert_eq!(look(&mut counts, &mut node, &marked, 1, 0).first(), Some(&5));
    assert_eq!(node.leaving, BTreeMap::from([(5, 0)]), "the other one was not reached");
    let mut over = primary(16_380, 3);
    assert_eq!(look(&mut counts, &mut over, &SlotSet::EMPTY, 9, 0), [16_380, 16_381, 16_382, 16_383]);
    assert_eq!((over.leaving, over.foreign_keys), (BTreeMap::new(), BTreeMap::new()));
}

#[test]
fn before_it_is_counted_nothing_is_known_but_that_nobody_without_keys_holds_any() {
    let mut node = primary(16_380, 3);
    node.open = BTreeMap::from([(5, Open::Migrating(NodeId::from_bytes([2; 20])))]);
    let mut holding = Node { keys: 1, ..node.clone() };
    Counts::presume(&mut node);
    assert_eq!((node.leaving, node.uncounted), (BTreeMap::from([(5, 0)]), SlotSet::EMPTY));
    Counts::presume(&mut holding);
    assert_eq!((holding.leaving, holding.uncounted), (BTreeMap::new(), SlotSet::range(16_380, 16_383)));
}

#[test]
fn another_claim_and_a_step_that_may_leave_keys_begin_the_count_anew() {
    let (mut counts, mut node) = (Counts::default(), primary(16_380, 3));
    look(&mut counts, &mut node, &SlotSet::EMPTY, 4, 0);
    let mut newer = primary(16_380, 4);
    assert_eq!(look(&mut counts, &mut newer, &SlotSet::EMPTY, 4, 0).len(), 4);
    assert_eq!(look(&mut counts, &mut newer, &SlotSet::EMPTY, 0, 0).len(), 0);
    counts.anew();
    assert_eq!(look(&mut counts, &mut newer, &SlotSet::EMPTY, 4, 0).len(), 4);
    counts.keep(|_| false);
    assert_eq!(look(&mut counts, &mut newer, &SlotSet::EMPTY, 4, 0).len(), 4);
}

#[test]
fn who_is_slow_is_asked_for_less_and_for_more_again_when_it_is_quick() {
    let (mut counts, node) = (Counts::default(), primary(1, 3));
    let (mut count, _) = counts.begin(&node, &SlotSet::EMPTY, Instant::now());
    let turns: Vec<usize> = (0..8)
        .map(|_| {
            count.slow_down();
            count.turn
        })
        .collect();
    assert_eq!(turns, [256, 128, 64, 32, 16, 8, 8, 8]);
    count.note(&[1], &[0], QUICK);
    assert_eq!(count.turn, 8);
    count.note(&[1], &[0], Duration::ZERO);
    assert_eq!(count.turn, 16);
}
