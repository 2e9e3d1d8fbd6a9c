#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use plan::{Refused, Waiting};
use serde_json::{Value, json};

use super::*;
use crate::probe::Probed;
use crate::testing::{healthy, id, in_sync, node, out_of_sync, resolved};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

struct Scene {
    resolved: Resolved,
    probed: Probed,
    plan: Plan,
    restarted: BTreeSet<Pod>,
    done: Vec<String>,
    failed: Vec<String>,
    syncing: BTreeSet<Pod>,
    operation: RedisOperation,
    second: i64,
}

impl Scene {
    fn new(spec: &Value) -> Self {
        let operation = json!({
            "metadata": {"name": "o1", "namespace": "shop", "uid": "op-1"},
            "spec": spec, "status": {"requestedBy": "alice"},
        });
        Self {
            resolved: resolved(&json!({"shards": 2, "replicasPerShard": 1})),
            probed: healthy(2, 2),
            plan: Plan::default(),
            restarted: BTreeSet::new(),
            done: vec!["a step".to_owned()],
            failed: Vec::new(),
            syncing: BTreeSet::new(),
            operation: serde_json::from_value(operation).unwrap(),
            second: 100,
        }
    }

    fn round(&mut self) -> RedisOperationStatus {
        let round = Round {
            resolved: &self.resolved,
            observed: &self.probed.observed,
            plan: &self.plan,
            restarted: &self.restarted,
            done: &self.done,
            failed: &self.failed,
            syncing: &self.syncing,
            now: at(self.second),
        };
        let status = advance(&self.operation, round);
        self.operation.status = Some(status.clone());
        status
    }
}

fn failover() -> Scene {
    Scene::new(&json!({"clusterName": "orders", "failover": {"shard": 1, "candidate": "orders-1-1"}}))
}

#[test]
fn a_failover_records_who_the_primary_was_before_anything_is_done() {
    let mut scene = failover();
    assert_eq!(request(&scene.operation), None);
    let status = scene.round();
    assert_eq!((status.phase, status.start_time), (OperationPhase::Running, Some(at(100))));
    assert_eq!(status.requested_by.as_deref(), Some("alice"));
    assert_eq!(status.steps, [format!("the primary was {} (member 1-0)", id(1, 0))]);
    let expected = FailoverRequest {
        shard: 1,
        from: id(1, 0),
        candidate: Some(1),
        how: FailoverHow::Coordinated,
        accept_data_loss: false,
    };
    assert_eq!(request(&scene.operation), Some(expected));
}

#[test]
fn a_failover_that_names_no_shard_moves_nothing() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "failover": {}}));
    let status = scene.round();
    let why = "there is no shard -1: the cluster has 2, counted from 0";
    assert_eq!((status.phase, status.conditions[0].message.as_str()), (OperationPhase::Failed, why));
    assert_eq!(request(&scene.operation), None);
}

/// Before, one look at which the shard was silent ended the failover as impossible.
#[test]
fn a_failover_of_a_shard_that_is_silent_waits_until_it_answers() {
    let mut scene = failover();
    let healthy = scene.probed.observed.members.clone();
    for (_, member) in scene.probed.observed.members.iter_mut().filter(|(pod, _)| pod.shard == 1) {
        member.seen = Seen::Unknown { since_millis: 3000 };
    }
    let silent = "no member of shard 1 that answers knows its primary";
    for second in [100, 160, 400] {
        scene.second = second;
        let status = scene.round();
        let condition = &status.conditions[0];
        assert_eq!((status.phase, condition.message.as_str()), (OperationPhase::Pending, silent), "{second}");
        assert_eq!(condition.last_transition_time, at(100));
    }
    let mut late = scene.operation.clone();
    scene.probed.observed.members = healthy;
    let status = scene.round();
    assert_eq!((status.phase, status.start_time, status.conditions), (OperationPhase::Running, Some(at(400)), vec![]));

    std::mem::swap(&mut late, &mut scene.operation);
    for member in scene.probed.observed.members.values_mut() {
        member.seen = Seen::Unknown { since_millis: 3000 };
    }
    scene.second = 401;
    let status = scene.round();
    let text = format!("given up after 300 s: {silent}");
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (OperationPhase::Failed, text.as_str()));
    assert_eq!(status.conditions[1].reason, "Timeout");
}

/// Before, it "succeeded" at once.
#[test]
fn a_failover_to_who_is_the_primary_already_fails_with_that_word() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "failover": {"shard": 1, "candidate": "orders-1-0"}}));
    let status = scene.round();
    let why = "pod orders-1-0 is the primary of shard 1 already";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (OperationPhase::Failed, why));
}

