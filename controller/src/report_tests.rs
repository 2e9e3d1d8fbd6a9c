#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use plan::{Pod, Waiting};
use serde_json::json;
use types::cluster::{MemberState, Role};
use types::engine::Engine;

use super::*;
use crate::probe::{Finding, Refusal, Unkept};
use crate::testing::{cluster, gathered, healthy, id, in_sync, node, out_of_sync, resolved};

fn now() -> Timestamp {
    Timestamp::from_second(1000).unwrap()
}

struct Scene {
    cluster: RedisCluster,
    probed: Probed,
    plan: Plan,
    temporary: BTreeMap<String, String>,
    secret_missing: Option<String>,
    troubles: Vec<String>,
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
            temporary: BTreeMap::new(),
            secret_missing: None,
            troubles: Vec::new(),
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
            temporary: &self.temporary,
            secret_missing: self.secret_missing.as_deref(),
            troubles: &self.troubles,
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

#[test]
fn slots_that_went_with_shards_whose_volumes_exist_come_back_by_a_command_that_is_said() {
    let mut scene = Scene::healthy();
    let lost = plan::Refused::LostSlots { id: id(3, 0), slots: 3277 };
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
fn a_backup_waits_for_what_moves_not_for_what_a_replaced_primary_marks() {
    use plan::{Open, Role, SlotSet, Step, Who};
    let (mut probed, mut plan) = (crate::testing::healthy(3, 2), plan::Plan::default());
    let waits_for = |probed: &Probed, plan: &plan::Plan| super::half_moved::on_the_way(&probed.observed, plan);
    assert_eq!(waits_for(&probed, &plan), None);
    // It keeps its mark for as long as nobody gives it up.
    let former = node(&mut probed, 0, 1);
    former.role = Role::Primary { slots: SlotSet::EMPTY };
    former.open.insert(9, Open::Importing(id(1, 0)));
    assert_eq!(waits_for(&probed, &plan), None);
    let [from, to] =
        [(1, 0), (2, 0)].map(|(shard, ordinal)| Who { pod: Pod::new(shard, ordinal), id: id(shard, ordinal) });
    plan.steps.push(Step::Move { from, to, slots: SlotSet::range(8, 9) });
    assert_eq!(waits_for(&probed, &plan).as_deref(), Some("2 slots move from 1-0 to 2-0"));
    node(&mut probed, 1, 0).open.insert(9, Open::Migrating(id(2, 0)));
    assert_eq!(waits_for(&probed, &plan).as_deref(), Some("slot 9 is half moved from 1-0 to 2-0"));
}

#[test]
fn what_is_half_moved_is_told_with_its_ends_and_with_what_it_waits_for() {
    use plan::Open;
    let mut scene = Scene::healthy();
    node(&mut scene.probed, 1, 0).open.extend([(7, Open::Importing(id(0, 0))), (9, Open::Importing(id(0, 0)))]);
    // Of the second slot only the target knows.
    node(&mut scene.probed, 0, 0).open.insert(7, Open::Migrating(id(1, 0)));
    node(&mut scene.probed, 2, 0).open.insert(16_000, Open::Migrating(id(9, 9)));
    let open = "2 slots, the first of them 7, are half moved from 0-0 to 1-0; slot 16000 is half moved from 2-0 to node 9a9a9a9a";
    assert_eq!(scene.says("Ready"), said(Status::False, "SlotsMoving", open));
    let full = Waiting::Room {
        pod: Pod::new(1, 0),
        from: Pod::new(0, 0),
        slots: 2,
        half_moved: true,
        gives: true,
        room: 70 << 10,
        needs: 3 << 20,
    };
    scene.plan.waiting.push(full);
    scene.plan.slots_left = 12;
    let wait = "2 half-moved slots of 0-0 wait for room in 1-0: it is 64 KiB below its maxmemory, 3 MiB are needed; raise it \
                (spec.memory.maxBytes or spec.memory.maxPercent, which count at once), delete keys, or set spec.shards back: what has moved \
                then comes back";
    let text = format!("{open}; 12 slots still have to move: {wait}");
    assert_eq!(scene.says("Ready"), said(Status::False, "SlotsMoving", &text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "NoRoom", wait));
}

#[test]
fn a_move_that_is_held_is_told_with_who_holds_it() {
    let mut scene = Scene::healthy();
    let [from, to] = [0, 1].map(|shard| plan::Who { pod: Pod::new(shard, 0), id: id(shard, 0) });
    scene.plan.steps = vec![plan::Step::Move { from, to, slots: plan::SlotSet::range(3, 4) }];
    scene.plan.slots_left = 2;
    scene.held = vec!["slots wait for replica 1-1".to_owned()];
    let ready = "2 slots still have to move; slots wait for replica 1-1";
    assert_eq!(scene.says("Ready"), said(Status::False, "SlotsMoving", ready));
    let progressing = "slots wait for replica 1-1; next: move 2 slots from 0-0 to 1-0: 3-4";
    assert_eq!(scene.says("Progressing"), said(Status::True, "Working", progressing));
    assert_eq!(scene.says("Degraded").0, Status::False);
    assert_eq!(scene.report().plan.unwrap().waiting.as_deref(), Some("slots wait for replica 1-1"));
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

#[test]
fn a_member_that_runs_another_engine_is_told_and_its_version_is_not_the_clusters() {
    let mut scene = Scene::healthy();
    let facts = scene.probed.facts.get_mut(&Pod::new(1, 1)).unwrap();
    (facts.engine, facts.version) = (Engine::Valkey, "9.1.2".to_owned());
    let text = "1 members do not run Redis; the first is 1-1, which runs Valkey 9.1.2";
    assert_eq!(scene.says("Ready"), said(Status::False, "WrongEngine", text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "WrongEngine", text));
    assert_eq!(scene.says("UpToDate"), said(Status::False, "WrongEngine", text));
    assert_eq!(scene.says("Available").0, Status::True);
    let status = scene.report();
    assert_eq!((status.version.as_deref(), status.highest_version.as_deref()), (Some("7.0.15"), Some("7.0.15")));
    // Seen with the other engine's eyes the five others are the strangers.
    scene.cluster = cluster(&json!({"engine": "Valkey", "version": "9", "shards": 3, "replicasPerShard": 1}));
    let text = "5 members do not run Valkey; the first is 0-0, which runs Redis 7.0.15";
    assert_eq!(scene.says("Ready"), said(Status::False, "WrongEngine", text));
    assert_eq!(scene.report().highest_version.as_deref(), Some("9.1.2"));
}

#[test]
fn parameters_that_an_engine_refuses_are_told_and_nothing_is_up_to_date() {
    let mut scene = Scene::healthy();
    scene.cluster.spec.config.insert("maxclients".to_owned(), "1000000".to_owned());
    for pod in [Pod::new(0, 1), Pod::new(2, 0)] {
        let facts = scene.probed.facts.get_mut(&pod).unwrap();
        facts.unlike.insert("maxclients".to_owned(), "4064".to_owned());
    }
    let text = "2 members do not show spec.config yet; the first is orders-0-1, where maxclients is \"4064\" and \"1000000\" is wanted";
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigPending", text));
    assert_eq!(scene.says("Degraded").0, Status::False);
    let refusal = |finding| Refusal { words: "maxclients 1000000: reduced to 4064".to_owned(), finding };
    scene.probed.refused.insert(Pod::new(2, 0), refusal(Finding::Undecided));
    let text = "spec.config is not in use on orders-2-0 yet: maxclients 1000000: reduced to 4064";
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigPending", text));
    assert_eq!(scene.says("Degraded").0, Status::False, "who could not ask has no answer");
    let says = "not use spec.config; the engine of orders-";
    let next = "says: maxclients 1000000: reduced to 4064; correct spec.config, and everything goes on by itself";
    scene.probed.refused.insert(Pod::new(2, 0), refusal(Finding::Refused));
    let text = format!("orders-2-0 does {says}2-0 {next}");
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigRejected", &text));
    assert_eq!(scene.says("Degraded"), said(Status::True, "ConfigRejected", &text));
    assert_eq!(scene.says("Progressing"), said(Status::False, "ConfigRejected", &text), "a person has to do something");
    // One has not answered yet: no number that would be another one a second later.
    let four =
        [(0, 0), (1, 0), (1, 1), (2, 0)].map(|(shard, ordinal)| (Pod::new(shard, ordinal), refusal(Finding::Refused)));
    scene.probed.refused = four.into();
    let text = format!("orders-0-0, orders-1-0, orders-1-1 and others do {says}0-0 {next}");
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigRejected", &text));
    scene.probed.refused.insert(Pod::new(0, 1), refusal(Finding::Refused));
    let text = format!("orders-0-0, orders-0-1, orders-1-0 and 2 more do {says}0-0 {next}");
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigRejected", &text));
    scene.probed.observed.members.get_mut(&Pod::new(2, 1)).unwrap().outdated = true;
    scene.plan.waiting = vec![Waiting::Parameters { pod: Pod::new(0, 0), refused: true }];
    let text = "no member is restarted while member orders-0-0 does not use spec.config, which its engine refuses: correct spec.config, and the \
                restart goes on by itself (maxclients 1000000: reduced to 4064)";
    assert_eq!(scene.says("Progressing"), said(Status::True, "Waiting", text));
    assert_eq!(scene.says("Ready").0, Status::True, "it serves as it did");
    scene.plan.waiting = vec![Waiting::Agreement { right: 4, of: 5, away: Some(Pod::new(2, 1)) }];
    let text = "4 of the 5 nodes that answer agree on who owns which slot and report the cluster as ok; member orders-2-1 does not answer";
    assert_eq!(scene.report().plan.unwrap().waiting.as_deref(), Some(text));
}

#[test]
fn a_parameter_that_an_engine_lowers_is_in_use_and_is_told_as_that() {
    let mut scene = Scene::healthy();
    let maxclients = || "maxclients".to_owned();
    scene.cluster.spec.config.insert(maxclients(), "1000000".to_owned());
    let altered = || Refusal {
        words: "maxclients 1000000: maxclients has been reduced to 4064".to_owned(),
        finding: Finding::Altered([maxclients()].into()),
    };
    let lower = |scene: &mut Scene, pod: Pod| {
        scene.probed.facts.get_mut(&pod).unwrap().unlike.insert(maxclients(), "4064".to_owned());
        scene.probed.refused.insert(pod, altered());
    };
    let says = "spec.config with a change; the engine of orders-0-1 says: maxclients 1000000: maxclients has been reduced to 4064; ask for \
                what is used, or raise the limits of its machine";
    lower(&mut scene, Pod::new(0, 1));
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigAltered", &format!("orders-0-1 uses {says}")));
    assert_eq!(scene.says("Degraded").0, Status::False, "it is in use");
    lower(&mut scene, Pod::new(2, 0));
    let text = format!("orders-0-1, orders-2-0 use {says}");
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigAltered", &text));
    // Another one is on its way.
    let facts = scene.probed.facts.get_mut(&Pod::new(2, 0)).unwrap();
    facts.unlike.insert("timeout".to_owned(), "0".to_owned());
    scene.cluster.spec.config.insert("timeout".to_owned(), "5".to_owned());
    let text =
        "1 member does not show spec.config yet; the first is orders-2-0, where timeout is \"0\" and \"5\" is wanted";
    assert_eq!(scene.says("UpToDate"), said(Status::False, "ConfigPending", text));
}

#[test]
fn a_replica_that_is_older_than_its_primary_is_told_with_both_versions() {
    let mut scene = Scene::healthy();
    let (old, new) = (Pod::new(0, 1), Pod::new(0, 0));
    node(&mut scene.probed, 0, 1).role = out_of_sync(id(0, 0));
    scene.plan.waiting = vec![Waiting::Sync { pod: old, link_up: false, lag_bytes: 0 }];
    let text = "replica 0-1 is not in sync: its link to the primary is down";
    assert_eq!(scene.says("Progressing"), said(Status::True, "Waiting", text));
    scene.probed.facts.get_mut(&new).unwrap().version = "8.0.2".to_owned();
    let why = "(it runs 7.0.15, which may not load what its primary 0-0 with 8.0.2 sends, until it is restarted)";
    assert_eq!(scene.says("Progressing"), said(Status::True, "Waiting", &format!("{text} {why}")));
    // The other way round nothing stands in the way of a copy.
    scene.probed.facts.get_mut(&old).unwrap().version = "8.0.10".to_owned();
    assert_eq!(scene.says("Progressing"), said(Status::True, "Waiting", text));
}

#[test]
fn what_differs_for_the_time_of_a_step_or_until_a_restart_is_told_elsewhere() {
    let mut scene = Scene::healthy();
    let (pod, yes) = (Pod::new(0, 1), || "yes".to_owned());
    scene.cluster.spec.config.insert("rdbcompression".to_owned(), yes());
    scene.probed.facts.get_mut(&pod).unwrap().unlike.insert("rdbcompression".to_owned(), "no".to_owned());
    assert_eq!(scene.says("UpToDate").1, "ConfigPending");
    scene.temporary.insert("rdbcompression".to_owned(), yes());
    assert_eq!(scene.says("UpToDate").1, "AllCurrent");
    scene.temporary.clear();
    scene.probed.observed.members.get_mut(&pod).unwrap().outdated = true;
    assert_eq!(scene.says("UpToDate").1, "PodsOutdated");
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
}

#[test]
fn a_secret_that_is_not_there_is_told_before_a_pod_needs_it() {
    let mut scene = Scene::healthy();
    let text = "there is no Secret mine, of which every pod that is made needs the key password";
    scene.secret_missing = Some(text.to_owned());
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
fn missing_copies_are_told_before_what_one_more_failure_would_take() {
    let mut scene = on_nodes(["a", "a", "a", "b", "b", "a"], "Preferred");
    node(&mut scene.probed, 1, 1).role = out_of_sync(id(1, 0));
    assert_eq!(scene.says("DataAtRisk").1, "TooFewCopies");
    node(&mut scene.probed, 1, 1).role = in_sync(id(1, 0));
    assert_eq!(scene.says("DataAtRisk").1, "CopiesShareANode");
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

fn fails(scene: &mut Scene, pod: Pod, what: Unkept) {
    scene.probed.facts.get_mut(&pod).unwrap().persistence_failed = Some(what);
}

const REFUSES: &str = "1 primaries refuse writes (MISCONF); the first is 0-0, which cannot write its append-only file. Its log says why; where \
                       the volume is full, make spec.storage.size larger";

/// Before, it was said last of all, and Ready said nothing of it.
#[test]
fn a_disk_that_takes_no_writes_is_said_before_what_follows_from_it() {
    let mut scene = Scene::healthy();
    scene.troubles.push("restart 0-1: not in sync".to_owned());
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    assert_eq!(scene.says("Ready"), said(Status::False, "DiskFailing", REFUSES));
    assert_eq!(scene.says("Degraded"), said(Status::True, "DiskFailing", REFUSES));
}

/// Before, a replica was said to refuse writes, and a fork without memory to be a full disk.
#[test]
fn what_a_failing_disk_means_is_said_of_primaries_and_replicas() {
    let mut scene = Scene::healthy();
    fails(&mut scene, Pod::new(1, 1), Unkept::Log);
    let replica = "1 replicas cannot keep what they are sent and, from version 7.0 on, end at the next write; the first is 1-1, which cannot \
                   write its append-only file. Its log says why; where the volume is full, make spec.storage.size larger";
    assert_eq!(scene.says("Degraded"), said(Status::True, "DiskFailing", replica));
    fails(&mut scene, Pod::new(2, 0), Unkept::Snapshot);
    let primary = "1 primaries refuse writes (MISCONF); the first is 2-0, whose last snapshot failed. Its log says why: where the volume is \
                   full, make spec.storage.size larger; where a fork found no memory, resources.limits.memory";
    assert_eq!(scene.says("Ready"), said(Status::False, "DiskFailing", &format!("{primary}; {replica}")));
}

#[test]
fn the_disk_of_a_member_that_is_to_leave_is_no_trouble() {
    let mut scene = Scene::healthy();
    scene.cluster.spec.replicas_per_shard = Some(0);
    fails(&mut scene, Pod::new(1, 1), Unkept::Log);
    assert_eq!(scene.says("Degraded").1, "NothingWrong");
    assert_eq!(scene.says("Ready").1, "MembersLeaving");
}

/// Before, either hid the other.
#[test]
fn a_failing_disk_is_said_beside_members_that_are_missing() {
    let mut scene = Scene::healthy();
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    scene.probed.observed.members.get_mut(&Pod::new(1, 1)).unwrap().seen = Seen::Stopped;
    let text = format!("5 of 6 members answer; {REFUSES}");
    assert_eq!(scene.says("Ready"), said(Status::False, "MembersMissing", &text));
    let mut scene = Scene::healthy();
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    node(&mut scene.probed, 1, 0).state_ok = false;
    let text = format!("10923 of 16384 slots are served; {REFUSES}");
    assert_eq!(scene.says("Ready"), said(Status::False, "NotServing", &text));
}

#[test]
fn refused_writes_come_before_what_still_serves_a_replicas_disk_after() {
    let mut scene = Scene::healthy();
    scene.secret_missing = Some("there is no Secret mine".to_owned());
    fails(&mut scene, Pod::new(0, 1), Unkept::Log);
    assert_eq!(scene.says("Degraded").1, "SecretMissing");
    assert_eq!(scene.says("Progressing").1, "SecretMissing");
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    assert_eq!(scene.says("Degraded").1, "DiskFailing");
    assert_eq!(scene.says("Progressing").1, "DiskFailing");
}

/// Before, it was Healing, or Updating, for as long as the disk was full.
#[test]
fn the_phase_is_degraded_while_a_disk_takes_no_writes() {
    let with = |phase| Some(RedisClusterStatus { phase: Some(phase), ..RedisClusterStatus::default() });
    for before in [Phase::Ready, Phase::Healing, Phase::Degraded] {
        let mut scene = Scene::healthy();
        scene.cluster.status = with(before);
        fails(&mut scene, Pod::new(0, 0), Unkept::Log);
        assert_eq!(scene.report().phase, Some(Phase::Degraded), "{before:?}");
        // An update that is under way is one all the same: the webhook goes by it.
        scene.probed.observed.members.get_mut(&Pod::new(2, 1)).unwrap().outdated = true;
        assert_eq!(scene.report().phase, Some(Phase::Updating), "{before:?}");
    }
    let mut scene = Scene::healthy();
    scene.cluster.status = with(Phase::Updating);
    fails(&mut scene, Pod::new(0, 0), Unkept::Log);
    assert_eq!(scene.report().phase, Some(Phase::Updating));
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
