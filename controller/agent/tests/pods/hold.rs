//! A damaged nodes.conf beside a data set: held, never a crash loop, never a stranger that claims slots.

use std::fs;

use rustix::process::Signal;
use types::agent::AgentPhase;

use crate::harness::{Cluster, config, eventually, fill};

#[tokio::test]
async fn each_kind_of_damage_is_held_and_the_controllers_word_releases_it() {
    let mut cluster = Cluster::new(11, config());
    cluster.add();
    let mut redis = cluster.pods[0].operator().await;
    redis.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    eventually("slots are served", async || redis.cluster_info().await.unwrap().ok).await;
    fill(&cluster.pods[0], "k", 100, b"v").await;
    let id = cluster.pods[0].id().await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0));
    let path = cluster.pods[0].data("nodes.conf");
    let good = fs::read_to_string(&path).unwrap();
    let own_line_removed: String =
        good.lines().filter(|line| !line.contains("myself")).map(|l| format!("{l}\n")).collect();
    let damages = [
        (good[..good.len() / 2].to_owned(), "nodes.conf is cut"),
        (String::new(), "nodes.conf is empty"),
        (own_line_removed, "nodes.conf has no line about itself"),
        ("garbage \u{7f} \u{1}\n".repeat(20), "nodes.conf is cut"),
    ];
    for (content, why) in damages {
        fs::write(&path, &content).unwrap();
        cluster.pods[0].start();
        eventually("the member is held", async || {
            cluster.report(&cluster.pods[0]).await.is_some_and(|report| report.phase == AgentPhase::Held)
        })
        .await;
        let report = cluster.report(&cluster.pods[0]).await.unwrap();
        assert!(report.held_because.as_ref().unwrap().starts_with(why), "{report:?}");
        assert_eq!((report.holds_data, report.node_id, report.starts), (true, None, 0));
        assert!(cluster.get(&cluster.pods[0], "/readyz").await.1.starts_with(why));
        // Redis would exit or claim slots with these files: this word is not followed.
        let pod = &cluster.pods[0];
        assert_eq!(cluster.as_user("kun:controller", pod, "POST", "/v1/release", "{\"how\":\"AsIs\"}").await.0, 202);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        assert_eq!(cluster.report(pod).await.unwrap().phase, AgentPhase::Held);
        assert_eq!(fs::read_to_string(&path).unwrap(), content, "nothing was touched");
        cluster.pods[0].signal(Signal::TERM);
        assert_eq!(cluster.pods[0].ended().await, Some(0));
    }
    // The file is repaired by hand: the same identity and every key.
    fs::write(&path, &good).unwrap();
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].id().await, id);
    eventually("it is ready", async || cluster.get(&cluster.pods[0], "/readyz").await.0 == 200).await;
    assert_eq!(cluster.pods[0].dbsize().await, 100);
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0));
    // Released as blank: a new identity without keys, and the old files are kept.
    fs::write(&path, &good[..40]).unwrap();
    cluster.pods[0].start();
    eventually("the member is held", async || {
        cluster.report(&cluster.pods[0]).await.is_some_and(|report| report.phase == AgentPhase::Held)
    })
    .await;
    let release = "{\"how\":\"Blank\"}";
    assert_eq!(cluster.as_user("kun:controller", &cluster.pods[0], "POST", "/v1/release", release).await.0, 202);
    assert_ne!(cluster.pods[0].id().await, id);
    assert_eq!(cluster.pods[0].dbsize().await, 0);
    let kept: Vec<_> = fs::read_dir(cluster.pods[0].data("")).unwrap().map(|e| e.unwrap().path()).collect();
    let quarantine = kept.iter().find(|path| path.to_string_lossy().contains("quarantine-")).unwrap();
    assert!(quarantine.join("nodes.conf").exists() && quarantine.join("appendonlydir").exists(), "{kept:?}");
}
