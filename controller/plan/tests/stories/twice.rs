//! A node that runs twice.

use super::settle;
use crate::support::Run;
use plan::{Desired, Pod, Refused, Step};

/// Rounds and ticks while something is wrong; gives the last plan, and every address that a member's table had for a node meanwhile.
fn watch(run: &mut Run, at: Pod, id: plan::NodeId) -> (plan::Plan, std::collections::BTreeSet<String>) {
    let (mut last, mut addresses) = (plan::Plan::default(), std::collections::BTreeSet::new());
    for _ in 0..40 {
        last = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
        addresses.extend(run.world.up(at).unwrap().table.get(&id).map(|peer| peer.address.clone()));
    }
    (last, addresses)
}

#[test]
fn a_node_that_runs_on_a_copied_volume_too_stops_what_concerns_it() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let (pod, other) = (Pod::new(0, 0), Pod::new(1, 0));
    let id = run.world.up(pod).unwrap().id;
    run.world.copy_volume(pod, other);
    let (plan, addresses) = watch(&mut run, Pod::new(2, 0), id);
    let [address, other_address] = [pod, other].map(|pod| run.world.homes[&pod].address.clone());
    // Everybody believes whoever spoke last: nobody finds the member where its pod is, whoever is introduced to whom.
    assert_eq!(addresses, [other_address.clone()].into());
    let told = Refused::Twins { id, pod, address, other: Some(other), other_address, copied: None };
    assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
    // The way out that the sentence names.
    run.wipe(other);
    assert!(settle(&mut run).is_satisfied());
}

/// Before, it was started: both acknowledged writes, and whichever of the two was ended took with it what it had acknowledged.
#[test]
fn a_node_that_runs_on_is_not_started_again_and_nothing_is_lost() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let pod = Pod::new(0, 0);
    let id = run.world.up(pod).unwrap().id;
    let outside = run.world.run_on(pod);
    let address = run.world.homes[&outside].address.clone();
    let mut plan = plan::Plan::default();
    for _ in 0..40 {
        plan = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
        run.write_everywhere();
        assert!(run.world.up(pod).is_none());
    }
    let told = Refused::RunsAlready { pod, id, reason: format!("its node runs already at {address}") };
    assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
    // It ends, and its volume is the one that the next pod has.
    let files = run.world.homes.remove(&outside).unwrap().server;
    run.world.homes.get_mut(&pod).unwrap().server = files;
    assert!(settle(&mut run).is_satisfied());
    run.everything_reads_back().unwrap_or_else(|reason| panic!("{reason}"));
}

#[test]
fn a_dead_primary_elsewhere_is_replaced_while_a_double_is_waited_for() {
    let mut run = Run::created(Desired::cluster(4, 1), true);
    let outside = run.world.run_on(Pod::new(0, 0));
    for _ in 0..5 {
        run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
        run.tick(1);
    }
    assert!(run.world.up(outside).is_some() && run.world.up(Pod::new(0, 0)).is_none());
    run.crash(Pod::new(2, 0), true);
    let heir = run.world.up(Pod::new(2, 1)).unwrap().id;
    let plan = plan::plan(&run.desired, &run.world.observe(), &run.limits);
    let promoted = plan.steps.iter().map(|step| matches!(step, Step::Failover { replica, .. } if replica.id == heir));
    assert_eq!(promoted.collect::<Vec<_>>(), [true], "{plan:?}");
}

#[test]
fn a_pod_that_runs_on_after_it_was_replaced_stops_what_concerns_it() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    let pod = Pod::new(0, 0);
    let id = run.world.up(pod).unwrap().id;
    let outside = run.starts_beside(pod).unwrap_or_else(|reason| panic!("{reason}"));
    let (plan, addresses) = watch(&mut run, Pod::new(2, 0), id);
    let [address, other_address] = [pod, outside].map(|pod| run.world.homes[&pod].address.clone());
    assert_eq!(addresses, [other_address.clone()].into());
    let told = Refused::Twins { id, pod, address, other: None, other_address, copied: None };
    assert_eq!((plan.steps, plan.refused), (vec![], vec![told]));
    run.world.homes.remove(&outside);
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn a_dead_primary_of_another_shard_is_replaced_while_a_node_runs_twice() {
    let mut run = Run::created(Desired::cluster(4, 1), true);
    run.world.copy_volume(Pod::new(0, 0), Pod::new(0, 1));
    let id = run.world.up(Pod::new(0, 0)).unwrap().id;
    watch(&mut run, Pod::new(1, 0), id);
    run.crash(Pod::new(2, 0), true);
    let heir = run.world.up(Pod::new(2, 1)).unwrap().id;
    let plan = plan::plan(&run.desired, &run.world.observe(), &run.limits);
    let promoted = plan.steps.iter().map(|step| matches!(step, Step::Failover { replica, .. } if replica.id == heir));
    assert_eq!(promoted.collect::<Vec<_>>(), [true], "{plan:?}");
}
