//! Parameters are in use once the engine has taken them; until then those of before are, also after a crash.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use types::{agent::AgentPhase, config::PARAMETERS};

use crate::harness::{Cluster, Pod, config, eventually};

/// What the picky server says of a parameter that it does not start with.
const REFUSAL: &str = "'maxclients 1000000': this machine has no files for them";

fn one(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

/// redis-server, on a machine where no server starts with a million clients.
fn picky(pod: &Pod) -> PathBuf {
    let program = pod.dir.join("redis-server");
    let script = "#!/bin/sh\nif grep -qs -- '^maxclients 1000000$' \"$1\"; then\n\
        printf '\\n*** FATAL CONFIG FILE ERROR (Redis) ***\\nReading the configuration file, at line 9\\n' >&2\n\
        printf \">>> 'maxclients 1000000'\\nthis machine has no files for them\\n\" >&2\nexit 1\nfi\n\
        exec redis-server \"$@\"\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// A cluster whose one pod runs on a picky machine, with these parameters.
async fn on_a_picky_machine(net: u8, parameters: BTreeMap<String, String>) -> Cluster {
    let mut cluster = Cluster::new(net, config());
    cluster.add();
    cluster.pods[0].operator().await;
    let pod = &mut cluster.pods[0];
    pod.signal(rustix::process::Signal::TERM);
    pod.ended().await;
    pod.server = picky(pod);
    for file in ["run", "data"] {
        fs::remove_dir_all(pod.dir.join(file)).unwrap();
        fs::create_dir_all(pod.dir.join(file)).unwrap();
    }
    cluster.config.parameters = parameters;
    cluster.write_config(&cluster.pods[0].dir);
    cluster.pods[0].start();
    cluster
}

async fn shows(pod: &Pod, name: &str) -> String {
    pod.operator().await.config_get(&[name]).await.unwrap().remove(name).unwrap()
}

async fn refused(cluster: &Cluster) -> Option<String> {
    cluster.report(&cluster.pods[0]).await.and_then(|report| report.refused)
}

#[tokio::test]
async fn parameters_that_the_engine_refuses_are_not_used_not_even_by_the_next_start() {
    let mut cluster = on_a_picky_machine(71, one("maxclients", "123")).await;
    assert_eq!(shows(&cluster.pods[0], "maxclients").await, "123");
    cluster.config.parameters = one("maxclients", "1000000");
    cluster.config.max_memory_bytes = Some(64 << 20);
    cluster.write_config(&cluster.pods[0].dir);
    eventually("it is refused", async || refused(&cluster).await.as_deref() == Some(REFUSAL)).await;
    let pod = &cluster.pods[0];
    eventually("the rest is used", async || shows(pod, "maxmemory").await == (64 << 20).to_string()).await;
    assert_eq!(shows(pod, "maxclients").await, "123");

    let pod = &mut cluster.pods[0];
    pod.kill_redis();
    assert_eq!(pod.ended().await, Some(2));
    pod.start();
    assert_eq!(shows(&cluster.pods[0], "maxclients").await, "123");
    eventually("it is still told", async || refused(&cluster).await.as_deref() == Some(REFUSAL)).await;

    cluster.config.parameters = one("maxclients", "456");
    cluster.write_config(&cluster.pods[0].dir);
    let pod = &cluster.pods[0];
    eventually("better ones are used", async || shows(pod, "maxclients").await == "456").await;
    eventually("nothing is refused", async || refused(&cluster).await.is_none()).await;
}

#[tokio::test]
async fn a_fresh_pod_starts_nothing_with_refused_parameters_until_they_change() {
    let mut cluster = on_a_picky_machine(72, one("maxclients", "1000000")).await;
    let held = format!("the engine refuses the configuration: {REFUSAL}");
    eventually("it says why", async || {
        let Some(report) = cluster.report(&cluster.pods[0]).await else { return false };
        (report.phase, report.held_because, report.refused, report.starts)
            == (AgentPhase::Starting, Some(held.clone()), Some(REFUSAL.to_owned()), 0)
    })
    .await;
    assert_eq!(cluster.get(&cluster.pods[0], "/readyz").await, (503, format!("{held}\n")));
    cluster.config.parameters = one("maxclients", "456");
    cluster.write_config(&cluster.pods[0].dir);
    assert_eq!(shows(&cluster.pods[0], "maxclients").await, "456");
    let report = cluster.report(&cluster.pods[0]).await.unwrap();
    assert_eq!((report.phase, report.held_because, report.refused), (AgentPhase::Running, None, None));
}

/// Spellings that the engine shows in other words, and every default.
fn spellings() -> BTreeMap<String, String> {
    let defaults = PARAMETERS.iter().map(|one| (one.name, one.default));
    let own = [
        ("client-output-buffer-limit", "pubsub 16mb 8mb 60 replica 128MB 64mb 60"),
        ("latency-tracking-info-percentiles", "50.0 .5 99.123456789"),
        ("maxmemory-clients", "7%"),
        ("notify-keyspace-events", "dtexzhsl$gnKEm"),
        ("repl-backlog-size", "2m"),
        ("proto-max-bulk-len", "600MB"),
        ("list-max-listpack-size", "-3"),
        ("maxclients", "100"),
    ];
    defaults.chain(own).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn every_parameter_is_found_applied_however_it_is_spelled() {
    let mut cluster = Cluster::new(73, config());
    cluster.config.parameters = spellings();
    cluster.add();
    let pod = &cluster.pods[0];
    pod.operator().await;
    assert_eq!(refused(&cluster).await, None, "{}", pod.log());
    let shown: BTreeMap<String, String> = pod.operator().await.config_get(&["*"]).await.unwrap().into_iter().collect();
    for (name, value) in spellings() {
        assert!(types::config::shows(&name, &value, &shown[&name]), "{name} {value:?}: {:?}", shown[&name]);
    }
}

#[tokio::test]
async fn what_is_changed_beside_us_is_put_back_and_what_is_not_taken_is_told() {
    let mut cluster = Cluster::new(74, config());
    cluster.config.parameters = one("maxclients", "123");
    cluster.add();
    let pod = &cluster.pods[0];
    pod.operator().await.call(&["CONFIG", "SET", "maxclients", "200"]).await.unwrap();
    eventually("it is put back", async || shows(pod, "maxclients").await == "123").await;
    assert!(!pod.dir.join("run/trial").exists());
}