/// Before, the copy of that ordinal was promoted, or any.
#[test]
fn a_failover_to_a_pod_of_another_shard_or_cluster_fails() {
    for candidate in ["orders-0-1", "other-1-1", "orders-1-01", "orders", "orders-1-"] {
        let mut scene = Scene::new(&json!({"clusterName": "orders", "failover": {"shard": 1, "candidate": candidate}}));
        let status = scene.round();
        let why = format!("pod {candidate} is no member of shard 1");
        assert_eq!((status.phase, &status.conditions[1].message), (OperationPhase::Failed, &why));
    }
}

#[test]
fn only_a_failover_that_succeeded_has_placed_a_primary() {
    let mut scene = failover();
    let mut placed = |phase| {
        scene.operation.status = Some(RedisOperationStatus { phase, ..RedisOperationStatus::default() });
        super::placed(&scene.operation)
    };
    assert_eq!(placed(OperationPhase::Succeeded), Some(1));
    for phase in [OperationPhase::Pending, OperationPhase::Running, OperationPhase::Failed, OperationPhase::Cancelled] {
        assert_eq!(placed(phase), None, "{phase:?}");
    }
    let mut restart = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    restart.operation.status =
        Some(RedisOperationStatus { phase: OperationPhase::Succeeded, ..RedisOperationStatus::default() });
    assert_eq!(super::placed(&restart.operation), None);
}

#[test]
fn it_succeeds_only_when_every_node_has_seen_it() {
    let mut scene = failover();
    scene.round();
    scene.plan.operation = Some(plan::Operation::Running);
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.plan.operation = Some(plan::Operation::Done);
    let status = scene.round();
    assert_eq!((status.phase, status.completion_time), (OperationPhase::Succeeded, Some(at(100))));
    assert_eq!(status.steps.len(), 3);
    assert_eq!(request(&scene.operation), None);
}

#[test]
fn a_refusal_or_a_long_wait_ends_it_with_the_reason() {
    let mut scene = failover();
    scene.round();
    scene.plan.operation = Some(plan::Operation::Refused);
    scene.plan.refused.push(Refused::NoCandidate { shard: 1, candidate: None });
    let status = scene.round();
    assert_eq!(status.phase, OperationPhase::Failed);
    assert_eq!(status.conditions[1].message, "shard 1 has no replica that could become its primary");

    let mut scene = failover();
    scene.round();
    scene.plan.operation = Some(plan::Operation::Running);
    scene.plan.waiting.push(Waiting::Loading { pod: Pod::new(1, 1) });
    scene.second += 301;
    let status = scene.round();
    let text = "given up after 300 s: member 1-1 is loading its data set";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (OperationPhase::Failed, text));
}

#[test]
fn cancel_stops_before_the_next_step_but_cannot_undo_what_is_done() {
    let mut scene = failover();
    scene.operation.spec.cancel = true;
    assert_eq!(scene.round().phase, OperationPhase::Cancelled);

    let mut scene = failover();
    scene.round();
    scene.operation.spec.cancel = true;
    assert_eq!(request(&scene.operation), None);
    assert_eq!(scene.round().phase, OperationPhase::Cancelled);

    let mut scene = failover();
    scene.round();
    scene.operation.spec.cancel = true;
    scene.plan.operation = Some(plan::Operation::Done);
    assert_eq!(scene.round().phase, OperationPhase::Succeeded);
}

#[test]
fn a_shard_that_does_not_exist_fails_at_once() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "failover": {"shard": 9}}));
    let status = scene.round();
    let text = "there is no shard 9: the cluster has 2, counted from 0";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (OperationPhase::Failed, text));
}

#[test]
fn a_dead_primary_is_named_by_its_replica() {
    let mut scene = failover();
    scene.probed.observed.members.get_mut(&Pod::new(1, 0)).unwrap().seen = Seen::Stopped;
    assert_eq!(scene.round().steps, [format!("the primary was {} (as member 1-1 says)", id(1, 0))]);
}

