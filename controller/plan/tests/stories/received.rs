//! What a new shard was sent of its first slot.

use std::collections::BTreeMap;

use super::settle;
use crate::support::Run;
use plan::model::{Luck, Outcome, Process, Server};
use plan::{Desired, FailoverHow, FailoverRequest, Hold, Open, Operation, Pod, Refused, Role, Seen, SlotSet, Step};

/// A slot of shard 0 that has keys.
const SLOT: u16 = 1_000;
const GIVER: Pod = Pod::new(0, 0);
const RECEIVER: Pod = Pod::new(3, 0);
const COPY: Pod = Pod::new(3, 1);

fn server(run: &mut Run, pod: Pod) -> &mut Server {
    run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap()
}

/// Shard 3 owns nothing yet, and all keys of its first slot have come to both of its members.
fn half_moved(volumes: bool) -> Run {
    let mut desired = Desired::cluster(3, 1);
    (desired.restart_keeps_data, desired.adopt_lost_slots) = (volumes, !volumes);
    let mut run = Run::created(desired, volumes);
    run.desired.shards = 4;
    run.desired.hold = Some(Hold::Paused);
    run.settle(60).unwrap_or_else(|reason| panic!("{reason}"));
    let ids = [GIVER, RECEIVER].map(|pod| run.world.up(pod).unwrap().id);
    assert_eq!(run.world.up(COPY).unwrap().follows(), Some(ids[1]));
    server(&mut run, GIVER).open.insert(SLOT, Open::Migrating(ids[1]));
    server(&mut run, RECEIVER).open.insert(SLOT, Open::Importing(ids[0]));
    let keys = server(&mut run, GIVER).data.remove(&SLOT).unwrap();
    server(&mut run, Pod::new(0, 1)).data.remove(&SLOT);
    for pod in [RECEIVER, COPY] {
        server(&mut run, pod).data.insert(SLOT, keys.clone());
    }
    run
}

/// Before, the mark was cleared, the copy was to follow the blank member, and all that had moved was lost.
#[test]
fn what_has_moved_is_kept_where_its_receiver_comes_back_blank() {
    for (volumes, is_hidden) in [(true, false), (true, true), (false, false)] {
        let mut run = half_moved(volumes);
        if volumes {
            run.wipe(RECEIVER);
        } else {
            run.crash(RECEIVER, true);
        }
        assert!(run.world.excused.is_empty(), "its copy has all of it");
        if is_hidden {
            // Nobody sees the copy for a while, and that proves nothing.
            run.world.homes.get_mut(&COPY).unwrap().hidden = true;
            for _ in 0..20 {
                run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
                run.tick(1);
            }
            assert_eq!(run.world.homes[&RECEIVER].process, Process::Up);
            run.rejoin_all();
        }
        settle(&mut run);
        assert!(run.world.up(COPY).unwrap().slots().contains(SLOT), "{}", run.world.describe());
        run.desired.hold = None;
        assert!(settle(&mut run).is_satisfied());
    }
}

/// Before, the blank member was given a slot, and the copy copied that as soon as it had one.
#[test]
fn what_has_moved_is_kept_where_its_giver_is_replaced_as_well() {
    let mut run = half_moved(true);
    let gone = run.world.up(RECEIVER).unwrap().id;
    // Nobody knows whether the copy has everything.
    if let Role::Replica { synced, link_up, .. } = &mut server(&mut run, COPY).role {
        (*synced, *link_up) = (false, false);
    }
    run.unlink(COPY);
    let keys = run.world.up(COPY).unwrap().data[&SLOT].clone();
    run.wipe(RECEIVER);
    run.cut_off(GIVER);
    run.world.homes.get_mut(&GIVER).unwrap().hidden = true;
    run.tick(8);
    assert_eq!(run.world.authority(SLOT), Some(Pod::new(0, 1)), "{}", run.world.describe());
    run.rejoin_all();
    run.desired.hold = None;
    let plan = run.settle(100).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(matches!(&plan.refused[..], [Refused::LeftCopies { id, .. }] if *id == gone), "{plan:?}");
    assert_eq!(run.world.up(COPY).unwrap().data.get(&SLOT), Some(&keys), "{}", run.world.describe());
    // The way out that the sentence names.
    let (from, how) = (gone, FailoverHow::Force);
    run.desired.failover = Some(FailoverRequest { shard: 3, from, candidate: Some(1), how, accept_data_loss: true });
    let plan = run.settle(100).unwrap_or_else(|reason| panic!("{reason}"));
    assert_eq!((plan.operation, plan.refused.len()), (Some(Operation::Done), 0), "{plan:?}");
    let readable = run.world.truth().readable;
    assert!(keys.iter().all(|key| readable.contains(&(SLOT, *key))), "{}", run.world.describe());
}

/// Before, nobody marked what had moved before the heir of the receiver had counted its keys.
#[test]
fn what_is_half_moved_is_found_where_both_its_ends_are_replaced() {
    let mut run = Run::created(Desired::cluster(5, 1), true);
    let [giver, receiver] = [Pod::new(0, 0), Pod::new(1, 0)];
    run.desired.hold = Some(Hold::Paused);
    let ids = [giver, receiver].map(|pod| run.world.up(pod).unwrap().id);
    server(&mut run, giver).open.insert(SLOT, Open::Migrating(ids[1]));
    server(&mut run, receiver).open.insert(SLOT, Open::Importing(ids[0]));
    let keys = server(&mut run, giver).data.remove(&SLOT).unwrap();
    server(&mut run, Pod::new(0, 1)).data.remove(&SLOT);
    for ordinal in [0, 1] {
        server(&mut run, Pod::new(1, ordinal)).data.insert(SLOT, keys.clone());
    }
    run.world.observe();
    for pod in [giver, receiver] {
        run.cut_off(pod);
        run.world.homes.get_mut(&pod).unwrap().hidden = true;
    }
    run.tick(8);
    let heir = Pod::new(0, 1);
    assert!(run.world.authority(SLOT) == Some(heir) && run.world.up(heir).unwrap().open.is_empty());
    let mut seen = run.world.observe();
    if let Seen::Node(node) = &mut seen.members.get_mut(&Pod::new(1, 1)).unwrap().seen {
        (node.foreign_keys, node.uncounted) = (BTreeMap::new(), SlotSet::range(SLOT, SLOT));
    }
    let plan = plan::plan(&run.desired, &seen, &run.limits);
    let marks = plan.steps.iter().filter(|step| matches!(step, Step::Mark { .. })).collect::<Vec<_>>();
    let [mark] = marks[..] else { panic!("{plan:?}") };
    assert_eq!(run.world.obey(mark, &mut Luck::good()), Outcome::Done);
    assert_eq!(run.world.up(heir).unwrap().open.len(), 1);
    let readable = run.world.truth().readable;
    assert!(keys.iter().all(|key| readable.contains(&(SLOT, *key))), "{}", run.world.describe());
    run.rejoin_all();
    run.desired.hold = None;
    assert!(settle(&mut run).is_satisfied());
}
