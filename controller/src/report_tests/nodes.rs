//! What would be lost with a machine.

use super::*;
use crate::testing::in_sync;

/// A healthy cluster whose members run on these nodes, in order of their places.
fn on_nodes(nodes: [&str; 6], spread: &str) -> Scene {
    let mut scene = Scene::healthy();
    let spec = json!({"shards": 3, "replicasPerShard": 1, "placement": {"spread": spread}});
    scene.cluster = cluster(&spec);
    for (member, node) in scene.probed.observed.members.values_mut().zip(nodes) {
        member.site = plan::Site::At(node.to_owned());
    }
    scene
}

/// Before, a cluster that had lost a node said that nothing was wrong.
#[test]
fn members_that_are_not_seen_are_named_with_their_nodes_and_since_when() {
    let mut scene = on_nodes(["a", "b", "a", "b", "c", "a"], "Preferred");
    let lose = |scene: &mut Scene, shard: u16, ordinal: u16, seconds: i64| {
        let pod = Pod::new(shard, ordinal);
        let member = scene.probed.observed.members.get_mut(&pod).unwrap();
        member.last_id = member.node().map(|node| node.id);
        member.seen = Seen::Unknown { since_millis: 0 };
        scene.probed.facts.remove(&pod);
        let since = Timestamp::from_second(now().as_second() - seconds).unwrap();
        scene.probed.unseen.insert(pod, since);
        since
    };
    lose(&mut scene, 0, 0, 19);
    assert_eq!(scene.says("Degraded").0, Status::False, "a pod that is restarted is not seen for a while");
    let since = lose(&mut scene, 0, 0, 20);
    let primary = format!("1 primaries do not answer: orders-0-0 on node a since {since}");
    assert_eq!(scene.says("Degraded"), said(Status::True, "PrimariesUnseen", &primary));
    scene.plan.refused.push(plan::Refused::LostSlots { id: id(0, 0), slots: 10, copies: Vec::new(), former: None });
    let (_, reason, text) = scene.says("Degraded");
    assert!(reason == "NeedsAPerson" && text.ends_with(&format!("; {primary}")), "{text}");
    scene.plan.refused.clear();
    // Its replica has taken over.
    node(&mut scene.probed, 0, 1).role = plan::Role::Primary { slots: plan::SlotSet::range(0, 5460) };
    let replica = format!("1 members do not answer: orders-0-0 on node a since {since}");
    assert_eq!(scene.says("Degraded"), said(Status::True, "MembersUnseen", &replica));
    // What cannot be done meanwhile is told as well.
    scene.troubles.push("Service orders cannot be written: no".to_owned());
    let both = format!("{replica}; Service orders cannot be written: no");
    assert_eq!(scene.says("Degraded"), said(Status::True, "MembersUnseen", &both));
    // Nobody is left who knows which one it was.
    for (shard, ordinal) in [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1)] {
        lose(&mut scene, shard, ordinal, 30);
    }
    let (_, reason, text) = scene.says("Degraded");
    assert!(reason == "PrimariesUnseen" && text.contains("orders-2-1 on node a since "), "{text}");
}