/// Before, it was over the new one that the first replica had just been made to follow, and no order meant the copies of the gone one.
#[test]
fn a_failover_is_over_a_primary_that_is_gone_before_a_new_one_without_slots() {
    let force = json!({"shard": 1, "candidate": "orders-1-2", "mode": "Force", "acceptDataLoss": true});
    let mut scene = Scene::new(&json!({"clusterName": "orders", "failover": force}));
    scene.resolved = resolved(&json!({"shards": 2, "replicasPerShard": 2}));
    scene.probed = healthy(2, 3);
    let (blank, gone) = (id(1, 9), id(1, 8));
    let lead = node(&mut scene.probed, 1, 0);
    (lead.id, lead.role) = (blank, plan::Role::Primary { slots: plan::SlotSet::EMPTY });
    node(&mut scene.probed, 1, 1).role = in_sync(blank);
    node(&mut scene.probed, 1, 2).role = out_of_sync(gone);
    assert_eq!(scene.round().steps, [format!("the primary was {gone} (as member 1-2 says)")]);
    assert_eq!(request(&scene.operation).unwrap().from, gone);
    // Of two that are gone the one that the first of their replicas names.
    node(&mut scene.probed, 1, 1).role = out_of_sync(id(1, 7));
    scene.operation.status = None;
    assert_eq!(scene.round().steps, [format!("the primary was {} (as member 1-1 says)", id(1, 7))]);
}

#[test]
fn a_restart_counts_pods_and_ends_when_all_are_back_and_nothing_is_waited_for() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {"shards": [0]}}));
    let progress = |done| Some(Progress { done, total: 2, unit: "pods".to_owned() });
    assert_eq!(scene.round().progress, progress(0));
    assert_eq!(running_restart(&scene.operation), Some("op-1"));
    scene.restarted = [Pod::new(0, 1), Pod::new(1, 0)].into();
    assert_eq!(scene.round().progress, progress(1));
    scene.restarted = [Pod::new(0, 0), Pod::new(0, 1)].into();
    scene.probed.observed.members.get_mut(&Pod::new(0, 0)).unwrap().seen = Seen::Starting;
    assert_eq!(scene.round().progress, progress(1));
    scene.probed = healthy(2, 2);
    scene.plan.waiting.push(Waiting::Start { pod: Pod::new(0, 0) });
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.plan.waiting.clear();
    let status = scene.round();
    assert_eq!((status.phase, status.progress), (OperationPhase::Succeeded, progress(2)));
    assert_eq!(running_restart(&scene.operation), None);
}

/// Before, everybody who was not being restarted counted as restarted: 3 of 4.
#[test]
fn a_restart_that_is_cancelled_at_its_first_pod_has_restarted_one() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    scene.round();
    scene.restarted = [Pod::new(0, 1)].into();
    scene.probed.observed.members.get_mut(&Pod::new(0, 1)).unwrap().seen = Seen::Starting;
    scene.operation.spec.cancel = true;
    let status = scene.round();
    let progress = Progress { done: 0, total: 4, unit: "pods".to_owned() };
    assert_eq!((status.phase, status.progress), (OperationPhase::Cancelled, Some(progress)));
    assert_eq!(status.conditions[1].message, "cancelled on request after 1 of 4 pods");
    assert_eq!(status.steps, ["a step"]);
}

#[test]
fn the_record_of_a_long_operation_keeps_its_first_step_and_the_latest() {
    let mut steps = vec!["first".to_owned()];
    for n in 0..200 {
        note(&mut steps, &[n.to_string()]);
    }
    assert_eq!((steps.len(), steps[0].as_str(), steps[1].as_str()), (64, "first", "137"));
    assert_eq!(steps.last().map(String::as_str), Some("199"));
}

#[test]
fn finished_records_go_after_their_time() {
    assert!(!expired(None, Some("1s"), true, at(9999)));
    assert!(expired(Some(at(0)), Some("10s"), true, at(10)));
    assert!(!expired(Some(at(0)), Some("10s"), true, at(9)));
    assert!(expired(Some(at(0)), None, true, at(3600)));
    assert!(!expired(Some(at(0)), None, false, at(999_999)));
}

