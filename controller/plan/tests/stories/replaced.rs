//! Primaries that were replaced in the middle of a move.

use std::collections::BTreeSet;

use super::settle;
use crate::support::Run;
use plan::model::{Luck, Outcome};
use plan::{Desired, Open, Pod, Refused, Role, SlotSet, Step, Who};

/// The slot that is half moved in these stories. All its keys have left the giver.
const HALF_MOVED: u16 = 8_191;

/// Both ends of a move mark a slot.
fn mark(run: &mut Run, slot: u16, giver: Pod, target: Pod) {
    let ids = [giver, target].map(|pod| run.world.up(pod).unwrap().id);
    server(run, giver).open.insert(slot, Open::Migrating(ids[1]));
    server(run, target).open.insert(slot, Open::Importing(ids[0]));
}

/// A slot of one shard is half moved to another one, with its keys at both ends of the replication there.
fn half_moved(run: &mut Run, [giver, target]: [u16; 2]) {
    mark(run, HALF_MOVED, Pod::new(giver, 0), Pod::new(target, 0));
    let keys = server(run, Pod::new(giver, 0)).data.remove(&HALF_MOVED).unwrap();
    server(run, Pod::new(giver, 1)).data.remove(&HALF_MOVED);
    for ordinal in [0, 1] {
        server(run, Pod::new(target, ordinal)).data.insert(HALF_MOVED, keys.clone());
    }
}

fn rounds(run: &mut Run, times: u32) {
    for _ in 0..times {
        run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
    }
}

/// The primary of one of so many shards is cut off while it receives a slot; its replica is elected and gets that.
fn cut_off_in_the_middle(shards: u16, shard: u16) -> (Run, Pod, Pod) {
    let mut run = Run::created(Desired::cluster(shards, 1), true);
    let (former, heir) = (Pod::new(shard, 0), Pod::new(shard, 1));
    half_moved(&mut run, [1, shard]);
    // Else the slot would go home again.
    run.desired.hold = Some(plan::Hold::Paused);
    run.cut_off(former);
    run.world.homes.get_mut(&former).unwrap().hidden = true;
    rounds(&mut run, 30);
    assert!(run.world.up(heir).unwrap().slots().contains(HALF_MOVED));
    (run, former, heir)
}

/// A former primary that was cut off while it received a slot, which its heir owns by now; with a key of its own, or without.
fn replaced(own: Option<u64>) -> (Run, Pod, (u16, BTreeSet<u64>)) {
    let (mut run, former, _) = cut_off_in_the_middle(3, 0);
    server(&mut run, former).data.get_mut(&HALF_MOVED).unwrap().extend(own);
    let keys = server(&mut run, former).data[&HALF_MOVED].clone();
    run.rejoin_all();
    (run, former, (HALF_MOVED, keys))
}

fn server(run: &mut Run, pod: Pod) -> &mut plan::model::Server {
    run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap()
}

/// Who imports a slot does not hear whose it becomes, and forgets with its process that its own table is in doubt.
#[test]
fn a_primary_without_slots_is_told_of_a_move_like_every_other() {
    let (mut run, former, (slot, _)) = replaced(None);
    let [giver, heir, third] =
        [Pod::new(1, 0), Pod::new(0, 1), Pod::new(2, 0)].map(|pod| Who { pod, id: run.world.up(pod).unwrap().id });
    let names = |run: &Run, owner: Who| run.world.up(former).unwrap().table[&owner.id].slots().contains(slot);
    let doubts = |run: &Run| run.world.up(former).unwrap().unclaimed.contains(slot);
    run.tick(2);
    assert!(names(&run, giver) && doubts(&run), "{}", run.world.describe());
    run.crash(former, false);
    // Nobody but the controller reaches it.
    run.world.homes.get_mut(&former).unwrap().cut_off = true;
    run.tick(3);
    assert!(names(&run, giver) && !doubts(&run), "{}", run.world.describe());
    let step = Step::Move { from: heir, to: third, slots: SlotSet::range(slot, slot) };
    assert_eq!(run.world.obey(&step, &mut Luck::good()), Outcome::Done);
    assert!(names(&run, third) && !names(&run, giver), "{}", run.world.describe());
}

