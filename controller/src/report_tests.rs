#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use plan::{Pod, Waiting};
use serde_json::json;
use types::cluster::{MemberState, Role};

use super::*;
use crate::testing::{cluster, healthy, id, node, resolved};

fn now() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

struct Scene {
    cluster: RedisCluster,
    probed: Probed,
    plan: Plan,
    temporary: BTreeMap<String, String>,
    troubles: Vec<String>,
    reach: Reach,
}

impl Scene {
    fn healthy() -> Self {
        let spec = json!({"shards": 3, "replicasPerShard": 1});
        Self {
            cluster: cluster(&spec),
            probed: healthy(3, 2),
            plan: Plan::default(),
            temporary: BTreeMap::new(),
            troubles: Vec::new(),
            reach: Reach::ServiceNames,
        }
    }

    fn report(&self) -> RedisClusterStatus {
        let resolved = resolved(&serde_json::to_value(&self.cluster.spec).unwrap());
        report(Seeing {
            cluster: &self.cluster,
            resolved: Some(&resolved),
            probed: &self.probed,
            plan: &self.plan,
            temporary: &self.temporary,
            troubles: &self.troubles,
            operation: None,
            backups: &[],
            reach: self.reach,
            now: now(),
        })
    }

    /// Value, reason and sentence of a condition.
    fn says(&self, kind: &str) -> (Status, String, String) {
        let condition = self.report().conditions.into_iter().find(|c| c.kind == kind).unwrap();
        (condition.status, condition.reason, condition.message)
    }
}

fn said(status: Status, reason: &str, message: &str) -> (Status, String, String) {
    (status, reason.to_owned(), message.to_owned())
}

#[test]
fn a_cluster_on_which_everything_agrees_is_ready_with_numbers() {
    let scene = Scene::healthy();
    let text = "all 16384 slots are served, 6 nodes agree, 3 replicas are in sync";
    assert_eq!(scene.says("Ready"), said(Status::True, "AllAgree", text));
    let status = scene.report();
    assert_eq!((status.phase, status.replicas, status.observed_generation), (Some(Phase::Ready), 3, Some(3)));
    assert_eq!((status.keys, status.used_memory), (Some(30), Some(3000)));
    assert_eq!(status.version.as_deref(), Some("7.0.15"));
    assert_eq!(status.endpoints, ["orders.shop.svc:6379"]);
    let shard = &status.shards[1];
    assert_eq!((shard.slots.as_str(), shard.primary.as_deref()), ("5461-10921", Some("orders-1-0")));
    let member = &shard.members[1];
    assert_eq!((member.role, member.state, member.lag_bytes), (Some(Role::Replica), MemberState::Online, Some(0)));
}

#[test]
fn one_node_with_another_opinion_is_enough_not_to_be_ready() {
    let mut scene = Scene::healthy();
    let peer = node(&mut scene.probed, 2, 1).peers.get_mut(&id(0, 0)).unwrap();
    peer.role = plan::PeerRole::Primary { slots: plan::SlotSet::range(0, 5) };
    let text = "5 of 6 nodes agree on who is who and owns what";
    assert_eq!(scene.says("Ready"), said(Status::False, "NodesDisagree", text));
    assert_eq!(scene.says("Available").0, Status::True);
}

#[test]
fn an_unknown_entry_in_one_table_is_enough_not_to_be_ready() {
    let mut scene = Scene::healthy();
    let stranger = node(&mut scene.probed, 0, 0).peers[&id(1, 0)].clone();
    node(&mut scene.probed, 0, 0).peers.insert(id(7, 7), stranger);
    assert_eq!(scene.says("Ready").1, "NodesDisagree");
}

#[test]
fn a_replica_that_is_not_in_sync_puts_data_at_risk() {
    let mut scene = Scene::healthy();
    node(&mut scene.probed, 1, 1).role =
        plan::Role::Replica { of: id(1, 0), synced: false, link_up: false, misled: false, offset: 0, lag_bytes: 100 };
    let text = "1 shards have too few copies in sync; shard 1 has 1 of 2";
    assert_eq!(scene.says("DataAtRisk"), said(Status::True, "TooFewCopies", text));
    assert_eq!(scene.says("Ready"), said(Status::False, "ReplicasNotInSync", "2 of 3 replicas are in sync"));
    assert_eq!(scene.report().shards[1].members[1].state, MemberState::Syncing);
}

#[test]
fn a_lost_primary_is_told_with_the_slots_it_costs() {
    let mut scene = Scene::healthy();
    let member = scene.probed.observed.members.get_mut(&Pod::new(0, 0)).unwrap();
    member.seen = Seen::Unknown { since_millis: 3000 };
    scene.plan.waiting.push(Waiting::Unknown { pod: Pod::new(0, 0), since_millis: 3000 });
    let text = "5 of 6 members answer: member 0-0 has not answered for 3 s; its state is not known";
    assert_eq!(scene.says("Ready"), said(Status::False, "MembersMissing", text));
    let text = "10923 of 16384 slots have a primary that serves them";
    assert_eq!(scene.says("Available"), said(Status::False, "SlotsNotServed", text));
    assert_eq!(scene.report().replicas, 2);
}