/// Before, it ran for ever without a word, and nobody could ask for anything else.
#[test]
fn a_restart_that_does_not_move_says_why_and_is_given_up() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    scene.round();
    scene.plan.waiting = vec![Waiting::Unknown { pod: Pod::new(1, 0), since_millis: 5_000 }];
    scene.second = 200;
    let status = scene.round();
    let told = status.conditions[0].clone();
    assert_eq!((told.kind.as_str(), told.reason.as_str(), told.last_transition_time), ("Complete", "Waiting", at(200)));
    assert!(told.message.contains("1-0"), "{}", told.message);
    // Only numbers differ: that is worth no write.
    scene.plan.waiting = vec![Waiting::Unknown { pod: Pod::new(1, 0), since_millis: 90_000 }];
    scene.second = 300;
    assert_eq!(scene.round().conditions, status.conditions);
    // One pod has come back: what is waited for from now on has its own time.
    scene.restarted = [Pod::new(0, 1)].into();
    scene.second = 3_700;
    assert_eq!(scene.round().conditions[0].last_transition_time, at(3_700));
    scene.second = 3_700 + 3_600;
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.second = 3_700 + 3_601;
    let status = scene.round();
    assert_eq!((status.phase, status.conditions[1].reason.as_str()), (OperationPhase::Failed, "Timeout"));
    let text = &status.conditions[1].message;
    assert!(
        text.starts_with("given up after 1 of 4 pods, as none came back for 60 min: ") && text.contains("1-0"),
        "{text}"
    );
}

/// Before, a step that was planned at each look was taken for one that is done, and the hour never ended.
#[test]
fn a_restart_whose_steps_come_to_nothing_is_given_up() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    scene.round();
    let expect = plan::RestartAs::Replica(id(1, 1));
    scene.plan.steps = vec![plan::Step::Restart { pod: Pod::new(1, 1), expect }];
    scene.done.clear();
    let condition = scene.round().conditions[0].clone();
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("Waiting", "next: restart 1-1"));
    scene.second += 3_600;
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.second += 1;
    let status = scene.round();
    let text = "given up after 0 of 4 pods, as none came back for 60 min: next: restart 1-1";
    assert_eq!((status.phase, status.conditions[1].message.as_str()), (OperationPhase::Failed, text));
}

#[test]
fn what_is_waited_for_after_a_long_copy_has_its_own_hour() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    let pod = Pod::new(1, 1);
    scene.plan.waiting = vec![Waiting::Loading { pod }];
    // It begins, and then it waits.
    scene.round();
    scene.round();
    scene.second += 3_700;
    assert_eq!(scene.round().conditions[0].reason, "Copying");
    scene.plan.waiting = vec![Waiting::Disk { pod, fails: None }];
    let status = scene.round();
    assert_eq!((status.phase, status.conditions[0].reason.as_str()), (OperationPhase::Running, "Waiting"));
    scene.second += 3_601;
    assert_eq!(scene.round().phase, OperationPhase::Failed);
}

/// A restart of four pods that has begun.
fn restart() -> Scene {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    scene.round();
    scene
}

fn unlinked(pod: Pod) -> Waiting {
    Waiting::Sync { pod, link_up: false, lag_bytes: 0 }
}

/// Before, each copy that broke off gave it another hour.
#[test]
fn a_restart_whose_copy_breaks_off_again_and_again_is_given_up() {
    let mut scene = restart();
    let pod = Pod::new(1, 1);
    // A minute it loads, a minute it has no link, and only that counts.
    for minute in 0..=61 {
        scene.plan.waiting = vec![Waiting::Loading { pod }];
        assert_eq!(scene.round().phase, OperationPhase::Running, "{minute}");
        scene.second += 60;
        scene.plan.waiting = vec![unlinked(pod)];
        let phase = if minute > 60 { OperationPhase::Failed } else { OperationPhase::Running };
        assert_eq!(scene.round().phase, phase, "{minute}");
        scene.second += 60;
    }
}

/// Before, that a pod came back for the second time was progress, and that it was away as well.
#[test]
fn a_pod_that_comes_and_goes_is_no_progress_of_a_restart() {
    let mut scene = restart();
    let pod = Pod::new(0, 1);
    scene.restarted = [pod].into();
    scene.plan.waiting = vec![unlinked(Pod::new(1, 1))];
    let progress = Some(Progress { done: 1, total: 4, unit: "pods".to_owned() });
    assert_eq!(scene.round().progress, progress);
    scene.second += 1_800;
    let back = scene.probed.observed.members[&pod].seen.clone();
    scene.probed.observed.members.get_mut(&pod).unwrap().seen = Seen::Starting;
    let status = scene.round();
    assert_eq!((status.phase, status.progress), (OperationPhase::Running, progress));
    scene.second += 1_800;
    scene.probed.observed.members.get_mut(&pod).unwrap().seen = back;
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.second += 1;
    assert_eq!(scene.round().phase, OperationPhase::Failed);
}

