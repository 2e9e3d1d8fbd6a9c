#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use k8s_openapi::api::core::v1::Pod as KubePod;
use serde_json::{Value, json};

use super::*;
use crate::build::build;
use crate::testing::{cluster, gathered, try_resolve};

fn pod(status: &Value) -> KubePod {
    serde_json::from_value(json!({"metadata": {"name": "orders-0-0"}, "status": status})).unwrap()
}

fn redis(state: &Value) -> Value {
    json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
        {"name": "redis", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state},
    ]})
}

#[test]
fn a_container_is_dead_only_where_kubernetes_proves_it() {
    let running = Container::Running { address: "10.0.0.1:6379".parse().unwrap() };
    let ended = json!({"terminated": {"exitCode": 1}});
    let table = [
        (redis(&json!({"running": {}})), running),
        (redis(&ended), Container::Stopped),
        (redis(&json!({"waiting": {"reason": "CrashLoopBackOff"}})), Container::Stopped),
        (json!({"phase": "Failed"}), Container::Stopped),
        (json!({"phase": "Pending"}), Container::Unreported),
        (redis(&json!({})), Container::Unreported),
    ];
    for (status, expected) in table {
        assert_eq!(container_of(&pod(&status)), expected, "{status}");
    }
}

#[test]
fn a_pod_is_ready_once_its_kubelet_says_so() {
    let says = |status: &str| {
        pod(&json!({"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": status}]}))
    };
    let table = [(says("True"), true), (says("False"), false), (says("Unknown"), false), (pod(&json!({})), false)];
    for (pod, expected) in table {
        let place = place::place("orders-0-0".to_owned(), Some(&pod), None, &BTreeMap::new());
        assert_eq!(place.ready, expected, "{:?}", pod.status);
    }
}

/// A pod as a scheduler leaves it that has found no node.
fn unscheduled() -> Value {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    json!({"phase": "Pending", "conditions": [condition]})
}

#[test]
fn a_pod_for_which_the_scheduler_has_found_no_node_is_proven_not_to_run() {
    let nowhere = pod(&unscheduled());
    assert_eq!(container_of(&nowhere), Container::Stopped);
    // The condition is the scheduler's last word, the node its deed: it may have been bound since.
    let mut bound = nowhere.clone();
    bound.spec = Some(serde_json::from_value(json!({"nodeName": "a", "containers": []})).unwrap());
    assert_eq!(container_of(&bound), Container::Unreported);
}

/// The places of one shard, made of these pods: node, status, revision, and whether the template keeps them apart.
fn sites(spread: &str, pods: &[(Option<&str>, Value, &str, &str)]) -> Vec<(plan::Site, bool)> {
    let spec = |spread: &str| {
        let cluster = cluster(&json!({"shards": 1, "replicasPerShard": 1, "placement": {"spread": spread}}));
        let mut gathered = gathered(cluster);
        let set = build(&try_resolve(&gathered).unwrap()).unwrap().stateful_sets.remove(0);
        gathered.stateful_sets.insert("orders-0".to_owned(), std::sync::Arc::new(set.clone()));
        (gathered, set)
    };
    let (mut gathered, mut set) = spec(spread);
    for (ordinal, (node, status, revision, made_for)) in pods.iter().enumerate() {
        let mut one = pod(status);
        let template = spec(made_for).1.spec.unwrap().template;
        one.metadata.annotations = template.metadata.unwrap().annotations;
        one.metadata.labels = set.metadata.labels.clone();
        one.metadata.labels.as_mut().unwrap().insert("controller-revision-hash".to_owned(), (*revision).to_owned());
        one.spec = template.spec;
        one.spec.as_mut().unwrap().node_name = node.map(str::to_owned);
        one.metadata.name = Some(format!("orders-0-{ordinal}"));
        gathered.pods.insert(format!("orders-0-{ordinal}"), std::sync::Arc::new(one));
    }
    let marks = marks(std::slice::from_ref(&set), None);
    set.status = serde_json::from_value(json!({"replicas": 2, "updateRevision": "new"})).unwrap();
    gathered.stateful_sets.insert("orders-0".to_owned(), std::sync::Arc::new(set));
    places(&gathered, &marks).into_values().map(|place| (place.site, place.outdated)).collect()
}