#[test]
fn a_former_primary_that_kept_keys_is_told_of_and_holds_up_nothing() {
    for (own, is_lacking) in [(Some(77), true), (None, false)] {
        let (mut run, former, (slot, keys)) = replaced(own);
        for pod in [former, Pod::new(2, 1)] {
            run.world.homes.get_mut(&pod).unwrap().outdated = true;
        }
        let before = run.world.homes[&Pod::new(2, 1)].address.clone();
        let plan = run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
        let slots = SlotSet::range(slot, slot);
        let lacking = if is_lacking { slots.clone() } else { SlotSet::EMPTY };
        let (keys, unknown) = (u64::try_from(keys.len()).unwrap(), SlotSet::EMPTY);
        let told = Refused::Former { pod: former, keys, slots, lacking, unknown };
        let words = told.to_string();
        assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
        let lacks = "The owners of the slots 8191 lack some of these keys: deleted there since, or held by nobody else. Copy from 0-0 what \
                     is wanted of them, or give up what 0-0 holds: ";
        let ends = "delete its claim and its pod, and it comes back empty, as a replica";
        assert!(words.contains(lacks) == is_lacking && words.ends_with(ends), "{words}");
        run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
        assert_ne!(before, run.world.homes[&Pod::new(2, 1)].address, "the rest goes on: a replica was restarted");
        // The way out that the sentence names.
        run.desired.hold = None;
        run.wipe(former);
        assert!(settle(&mut run).is_satisfied());
    }
}

#[test]
fn a_former_primary_that_kept_keys_is_no_member_to_stay_alone_and_holds_up_no_other_shard() {
    let (mut run, former, _) = replaced(None);
    run.desired.replicas = 0;
    run.world.homes.get_mut(&Pod::new(2, 0)).unwrap().outdated = true;
    let before = run.world.homes[&Pod::new(2, 0)].address.clone();
    let plan = run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == former), "{plan:?}");
    assert!(
        run.world.up(Pod::new(0, 1)).is_some() && run.world.up(Pod::new(2, 1)).is_none(),
        "the others' replicas have left"
    );
    assert_ne!(before, run.world.homes[&Pod::new(2, 0)].address, "the rest goes on: an upgrade");
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

#[test]
fn a_target_that_died_in_the_middle_of_a_move_comes_back_as_a_replica() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let (target, heir, giver) = (Pod::new(0, 0), Pod::new(0, 1), Pod::new(1, 0));
    half_moved(&mut run, [1, 0]);
    // Of another one nothing has arrived yet.
    mark(&mut run, 8_192, giver, target);
    run.desired.hold = Some(plan::Hold::Paused);
    run.crash(target, true);
    // Its replica is elected, and gets both slots before it is back: more than it had itself.
    run.tick(8);
    rounds(&mut run, 12);
    let [target, heir] = [target, heir].map(|pod| run.world.up(pod).unwrap().clone());
    assert!([HALF_MOVED, 8_192].iter().all(|slot| heir.slots().contains(*slot)), "{}", run.world.describe());
    assert_eq!(target.follows(), Some(heir.id), "{}", run.world.describe());
    run.desired.hold = None;
    assert!(settle(&mut run).is_satisfied());
    assert_eq!(run.world.excused.len(), 0);
}

/// Before, the giver's mark led to the former primary, which got a slot beside its heir.
#[test]
fn what_is_half_moved_to_a_replaced_primary_goes_to_its_heir() {
    let (mut run, former, heir) = cut_off_in_the_middle(3, 0);
    // A move of two slots has come so far, and of the second one nothing has arrived.
    mark(&mut run, 8_192, Pod::new(1, 0), former);
    run.rejoin_all();
    let plan = run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == former), "{plan:?}");
    assert_eq!(run.world.authority(8_192), Some(heir), "{}", run.world.describe());
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

/// Nobody else in its shard owns slots or has a newer claim: what it holds is on its way to it, whatever its mark says by now.
#[test]
fn the_first_slot_of_a_new_shard_arrives_although_its_giver_is_replaced() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.desired.shards = 4;
    run.desired.hold = Some(plan::Hold::Paused);
    run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    half_moved(&mut run, [1, 3]);
    run.crash(Pod::new(1, 0), true);
    // The heir of the giver has no mark.
    run.tick(8);
    let target = Pod::new(3, 0);
    assert_eq!(run.world.up(Pod::new(1, 1)).unwrap().open.len(), 0);
    for _ in 0..20 {
        let plan = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!(plan.refused, []);
        run.tick(1);
    }
    assert_eq!(run.world.authority(HALF_MOVED), Some(target), "{}", run.world.describe());
    run.desired.hold = None;
    assert!(settle(&mut run).is_satisfied());
}

/// Before, it led its shard again because of its lower ordinal, and what clients had deleted came back with its keys.
#[test]
fn a_replaced_lead_of_a_shard_that_is_wanted_again_receives_no_slots() {
    let (mut run, former, heir) = cut_off_in_the_middle(4, 3);
    let has = |run: &Run, pod: Pod| run.world.up(pod).unwrap().slots();
    let before = has(&run, heir);
    (run.desired.hold, run.desired.shards) = (None, 3);
    rounds(&mut run, 40);
    assert_eq!(has(&run, heir), before, "the former one may still send keys: {}", run.world.describe());
    (run.desired.hold, run.desired.shards) = (Some(plan::Hold::Paused), 4);
    run.rejoin_all();
    let plan = run.settle(100).unwrap_or_else(|reason| panic!("{reason}"));
    assert_eq!((has(&run, former), has(&run, heir)), (SlotSet::EMPTY, before), "{}", run.world.describe());
    assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == former), "{plan:?}");
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

