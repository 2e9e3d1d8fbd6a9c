//! Do the checks bite? Planners broken on purpose, one fault each; every one must be caught within some thousand histories, while the real
//! planner lives through the same histories.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::Planner;
use crate::support::history::{
    Event, Setting, brutal, live_through, partings, peaceful, reversals, rolls, rough, setting, stale, unlinked,
    upgrades,
};
use plan::{
    Desired, Gap, Limits, Member, Node, Observed, PeerRole, Plan, Pod, ReleaseHow, RestartAs, Role, Seen, Site, Step,
    Waiting, Who, plan as sound,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Histories a fault may survive.
const PATIENCE: usize = 1_000;

fn histories<S: Strategy<Value = Event>>(number: usize, events: impl Fn() -> S) -> Vec<(Setting, Vec<Event>)> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = (setting(), prop::collection::vec(events(), 4..24));
    (0..number).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// The first complaint of the checks, if there is one.
fn complaint(planner: Planner, (setting, history): &(Setting, Vec<Event>)) -> Option<String> {
    match live_through(setting, history, planner) {
        Err(fault) => Some(fault),
        Ok((run, plan)) if plan.is_satisfied() => run.everything_reads_back().err(),
        Ok(_) => None,
    }
}

fn is_caught<S: Strategy<Value = Event>>(name: &str, broken: Planner, events: impl Fn() -> S) {
    is_caught_within(PATIENCE, name, broken, events);
}

fn is_caught_within<S: Strategy<Value = Event>>(patience: usize, name: &str, broken: Planner, events: impl Fn() -> S) {
    let caught = histories(patience, events).into_iter().find(|case| {
        let fault = complaint(broken, case).is_some();
        assert!(
            !fault || complaint(sound, case).is_none(),
            "the real planner fails, too: {:?}",
            complaint(sound, case)
        );
        fault
    });
    assert!(caught.is_some(), "{name} was not caught in {patience} histories");
}

fn nodes(observed: &Observed, mut change: impl FnMut(&mut Node)) -> Observed {
    let mut observed = observed.clone();
    for member in observed.members.values_mut() {
        if let Seen::Node(node) = &mut member.seen {
            change(node);
        }
    }
    observed
}

fn seen(observed: &Observed, change: impl Fn(Seen) -> Seen) -> Observed {
    let mut observed = observed.clone();
    for member in observed.members.values_mut() {
        member.seen = change(member.seen.clone());
    }
    observed
}

#[test]
fn promoting_whatever_is_there_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let all_synced = nodes(observed, |node| {
            if let Role::Replica { synced, link_up, lag_bytes, .. } = &mut node.role {
                (*synced, *link_up, *lag_bytes) = (true, true, 0);
            }
        });
        sound(desired, &all_synced, limits)
    }
    is_caught("every replica counts as synced", broken, rough);
}

#[test]
fn promoting_copies_that_are_not_whole_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let whole = nodes(observed, |node| {
            if let Role::Replica { gap, .. } = &mut node.role {
                *gap = Gap::default();
            }
        });
        sound(desired, &whole, limits)
    }
    is_caught("nobody looks what a primary did without its replica", broken, unlinked);
}

#[test]
fn building_on_disks_that_are_behind_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        sound(desired, &nodes(observed, |node| node.disk = plan::Disk::Current), limits)
    }
    is_caught("every disk counts as current", broken, rough);
}

#[test]
fn taking_unknown_for_absent_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let blind = seen(observed, |seen| if matches!(seen, Seen::Unknown { .. }) { Seen::Absent } else { seen });
        sound(desired, &blind, limits)
    }
    is_caught("unknown is taken for absent", broken, rough);
}

#[test]
fn building_on_pods_that_are_being_deleted_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut blind = observed.clone();
        blind.members.values_mut().for_each(|member| member.terminating = false);
        sound(desired, &blind, limits)
    }
    is_caught("a pod that is being deleted counts as one that stays", broken, partings);
}

#[test]
fn rolling_on_over_refused_parameters_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut blind = observed.clone();
        blind.unused.clear();
        sound(desired, &blind, limits)
    }
    is_caught("who does not use the parameters is not seen", broken, rolls);
}

#[test]
fn waiting_for_copies_that_never_come_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = plan::plan(desired, observed, limits);
        plan.steps.retain(|step| !matches!(step, Step::Restart { expect: RestartAs::Empty(_), .. }));
        plan
    }
    is_caught("one that waits for copies that never come", broken, upgrades);
}

#[test]
fn leaving_half_moved_slots_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let blind = nodes(observed, |node| {
            node.open.clear();
            node.foreign_keys.clear();
        });
        sound(desired, &blind, limits)
    }
    is_caught("half-moved slots are not seen", broken, peaceful);
}