#[test]
fn a_pod_without_a_node_is_outdated_by_any_change_of_its_template() {
    use plan::Site;
    let (at, running) = (|node: &str| Site::At(node.to_owned()), || redis(&json!({"running": {}})));
    let found =
        sites("Preferred", &[(Some("a"), running(), "old", "Required"), (None, unscheduled(), "old", "Required")]);
    assert_eq!(found, [(at("a"), false), (Site::Nowhere, true)]);
    let found = sites("Preferred", &[(None, unscheduled(), "new", "Preferred"), (None, json!({}), "old", "Preferred")]);
    assert_eq!(found, [(Site::Nowhere, false), (Site::Unknown, false)]);
    assert_eq!(sites("Preferred", &[]), [(Site::Nowhere, false), (Site::Nowhere, false)]);
}

#[test]
fn members_that_share_a_node_are_restarted_when_that_may_no_longer_be_but_only_once() {
    let pod = |node, made_for| (Some(node), redis(&json!({"running": {}})), "old", made_for);
    let outdated = |spread, pods: &[_]| sites(spread, pods).into_iter().map(|(_, old)| old).collect::<Vec<_>>();
    let shared = [pod("a", "Preferred"), pod("a", "Preferred")];
    assert_eq!(outdated("Required", &shared), [false, true]);
    assert_eq!(outdated("Preferred", &shared), [false, false]);
    assert_eq!(outdated("Required", &[pod("a", "Preferred"), pod("b", "Preferred")]), [false, false]);
    // Where nobody heeds it, as on a machine without a scheduler, another restart would change nothing.
    assert_eq!(outdated("Required", &[pod("a", "Required"), pod("a", "Required")]), [false, false]);
}

#[test]
fn every_place_of_every_set_is_listed_and_only_a_running_restart_makes_pods_outdated() {
    let mut gathered = gathered(cluster(&json!({"shards": 1, "replicasPerShard": 1})));
    let objects = build(&try_resolve(&gathered).unwrap()).unwrap();
    let mut set = objects.stateful_sets[0].clone();
    let template = set.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
    template.annotations.as_mut().unwrap().insert("redis.kun.io/restarted-by".to_owned(), "op-1".to_owned());
    let annotations = objects.stateful_sets[0].spec.clone().unwrap().template.metadata.unwrap().annotations;
    let mut old = pod(&json!({}));
    old.metadata.annotations = annotations;
    old.metadata.labels = set.metadata.labels.clone();
    gathered.pods.insert("orders-0-0".to_owned(), std::sync::Arc::new(old));
    gathered.stateful_sets.insert("orders-0".to_owned(), std::sync::Arc::new(set.clone()));

    let idle = places(&gathered, &marks(std::slice::from_ref(&set), None));
    let outdated = |places: &BTreeMap<Pod, Place>| places.values().map(|p| p.outdated).collect::<Vec<_>>();
    assert_eq!(idle.keys().copied().collect::<Vec<_>>(), [Pod::new(0, 0), Pod::new(0, 1)]);
    assert_eq!(idle[&Pod::new(0, 1)].container, Container::None);
    assert_eq!(outdated(&idle), [false, false]);
    let running = places(&gathered, &marks(std::slice::from_ref(&set), Some("op-1")));
    assert_eq!(outdated(&running), [true, false]);
}

#[test]
fn a_place_is_blank_while_its_volume_is_unbound_and_its_pod_never_ran() {
    let judge_of = |storage: bool, phase: Option<&str>, status: Option<&Value>, claim_spec: &Value| {
        let spec = json!({"shards": 1, "storage": storage.then(|| json!({"size": "1Gi"}))});
        let mut gathered = gathered(cluster(&spec));
        let set = build(&try_resolve(&gathered).unwrap()).unwrap().stateful_sets.remove(0);
        if let Some(phase) = phase {
            let claim =
                json!({"metadata": {"name": "data-orders-0-0"}, "spec": claim_spec, "status": {"phase": phase}});
            let claim = serde_json::from_value(claim).unwrap();
            gathered.claims.insert("data-orders-0-0".to_owned(), std::sync::Arc::new(claim));
        }
        if let Some(status) = status {
            let mut one = pod(status);
            one.metadata.name = Some("orders-0-0".to_owned());
            one.metadata.labels = set.metadata.labels.clone();
            gathered.pods.insert("orders-0-0".to_owned(), std::sync::Arc::new(one));
        }
        gathered.stateful_sets.insert("orders-0".to_owned(), std::sync::Arc::new(set));
        places(&gathered, &Marks::new())[&Pod::new(0, 0)].blank
    };
    let judge = |storage, phase, status| judge_of(storage, phase, status, &json!({"storageClassName": "fast"}));
    let (waits, runs) = (unscheduled(), redis(&json!({"running": {}})));
    for filled in [
        json!({"volumeName": "pv-1"}),
        json!({"dataSource": {"kind": "VolumeSnapshot", "name": "a"}}),
        json!({"dataSourceRef": {"kind": "VolumeSnapshot", "name": "a"}}),
    ] {
        assert!(!judge_of(true, Some("Pending"), Some(&waits), &filled), "{filled}");
    }
    assert!(judge(true, Some("Pending"), Some(&waits)));
    assert!(judge(true, Some("Pending"), None), "its pod is still to be made");
    assert!(!judge(true, Some("Bound"), Some(&waits)), "what is on it may be anything");
    assert!(!judge(true, None, Some(&waits)), "somebody may have made the claim by hand, without our labels");
    assert!(!judge(true, Some("Pending"), Some(&runs)));
    assert!(judge(false, None, Some(&waits)), "what a pod without a volume has goes with it");
    assert!(!judge(false, None, None), "its pod may be there before we hear of it");
    assert!(!judge(false, None, Some(&runs)));
}