/// Before, all was left as it was for as long as the other shard was lost, and clients made what had moved anew at a primary without marks.
#[test]
fn what_is_half_moved_arrives_although_another_shard_is_lost() {
    let mut run = Run::created(Desired::cluster(5, 1), true);
    let [giver, heir, target] = [(1, 0), (1, 1), (4, 0)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
    let slot = 4_096;
    let whole = run.world.up(giver).unwrap().data[&slot].clone();
    mark(&mut run, slot, giver, target);
    for pod in [giver, heir] {
        server(&mut run, pod).data.remove(&slot);
    }
    for pod in [target, Pod::new(4, 1)] {
        server(&mut run, pod).data.insert(slot, whole.clone());
    }
    // Else the slot would go home again.
    run.desired.hold = Some(plan::Hold::Paused);
    let id = run.world.up(Pod::new(2, 0)).unwrap().id;
    let slots = run.world.up(Pod::new(2, 0)).unwrap().slots().len();
    [0, 1].into_iter().for_each(|ordinal| run.wipe(Pod::new(2, ordinal)));
    run.cut_off(giver);
    run.world.homes.get_mut(&giver).unwrap().hidden = true;
    run.tick(8);
    assert_eq!((run.world.authority(slot), run.world.up(heir).unwrap().open.len()), (Some(heir), 0));
    let is_missing = |run: &Run| whole.iter().any(|key| !run.world.truth().readable.contains(&(slot, *key)));
    assert!(is_missing(&run), "nobody sends clients to where the keys are");
    rounds(&mut run, 30);
    assert_eq!(run.world.authority(slot), Some(target), "{}", run.world.describe());
    assert!(!is_missing(&run));
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
    // Nothing else has moved, and the lost shard is still lost.
    run.rejoin_all();
    let plan = run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    assert_eq!(
        (plan.steps, plan.refused),
        (vec![], vec![Refused::LostSlots { id, slots, copies: vec![], former: None }])
    );
}

/// Its mark is a claim there: told of the new owner, it would never hear it claim the slot, and take that over from the giver.
#[test]
fn a_valkey_that_imports_a_slot_takes_it_from_nobody_when_another_gets_it() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.world.valkey = true;
    let [giver, target, importer] = [(1, 0), (2, 0), (0, 1)].map(|(shard, ordinal)| Pod::new(shard, ordinal));
    let id = run.world.up(giver).unwrap().id;
    let left_over = server(&mut run, importer);
    left_over.role = Role::Primary { slots: SlotSet::EMPTY };
    left_over.open.insert(HALF_MOVED, Open::Importing(id));
    let [from, to] = [giver, target].map(|pod| Who { pod, id: run.world.up(pod).unwrap().id });
    let step = Step::Move { from, to, slots: SlotSet::range(HALF_MOVED, HALF_MOVED) };
    assert_eq!(run.world.obey(&step, &mut Luck::good()), Outcome::Done);
    run.tick(3);
    assert_eq!(run.world.authority(HALF_MOVED), Some(target), "{}", run.world.describe());
    assert!(run.world.up(importer).unwrap().open.is_empty(), "it has heard of the new owner");
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

/// Before, such a slot was moved, and where the giver was heard before the new owner it went back with the keys that had been left.
#[test]
fn a_slot_that_a_replaced_primary_imports_from_its_owner_stays_there() {
    let slot = 10_921;
    for seed in 0..20 {
        let mut run = Run::created(Desired::cluster(3, 1), true);
        assert!(run.world.write(slot));
        run.luck = Luck::seeded(seed);
        run.world.valkey = true;
        let (giver, left_over) = (Pod::new(1, 0), Pod::new(0, 1));
        let id = run.world.up(giver).unwrap().id;
        let server = server(&mut run, left_over);
        server.role = Role::Primary { slots: SlotSet::EMPTY };
        server.data = [(slot, [77].into())].into();
        server.open.insert(slot, Open::Importing(id));
        // It would be one of those that the new shard gets.
        run.desired.shards = 4;
        let plan = run.settle(400).unwrap_or_else(|reason| panic!("{reason}"));
        assert!(matches!(plan.refused[..], [Refused::Former { pod, .. }] if pod == left_over), "{plan:?}");
        assert!(run.world.up(left_over).unwrap().slots().is_empty(), "seed {seed}: {}", run.world.describe());
        run.everything_reads_back().unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
    }
}
