//! Parameters are in use once the engine has taken them; until then those of before are, also after a crash.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use types::{agent::AgentPhase, config::PARAMETERS};

use crate::harness::{Cluster, Pod, config, eventually, fill};

/// What the picky server says of a parameter that it does not start with.
const REFUSAL: &str = "'maxclients 1000000': this machine has no files for them";

const LUCK: &str = "luck";

fn one(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

/// redis-server, on a machine where no server starts with a million clients or 1024 databases, 1000 databases become 16, and servers with a
/// timeout of 77 s are out of luck until [`LUCK`] lies beside it.
fn picky(pod: &Pod) -> PathBuf {
    let program = pod.dir.join("redis-server");
    let script = "#!/bin/sh\nrefuse() {\n\
        printf '\\n*** FATAL CONFIG FILE ERROR (Redis) ***\\nReading the configuration file, at line 9\\n' >&2\n\
        printf \">>> '$1'\\nthis machine has no files for them\\n\" >&2\nexit 1\n}\n\
        for one in 'maxclients 1000000' 'databases 1024'; do\n\
        if grep -qs -- \"^$one\\$\" \"$1\"; then refuse \"$one\"; fi\ndone\n\
        if grep -qs -- '^timeout 77$' \"$1\" && ! [ -e \"${0%/*}/luck\" ]; then\n\
        echo \"$$:M 24 Nov 2026 05:44:49.430 # WARNING Memory overcommit must be enabled!\"\nkill -KILL $$\nfi\n\
        if grep -qs -- '^databases 1000$' \"$1\"; then\n\
        sed 's/^databases 1000$/databases 16/' \"$1\" > \"$1.other\"\nexec redis-server \"$1.other\"\nfi\n\
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

async fn altered(cluster: &Cluster) -> Option<BTreeMap<String, String>> {
    cluster.report(&cluster.pods[0]).await.map(|report| report.altered)
}

/// Whether what is told is the engine's answer.
async fn is_settled(cluster: &Cluster) -> Option<bool> {
    cluster.report(&cluster.pods[0]).await.and_then(|report| report.settled)
}

#[tokio::test]
async fn parameters_that_the_engine_refuses_are_not_used_not_even_by_the_next_start() {
    let mut cluster = on_a_picky_machine(71, one("maxclients", "123")).await;
    assert_eq!(shows(&cluster.pods[0], "maxclients").await, "123");
    cluster.config.parameters = one("maxclients", "1000000");
    cluster.config.max_memory_bytes = Some(64 << 20);
    cluster.write_config(&cluster.pods[0].dir);
    eventually("it is refused", async || refused(&cluster).await.as_deref() == Some(REFUSAL)).await;
    assert_eq!(is_settled(&cluster).await, Some(true));
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
    assert_eq!(is_settled(&cluster).await, None);
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
    eventually("it says that it runs, and nothing else", async || {
        let Some(report) = cluster.report(&cluster.pods[0]).await else { return false };
        (report.phase, report.held_because, report.refused) == (AgentPhase::Running, None, None)
    })
    .await;
}

#[tokio::test]
async fn a_trial_that_ends_without_a_word_on_the_configuration_is_repeated() {
    let mut cluster = on_a_picky_machine(75, one("timeout", "5")).await;
    assert_eq!(shows(&cluster.pods[0], "timeout").await, "5");
    cluster.config.parameters = one("timeout", "77");
    cluster.write_config(&cluster.pods[0].dir);
    let why = "the engine ended when it was tried; it said last: WARNING Memory overcommit must be enabled!";
    eventually("it says why", async || {
        let report = cluster.report(&cluster.pods[0]).await;
        report.is_some_and(|report| (report.refused.as_deref(), report.settled) == (Some(why), Some(false)))
    })
    .await;
    fs::write(cluster.pods[0].dir.join(LUCK), "").unwrap();
    eventually("it is tried again", async || shows(&cluster.pods[0], "timeout").await == "77").await;
    eventually("nothing is refused", async || refused(&cluster).await.is_none()).await;
}

#[tokio::test]
async fn a_fresh_pod_uses_what_its_engine_alters_and_tells_it() {
    let mut cluster = on_a_picky_machine(76, one("databases", "1000")).await;
    assert_eq!(shows(&cluster.pods[0], "databases").await, "16");
    let told = one("databases", "databases 1000: it makes \"16\" of it");
    eventually("it is told", async || altered(&cluster).await.as_ref() == Some(&told)).await;
    assert_eq!(refused(&cluster).await, None);
    // What it alters already keeps nobody from changing the rest.
    cluster.config.parameters.insert("timeout".to_owned(), "5".to_owned());
    cluster.write_config(&cluster.pods[0].dir);
    eventually("the rest is used", async || shows(&cluster.pods[0], "timeout").await == "5").await;
    eventually("it is told as before", async || {
        (altered(&cluster).await, refused(&cluster).await) == (Some(told.clone()), None)
    })
    .await;
}

/// A new pod on the volume of one that held a key, on a picky machine, with these parameters.
async fn with_a_data_set(net: u8, parameters: BTreeMap<String, String>) -> Cluster {
    let mut cluster = Cluster::new(net, config());
    cluster.add();
    let pod = &mut cluster.pods[0];
    pod.operator().await.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    eventually("it serves", async || pod.operator().await.cluster_info().await.is_ok_and(|info| info.ok)).await;
    fill(pod, "k", 1, b"v").await;
    pod.signal(rustix::process::Signal::TERM);
    assert_eq!(pod.ended().await, Some(0));
    pod.server = picky(pod);
    fs::remove_dir_all(pod.dir.join("run")).unwrap();
    fs::create_dir_all(pod.dir.join("run")).unwrap();
    cluster.config.parameters = parameters;
    cluster.write_config(&cluster.pods[0].dir);
    cluster.pods[0].start();
    cluster
}

#[tokio::test]
async fn a_data_set_comes_back_without_the_parameters_that_are_refused() {
    let mut wanted = one("maxclients", "1000000");
    wanted.insert("databases".to_owned(), "64".to_owned());
    let mut cluster = with_a_data_set(77, wanted).await;
    let pod = &cluster.pods[0];
    assert_eq!(pod.dbsize().await, 1);
    let all = ["maxclients", "databases", "maxmemory", "maxmemory-policy", "appendonly", "save"];
    let maxmemory = (200 << 20).to_string();
    for (name, value) in all.iter().zip(["10000", "64", &maxmemory, "noeviction", "yes", ""]) {
        assert_eq!(shows(pod, name).await, value, "{name}");
    }
    assert_eq!(refused(&cluster).await.as_deref(), Some(REFUSAL));
    cluster.config.parameters = one("maxclients", "456");
    cluster.write_config(&cluster.pods[0].dir);
    eventually("better ones are used", async || shows(&cluster.pods[0], "maxclients").await == "456").await;
}

#[tokio::test]
async fn a_data_set_is_not_loaded_without_a_refused_number_of_databases() {
    let cluster = with_a_data_set(78, one("databases", "1024")).await;
    let held = "the engine refuses the configuration: 'databases 1024': this machine has no files for them; \
        its data set is not loaded without databases";
    eventually("it says why", async || {
        let Some(report) = cluster.report(&cluster.pods[0]).await else { return false };
        (report.phase, report.held_because.as_deref(), report.starts) == (AgentPhase::Starting, Some(held), 0)
    })
    .await;
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