/// Before, a copy could run for ever, and so could steps that are done at each look.
#[test]
fn whatever_goes_on_a_restart_without_a_pod_that_comes_back_ends() {
    let mut copies = restart();
    copies.plan.waiting = vec![Waiting::Loading { pod: Pod::new(1, 1) }];
    let mut moves = restart();
    moves.plan.steps = vec![plan::Step::Restart { pod: Pod::new(1, 1), expect: plan::RestartAs::NotRunning }];
    let text = "given up after 0 of 4 pods, as none came back for 1440 min: ";
    for (mut scene, why) in [(copies, "member 1-1 is loading its data set"), (moves, "next: restart 1-1")] {
        for second in [100, 50_000, 86_500] {
            scene.second = second;
            assert_eq!(scene.round().phase, OperationPhase::Running, "{why} {second}");
        }
        let mark = scene.operation.status.as_ref().unwrap().conditions.iter().find(|told| told.kind == "Progressing");
        let mark = mark.map(|mark| (mark.message.as_str(), mark.last_transition_time));
        assert_eq!(mark, Some(("0 of 4 pods are back", at(100))));
        scene.second += 1;
        let status = scene.round();
        let said = (status.phase, status.conditions[1].message.as_str());
        assert_eq!(said, (OperationPhase::Failed, format!("{text}{why}").as_str()));
    }
}

/// Slots come before restarts, and their moves may be slow on purpose, or held by a person or by a backup.
#[test]
fn a_restart_waits_for_slots_to_move_however_long_that_takes() {
    let who = |shard| plan::Who { pod: Pod::new(shard, 0), id: id(shard, 0) };
    let mut scene = restart();
    scene.plan.steps = vec![plan::Step::Move { from: who(0), to: who(1), slots: plan::SlotSet::range(5, 5) }];
    for second in [100, 4_000, 90_000, 200_000] {
        scene.second = second;
        assert_eq!(scene.round().phase, OperationPhase::Running, "{second}");
    }
    scene.plan.steps.clear();
    scene.plan.waiting = vec![Waiting::Start { pod: Pod::new(1, 1) }];
    for (second, phase) in
        [(200_100, OperationPhase::Running), (203_700, OperationPhase::Running), (203_701, OperationPhase::Failed)]
    {
        scene.second = second;
        assert_eq!(scene.round().phase, phase, "{second}");
    }
}

/// Before, it failed as "given up after 4 of 4 pods".
#[test]
fn a_restart_whose_pods_are_all_back_never_fails_for_others_work() {
    let mut scene = restart();
    scene.restarted = [Pod::new(0, 0), Pod::new(0, 1), Pod::new(1, 0), Pod::new(1, 1)].into();
    scene.plan.waiting = vec![unlinked(Pod::new(1, 1))];
    for second in [100, 4_000, 90_000] {
        scene.second = second;
        assert_eq!(scene.round().phase, OperationPhase::Running, "{second}");
    }
    scene.plan.waiting.clear();
    assert_eq!(scene.round().phase, OperationPhase::Succeeded);
}

/// Before, only its link was said to be down, and it was given up after an hour.
#[test]
fn a_copy_that_a_primary_sends_is_called_one_and_is_waited_for() {
    let mut scene = restart();
    let pod = Pod::new(1, 1);
    scene.plan.waiting = vec![unlinked(pod)];
    scene.syncing = [pod].into();
    let text =
        "replica 1-1 is not in sync: its link to the primary is down (its primary is sending it the whole data set)";
    let condition = scene.round().conditions[0].clone();
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("Copying", text));
    scene.second += 3_700;
    assert_eq!(scene.round().phase, OperationPhase::Running);
    // It is over, and was in vain.
    scene.syncing.clear();
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.second += 3_601;
    assert_eq!(scene.round().phase, OperationPhase::Failed);
}

#[test]
fn it_waits_for_a_copy_only_where_there_is_no_step_left() {
    let mut scene = restart();
    scene.done.clear();
    scene.plan.waiting = vec![Waiting::Loading { pod: Pod::new(1, 1) }];
    scene.plan.steps = vec![plan::Step::Restart { pod: Pod::new(0, 1), expect: plan::RestartAs::NotRunning }];
    let condition = scene.round().conditions[0].clone();
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("Waiting", "next: restart 0-1"));
    // One step between two looks takes nothing from the copy.
    scene.second += 3_700;
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.plan.steps.clear();
    assert_eq!(scene.round().conditions[0].reason, "Copying");
}