/// Before, the cache kept no images: every pod that was to be restarted seemed to run another one, and what its engine had said of
/// spec.config stopped no restart.
#[test]
fn what_the_cache_keeps_of_a_pod_says_as_much_of_its_place_as_the_whole_pod() {
    use crate::cache::Cached as _;
    let set = |spec: Value| {
        let gathered = gathered(cluster(&spec));
        build(&try_resolve(&gathered).unwrap()).unwrap().stateful_sets.remove(0)
    };
    let mut wanted = set(json!({"shards": 1, "replicasPerShard": 1, "image": "redis:7.2"}));
    let template = wanted.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
    template.annotations.as_mut().unwrap().insert("redis.kun.io/restarted-by".to_owned(), "op-1".to_owned());
    let marks = marks(std::slice::from_ref(&wanted), Some("op-1"));
    for (image, is_other) in [("redis:7.2", false), ("redis:7.0", true)] {
        let template = set(json!({"shards": 1, "replicasPerShard": 1, "image": image})).spec.unwrap().template;
        let mut whole = pod(&redis(&json!({"running": {}})));
        whole.metadata.annotations = template.metadata.unwrap().annotations;
        whole.spec = template.spec;
        whole.spec.as_mut().unwrap().node_name = Some("a".to_owned());
        let mut kept = whole.clone();
        kept.prune();
        assert_ne!(kept, whole);
        let [whole, kept] =
            [whole, kept].map(|pod| place::place("orders-0-0".to_owned(), Some(&pod), marks.get(&0), &BTreeMap::new()));
        assert_eq!(kept, whole);
        assert_eq!((kept.outdated, kept.other_image), (true, is_other));
    }
}

/// Before, whoever named another Secret was told that all was up to date, and only pods that were made later had its password.
#[test]
fn a_pod_that_mounts_another_secret_than_is_wished_is_outdated() {
    use crate::cache::Cached as _;
    let gathered = |secret: Option<&str>| gathered(cluster(&json!({"shards": 1, "auth": {"secretName": secret}})));
    let set_of = |secret| build(&try_resolve(&gathered(secret)).unwrap()).unwrap().stateful_sets.remove(0);
    let outdated = |has: Option<&'static str>, wished: Option<&'static str>, revision: &str, observed: i64| {
        let (mut gathered, mut set, mut one) = (gathered(wished), set_of(wished), pod(&redis(&json!({"running": {}}))));
        let template = set_of(has).spec.unwrap().template;
        set.metadata.generation = Some(2);
        set.status = serde_json::from_value(json!({"observedGeneration": observed, "updateRevision": "new"})).unwrap();
        one.metadata = template.metadata.unwrap();
        one.metadata.name = Some("orders-0-0".to_owned());
        one.metadata.labels.as_mut().unwrap().insert("controller-revision-hash".to_owned(), revision.to_owned());
        one.spec = template.spec;
        one.prune();
        gathered.pods.insert("orders-0-0".to_owned(), std::sync::Arc::new(one));
        let marks = marks(std::slice::from_ref(&set), None);
        gathered.stateful_sets.insert("orders-0".to_owned(), std::sync::Arc::new(set));
        places(&gathered, &marks)[&Pod::new(0, 0)].outdated
    };
    let (none, mine, named) = (None, Some("mine"), Some("orders-auth"));
    for (has, wished, is_outdated) in [(none, mine, true), (mine, none, true), (mine, Some("other"), true)] {
        assert_eq!(outdated(has, wished, "old", 2), is_outdated, "{has:?} {wished:?}");
    }
    // A new release changes the template in something else.
    for (has, wished) in [(none, none), (mine, mine), (none, named), (named, none)] {
        assert!(!outdated(has, wished, "old", 2), "{has:?} {wished:?}");
    }
    // Of the newest template, and rewritten by somebody: another restart would change nothing. Until it is known which one is the newest it may be.
    assert_eq!([outdated(none, mine, "new", 2), outdated(none, mine, "new", 1)], [false, true]);
    assert_eq!(unwritten(&marks(&[set_of(mine)], None), &marks(&[set_of(none)], None)), BTreeSet::from([0]));
}