#[test]
fn a_changed_setting_that_was_not_put_back_is_not_ready() {
    let mut scene = Scene::healthy();
    scene.temporary.insert("rdbcompression".to_owned(), "yes".to_owned());
    assert_eq!(scene.says("Ready").1, "SettingUp");
    assert_eq!(scene.report().temporary_config, scene.temporary);
}

#[test]
fn what_went_wrong_is_said_and_is_not_ready() {
    let mut scene = Scene::healthy();
    scene.troubles.push("move 3 slots: no answer".to_owned());
    assert_eq!(scene.says("Ready"), said(Status::False, "Trouble", "move 3 slots: no answer"));
    assert_eq!(scene.says("Degraded"), said(Status::True, "Trouble", "move 3 slots: no answer"));
}

#[test]
fn the_time_of_a_condition_changes_only_with_its_value() {
    let mut scene = Scene::healthy();
    let mut old = scene.report();
    let earlier = Timestamp::from_second(1).unwrap();
    old.conditions.iter_mut().for_each(|condition| condition.last_transition_time = earlier);
    scene.cluster.status = Some(old);
    node(&mut scene.probed, 2, 1).state_ok = false;
    let at = |kind: &str, status: &RedisClusterStatus| {
        status.conditions.iter().find(|c| c.kind == kind).unwrap().last_transition_time
    };
    let status = scene.report();
    assert_eq!(at("Ready", &status), now());
    assert_eq!(at("Available", &status), earlier);
}

#[test]
fn the_phase_is_one_word_for_what_happens() {
    let mut scene = Scene::healthy();
    let broken = |scene: &mut Scene| node(&mut scene.probed, 2, 1).state_ok = false;
    let with = |phase| Some(RedisClusterStatus { phase: Some(phase), ..RedisClusterStatus::default() });
    assert_eq!(scene.report().phase, Some(Phase::Ready));
    broken(&mut scene);
    assert_eq!(scene.report().phase, Some(Phase::Creating));
    scene.cluster.status = with(Phase::Ready);
    assert_eq!(scene.report().phase, Some(Phase::Healing));
    scene.plan.slots_left = 5;
    assert_eq!(scene.report().phase, Some(Phase::Scaling));
    scene.plan.slots_left = 0;
    scene.probed.observed.members.get_mut(&Pod::new(2, 1)).unwrap().outdated = true;
    assert_eq!(scene.report().phase, Some(Phase::Updating));
    scene.plan.refused.push(plan::Refused::NoShards);
    assert_eq!(scene.report().phase, Some(Phase::Degraded));
    scene.cluster.spec.paused = true;
    assert_eq!(scene.report().phase, Some(Phase::Paused));
}

#[test]
fn a_status_is_written_at_once_for_facts_soon_for_sentences_and_seldom_for_figures() {
    let scene = Scene::healthy();
    let old = scene.report();
    let after = |seconds| Duration::from_secs(seconds);
    assert_eq!(urgency(None, &old, after(0)), Urgency::Now);
    assert_eq!(urgency(Some(&old), &old, after(9999)), Urgency::Never);

    let mut text = old.clone();
    text.conditions[0].message.push('!');
    assert_eq!(urgency(Some(&old), &text, after(0)), Urgency::In(after(1)));
    assert_eq!(urgency(Some(&old), &text, after(2)), Urgency::Now);

    let mut figures = old.clone();
    (figures.keys, figures.shards[0].keys) = (Some(90), 70);
    figures.shards[0].members[1].lag_bytes = Some(7);
    assert_eq!(urgency(Some(&old), &figures, after(1)), Urgency::In(after(9)));
    figures.keys = Some(31);
    assert_eq!(urgency(Some(&old), &figures, after(99)), Urgency::Never);

    let mut fact = old.clone();
    fact.shards[0].primary = None;
    assert_eq!(urgency(Some(&old), &fact, after(0)), Urgency::Now);
}

#[test]
fn where_names_do_not_resolve_the_endpoints_are_members_that_answer_one_of_each_shard_first() {
    let mut scene = Scene::healthy();
    scene.reach = Reach::PodAddresses;
    let gone = Pod::new(1, 0);
    scene.probed.observed.members.get_mut(&gone).unwrap().seen = plan::Seen::Absent;
    scene.probed.facts.remove(&gone);
    let addresses = ["10.0.0.0:6379", "10.0.2.0:6379", "10.0.0.1:6379", "10.0.1.1:6379", "10.0.2.1:6379"];
    assert_eq!(scene.report().endpoints, addresses);
}

#[test]
fn scale_selects_the_pods_that_are_marked_as_serving_primaries() {
    let selector = "redis.kun.io/cluster=orders,app.kubernetes.io/name=redis,redis.kun.io/role=primary";
    assert_eq!(Scene::healthy().report().selector.as_deref(), Some(selector));
}
