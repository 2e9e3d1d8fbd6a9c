//! Most primaries are gone at once, and nobody can be elected.

use super::settle;
use crate::support::{Run, promotions};
use plan::model::Process;
use plan::{Desired, FailoverHow, FailoverRequest, Limits, NodeId, Observed, Operation, Plan, Pod, Refused, Seen};

const LOST: [Pod; 2] = [Pod::new(0, 0), Pod::new(1, 0)];

fn without_files(replicas: u16) -> Run {
    Run::created(Desired::cluster(3, replicas), false)
}

fn round(run: &mut Run) -> Plan {
    let plan = run.round(usize::MAX, false).unwrap_or_else(|reason| panic!("{reason}"));
    run.tick(1);
    plan
}

#[test]
fn replicas_replace_most_primaries_that_have_ended_one_without_votes() {
    let mut run = without_files(1);
    LOST.into_iter().for_each(|pod| run.crash(pod, false));
    let mut all = Vec::new();
    for _ in 0..12 {
        all.extend(promotions(&round(&mut run)));
    }
    // The first makes two of three, and these elect the second by themselves.
    assert_eq!(all, [(Pod::new(0, 1), FailoverHow::Takeover)]);
    assert!(settle(&mut run).is_satisfied());
}

#[test]
fn as_many_as_it_takes_are_promoted_without_votes_one_after_the_other() {
    let mut run = Run::created(Desired::cluster(7, 1), false);
    (0..6).for_each(|shard| run.crash(Pod::new(shard, 0), false));
    let mut all = Vec::new();
    for _ in 0..40 {
        let found = promotions(&round(&mut run));
        let alone = found.iter().filter(|(_, how)| *how == FailoverHow::Takeover).count();
        assert!(alone <= 1, "{found:?}");
        all.extend(found);
    }
    assert_eq!(all, [0, 1, 2].map(|shard| (Pod::new(shard, 1), FailoverHow::Takeover)));
    assert!(settle(&mut run).is_satisfied());
}

/// Before, it had the only copy of its shard until a person had decided what becomes of the other one.
#[test]
fn who_was_taken_over_gets_its_replica_although_another_shard_is_lost() {
    let mut run = without_files(1);
    let id = run.world.up(LOST[1]).unwrap().id;
    run.crash(LOST[0], false);
    [0, 1].into_iter().for_each(|ordinal| run.wipe(Pod::new(1, ordinal)));
    let plan = settle(&mut run);
    assert_eq!(
        (plan.steps, plan.refused),
        (vec![], vec![Refused::LostSlots { id, slots: 5_461, copies: vec![], former: None }])
    );
    let [heir, former] = [1, 0].map(|ordinal| run.world.up(Pod::new(0, ordinal)).unwrap());
    assert_eq!((heir.follows(), former.follows(), former.is_synced()), (None, Some(heir.id), true));
}

/// A pod that was replaced proves nothing: its process may run on where a machine is cut off.
#[test]
fn primaries_whose_pods_were_replaced_are_not_known_to_have_ended() {
    let mut run = without_files(1);
    let ids = LOST.map(|pod| run.world.up(pod).unwrap().id);
    LOST.into_iter().for_each(|pod| run.crash(pod, true));
    let mut plan = Plan::default();
    for _ in 0..30 {
        plan = round(&mut run);
        assert_eq!(promotions(&plan), []);
    }
    let refused = |shard: u16| Refused::NoQuorum {
        alive: 1,
        refuse: 0,
        of: 3,
        shard,
        primary: ids[usize::from(shard)],
        replica: Pod::new(shard, 1),
        unproven: vec![(ids[usize::from(shard)], None)],
    };
    assert_eq!(plan.refused, [refused(0), refused(1)]);
    let id = ids[0].short();
    assert_eq!(
        plan.refused[0].to_string(),
        format!(
            "quorum lost: 1 of 3 primaries can vote for replica 0-1, so it is not elected in place of {id}, the primary of shard 0; and without votes it \
             is not promoted, as nobody says that these have ended, or follow that primary still: node {id} of shard 0, whose pod is another by \
             now. If you know that none of them runs any more (on a machine that is cut off, say), create a failover of shard 0 that names 0-1 \
             as candidate, with mode Force \
             and acceptDataLoss"
        )
    );
    // A person who does not accept it is told so at once.
    let ask = |accept_data_loss| {
        let (from, how) = (ids[0], FailoverHow::Force);
        Some(FailoverRequest { shard: 0, from, candidate: None, how, accept_data_loss })
    };
    run.desired.failover = ask(false);
    let plan = round(&mut run);
    assert_eq!((promotions(&plan), plan.operation), (vec![], Some(Operation::Refused)));
    run.desired.failover = ask(true);
    let mut all = Vec::new();
    for _ in 0..12 {
        all.extend(promotions(&round(&mut run)));
    }
    assert_eq!(all, [(Pod::new(0, 1), FailoverHow::Takeover)]);
    assert_eq!(settle(&mut run).operation, Some(Operation::Done));
}