fn report(phase: AgentPhase, because: Option<&str>) -> types::agent::AgentReport {
    types::agent::AgentReport {
        pod: "orders-0-0".to_owned(),
        phase,
        held_because: because.map(str::to_owned),
        node_id: Some("ab".repeat(20)),
        holds_data: true,
        starts: 1,
        copy: None,
        serves: None,
        refused: None,
        settled: None,
        following: None,
        lags: None,
        altered: BTreeMap::new(),
        not_set: BTreeMap::new(),
        runs_at: None,
        takes_no_release: false,
        waits_for: None,
        volume_in_use_millis: None,
        ended: Vec::new(),
        lost: None,
    }
}

#[test]
fn what_an_agent_says_becomes_what_the_planner_reads() {
    let of_agent = |report: &types::agent::AgentReport| of_agent(report, || 4_000);
    let held = Seen::Held {
        holds_data: true,
        id: NodeId::parse(&"ab".repeat(20)),
        reason: "another member may hold newer data".to_owned(),
    };
    assert_eq!(of_agent(&report(AgentPhase::Held, Some("another member may hold newer data"))), held);
    assert_eq!(of_agent(&report(AgentPhase::Starting, None)), Seen::Starting);
    let hopeless = report(AgentPhase::Starting, Some("the image has no valkey-server, and spec.engine is Valkey"));
    assert_eq!(of_agent(&hopeless), Seen::Stopped);
    assert_eq!(unusable(&hopeless), Some("the image has no valkey-server, and spec.engine is Valkey"));
    assert_eq!(unusable(&report(AgentPhase::Held, Some("another member may hold newer data"))), None);
    assert_eq!(unusable(&report(AgentPhase::Starting, None)), None);
    let words = Some("'hz 0': out of range".to_owned());
    let refused = types::agent::AgentReport { refused: words.clone(), settled: Some(true), ..hopeless };
    let refusal =
        |report: &types::agent::AgentReport| words::refusal(report).map(|refusal| (refusal.words, refusal.finding));
    let final_words = words.clone().map(|words| (words, Finding::Refused));
    assert_eq!((of_agent(&refused), unusable(&refused), refusal(&refused)), (Seen::Stopped, None, final_words));
    for (settled, finding) in [(Some(false), Finding::Undecided), (None, Finding::NotSet)] {
        let told = types::agent::AgentReport { settled, ..refused.clone() };
        assert_eq!(refusal(&told).map(|(_, finding)| finding), Some(finding));
    }
    let not_set = BTreeMap::from([("hz".to_owned(), "no".to_owned())]);
    let running = types::agent::AgentReport { not_set, ..report(AgentPhase::Running, None) };
    assert_eq!(refusal(&running), Some(("hz: no".to_owned(), Finding::NotSet)));
    let altered = BTreeMap::from([("maxclients".to_owned(), "reduced".to_owned())]);
    let names = altered.keys().cloned().collect();
    let alters = types::agent::AgentReport { altered: altered.clone(), ..report(AgentPhase::Running, None) };
    assert_eq!(refusal(&alters), Some(("reduced".to_owned(), Finding::Altered(names))));
    let both = types::agent::AgentReport { altered, ..running };
    assert_eq!(refusal(&both), Some(("hz: no".to_owned(), Finding::NotSet)), "what is not in use first");
    assert_eq!(of_agent(&report(AgentPhase::Running, None)), Seen::Starting);
    assert_eq!(of_agent(&report(AgentPhase::Stopping, None)), Seen::Unknown { since_millis: 4_000 });
    let doubled =
        |phase| types::agent::AgentReport { runs_at: Some("10.9.9.9:6379".to_owned()), ..report(phase, None) };
    let told = [AgentPhase::Held, AgentPhase::Starting].map(|phase| runs_at(&doubled(phase)).map(str::to_owned));
    assert_eq!(told, [Some("10.9.9.9:6379".to_owned()), None]);
    assert_eq!(runs_at(&report(AgentPhase::Held, None)), None);
    let refuses = |phase| types::agent::AgentReport { takes_no_release: true, ..report(phase, None) };
    let told = [AgentPhase::Held, AgentPhase::Starting].map(|phase| takes_no_release(&refuses(phase)));
    assert_eq!((told, takes_no_release(&report(AgentPhase::Held, None))), ([true, false], false));
    let waits = |phase| types::agent::AgentReport { waits_for: Some("votes".to_owned()), ..report(phase, None) };
    let told = [AgentPhase::Starting, AgentPhase::Running].map(|phase| waits_for(&waits(phase)).map(str::to_owned));
    assert_eq!(told, [Some("votes".to_owned()), None]);
}

