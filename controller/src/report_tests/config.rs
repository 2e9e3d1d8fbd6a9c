//! Engines and parameters.

use types::engine::Engine;

use super::*;
use crate::probe::{Finding, Refusal};

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
    let refusal = |finding| Refusal { words: "maxclients 1000000: reduced to 4064.".to_owned(), finding };
    scene.probed.refused.insert(Pod::new(2, 0), refusal(Finding::Undecided));
    let text = "spec.config is not in use on orders-2-0 yet: maxclients 1000000: reduced to 4064.";
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
                restart goes on by itself (maxclients 1000000: reduced to 4064.)";
    assert_eq!(scene.says("Progressing"), said(Status::True, "Waiting", text));
    assert_eq!(scene.says("Ready").0, Status::True, "it serves as it did");
}

/// Before, the second sentence called it orders-2-1.
#[test]
fn sentences_that_are_told_together_name_a_member_in_one_way() {
    let mut scene = Scene::healthy();
    let pod = Pod::new(2, 1);
    scene.plan.waiting = vec![Waiting::Start { pod }, Waiting::Agreement { right: 4, of: 5, away: Some(pod) }];
    let text = "member 2-1 has not started yet; 4 of the 5 nodes that answer agree on who owns which slot and report the cluster as ok; \
                member 2-1 does not answer";
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
