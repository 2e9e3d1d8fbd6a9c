//! `kun ctl recover`: brings RedisClusters back that our store has lost, or has in an older state, from what their
//! StatefulSets say of them. Each comes back as the same object, so nothing that was made for it changes.
//!
//! It is safe to repeat, and does nothing where nothing is missing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use controller::build::stateful_set::RECORD_SHARD;
use controller::queue::Key;
use controller::standing::{Sets, Standing, recorded, standing};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use types::record::Record;
use types::{RedisCluster, names};

use crate::cli::say;
use crate::log::chain;

/// In whose name fields are written.
const MANAGER: &str = "kun-ctl";
/// StatefulSets of one page: each has a few kilobytes.
const PAGE: u32 = 250;

/// Why nothing can be said about any cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig.
    #[error("reading how to reach the API server")]
    Kubeconfig(#[from] KubeconfigError),
    /// Neither a kubeconfig nor a pod's environment.
    #[error("reading how to reach the API server; give --kubeconfig")]
    Inferred(#[source] kube::config::InferConfigError),
    /// The client.
    #[error("preparing the client of the API server")]
    Client(#[source] kube::Error),
    /// The StatefulSets.
    #[error("listing StatefulSets")]
    List(#[source] kube::Error),
    /// One was asked for, and nothing is known of it.
    #[error("nothing to recover {0} from: there is no StatefulSet of it")]
    Nothing(Key),
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The kubeconfig's own namespace.
    Default,
    /// This one.
    Namespace(String),
    /// Everywhere.
    All,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How to reach the API server; absent: as kubectl does.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it; absent: its current one.
    pub context: Option<String>,
    /// Where to look.
    pub scope: Scope,
    /// Only this RedisCluster.
    pub name: Option<String>,
    /// Only have it checked and say what would be done.
    pub dry_run: bool,
}

/// What is to be done about one cluster.
#[derive(Clone, Debug, PartialEq)]
enum Decision {
    /// Nothing is missing.
    Leave,
    /// It is gone: make it anew.
    Create(Box<Record>),
    /// It is older than what was applied: bring it forward.
    BringForward(Box<Record>, i64),
    /// It cannot be helped like this.
    Refuse(String),
}

/// Looks at every cluster that has StatefulSets, and brings back what is missing. Fails if one could not be brought back.
pub async fn run(options: Options) -> Result<ExitCode, Error> {
    let mut config = config(&options).await?;
    let namespace = match &options.scope {
        Scope::Default => Some(config.default_namespace.clone()),
        Scope::Namespace(namespace) => Some(namespace.clone()),
        Scope::All => None,
    };
    // kube's own retries go on for minutes and tell nobody; what is told here can be repeated by hand.
    config.default_retry = false;
    let client = Client::try_from(config).map_err(Error::Client)?;
    let clusters = clusters(&client, namespace.as_deref(), options.name.as_deref()).await?;
    if let (true, Some(namespace), Some(name)) = (clusters.is_empty(), &namespace, &options.name) {
        return Err(Error::Nothing(Key { namespace: namespace.clone(), name: name.clone() }));
    }
    if clusters.is_empty() {
        say("there are no StatefulSets of RedisClusters, so there is nothing to recover");
    }
    let mut all_well = true;
    for (key, sets) in &clusters {
        let (is_well, sentence) = one(&client, key, sets, options.dry_run).await;
        say(&format!("{key}: {sentence}"));
        all_well &= is_well;
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn config(options: &Options) -> Result<Config, Error> {
    let chosen = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    match &options.kubeconfig {
        Some(path) => Ok(Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &chosen).await?),
        None if options.context.is_some() => Ok(Config::from_kubeconfig(&chosen).await?),
        None => Config::infer().await.map_err(Error::Inferred),
    }
}

/// The StatefulSets by the cluster that they carry the name of.
async fn clusters(client: &Client, namespace: Option<&str>, name: Option<&str>) -> Result<BTreeMap<Key, Sets>, Error> {
    let api: Api<StatefulSet> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let of_one = name.map(|name| format!(",{}={name}", names::LABEL_CLUSTER)).unwrap_or_default();
    let selector = format!("app.kubernetes.io/managed-by={}{of_one}", names::MANAGED_BY);
    let mut params = ListParams::default().labels(&selector).limit(PAGE);
    let mut clusters: BTreeMap<Key, Sets> = BTreeMap::new();
    loop {
        let page = api.list(&params).await.map_err(Error::List)?;
        for set in page.items {
            if let Some((key, name)) = place(&set) {
                clusters.entry(key).or_default().insert(name, Arc::new(set));
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(clusters),
        }
    }
}

fn place(set: &StatefulSet) -> Option<(Key, String)> {
    let cluster = set.metadata.labels.as_ref()?.get(names::LABEL_CLUSTER)?;
    let key = Key { namespace: set.metadata.namespace.clone()?, name: cluster.clone() };
    Some((key, set.metadata.name.clone()?))
}

/// One cluster: whether all is well with it now, and what to say.
async fn one(client: &Client, key: &Key, sets: &Sets, dry_run: bool) -> (bool, String) {
    let api = Api::<RedisCluster>::namespaced(client.clone(), &key.namespace);
    let owner = match api.get_opt(&key.name).await {
        Ok(owner) => owner,
        Err(error) => return (false, format!("not recovered: asking whether it exists: {}", chain(&error))),
    };
    let (record, done) = match decide(key, owner.as_ref(), sets) {
        Decision::Leave => return (true, "nothing to do".to_owned()),
        Decision::Refuse(why) => return (false, format!("not recovered: {why}")),
        Decision::Create(record) => {
            let (uid, generation) = (&record.metadata.uid, record.metadata.generation);
            let done = format!("recovered with uid {uid} and generation {generation}");
            (record, done)
        }
        Decision::BringForward(record, from) => {
            let done = format!("brought from generation {from} to {}", record.metadata.generation);
            (record, done)
        }
    };
    match post(&api, &record, dry_run).await {
        Ok(()) if dry_run => (true, format!("would be {done}")),
        Ok(()) => (true, done),
        Err(error) => (false, format!("not recovered: {}", chain(&error))),
    }
}

fn decide(key: &Key, owner: Option<&RedisCluster>, sets: &Sets) -> Decision {
    let standing = standing(owner, sets);
    match (&standing, recorded(&key.name, sets)) {
        (Standing::Ours, _) => Decision::Leave,
        (Standing::Another { .. }, _) => Decision::Refuse(standing.sentence(key)),
        (Standing::Absent { .. }, Some(record)) => Decision::Create(Box::new(record)),
        (Standing::Behind { generation, .. }, Some(record)) => Decision::BringForward(Box::new(record), *generation),
        // Who is behind a record has one.
        (Standing::Behind { .. }, None) => Decision::Leave,
        (Standing::Absent { set, uid }, None) => Decision::Refuse(format!(
            "StatefulSet {set} belongs to the uid {uid}, but {} carries no annotation {} that this version can read",
            names::shard(&key.name, RECORD_SHARD),
            names::ANNOTATION_OWNER
        )),
    }
}

async fn post(api: &Api<RedisCluster>, record: &Record, dry_run: bool) -> Result<(), kube::Error> {
    let params = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
    let name = &record.metadata.name;
    api.create_subresource::<Record, RedisCluster>("recover", name, &params, record).await.map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn key() -> Key {
        Key { namespace: "shop".to_owned(), name: "orders".to_owned() }
    }

    fn owner(uid: &str, generation: i64) -> RedisCluster {
        let metadata = json!({"name": "orders", "namespace": "shop", "uid": uid, "generation": generation});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"shards": 5}})).unwrap()
    }

    fn record() -> Record {
        Record::of(&owner("u1", 5)).unwrap()
    }

    fn sets(record: Option<&Record>) -> Sets {
        let mut annotations = json!({"redis.kun.io/owner-uid": "u1"});
        if let (Some(record), Some(map)) = (record, annotations.as_object_mut()) {
            map.insert("redis.kun.io/owner".to_owned(), json!(serde_json::to_string(record).unwrap()));
        }
        let labels = json!({"redis.kun.io/cluster": "orders"});
        let metadata = json!({"name": "orders-0", "namespace": "shop", "labels": labels, "annotations": annotations});
        let set: StatefulSet = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        assert_eq!(place(&set), Some((key(), "orders-0".to_owned())));
        [("orders-0".to_owned(), Arc::new(set))].into()
    }

    #[test]
    fn what_was_lost_is_made_anew_and_what_went_back_is_brought_forward() {
        let sets = sets(Some(&record()));
        assert_eq!(decide(&key(), None, &sets), Decision::Create(Box::new(record())));
        assert_eq!(decide(&key(), Some(&owner("u1", 3)), &sets), Decision::BringForward(Box::new(record()), 3));
        assert_eq!(
            decide(&key(), Some(&owner("u1", 5)), &sets),
            Decision::Leave,
            "done once, there is nothing left to do"
        );
        assert_eq!(decide(&key(), Some(&owner("u1", 6)), &sets), Decision::Leave);
    }

    #[test]
    fn an_object_of_the_same_name_is_not_replaced() {
        let Decision::Refuse(why) = decide(&key(), Some(&owner("u2", 1)), &sets(Some(&record()))) else {
            unreachable!()
        };
        assert!(why.contains("another RedisCluster of this name, with the uid u1"), "{why}");
    }

    #[test]
    fn children_without_a_record_are_named() {
        let Decision::Refuse(why) = decide(&key(), None, &sets(None)) else { unreachable!() };
        let expected = "StatefulSet orders-0 belongs to the uid u1, but orders-0 carries no annotation redis.kun.io/owner that \
                        this version can read";
        assert_eq!(why, expected);
    }
}