/// Before, a pod that stopped had not answered for 0 s until it was gone, and others waited for its vote for as long.
#[test]
fn who_stops_or_is_silent_is_unknown_since_the_first_look_without_it() {
    let (mut memory, pod, now) = (Memory::default(), Pod::new(0, 0), Instant::now());
    let stops = report(AgentPhase::Stopping, None);
    for millis in [0, 4_000] {
        let later = now + Duration::from_millis(millis);
        let seen = of_agent(&stops, || memory.unknown(pod, later).0);
        assert_eq!(seen, Seen::Unknown { since_millis: millis });
    }
}

fn node(id: u8, role: plan::Role, epoch: u64) -> plan::Node {
    crate::testing::a_node(NodeId::from_bytes([id; 20]), role, epoch)
}

#[test]
fn a_server_is_silent_since_it_first_did_not_answer_although_it_runs() {
    let (pod, mut memory) = (Pod::new(0, 0), Memory::default());
    let of = |phase, words: Option<&str>| {
        BTreeMap::from([(pod, Answer::Agent(Box::new(report(phase, None)), words.map(str::to_owned)))])
    };
    let runs = || of(AgentPhase::Running, None);
    assert_eq!(memory.note_silence(&runs()).keys().copied().collect::<Vec<_>>(), [pod]);
    let before = Timestamp::from_second(7).unwrap();
    memory.silent.insert(pod, before);
    assert_eq!(memory.note_silence(&runs()), BTreeMap::from([(pod, before)]));
    let answered = Answer::Redis(Box::new(node::raw(NodeId::from_bytes([1; 20]), "", "")));
    for other in [
        of(AgentPhase::Starting, None),
        of(AgentPhase::Running, Some("LOADING Redis is loading the dataset in memory")),
        BTreeMap::from([(pod, answered)]),
        BTreeMap::from([(pod, Answer::Nobody)]),
    ] {
        memory.silent.insert(pod, before);
        assert_eq!(memory.note_silence(&other), BTreeMap::new());
        assert_ne!(memory.note_silence(&runs()), BTreeMap::from([(pod, before)]));
    }
    memory.silent.insert(pod, before);
    let refuses = of(AgentPhase::Running, Some("ERR max number of clients reached"));
    assert_eq!(memory.note_silence(&refuses), BTreeMap::from([(pod, before)]));
}

#[test]
fn who_answered_a_moment_ago_is_nothing_for_a_person_yet() {
    let (pod, now, mut memory) = (Pod::new(0, 0), Instant::now(), Memory::default());
    let mut is_lately = |is_now, millis| memory.note_served(pod, is_now, now + Duration::from_millis(millis));
    assert!(!is_lately(false, 0), "it was never seen");
    assert!(!is_lately(true, 100), "it answers");
    assert!(is_lately(false, 3_099));
    assert!(!is_lately(false, 3_100));
}

#[test]
fn there_is_hope_for_a_minute_after_the_last_sign_of_a_member() {
    let (pod, mut memory, now) = (Pod::new(0, 0), Memory::default(), Instant::now());
    let mut is_hope = |is_now, seconds| memory.note_hope(pod, is_now, now + Duration::from_secs(seconds));
    assert!(is_hope(false, 0), "it has only just been asked for the first time");
    assert!(is_hope(false, 59));
    assert!(!is_hope(false, 60));
    assert!(is_hope(true, 600));
    assert!(is_hope(false, 659));
    assert!(!is_hope(false, 660));
}