#[test]
fn a_lazy_planner_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let plan = sound(desired, observed, limits);
        if (1..9_000).contains(&plan.slots_left) { Plan::default() } else { plan }
    }
    is_caught("the rest of the slots stays where it is", broken, peaceful);
}

#[test]
fn leaving_primaries_where_they_crowd_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut blind = observed.clone();
        blind.members.values_mut().for_each(|member| member.site = Site::Unknown);
        sound(desired, &blind, limits)
    }
    is_caught("sites are not looked at", broken, peaceful);
}

#[test]
fn handing_roles_over_that_crowd_nowhere_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        // All primaries seem to be at one site, wherever they are: it goes on for ever.
        let mut confused = observed.clone();
        for (pod, member) in &mut confused.members {
            let primary = matches!(&member.seen, Seen::Node(node) if node.is_primary());
            member.site = Site::At(if primary { "here".to_owned() } else { pod.to_string() });
        }
        sound(desired, &confused, limits)
    }
    is_caught("roles are handed over for no reason", broken, peaceful);
}

#[test]
fn an_endless_planner_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = sound(desired, observed, limits);
        let node = observed.members.iter().find_map(|(pod, member)| match &member.seen {
            Seen::Node(node) => Some(Who { pod: *pod, id: node.id }),
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
        });
        if plan.steps.is_empty() {
            plan.steps.extend(node.map(|node| Step::NodeTimeout { node, millis: 5_000 }));
        }
        plan
    }
    is_caught("there is always something to do", broken, peaceful);
}

#[test]
fn waiting_for_nothing_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = sound(desired, observed, limits);
        if plan.steps.is_empty() && !observed.members.is_empty() && desired.shards > 1 {
            plan.waiting.push(Waiting::Start { pod: Pod::new(0, 0) });
        }
        plan
    }
    is_caught("it waits for a member that is there", broken, peaceful);
}

#[test]
fn restarting_a_primary_without_a_hand_over_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = sound(desired, observed, limits);
        for step in &mut plan.steps {
            if let Step::Failover { replica, primary, .. } = step {
                let old = observed.members.iter().find(|(_, member)| is(member, *primary)).map(|(pod, _)| *pod);
                let pod = old.unwrap_or(replica.pod);
                *step = Step::Restart { pod, expect: RestartAs::OnlyCopy(*primary) };
            }
        }
        plan
    }
    fn is(member: &Member, id: plan::NodeId) -> bool {
        matches!(&member.seen, Seen::Node(node) if node.id == id)
    }
    is_caught("primaries are restarted in place", broken, peaceful);
}

#[test]
fn disturbing_two_shards_at_once_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        sound(desired, observed, &Limits { disturbed_shards: 2, ..limits.clone() })
    }
    is_caught("two shards are rolled at the same time", broken, peaceful);
}

#[test]
fn handing_a_role_back_while_the_last_election_counts_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        sound(desired, &Observed { elections: BTreeMap::new(), ..observed.clone() }, limits)
    }
    is_caught("a shard does not rest after an election", broken, peaceful);
}

#[test]
fn calling_elections_in_which_most_do_not_know_the_heir_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        // Everybody seems to know of every replica what it says of itself.
        let said = |id: &plan::NodeId| {
            observed.members.values().find_map(|member| match &member.seen {
                Seen::Node(node) if node.id == *id => Some(node.role.clone()),
                Seen::Node(_)
                | Seen::Absent
                | Seen::Stopped
                | Seen::Starting
                | Seen::Held { .. }
                | Seen::Unknown { .. } => None,
            })
        };
        let agreed = nodes(observed, |node| {
            for (id, peer) in &mut node.peers {
                if let Some(Role::Replica { of, .. }) = said(id) {
                    peer.role = PeerRole::Replica { of };
                }
            }
        });
        sound(desired, &agreed, limits)
    }
    is_caught("replicas count as known to everybody", broken, peaceful);
}

#[test]
fn blanking_every_held_member_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = sound(desired, observed, limits);
        for (pod, member) in &observed.members {
            let release = |how| Step::Release { pod: *pod, how };
            if matches!(member.seen, Seen::Held { .. }) && !plan.steps.contains(&release(ReleaseHow::Blank)) {
                plan.steps.retain(|step| *step != release(ReleaseHow::AsIs));
                plan.steps.insert(0, release(ReleaseHow::AsIs));
            }
        }
        plan
    }
    is_caught("held members are let go at once", broken, brutal);
}

#[test]
fn forgetting_too_early_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = sound(desired, observed, limits);
        let ghosts: Vec<_> = plan
            .waiting
            .iter()
            .filter_map(|reason| {
                if let Waiting::Unknown { pod, .. } = reason { observed.members.get(pod)?.last_id } else { None }
            })
            .collect();
        let by = observed.members.iter().filter_map(|(pod, member)| match &member.seen {
            Seen::Node(node) => Some(Who { pod: *pod, id: node.id }),
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
        });
        let by: Vec<Who> = by.collect();
        plan.steps.extend(ghosts.into_iter().filter(|_| !by.is_empty()).map(|id| Step::Forget { id, by: by.clone() }));
        plan
    }
    is_caught("members that are not seen are forgotten", broken, rough);
}

