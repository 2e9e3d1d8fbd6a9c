//! A damaged nodes.conf beside a data set: held, never a crash loop, never a stranger that claims slots.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use types::agent::AgentPhase;

use crate::harness::{Cluster, Pod, config, eventually, fill};

#[tokio::test]
async fn a_server_of_another_engine_never_sees_the_data_and_another_image_mends_it() {
    let mut cluster = Cluster::new(87, config());
    cluster.add();
    fill_alone(&cluster.pods[0]).await;
    let id = cluster.pods[0].id().await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0));
    let before = fs::read(cluster.pods[0].data("nodes.conf")).unwrap();
    for (name, says, why) in [
        ("redis-server", "Valkey server v=9.1.2 sha=0", "is Valkey 9.1.2, and spec.engine is Redis"),
        ("valkey-server", "Redis server v=7.0.15 sha=0", "is Redis 7.0.15, and spec.engine is Valkey"),
        ("valkey-server", "", "the image has no"),
    ] {
        let pod = &mut cluster.pods[0];
        pod.server = impostor(&pod.dir, name, says);
        pod.start();
        let pod = &cluster.pods[0];
        eventually("the agent says what is wrong", async || {
            cluster.report(pod).await.is_some_and(|report| report.held_because.is_some_and(|text| text.contains(why)))
        })
        .await;
        let report = cluster.report(pod).await.unwrap();
        assert_eq!((report.phase, report.starts), (AgentPhase::Starting, 0));
        assert!(cluster.get(pod, "/readyz").await.1.contains(why));
        assert_eq!(fs::read(pod.data("nodes.conf")).unwrap(), before, "nothing was touched");
        assert!(!pod.data("started").exists());
        cluster.pods[0].signal(Signal::TERM);
        assert_eq!(cluster.pods[0].ended().await, Some(0));
    }
    cluster.pods[0].server = "redis-server".into();
    cluster.pods[0].start();
    assert_eq!(cluster.pods[0].id().await, id);
    assert_eq!(cluster.pods[0].dbsize().await, 100);
}

/// All slots and a hundred keys.
async fn fill_alone(pod: &Pod) {
    let mut redis = pod.operator().await;
    redis.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    eventually("slots are served", async || redis.cluster_info().await.unwrap().ok).await;
    fill(pod, "k", 100, b"v").await;
}

/// A server that says what it is, and leaves a mark if it is started. One that says nothing is not there.
fn impostor(dir: &Path, name: &str, says: &str) -> PathBuf {
    let path = dir.join(name);
    if says.is_empty() {
        return dir.join("nowhere").join(name);
    }
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo '{says}' && exit\ntouch '{0}/data/started'\n",
        dir.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

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
        // The guard looks again at once; that nothing follows takes a moment to see.
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

/// Before, it was taken for the same node in two processes if the former one ran elsewhere.
#[tokio::test]
async fn who_was_released_blank_is_not_told_by_its_former_node_id() {
    let mut cluster = Cluster::new(79, config());
    cluster.add();
    let mut redis = cluster.pods[0].operator().await;
    redis.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    let former = cluster.pods[0].id().await;
    cluster.pods[0].signal(Signal::TERM);
    assert_eq!(cluster.pods[0].ended().await, Some(0));
    fs::remove_dir_all(cluster.pods[0].data("appendonlydir")).unwrap();
    cluster.pods[0].start();
    let told = async || {
        let report = cluster.report(&cluster.pods[0]).await?;
        Some((report.phase, report.node_id))
    };
    let held = Some((AgentPhase::Held, Some(former.to_string())));
    eventually("it is held as who it was", async || told().await == held).await;
    let release = "{\"how\":\"Blank\"}";
    assert_eq!(cluster.as_user("kun:controller", &cluster.pods[0], "POST", "/v1/release", release).await.0, 202);
    let runs = Some((AgentPhase::Running, None));
    eventually("it runs as somebody new", async || told().await == runs).await;
    assert_ne!(cluster.pods[0].id().await, former);
}

/// Two members of one cluster have each other's volumes, as after a restore to the wrong claims.
#[tokio::test]
async fn a_volume_of_another_member_is_held_and_nobody_loses_anything_by_it() {
    let always = types::agent::AgentConfig { append_only: types::cluster::AppendOnly::Always, ..config() };
    let mut cluster = Cluster::form(34, always, 3, 1).await;
    crate::harness::fill_everywhere(&cluster, 300).await;
    for number in [0, 1] {
        cluster.pods[number].kill_redis();
        assert_eq!(cluster.pods[number].ended().await, Some(2));
    }
    let (first, second) = (cluster.pods[0].dir.join("data"), cluster.pods[1].dir.join("data"));
    let aside = cluster.pods[0].dir.join("aside");
    for (from, to) in [(&first, &aside), (&second, &first), (&aside, &second)] {
        std::fs::rename(from, to).unwrap();
    }
    for number in [0, 1] {
        cluster.pods[number].start();
    }
    for (number, other) in [(0, "orders-0-2"), (1, "orders-0-1")] {
        eventually("the member is held", async || {
            let report = cluster.report(&cluster.pods[number]).await;
            report.is_some_and(|report| {
                let why = report.held_because.unwrap_or_default();
                report.phase == AgentPhase::Held && report.node_id.is_none() && why.contains(other)
            })
        })
        .await;
    }
    // Back where they belong, they go on.
    for number in [0, 1] {
        cluster.pods[number].signal(rustix::process::Signal::TERM);
        assert_eq!(cluster.pods[number].ended().await, Some(0));
    }
    for (from, to) in [(&first, &aside), (&second, &first), (&aside, &second)] {
        std::fs::rename(from, to).unwrap();
    }
    for number in [0, 1] {
        cluster.pods[number].start();
    }
    cluster.wait_ready().await;
    let mut client = cluster.client();
    for n in 0..300 {
        assert!(client.get(format!("k{n}")).await.unwrap().is_some(), "k{n}");
    }
}