/// Before, it named the step and not what became of it.
#[test]
fn a_restart_that_is_given_up_names_the_refusal_it_last_met() {
    let given_up = |failed: Vec<String>, text: &str| {
        let mut scene = restart();
        scene.done.clear();
        scene.plan.steps = vec![plan::Step::Restart { pod: Pod::new(1, 1), expect: plan::RestartAs::NotRunning }];
        scene.failed = vec!["restart 1-1: member 1-1 lacks 7 bytes".to_owned()];
        let status = scene.round();
        assert_eq!(status.conditions[0].message, "restart 1-1: member 1-1 lacks 7 bytes");
        // Only numbers differ: that is worth no write.
        scene.failed = vec!["restart 1-1: member 1-1 lacks 8 bytes".to_owned()];
        assert_eq!(scene.round().conditions, status.conditions);
        scene.failed = failed;
        scene.second += 3_601;
        let status = scene.round();
        let text = format!("given up after 0 of 4 pods, as none came back for 60 min: {text}");
        assert_eq!((status.phase, status.conditions[1].message.clone()), (OperationPhase::Failed, text));
    };
    given_up(vec!["restart 1-1: no answer".to_owned()], "restart 1-1: no answer");
    given_up(vec![], "next: restart 1-1; refused last: restart 1-1: member 1-1 lacks 7 bytes");
}

/// Before, all the time the person took was taken from the hour of what came after.
#[test]
fn what_comes_after_a_persons_approval_has_its_own_time() {
    let mut scene = restart();
    scene.plan.waiting = vec![Waiting::Approval { shard: 0, pod: Pod::new(0, 0) }];
    scene.round();
    scene.second = 1_000_000;
    scene.plan.waiting = vec![unlinked(Pod::new(0, 1))];
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.second += 3_601;
    assert_eq!(scene.round().phase, OperationPhase::Failed);
}

/// Before, it took an hour, in which nobody could ask for anything else.
#[test]
fn a_restart_past_a_former_primary_that_keeps_keys_ends_soon_with_why() {
    let former = |pod| {
        let (slots, unknown) = (plan::SlotSet::range(5, 5), plan::SlotSet::EMPTY);
        Refused::Former { pod, keys: 3, lacking: slots.clone(), slots, unknown }
    };
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    scene.round();
    scene.restarted = [Pod::new(0, 1), Pod::new(1, 0), Pod::new(1, 1)].into();
    scene.plan.refused = vec![former(Pod::new(0, 0))];
    for second in [200, 500] {
        scene.second = second;
        assert_eq!(scene.round().phase, OperationPhase::Running);
    }
    // Something else may still happen.
    let late = scene.operation.clone();
    scene.second = 501;
    scene.plan.waiting = vec![Waiting::Start { pod: Pod::new(1, 1) }];
    assert_eq!(scene.round().phase, OperationPhase::Running);
    scene.plan.waiting.clear();
    scene.operation = late.clone();
    let status = scene.round();
    assert_eq!(status.phase, OperationPhase::Failed);
    let text = &status.conditions.iter().find(|condition| condition.reason == "Refused").unwrap().message;
    assert!(text.starts_with("3 of 4 pods were restarted: member 0-0 has been replaced as a primary"), "{text}");
    // It holds nobody back who is to be restarted.
    scene.operation = late;
    scene.plan.refused = vec![former(Pod::new(2, 0))];
    assert_eq!(scene.round().phase, OperationPhase::Running);
}

#[test]
fn a_restart_that_waits_for_a_person_is_not_given_up() {
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    scene.round();
    scene.plan.waiting = vec![Waiting::Approval { shard: 0, pod: Pod::new(0, 0) }];
    scene.round();
    scene.second = 1_000_000;
    assert_eq!(scene.round().phase, OperationPhase::Running);
}

#[test]
fn an_operation_that_cannot_begin_names_the_one_before_it_or_that_all_is_paused() {
    let before = failover().operation;
    let mut scene = Scene::new(&json!({"clusterName": "orders", "restart": {}}));
    let said =
        |status: &RedisOperationStatus| (status.conditions[0].reason.clone(), status.conditions[0].message.clone());
    let status = queued(&scene.operation, &before, at(7));
    let text = "the operation o1 has not ended; one of a cluster runs at a time";
    assert_eq!((status.phase, said(&status)), (OperationPhase::Pending, ("Queued".to_owned(), text.to_owned())));
    assert_eq!(said(&paused(&scene.operation, at(7))), ("Paused".to_owned(), PAUSED.to_owned()));
    scene.operation.spec.cancel = true;
    assert_eq!(queued(&scene.operation, &before, at(7)).phase, OperationPhase::Cancelled);
}
