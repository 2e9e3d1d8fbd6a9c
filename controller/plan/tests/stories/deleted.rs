//! Pods that are being deleted.

use super::settle;
use crate::support::Run;
use plan::model::World;
use plan::{Desired, FailoverHow, FailoverRequest, Open, Pod, Refused, Step};

#[test]
fn a_half_moved_slot_is_finished_while_the_pod_of_its_owner_is_being_deleted() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let (from, to) = (Pod::new(0, 0), Pod::new(1, 0));
    let ids = [from, to].map(|pod| run.world.up(pod).unwrap().id);
    for (pod, mark) in [(from, Open::Migrating(ids[1])), (to, Open::Importing(ids[0]))] {
        run.world.homes.get_mut(&pod).unwrap().server.as_mut().unwrap().open.insert(0, mark);
    }
    run.world.terminate(from);
    let plan = run.round(usize::MAX, false).unwrap();
    assert_eq!(plan.steps.iter().map(Step::kind).collect::<Vec<_>>(), ["Move"], "{plan:?}");
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn a_replica_whose_pod_is_being_deleted_is_never_promoted_on_request() {
    let mut run = Run::created(Desired::cluster(3, 2), true);
    run.world.terminate(Pod::new(0, 1));
    let from = run.world.up(Pod::new(0, 0)).unwrap().id;
    run.desired.failover = Some(FailoverRequest {
        shard: 0,
        from,
        candidate: None,
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    });
    let plan = run.round(usize::MAX, false).unwrap();
    let names: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    assert!(names.len() == 1 && names[0].contains("0-2"), "{names:?}");
}

#[test]
fn nobody_else_is_restarted_while_a_pod_is_being_deleted() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.world.homes.values_mut().for_each(|home| home.outdated = true);
    run.world.terminate(Pod::new(2, 1));
    let plan = run.round(usize::MAX, false).unwrap();
    let why = "member 2-1 is being stopped because its pod is being deleted; a new pod will take its place";
    assert_eq!((plan.steps.as_slice(), plan.waiting[0].to_string().as_str()), ([].as_slice(), why));
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn replicas_are_kept_while_the_pod_of_their_primary_is_being_deleted() {
    let mut run = Run::created(Desired::cluster(3, 1), false);
    run.world.terminate(Pod::new(1, 0));
    run.desired.replicas = 0;
    let plan = run.round(usize::MAX, false).unwrap();
    assert!(!plan.steps.iter().any(|step| step.to_string().contains("1-1")), "{:?}", plan.steps);
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn no_slot_moves_to_a_pod_that_is_being_deleted() {
    let mut run = Run::created(Desired::cluster(2, 1), true);
    run.desired.shards = 3;
    for _ in 0..20 {
        run.round(2, false).unwrap();
        run.tick(1);
        run.world.terminate(Pod::new(2, 0));
    }
    assert!(run.world.up(Pod::new(2, 0)).unwrap().slots().is_empty());
    run.end_grace();
    assert!(settle(&mut run).is_satisfied());
}

/// Before, the copy that was left behind was promoted in the moment in which its primary's place had no pod, and what lay there was replaced by it.
#[test]
fn what_the_last_holder_saved_at_its_stop_is_waited_for() {
    let desired = Desired { adopt_lost_slots: true, ..Desired::cluster(3, 1) };
    let mut run = Run::created_in(World::new(true, false), desired);
    let (primary, stale) = (Pod::new(0, 0), Pod::new(0, 1));
    run.unlink(stale);
    run.tick(10);
    run.write_everywhere();
    run.world.terminate(primary);
    run.end_grace();
    let plan = run.round_before_pods(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
    assert!(plan.steps.is_empty() && matches!(plan.refused[..], [Refused::StaleCopy { .. }]), "{plan:?}");
    run.rejoin_all();
    assert!(settle(&mut run).is_satisfied());
    assert!(run.world.up(primary).unwrap().follows().is_none() && run.world.excused.is_empty());
    // After a kill there is nothing on the volume.
    run.unlink(stale);
    run.tick(10);
    run.write_everywhere();
    run.crash(primary, true);
    assert!(settle(&mut run).is_satisfied());
    assert!(run.world.up(stale).unwrap().follows().is_none());
}