/// Before, a primary that stood still beside its agent was one that had not started yet, and nothing was wrong.
#[test]
fn a_server_that_runs_and_does_not_answer_is_told_so() {
    let mut scene = on_nodes(["a", "b", "a", "b", "c", "a"], "Preferred");
    let pod = Pod::new(0, 0);
    let member = scene.probed.observed.members.get_mut(&pod).unwrap();
    member.last_id = member.node().map(|node| node.id);
    member.seen = Seen::Starting;
    scene.probed.facts.remove(&pod);
    scene.plan.waiting.push(plan::Waiting::Start { pod });
    let (_, _, text) = scene.says("Progressing");
    assert_eq!(text, "member 0-0 has not started yet");
    assert_eq!(scene.says("Degraded").0, Status::False);
    scene.probed.silent.insert(pod, now());
    let (_, _, text) = scene.says("Progressing");
    assert_eq!(text, "member 0-0 has not started yet", "it may not listen yet");
    let mut silent_for = |seconds: i64| {
        let since = Timestamp::from_second(now().as_second() - seconds).unwrap();
        scene.probed.silent.insert(pod, since);
        let (_, _, text) = scene.says("Progressing");
        let expected = format!(
            "redis-server of pod orders-0-0 runs and has not answered since {since}; its liveness probe restarts it within minutes if its agent hears nothing either"
        );
        assert_eq!(text, expected);
        (scene.says("Degraded"), since)
    };
    assert_eq!(silent_for(19).0.0, Status::False, "one that was just started does not answer for a while");
    let (degraded, since) = silent_for(20);
    let text = format!("1 primaries do not answer: orders-0-0 on node a since {since}");
    assert_eq!(degraded, said(Status::True, "PrimariesUnseen", &text));
    assert_eq!(scene.report().shards[0].members[0].state, MemberState::Unknown);
    // Before, one that refuses was one that does not answer, where the remedy is a password.
    scene.probed.unread.insert(pod, "WRONGPASS invalid username-password pair".to_owned());
    let refuses = format!(
        "redis-server of pod orders-0-0 runs and has refused what KUN asks since {since} (WRONGPASS invalid username-password pair)"
    );
    assert_eq!(scene.says("Progressing").2, refuses);
    let text = format!("{text} (it refuses what KUN asks: WRONGPASS invalid username-password pair)");
    assert_eq!(scene.says("Degraded"), said(Status::True, "PrimariesUnseen", &text));
    scene.probed.silent.clear();
    scene.probed.unread.clear();
    assert_eq!(scene.report().shards[0].members[0].state, MemberState::Joining);
}

/// Before, every member of a shard without slots was one of its primaries.
#[test]
fn a_replica_of_a_primary_without_slots_is_no_primary_that_does_not_answer() {
    let mut scene = on_nodes(["a", "b", "a", "b", "c", "a"], "Preferred");
    node(&mut scene.probed, 2, 0).role = plan::Role::Primary { slots: plan::SlotSet::EMPTY };
    let pod = Pod::new(2, 1);
    let member = scene.probed.observed.members.get_mut(&pod).unwrap();
    member.last_id = member.node().map(|node| node.id);
    member.seen = Seen::Starting;
    scene.probed.facts.remove(&pod);
    scene.probed.silent.insert(pod, Timestamp::from_second(now().as_second() - 20).unwrap());
    let (_, reason, text) = scene.says("Degraded");
    assert_eq!(reason, "MembersUnseen", "{text}");
}

#[test]
fn a_member_that_waits_for_a_volume_in_use_is_told_with_its_age() {
    let mut scene = Scene::healthy();
    let pod = Pod::new(0, 1);
    scene.probed.observed.members.get_mut(&pod).unwrap().seen = Seen::Starting;
    scene.probed.volume_in_use.insert(pod, 0);
    assert_eq!(scene.says("Degraded").0, Status::False);
    scene.probed.volume_in_use.insert(pod, 7);
    let (status, reason, text) = scene.says("Degraded");
    assert_eq!((status, reason.as_str()), (Status::True, "VolumeInUse"));
    assert!(
        text.starts_with(
            "1 members wait for their volumes, which other pods still use; the first is orders-0-1, for 7 min."
        ),
        "{text}"
    );
}

#[test]
fn a_template_that_could_not_be_written_is_no_template_that_is_in_use() {
    let mut scene = Scene::healthy();
    scene.unwritten = BTreeSet::from([1, 2]);
    let text = "2 StatefulSets are not written as specified, and no pod is restarted for that; the first is of shard 1";
    assert_eq!(scene.says("UpToDate"), said(Status::False, "NotWritten", text));
}