/// Both were replaced while they run on, and whoever asks does not reach them. Gives their identities.
fn run_on_unseen(run: &mut Run) -> [NodeId; 2] {
    LOST.map(|pod| {
        let id = run.world.up(pod).unwrap().id;
        let outside = run.world.run_on(pod);
        run.world.homes.get_mut(&outside).unwrap().hidden = true;
        run.world.homes.get_mut(&outside).unwrap().cut_off = true;
        id
    })
}

#[test]
fn a_majority_that_runs_on_unseen_is_not_replaced_and_the_model_would_show_it() {
    let mut run = without_files(1);
    run_on_unseen(&mut run);
    for _ in 0..30 {
        assert_eq!(promotions(&round(&mut run)), []);
    }
    /// Whoever is not seen has ended.
    fn rash(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let nodes = observed.members.values().filter_map(|member| member.node());
        let ended = nodes.flat_map(|node| node.peers.keys().map(|id| (*id, u64::MAX))).collect();
        plan::plan(desired, &Observed { ended, ..observed.clone() }, limits)
    }
    run.planner = rash;
    let fault = (0..30).find_map(|_| run.round(usize::MAX, false).err());
    let fault = fault.expect("the checks do not see it");
    assert!(fault.contains("takes over without votes") || fault.contains("forces out a living primary"), "{fault}");
}

#[test]
fn another_member_that_is_not_seen_is_waited_for_before_a_promotion_without_votes() {
    let mut run = without_files(2);
    LOST.into_iter().for_each(|pod| run.crash(pod, false));
    run.tick(6);
    let unseen = Pod::new(0, 2);
    run.world.homes.get_mut(&unseen).unwrap().hidden = true;
    let plan = round(&mut run);
    assert!(promotions(&plan).iter().all(|(pod, _)| pod.shard != 0), "{plan:?}");
    assert!(matches!(run.world.observe().members[&unseen].seen, Seen::Unknown { .. }));
    run.rejoin_all();
    assert!(settle(&mut run).is_satisfied());
}

/// Two of three and one replica of theirs are cut off together, go on for long, and end in their pods; then the network is whole again.
#[test]
fn a_majority_that_went_on_where_nobody_looked_loses_nothing_of_that() {
    let mut run = Run::created(Desired::cluster(3, 1), true);
    run.world.in_two = true;
    LOST.into_iter().for_each(|pod| run.world.homes.get_mut(&pod).unwrap().cut_off = true);
    for _ in 0..20 {
        run.tick(1);
        run.write_everywhere();
    }
    for pod in LOST {
        run.crash(pod, false);
        let home = run.world.homes.get_mut(&pod).unwrap();
        (home.process, home.waits) = (Process::Starting, true);
    }
    let mut refused = Vec::new();
    for _ in 0..30 {
        let plan = round(&mut run);
        assert_eq!(promotions(&plan), []);
        refused = plan.refused;
    }
    assert!(
        matches!(refused[..], [Refused::StaleCopy { shard: 0, .. }, Refused::StaleCopy { shard: 1, .. }]),
        "{refused:?}"
    );
    // Their agents' time is over, and they start with what they have.
    run.world.homes.values_mut().for_each(|home| home.waits = false);
    assert!(settle(&mut run).is_satisfied());
}