#[test]
fn retiring_a_shard_that_still_owns_slots_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = sound(desired, observed, limits);
        let surplus = observed.members.keys().map(|pod| pod.shard).filter(|shard| *shard >= desired.shards).max();
        if let Some(shard) = surplus {
            plan.steps.retain(|step| !matches!(step, Step::RetireShard { .. }));
            plan.steps.insert(0, Step::RetireShard { shard, leaving: Vec::new() });
        }
        plan
    }
    is_caught("shards go before they are empty", broken, peaceful);
}

#[test]
fn claims_below_an_epoch_are_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        // As if everybody had heard of every epoch and of every move.
        let owned = observed.members.values().filter_map(|member| match &member.seen {
            Seen::Node(node) => Some((node.id, node.slots().clone(), node.epoch)),
            Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
        });
        let owned: Vec<_> = owned.collect();
        let informed = nodes(observed, |node| {
            for (id, slots, epoch) in &owned {
                if let Some(peer) = node.peers.get_mut(id) {
                    peer.epoch = *epoch;
                    if let plan::PeerRole::Primary { slots: believed } = &mut peer.role {
                        believed.clone_from(slots);
                    }
                }
            }
        });
        sound(desired, &informed, limits)
    }
    // What carries the moves out looks, too, and stops most of it: it takes more histories to get past both.
    is_caught_within(PATIENCE * 8, "nobody looks whether gossip has arrived", broken, reversals);
}

#[test]
fn giving_up_slots_that_may_come_back_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut gone = observed.clone();
        let alive = |member: &Member| matches!(member.seen, Seen::Node(_));
        gone.members.retain(|_, member| alive(member));
        let mut small = desired.clone();
        small.adopt_lost_slots = true;
        let hopeless = gone.members.len() < observed.members.len() && !gone.members.is_empty();
        let mut plan = sound(desired, observed, limits);
        if hopeless {
            let adopt = |step: &Step| matches!(step, Step::Adopt { .. });
            let lost = plan.waiting.iter().any(|reason| matches!(reason, Waiting::Primary { slots, .. } if *slots > 0));
            if lost {
                small.shards = gone.members.keys().map(|pod| pod.shard).max().map_or(1, |shard| shard + 1);
                small.replicas = 0;
                gone.members.retain(|pod, _| pod.ordinal == 0);
                plan.steps = sound(&small, &gone, limits).steps.into_iter().filter(adopt).collect();
            }
        }
        plan
    }
    is_caught("slots of a member that may return are given away", broken, brutal);
}

#[test]
fn a_planner_with_moods_is_caught() {
    static MOOD: AtomicU32 = AtomicU32::new(0);
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut plan = sound(desired, observed, limits);
        if MOOD.fetch_add(1, Ordering::Relaxed) % 7 == 3 {
            plan.steps.pop();
        }
        plan
    }
    is_caught("the same input gives another plan", broken, stale);
}

#[test]
fn a_planner_that_does_not_see_twins_is_caught() {
    fn broken(desired: &Desired, observed: &Observed, limits: &Limits) -> Plan {
        let mut blind = Observed { elsewhere: BTreeMap::new(), ..observed.clone() };
        let mut known = Vec::new();
        for member in blind.members.values_mut() {
            if let Seen::Node(node) = &member.seen {
                if known.contains(&node.id) {
                    member.seen = Seen::Starting;
                } else {
                    known.push(node.id);
                }
            }
        }
        sound(desired, &blind, limits)
    }
    let lives = |planner: Planner, twin: fn(&mut crate::support::Run)| {
        let mut run = crate::support::Run::created(Desired::cluster(3, 1), true);
        run.planner = planner;
        twin(&mut run);
        (0..40).try_for_each(|_| {
            run.round(usize::MAX, false)?;
            run.tick(1);
            Ok::<(), String>(())
        })
    };
    let ways: [fn(&mut crate::support::Run); 3] = [
        |run| run.world.copy_volume(Pod::new(0, 0), Pod::new(1, 0)),
        |run| {
            run.starts_beside(Pod::new(0, 0)).unwrap();
        },
        |run| {
            let _ = run.world.run_on(Pod::new(0, 0));
        },
    ];
    for twin in ways {
        lives(sound, twin).unwrap();
        let fault = lives(broken, twin).unwrap_err();
        let caught = ["while a node runs twice", "touches a shard of a node that runs twice"];
        assert!(caught.iter().any(|words| fault.contains(words)), "{fault}");
    }
}