/// Before, it was said of every new shard, until its first slot had come, that its primary does not answer.
#[test]
fn a_primary_without_slots_is_one_that_answers() {
    let mut scene = Scene::healthy();
    node(&mut scene.probed, 1, 0).role = plan::Role::Primary { slots: plan::SlotSet::EMPTY };
    let text = "1 shards have too few copies in sync; shard 1 has 0 of 2";
    assert_eq!(scene.says("DataAtRisk"), said(Status::True, "TooFewCopies", text));
}

/// Before, it counted for a complete copy of the shard that it was made for.
#[test]
fn a_copy_of_another_shard_is_none_of_a_primary_that_is_gone() {
    let mut scene = Scene::healthy();
    scene.probed.observed.members.get_mut(&Pod::new(1, 0)).unwrap().seen = Seen::Stopped;
    let told = |copies| {
        let text = format!(
            "1 shards have too few copies in sync; shard 1 has {copies} of 2 complete copies, and no primary that answers"
        );
        said(Status::True, "TooFewCopies", &text)
    };
    assert_eq!(scene.says("DataAtRisk"), told(1));
    node(&mut scene.probed, 1, 1).role = in_sync(id(0, 0));
    assert_eq!(scene.says("DataAtRisk"), told(0));
}

#[test]
fn copies_of_a_shard_on_one_node_are_a_risk_where_there_are_others() {
    let safe = said(Status::False, "AllCopiesInSync", "every shard has 2 copies in sync");
    let at_risk = |nodes, spread| on_nodes(nodes, spread).says("DataAtRisk");
    let text = "2 shards have copies on the same node; shard 0 has 2 of 2 on a";
    let two = ["a", "a", "b", "c", "c", "c"];
    assert_eq!(at_risk(two, "Preferred"), said(Status::True, "CopiesShareANode", text));
    assert_eq!(at_risk(two, "Required"), said(Status::True, "CopiesShareANode", text));
    assert_eq!(at_risk(two, "Off"), safe);
    assert_eq!(at_risk(["a", "b", "b", "c", "c", "a"], "Required"), safe);
    // One node is a machine of its own, unless somebody said that it must not be.
    let text = "3 shards have copies on the same node; shard 0 has 2 of 2 on a";
    assert_eq!(at_risk(["a"; 6], "Preferred"), safe);
    assert_eq!(at_risk(["a"; 6], "Required"), said(Status::True, "CopiesShareANode", text));
}

#[test]
fn two_of_three_copies_on_one_node_are_a_risk_only_where_none_may_share_one() {
    let at_risk = |spread: &str| {
        let mut scene = Scene::healthy();
        scene.cluster = cluster(&json!({"shards": 3, "replicasPerShard": 2, "placement": {"spread": spread}}));
        scene.probed = healthy(3, 3);
        for (pod, member) in &mut scene.probed.observed.members {
            let node = ["a", "b", "c"][usize::from(pod.shard + pod.ordinal.min(1)) % 3];
            member.site = plan::Site::At(node.to_owned());
        }
        scene.says("DataAtRisk")
    };
    let text = "3 shards have copies on the same node; shard 0 has 2 of 3 on b";
    assert_eq!(at_risk("Required"), said(Status::True, "CopiesShareANode", text));
    assert_eq!(at_risk("Preferred"), said(Status::False, "AllCopiesInSync", "every shard has 3 copies in sync"));
}