#[test]
fn a_server_that_runs_and_is_slow_is_given_more_time_and_nobody_else_is() {
    let agent = |phase| Answer::Agent(Box::new(report(phase, None)), None);
    let raw = || Answer::Redis(Box::new(node::raw(NodeId::from_bytes([1; 20]), "", "")));
    let second = Duration::from_secs(1);
    let table = [
        (agent(AgentPhase::Running), 1, second, 2),
        (agent(AgentPhase::Running), 4, second, 4),
        (agent(AgentPhase::Starting), 4, second, 1),
        (agent(AgentPhase::Held), 2, second, 1),
        (Answer::Nobody, 4, second, 1),
        (Answer::Dead(Seen::Stopped), 4, second, 1),
        (raw(), 4, second, 4),
        (raw(), 4, second / 2, 2),
        (raw(), 1, second / 2, 1),
    ];
    for (number, (answer, patience, took, next)) in table.into_iter().enumerate() {
        assert_eq!(given_next(&answer, second * patience, took), second * next, "row {number}");
    }
}

#[test]
fn an_election_is_a_role_won_or_a_new_epoch_or_a_past_that_is_not_known() {
    let owner = || plan::Role::Primary { slots: plan::SlotSet::all() };
    let empty = || plan::Role::Primary { slots: plan::SlotSet::EMPTY };
    let of = NodeId::from_bytes([9; 20]);
    let replica = || plan::Role::Replica {
        of,
        synced: true,
        link_up: true,
        misled: false,
        offset: 0,
        lag_bytes: 0,
        gap: plan::Gap::default(),
        stands: plan::Stands::ByItself,
    };
    let elected = |looks: Vec<(plan::Role, u64, bool)>| {
        let mut memory = Memory::default();
        for (role, epoch, raised) in looks {
            memory.elections.clear();
            memory.raised = raised;
            memory.note_claim(Pod::new(0, 0), &node(1, role, epoch), Instant::now());
        }
        !memory.elections.is_empty()
    };
    let table = [
        ("first seen, fresh", vec![(empty(), 0, false)], false),
        ("first seen, owns slots", vec![(owner(), 1, false)], true),
        ("first seen, follows", vec![(replica(), 1, false)], true),
        ("stays", vec![(owner(), 1, false), (owner(), 1, false)], false),
        ("is given slots", vec![(empty(), 1, false), (owner(), 1, false)], false),
        ("is promoted", vec![(replica(), 1, false), (owner(), 2, false)], true),
        ("steps down", vec![(owner(), 1, false), (replica(), 2, false)], false),
        ("lost the role and won it back unseen", vec![(owner(), 1, false), (owner(), 3, false)], true),
        ("a step of ours raised its epoch", vec![(owner(), 1, false), (owner(), 3, true)], false),
    ];
    for (name, looks, expected) in table {
        assert_eq!(elected(looks), expected, "{name}");
    }
    let mut memory = Memory::default();
    for (role, epoch, raised) in [(replica(), 1, false), (owner(), 5, false), (owner(), 7, true)] {
        memory.raised = raised;
        memory.note_claim(Pod::new(0, 0), &node(1, role, epoch), Instant::now());
    }
    assert_eq!(memory.first_epochs.values().collect::<Vec<_>>(), [&5], "with which it was elected");
}

#[test]
fn what_keeps_a_pod_from_starting_is_told_in_the_words_of_kubernetes() {
    let of = |status: serde_json::Value| {
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({"status": status})).unwrap();
        stuck(&pod)
    };
    let container = |state: serde_json::Value, last: serde_json::Value| {
        of(
            json!({"containerStatuses": [{"name": "redis", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": state, "lastState": last}]}),
        )
    };
    let nowhere =
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]});
    assert_eq!(of(nowhere).as_deref(), Some("the scheduler has no node for its pod: 0/1 nodes are available"));
    let image = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
    assert_eq!(container(image, json!({})).as_deref(), Some("its container redis is in ErrImagePull: not found"));
    let crash = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}});
    let ended = json!({"terminated": {"exitCode": 1, "message": "\nFATAL CONFIG FILE ERROR\n"}});
    assert_eq!(
        container(crash, ended).as_deref(),
        Some("its container redis is in CrashLoopBackOff: exit code 1: FATAL CONFIG FILE ERROR")
    );
    assert_eq!(container(json!({"waiting": {"reason": "ContainerCreating"}}), json!({})), None);
    assert_eq!(container(json!({"running": {}}), json!({})), None);
}

