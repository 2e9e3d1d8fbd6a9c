#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "report_tests/config.rs"]
mod config;
#[path = "report_tests/disks.rs"]
mod disks;
#[path = "report_tests/moves.rs"]
mod moves;
#[path = "report_tests/nodes.rs"]
mod nodes;
#[path = "report_tests/served.rs"]
mod served;

use plan::{Pod, Waiting};
use serde_json::json;
use types::cluster::{MemberState, Role};

use super::*;
use crate::testing::{cluster, gathered, healthy, id, node, out_of_sync, resolved};

fn now() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

struct Scene {
    cluster: RedisCluster,
    probed: Probed,
    plan: Plan,
    planned: bool,
    temporary: BTreeMap<String, String>,
    secret_lack: Option<(&'static str, String)>,
    troubles: Vec<String>,
    unwritten: BTreeSet<u16>,
    held: Vec<String>,
    left_behind: BTreeSet<u16>,
    reach: Reach,
}

impl Scene {
    fn healthy() -> Self {
        let spec = json!({"shards": 3, "replicasPerShard": 1});
        Self {
            cluster: cluster(&spec),
            probed: healthy(3, 2),
            plan: Plan::default(),
            planned: true,
            temporary: BTreeMap::new(),
            secret_lack: None,
            troubles: Vec::new(),
            unwritten: BTreeSet::new(),
            held: Vec::new(),
            left_behind: BTreeSet::new(),
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
            planned: self.planned,
            temporary: &self.temporary,
            secret_lack: self.secret_lack.as_ref(),
            troubles: &self.troubles,
            unwritten: &self.unwritten,
            held: &self.held,
            operation: None,
            backups: &[],
            left_behind: &self.left_behind,
            volume_size: None,
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
fn members_that_agree_but_to_which_no_service_leads_are_not_ready_and_serve_all_the_same() {
    let mut scene = Scene::healthy();
    scene.probed.unready = [Pod::new(1, 0), Pod::new(2, 1)].into();
    let text = "no Service leads to 2 of 6 pods yet: not found ready by their kubelets; the first is 1-0";
    assert_eq!(scene.says("Ready"), said(Status::False, "PodsNotReady", text));
    assert_eq!(scene.says("Available").0, Status::True);
    assert_eq!(scene.says("Degraded").0, Status::False);
}

/// Before, a look after which nothing could be planned, as somebody else had just written a child, said Ready in the middle of a move.
#[test]
fn a_look_without_a_plan_says_no_good_news_of_what_is_left_to_do() {
    let mut scene = Scene::healthy();
    scene.plan.waiting = vec![Waiting::Leaving { pod: Pod::new(0, 1) }];
    let moving = scene.report();
    scene.cluster.status = Some(moving.clone());
    (scene.plan, scene.planned) = (Plan::default(), false);
    // The specification has been changed since.
    scene.cluster.metadata.generation = Some(4);
    let told = scene.report();
    assert_eq!(told.observed_generation, Some(3));
    let of = |status: &RedisClusterStatus, kind: &str| status.conditions.iter().find(|c| c.kind == kind).cloned();
    for kind in ["Ready", "Progressing", "UpToDate"] {
        assert_eq!(of(&told, kind), of(&moving, kind));
    }
    assert_eq!(of(&told, "Ready").unwrap().status, Status::False);
    assert_eq!(told.plan, moving.plan);
    scene.cluster.status = None;
    assert_eq!(scene.says("Ready"), said(Status::False, "NotPlanned", "it is not known yet what is left to do"));
    // Bad news needs no plan.
    scene.cluster.status = Some({
        scene.planned = true;
        scene.report()
    });
    scene.planned = false;
    scene.probed.unready = [Pod::new(1, 0)].into();
    assert_eq!(scene.says("Ready").1, "PodsNotReady");
}

#[test]
fn slots_that_went_with_shards_whose_volumes_exist_come_back_by_a_command_that_is_said() {
    let mut scene = Scene::healthy();
    let lost = plan::Refused::LostSlots { id: id(3, 0), slots: 3277, copies: Vec::new(), former: None };
    scene.plan.refused = vec![lost.clone()];
    assert_eq!(scene.says("Degraded"), said(Status::True, "NeedsAPerson", &lost.to_string()));
    scene.left_behind = BTreeSet::from([3, 4]);
    let text = format!(
        "volumes of shards 3 and 4 exist and may hold the slots that are missing: kubectl scale rediscluster/orders -n shop --replicas=5; {lost}"
    );
    assert_eq!(scene.says("Degraded"), said(Status::True, "ShardsMissing", &text));
    assert_eq!(scene.says("Ready"), said(Status::False, "ShardsMissing", &text));
    // Volumes that were kept on purpose when the cluster was scaled in are no trouble by themselves.
    scene.plan.refused.clear();
    assert_eq!(scene.says("Degraded").1, "NothingWrong");
    assert_eq!(scene.says("Ready").1, "AllAgree");
}

#[test]
fn only_volumes_that_kun_had_made_and_of_which_nothing_runs_are_left_behind() {
    let mut gathered = gathered(cluster(&json!({"shards": 3, "replicasPerShard": 1})));
    let labelled = |name: &str, shard: u16| {
        let labels = json!({names::LABEL_CLUSTER: "orders", names::LABEL_SHARD: shard.to_string()});
        json!({"metadata": {"name": name, "labels": labels}})
    };
    let names =
        [("data-orders-2-0", 2), ("data-orders-3-0", 3), ("data-orders-4-1", 4), ("data-orders-5-0", 5), ("mine", 6)];
    for (name, shard) in names {
        let claim = serde_json::from_value(labelled(name, shard)).unwrap();
        gathered.claims.insert(name.to_owned(), std::sync::Arc::new(claim));
    }
    // Shard 5 is on its way out, with a member that still runs.
    let set = serde_json::from_value(labelled("orders-5", 5)).unwrap();
    gathered.stateful_sets.insert("orders-5".to_owned(), std::sync::Arc::new(set));
    assert_eq!(left_behind(&gathered, 3), BTreeSet::from([3, 4]));
    assert_eq!(left_behind(&gathered, 5), BTreeSet::new());
}

#[test]
fn a_cluster_on_which_everything_agrees_is_ready_with_numbers() {
    let scene = Scene::healthy();
    let text = "all 16384 slots are served, 6 nodes agree, 3 replicas are in sync";
    assert_eq!(scene.says("Ready"), said(Status::True, "AllAgree", text));
    let status = scene.report();
    assert_eq!((status.phase, status.replicas, status.observed_generation), (Some(Phase::Ready), 3, Some(3)));
    assert_eq!((status.keys, status.used_memory), (Some(30), Some(4500)));
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
    node(&mut scene.probed, 1, 1).role = out_of_sync(id(1, 0));
    let text = "1 shards have too few copies in sync; shard 1 has 1 of 2";
    assert_eq!(scene.says("DataAtRisk"), said(Status::True, "TooFewCopies", text));
    assert_eq!(scene.says("Ready"), said(Status::False, "ReplicasNotInSync", "2 of 3 replicas are in sync"));
    assert_eq!(scene.report().shards[1].members[1].state, MemberState::Syncing);
}

/// Before, it was "0 of 2", as if all were lost.
#[test]
fn a_whole_replica_of_a_primary_that_is_gone_counts_as_a_copy() {
    let mut scene = Scene::healthy();
    scene.probed.observed.members.get_mut(&Pod::new(1, 0)).unwrap().seen = Seen::Stopped;
    let plan::Role::Replica { link_up, .. } = &mut node(&mut scene.probed, 1, 1).role else { panic!() };
    *link_up = false;
    let told = |copies| {
        let text = format!(
            "1 shards have too few copies in sync; shard 1 has {copies} of 2 complete copies, and no primary that answers"
        );
        said(Status::True, "TooFewCopies", &text)
    };
    assert_eq!(scene.says("DataAtRisk"), told(1));
    node(&mut scene.probed, 1, 1).role = out_of_sync(id(1, 0));
    assert_eq!(scene.says("DataAtRisk"), told(0));
}

#[test]
fn members_that_do_not_stay_up_are_degraded_with_their_servers_last_words() {
    let mut scene = Scene::healthy();
    let pod = Pod::new(0, 1);
    scene.probed.observed.members.get_mut(&pod).unwrap().seen = Seen::Stopped;
    scene.probed.facts.remove(&pod);
    scene.probed.crashing.insert(pod, "exit code 2 after 3 restarts: Bad file format".to_owned());
    let text = "1 members do not stay up; the first is 0-1: exit code 2 after 3 restarts: Bad file format";
    assert_eq!(scene.says("Degraded"), said(Status::True, "CrashLoop", text));
    // Before, this hid that the Secret cannot be used, which may be why.
    let lack = "the password in the Secret mine cannot be used: it is empty";
    scene.secret_lack = Some(("SecretUnusable", lack.to_owned()));
    let both = said(Status::True, "CrashLoop", &format!("{text}; {lack}"));
    assert_eq!(scene.says("Degraded"), both);
    assert_eq!(scene.says("Progressing"), (Status::False, both.1, both.2));
}

#[test]
fn a_secret_that_is_not_there_is_told_before_a_pod_needs_it() {
    let mut scene = Scene::healthy();
    let text = "there is no Secret mine, of which every pod that is made needs the key password";
    scene.secret_lack = Some(("SecretMissing", text.to_owned()));
    assert_eq!(scene.says("Degraded"), said(Status::True, "SecretMissing", text));
    assert_eq!(scene.says("Ready").0, Status::True, "everything serves");
}

#[test]
fn a_member_that_does_not_start_on_its_image_is_held_and_the_status_says_why() {
    let mut scene = Scene::healthy();
    let pod = Pod::new(0, 1);
    scene.probed.observed.members.get_mut(&pod).unwrap().seen = Seen::Stopped;
    scene.probed.facts.remove(&pod);
    scene.probed.unusable.insert(pod, "the image has no redis-server, and spec.engine is Redis".to_owned());
    let text = "1 members do not start; the first is 0-1: the image has no redis-server, and spec.engine is Redis";
    assert_eq!(scene.says("Ready"), said(Status::False, "ImageNotUsable", text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "ImageNotUsable", text));
    assert_eq!(scene.report().shards[0].members[1].state, MemberState::Held);
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

/// Before, only the link was said to be down.
#[test]
fn a_replica_that_is_sent_the_whole_data_set_is_told_of_as_that() {
    let mut scene = Scene::healthy();
    let pod = Pod::new(0, 1);
    node(&mut scene.probed, 0, 1).role = out_of_sync(id(0, 0));
    scene.plan.waiting = vec![Waiting::Sync { pod, link_up: false, lag_bytes: 0 }];
    scene.probed.facts.get_mut(&pod).unwrap().syncing = true;
    let text =
        "replica 0-1 is not in sync: its link to the primary is down (its primary is sending it the whole data set)";
    assert_eq!(scene.says("Progressing"), said(Status::True, "Waiting", text));
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

#[test]
fn a_node_that_runs_twice_is_told_and_is_not_ready() {
    let mut scene = Scene::healthy();
    node(&mut scene.probed, 1, 0).id = id(0, 0);
    let text = "node 01010101 runs twice: 0-0 and 1-0";
    assert_eq!(scene.says("Ready"), said(Status::False, "NodeRunsTwice", text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "NodeRunsTwice", text));
    // Who was another node before has the copy: that is not forgotten when the status is written.
    scene.probed.observed.members.get_mut(&Pod::new(1, 0)).unwrap().last_id = Some(id(1, 0));
    let names = [0, 1].map(|shard| scene.report().shards[shard].members[0].node_id.clone().unwrap());
    assert_eq!(names, [id(0, 0).to_string(), id(1, 0).to_string()]);
    // The planner's sentence says what to do.
    let told = plan::Refused::Twins {
        id: id(0, 0),
        pod: Pod::new(0, 0),
        address: "10.0.0.0:6379".to_owned(),
        other: None,
        other_address: "10.9.9.9:6379".to_owned(),
        copied: None,
    };
    let mut scene = Scene::healthy();
    scene.probed.observed.elsewhere.insert(Pod::new(0, 0), "10.9.9.9:6379".to_owned());
    scene.plan.refused.push(told.clone());
    assert_eq!(scene.says("Ready"), said(Status::False, "NodeRunsTwice", &told.to_string()));
    assert_eq!(scene.says("Degraded"), said(Status::True, "NodeRunsTwice", &told.to_string()));
}

#[test]
fn a_member_whose_node_runs_already_is_told_with_what_its_agent_says() {
    let mut scene = Scene::healthy();
    let reason = "node 0101 runs already at 10.9.9.9:6379, and this pod is at 10.0.0.0:6379".to_owned();
    let told = plan::Refused::RunsAlready { pod: Pod::new(0, 0), id: id(0, 0), reason };
    scene.plan.refused.push(told.clone());
    assert_eq!(scene.says("Ready"), said(Status::False, "NodeRunsTwice", &told.to_string()));
    assert_eq!(scene.says("Degraded"), said(Status::True, "NodeRunsTwice", &told.to_string()));
}

#[test]
fn a_member_that_calls_another_address_its_own_is_told_and_is_not_ready() {
    let mut scene = Scene::healthy();
    let facts = scene.probed.facts.get_mut(&Pod::new(2, 1)).unwrap();
    facts.own_line = Some("10.9.9.9:6379".parse().unwrap());
    let text = "member 2-1 at 10.0.2.1:6379 has 10.9.9.9:6379 for its own address and sends clients there: another process has answered it \
                from there with its identity. Once that one has ended, delete the pod of member 2-1";
    assert_eq!(scene.says("Ready"), said(Status::False, "WrongOwnAddress", text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "WrongOwnAddress", text));
    scene.probed.facts.get_mut(&Pod::new(2, 1)).unwrap().own_line = None;
    assert_eq!(scene.says("Ready").0, Status::True, "a member that does not know its address says nothing wrong");
}

#[test]
fn a_replica_by_its_table_alone_is_told_and_is_not_ready() {
    let mut scene = Scene::healthy();
    scene.probed.facts.get_mut(&Pod::new(1, 1)).unwrap().at_odds = true;
    let text = "1 members are replicas by their table and not by their replication, or the other way round; the first is 1-1. Delete its pod: \
                it finds its role again when it starts";
    assert_eq!(scene.says("Ready"), said(Status::False, "RolesDiffer", text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "RolesDiffer", text));
}