#[test]
fn half_of_the_primaries_on_one_node_is_a_risk_when_no_step_mends_it_and_does_not_come_and_go() {
    let mut scene = on_nodes(["a", "b", "a", "b", "b", "a"], "Preferred");
    let text = "2 of 3 primaries are on node a; without it there is no majority that could elect others";
    let told = said(Status::True, "MajorityOnOneNode", text);
    assert_eq!(scene.says("DataAtRisk"), told);
    assert_eq!(scene.says("Ready").0, Status::True);
    // While something is on its way it may be over with the next look.
    let rest = Waiting::Rest { shard: 0, since_millis: 1_000, of_millis: 20_500 };
    scene.plan.waiting.push(rest);
    let safe = said(Status::False, "AllCopiesInSync", "every shard has 2 copies in sync");
    assert_eq!(scene.says("DataAtRisk"), safe);
    // What has been told stays told until it is no longer so.
    scene.plan.waiting.clear();
    scene.cluster.status = Some(scene.report());
    scene.plan.waiting.push(Waiting::Rest { shard: 0, since_millis: 1_000, of_millis: 20_500 });
    assert_eq!(scene.says("DataAtRisk"), told);
    scene.probed.observed.members.get_mut(&Pod::new(0, 0)).unwrap().site = plan::Site::At("c".to_owned());
    assert_eq!(scene.says("DataAtRisk"), safe);
}

#[test]
fn what_a_primary_waits_for_before_it_starts_is_told() {
    let mut scene = Scene::healthy();
    scene.plan.waiting.push(Waiting::Primary { shard: 1, slots: 5461 });
    let why = "1 primaries answer where 2 are needed (waiting for 35 s)";
    scene.probed.stuck.insert(Pod::new(1, 0), why.to_owned());
    let told = scene.says("Progressing");
    assert!(told.2.contains(why), "{told:?}");
}

#[test]
fn missing_copies_are_told_before_what_one_more_failure_would_take() {
    let mut scene = on_nodes(["a", "a", "a", "b", "b", "a"], "Preferred");
    node(&mut scene.probed, 1, 1).role = out_of_sync(id(1, 0));
    assert_eq!(scene.says("DataAtRisk").1, "TooFewCopies");
    node(&mut scene.probed, 1, 1).role = in_sync(id(1, 0));
    assert_eq!(scene.says("DataAtRisk").1, "CopiesShareANode");
}

/// Before, the pod's log alone told of it.
#[test]
fn writes_that_a_start_has_cost_are_told_for_a_day_with_what_to_do() {
    let mut scene = Scene::healthy();
    let at = |seconds: i64| Timestamp::from_second(1000 - seconds).unwrap();
    let what = "started with a snapshot of 600 s ago: what was written after that snapshot is lost";
    let lose = |scene: &mut Scene, pod, ago| {
        scene.probed.lost.insert(pod, types::agent::LossReport { at: at(ago), what: what.to_owned() });
    };
    lose(&mut scene, Pod::new(1, 0), 86_400);
    assert_eq!(scene.says("DataAtRisk").1, "AllCopiesInSync");
    lose(&mut scene, Pod::new(1, 0), 86_399);
    let next = "What clients or a backup have of that can be written again; with storage and spec.persistence.appendOnly EverySec or Always a start loads \
                every write that its file has";
    let text = format!("writes were lost, or may have been: at 1969-12-31T00:16:41Z member orders-1-0 {what}. {next}");
    assert_eq!(scene.says("DataAtRisk"), said(Status::True, "WritesLost", &text));
    assert_eq!((scene.says("Ready").0, scene.says("Degraded").0), (Status::True, Status::False), "it serves");
    lose(&mut scene, Pod::new(0, 0), 60);
    let text = format!(
        "writes were lost, or may have been, at the starts of 2 members; the latest: at 1970-01-01T00:15:40Z member orders-0-0 {what}. {next}"
    );
    assert_eq!(scene.says("DataAtRisk"), said(Status::True, "WritesLost", &text));
    node(&mut scene.probed, 1, 1).role = out_of_sync(id(1, 0));
    let text = format!("1 shards have too few copies in sync; shard 1 has 1 of 2; {text}");
    assert_eq!(scene.says("DataAtRisk"), said(Status::True, "WritesLost", &text));
    scene.cluster = cluster(&json!({
        "shards": 3, "replicasPerShard": 1, "storage": {"size": "1Gi"}, "persistence": {"appendOnly": "Always"}
    }));
    assert!(
        scene.says("DataAtRisk").2.ends_with("a backup have of that can be written again"),
        "it has what is advised"
    );
}
