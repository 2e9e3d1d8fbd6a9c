//! Creation of a cluster of 3 shards × 2 members on servers that answer already: the controller's own steps beside
//! `redis-cli --cluster create`, until every node says ok and every replica's link is up.

use std::time::{Duration, Instant};

use anyhow::Result;
use resp::{Credentials, Options};
use serde_json::json;
use tests::fleet::{Fleet, OPERATOR};

use crate::{
    redis::{self, Nodes},
    report::{Better, Pairs, Report, median},
};

/// Creations of each kind, in turns.
const PAIRS: u8 = 5;
/// Members of the cluster.
const MEMBERS: u8 = 6;
/// How long the servers are up before the clock starts, as pods are that became ready: Redis refuses to say ok in the
/// first two seconds of its life.
const UP: Duration = Duration::from_secs(3);
/// What redis-server does by itself, where the other measurements set something else.
const DEFAULTS: [&str; 4] = ["--cluster-node-timeout", "15000", "--cluster-require-full-coverage", "yes"];

/// Measures the pairs.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for pair in 1..=PAIRS {
        ours.push(by_kun(pair).await?);
        theirs.push(by_redis_cli(80 + pair).await?);
    }
    let pairs = Pairs {
        name: "create 3 x 2, from \"pods answer\" to \"all agree\"".to_owned(),
        ours,
        reference: theirs,
        against: "redis-cli --cluster create".to_owned(),
        unit: "s".to_owned(),
        better: Better::Less,
        bar: "≥ 8 x, ≤ 0.8 s".to_owned(),
    };
    report.compare(pairs, |ours, ratio| ratio >= 8.0 && median(&mut ours.to_vec()) <= 0.8)
}

async fn by_kun(net: u8) -> Result<f64> {
    let mut fleet = Fleet::start(net, 3, 2, json!({"shards": 3, "replicasPerShard": 1})).await;
    tokio::time::sleep(UP).await;
    let operator = Credentials::new("kun-operator", OPERATOR);
    let options: Vec<Options> =
        fleet.servers.values().map(|server| Options::new(server.address).credentials(operator.clone())).collect();
    let desired = fleet.desired(3, 1);
    let begin = Instant::now();
    fleet.until_satisfied(&desired).await;
    let end = redis::settled(&options, 3).await?;
    Ok(end.duration_since(begin).as_secs_f64())
}

async fn by_redis_cli(net: u8) -> Result<f64> {
    let nodes = Nodes::start(net, MEMBERS, &DEFAULTS).await?;
    tokio::time::sleep(UP).await;
    let mut words: Vec<String> = ["--cluster", "create"].map(str::to_owned).to_vec();
    words.extend(nodes.addresses.iter().map(ToString::to_string));
    words.extend(["--cluster-replicas", "1", "--cluster-yes"].map(str::to_owned));
    let options: Vec<Options> = nodes.addresses.iter().map(|address| Options::new(*address)).collect();
    let begin = Instant::now();
    redis::redis_cli(&words).await?;
    let end = redis::settled(&options, 3).await?;
    Ok(end.duration_since(begin).as_secs_f64())
}