#[test]
fn a_role_is_what_table_and_replication_both_say_once_the_process_has_settled() {
    let (me, primary) = (NodeId::from_bytes([1; 20]), NodeId::from_bytes([2; 20]));
    let of = |primary: &str, flag: &str| format!("{me} 10.0.0.1:6379@16379 myself,{flag} {primary} 0 0 1 connected\n");
    let (replica, owner) = (of(&primary.to_string(), "slave"), of("-", "master"));
    let at_odds = |role: &str, uptime: u32, table: &str| {
        node::raw(me, &format!("role:{role}\r\nuptime_in_seconds:{uptime}\r\n"), table).facts.at_odds
    };
    let table = [
        ("slave", 60, &replica, false),
        ("master", 60, &owner, false),
        ("master", 60, &replica, true),
        ("slave", 60, &owner, true),
        ("master", 2, &replica, false),
    ];
    for (role, uptime, lines, expected) in table {
        assert_eq!(at_odds(role, uptime, lines), expected, "{role} after {uptime} s, {lines}");
    }
    let moved = node::raw(me, "", &owner).facts;
    assert_eq!(moved.own_line, Some("10.0.0.1:6379".parse().unwrap()));
}

#[test]
fn a_replica_that_is_linked_to_somebody_else_holds_no_copy_of_its_primary() {
    let [me, primary, stranger] = [1, 2, 3].map(|byte| NodeId::from_bytes([byte; 20]));
    let up = "role:slave\r\nmaster_host:10.0.0.2\r\nmaster_link_status:up\r\nmaster_sync_in_progress:0\r\n";
    let down = "role:slave\r\nmaster_host:10.0.0.2\r\nmaster_link_status:down\r\nmaster_link_down_since_seconds:2\r\n";
    let table = format!("{me} 10.0.0.1:6379@16379 myself,slave {primary} 0 0 1 connected\n");
    let synced = |info: &str, answers_there: NodeId| {
        let (pod, other) = (Pod::new(0, 1), Pod::new(0, 0));
        let mut there = node::raw(answers_there, "role:master\r\n", "");
        there.facts.address = "10.0.0.2:6379".parse().unwrap();
        let answers = [(pod, node::raw(me, info, &table)), (other, there)];
        let mut probed = Probed::default();
        for (pod, raw) in &answers {
            let seen = Seen::Node(Box::new(node::read(raw, &stream::Streams::default(), Instant::now())));
            let (site, last_id) = (plan::Site::Unknown, None);
            probed.observed.members.insert(
                *pod,
                Member { outdated: false, terminating: false, last_id, site, seen, waits: false, stuck: false },
            );
            probed.facts.insert(*pod, raw.facts.clone());
        }
        unlink_from_strangers(&mut probed, &answers.map(|(pod, raw)| (pod, Answer::Redis(Box::new(raw)))).into());
        match &nodes(&probed.observed).find(|node| node.id == me).unwrap().role {
            Role::Replica { synced, link_up, .. } => (*synced, *link_up),
            Role::Primary { .. } => panic!("it is a replica"),
        }
    };
    assert_eq!((synced(up, primary), synced(up, stranger)), ((true, true), (false, false)));
    // A primary that came back blank: the copy of what it was is the only one.
    assert_eq!(synced(down, stranger), (true, false));
}

#[test]
fn who_answers_at_an_address_of_two_places_is_remembered_for_neither() {
    let at = |ip: &str| {
        let mut status = redis(&json!({"running": {}}));
        status["podIP"] = json!(ip);
        place::place("orders-0-0".to_owned(), Some(&pod(&status)), None, &BTreeMap::new())
    };
    let [one, other, third, gone] = [0, 1, 2, 3].map(|ordinal| Pod::new(0, ordinal));
    let nowhere = place::place("orders-0-3".to_owned(), None, None, &BTreeMap::new());
    let places = [(one, at("10.0.0.1")), (other, at("10.0.0.1")), (third, at("10.0.0.2")), (gone, nowhere)].into();
    let shared = shared(&places);
    assert_eq!(shared, BTreeSet::from(["10.0.0.1:6379".to_owned()]));
    let mut memory = Memory::default();
    let found = |byte, address: &str| plan::Node {
        address: address.to_owned(),
        ..node(byte, Role::Primary { slots: SlotSet::EMPTY }, 1)
    };
    memory.note_answer(other, &found(2, "10.0.0.3:6379"), &shared);
    memory.note_answer(one, &found(1, "10.0.0.1:6379"), &shared);
    memory.note_answer(other, &found(1, "10.0.0.1:6379"), &shared);
    memory.note_answer(third, &found(3, "10.0.0.2:6379"), &shared);
    let [second, third_id] = [2, 3].map(|byte| NodeId::from_bytes([byte; 20]));
    assert_eq!(memory.answered, BTreeMap::from([(other, second), (third, third_id)]));
}

/// Before, of a member whose server stood still beside its agent only the status counted, and a former owner whom that did not name yet held no move.
#[test]
fn who_answered_last_counts_before_the_status_while_a_server_is_silent() {
    let [seen_last, in_status] = [1, 2].map(|byte| NodeId::from_bytes([byte; 20]));
    let [known, new] = [0, 1].map(|ordinal| Pod::new(0, ordinal));
    let memory = Memory { answered: BTreeMap::from([(known, seen_last)]), ..Memory::default() };
    let held = Seen::Held { holds_data: true, id: None, reason: String::new() };
    let last = |pod, seen: &Seen| memory.last_id(pod, seen, Some(in_status));
    for (seen, id) in [
        (Seen::Unknown { since_millis: 0 }, seen_last),
        (Seen::Starting, seen_last),
        (Seen::Stopped, in_status),
        (Seen::Absent, in_status),
        (held, in_status),
    ] {
        assert_eq!((last(known, &seen), last(new, &seen)), (Some(id), Some(in_status)), "{seen:?}");
    }
}

#[test]
fn introductions_are_counted_while_the_two_are_where_they_were() {
    let mut memory = Memory::default();
    let pair = (Pod::new(0, 0), Pod::new(0, 1));
    let at = |host: &str| ["10.0.0.1:6379".to_owned(), host.to_owned()];
    memory.introduced(pair, at("10.0.0.2:6379"));
    memory.introduced(pair, at("10.0.0.2:6379"));
    let now = Instant::now();
    assert_eq!(memory.introductions(now)[&pair].times, 2);
    memory.introduced(pair, at("10.0.0.3:6379"));
    assert_eq!(memory.introductions(now)[&pair].times, 1);
    assert!(memory.introductions(now + Duration::from_secs(90)).is_empty());
}

#[test]
fn a_container_that_ends_again_and_again_is_told_with_its_servers_last_words() {
    let of = |restarts: i32, state: Value, last: Value| {
        let container = json!({"name": "redis", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
            "state": state, "lastState": last});
        let pod = pod(&json!({"phase": "Running", "containerStatuses": [container]}));
        place::place("orders-0-0".to_owned(), Some(&pod), None, &BTreeMap::new()).crashes
    };
    let ended = |code: i32, until: &str| {
        json!({"terminated": {"exitCode": code, "startedAt": "1970-01-01T00:00:00Z", "finishedAt": until,
            "message": "1:M 24 Nov 2026 05:44:49.4 # Bad file format\n{\"level\":\"ERROR\"}\n"}})
    };
    let (soon, late) = ("1970-01-01T00:00:01Z", "1970-01-01T00:10:00Z");
    let backoff = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let told = |restarts: i32| Some(format!("exit code 2 after {restarts} restarts: Bad file format"));
    assert_eq!(of(2, backoff(), ended(2, late)), told(2));
    assert_eq!(of(3, json!({"running": {}}), ended(2, soon)), told(3));
    // Three times in its long life, a second time, and at its own wish.
    assert_eq!(of(3, json!({"running": {}}), ended(2, late)), None);
    assert_eq!(of(2, json!({"running": {}}), ended(2, soon)), None);
    assert_eq!(of(3, json!({"running": {}}), ended(0, soon)), None);
    assert_eq!(of(0, backoff(), json!({})), None);
}

#[test]
fn a_pod_whose_container_never_started_is_outdated_by_any_change_of_its_template() {
    let waiting = |reason: &str| redis(&json!({"waiting": {"reason": reason}}));
    let of =
        |status: Value, revision: &'static str| sites("Preferred", &[(Some("a"), status, revision, "Preferred")])[0].1;
    assert!(of(waiting("ContainerCreating"), "old"));
    assert!(!of(waiting("ContainerCreating"), "new"));
    assert!(!of(redis(&json!({"running": {}})), "old"));
    let mut ran = waiting("CrashLoopBackOff");
    ran["containerStatuses"][0]["lastState"] = json!({"terminated": {"exitCode": 1}});
    assert!(!of(ran, "old"));
}

#[test]
fn who_was_a_member_a_moment_ago_is_known_as_a_former_one_for_a_while() {
    let (mut memory, now) = (Memory::default(), Instant::now());
    let mut observed = crate::testing::healthy(3, 2).observed;
    assert_eq!(memory.former(&observed, now), BTreeSet::new());
    let gone = nodes(&observed).next().unwrap().id;
    observed.members.remove(&Pod::new(0, 0));
    assert_eq!(memory.former(&observed, now + FORMER_LATELY / 2), BTreeSet::from([gone]));
    assert_eq!(memory.former(&observed, now + FORMER_LATELY), BTreeSet::new());
}
