//! The invariants T1–T6 at rest (reference: reliability.md B2), written without looking at the planner or the controller.
//!
//! T1 every live node's own table: 16384 slots, one owner each, all tables equal, no open slot. T2 node IDs and pods one to
//! one, no unknown entry. T3 the address listed for an ID yields that ID. T4 each replica: link up, no sync, replication
//! ID of its primary. T5 no primary holds a key of a slot that it does not own (the writer's read-back is its other half).
//! T6 spec and children agree.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use resp::{Command, Connection, Credentials, NodeId, Options, Reply, nodes::slots_text};
use types::names;

use crate::kubectl::Kubectl;

/// Between two looks at members: nothing tells of a flag of theirs.
const AGAIN: Duration = Duration::from_millis(200);

/// One member as the oracle sees it.
struct Member {
    pod: String,
    address: SocketAddr,
    id: NodeId,
    nodes: Vec<resp::Node>,
    info: resp::Info,
}

/// Shape that the spec asks for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Shards.
    pub shards: u16,
    /// Replicas of each shard.
    pub replicas: u16,
}

/// Checks T1–T6 of a cluster at rest; the error says which one is broken and how.
pub async fn check(kubectl: &Kubectl, namespace: &str, cluster: &str, shape: Shape) -> Result<()> {
    let members = gather(kubectl, namespace, cluster).await?;
    let wanted = usize::from(shape.shards) * usize::from(shape.replicas + 1);
    ensure!(members.len() == wanted, "T6: {} pods for a spec of {wanted}", members.len());
    tables_agree(&members).context("T1")?;
    identities_match(&members).context("T2, T3")?;
    replicas_follow(&members, shape).context("T4")?;
    keys_are_at_home(kubectl, namespace, cluster, &members).await.context("T5")?;
    children_match(kubectl, namespace, cluster, shape).await.context("T6")
}

/// Credentials of an internal or application user, read as an administrator would.
pub async fn credentials(kubectl: &Kubectl, namespace: &str, cluster: &str, user: &str) -> Result<Credentials> {
    let (secret, key) = match user {
        names::USER_OPERATOR => (names::internal_secret(cluster), "operator"),
        _ => (names::auth_secret(cluster), "password"),
    };
    let object = kubectl.clone().within(namespace).get("secret", &secret).await?;
    let encoded = object["data"][key].as_str().with_context(|| format!("key {key} of Secret {secret}"))?;
    Ok(Credentials::new(user, String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded)?)?))
}

/// Client addresses of all pods of a cluster, by pod name.
pub async fn addresses(kubectl: &Kubectl, namespace: &str, cluster: &str) -> Result<BTreeMap<String, SocketAddr>> {
    let selector = format!("{}={cluster}", names::LABEL_CLUSTER);
    let mut found = BTreeMap::new();
    for pod in kubectl.clone().within(namespace).list("pods", &selector).await? {
        let is_worker = pod["metadata"]["labels"].get(names::LABEL_BACKUP).is_some();
        if let (false, Some(name), Some(ip)) =
            (is_worker, pod["metadata"]["name"].as_str(), pod["status"]["podIP"].as_str())
        {
            found.insert(name.to_owned(), SocketAddr::new(ip.parse()?, names::PORT_REDIS));
        }
    }
    Ok(found)
}

/// A connection that is given up only if it hangs.
pub async fn open(address: SocketAddr, credentials: &Credentials) -> Result<Connection> {
    let mut options = Options::new(address).credentials(credentials.clone()).deadline(hung::answer());
    options.connect_timeout = hung::answer();
    Ok(Connection::open(&options).await?)
}

/// What each member says of the cluster, for the text of a failure.
pub async fn tables(kubectl: &Kubectl, namespace: &str, cluster: &str) -> String {
    let Ok(credentials) = credentials(kubectl, namespace, cluster, names::USER_OPERATOR).await else {
        return "no credentials".into();
    };
    let mut text = String::new();
    for (pod, address) in addresses(kubectl, namespace, cluster).await.unwrap_or_default() {
        let table = match open(address, &credentials).await {
            Ok(mut connection) => match connection.call(&["CLUSTER", "NODES"]).await {
                Ok(Reply::Bulk(table)) => String::from_utf8_lossy(&table).into_owned(),
                other => format!("{other:?}"),
            },
            Err(error) => format!("{error:#}"),
        };
        text += &format!("{pod} at {address}:\n{table}\n");
    }
    text
}

async fn gather(kubectl: &Kubectl, namespace: &str, cluster: &str) -> Result<Vec<Member>> {
    let credentials = credentials(kubectl, namespace, cluster, names::USER_OPERATOR).await?;
    let mut members = Vec::new();
    for (pod, address) in addresses(kubectl, namespace, cluster).await? {
        let mut connection = open(address, &credentials).await.with_context(|| format!("connect to {pod}"))?;
        let id = connection.my_id().await?;
        let nodes = connection.cluster_nodes().await?;
        let info = connection.info(&["everything"]).await?;
        members.push(Member { pod, address, id, nodes, info });
    }
    Ok(members)
}

/// Waits until every replica of a cluster may stand for election: an agent forbids it while it does not know its copy current.
pub async fn all_stand(kubectl: &Kubectl, namespace: &str, cluster: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        let members = gather(kubectl, namespace, cluster).await?;
        let stands = |own: &resp::Node| own.primary.is_none() || !own.flags.no_failover;
        let is_held_back = |member: &&Member| !member.nodes.iter().filter(|node| node.flags.myself).all(stands);
        let held_back: Vec<_> = members.iter().filter(is_held_back).map(|member| member.pod.as_str()).collect();
        if held_back.is_empty() {
            return Ok(());
        }
        ensure!(begin.elapsed() < hung::change(), "held back from election: {held_back:?}");
        tokio::time::sleep(AGAIN).await;
    }
}

fn tables_agree(members: &[Member]) -> Result<()> {
    let first = members.first().context("no member")?;
    let table = |member: &Member| -> BTreeMap<String, String> {
        let owners = member.nodes.iter().filter(|node| !node.slots.is_empty());
        owners.map(|node| (node.id.as_str().to_owned(), slots_text(&node.slots))).collect()
    };
    for member in members {
        let mut covered = BTreeSet::new();
        for node in &member.nodes {
            ensure!(
                node.migrating.is_empty() && node.importing.is_empty(),
                "{} has open slots: {:?} {:?}",
                member.pod,
                node.migrating,
                node.importing
            );
            for range in &node.slots {
                for slot in range.first..=range.last {
                    ensure!(covered.insert(slot), "{}: slot {slot} has two owners", member.pod);
                }
            }
        }
        ensure!(covered.len() == 16384, "{} knows owners of {} slots", member.pod, covered.len());
        ensure!(table(member) == table(first), "{} and {} have different tables", member.pod, first.pod);
    }
    Ok(())
}

fn identities_match(members: &[Member]) -> Result<()> {
    let ids: BTreeMap<&str, SocketAddr> = members.iter().map(|member| (member.id.as_str(), member.address)).collect();
    ensure!(ids.len() == members.len(), "two pods share a node ID");
    for member in members {
        let listed: BTreeSet<&str> = member.nodes.iter().map(|node| node.id.as_str()).collect();
        ensure!(listed == ids.keys().copied().collect(), "{} lists {listed:?}, pods are {ids:?}", member.pod);
        for node in &member.nodes {
            let flags = &node.flags;
            let bad = flags.handshake || flags.no_address || flags.failed || flags.suspected;
            ensure!(!bad, "{} sees {} as {flags:?}", member.pod, node.id.as_str());
            let expected = ids.get(node.id.as_str()).copied();
            ensure!(node.address == expected, "{} has {:?} for a pod at {expected:?}", member.pod, node.address);
        }
    }
    Ok(())
}

fn replicas_follow(members: &[Member], shape: Shape) -> Result<()> {
    let primaries: BTreeMap<&str, &Member> = members
        .iter()
        .filter(|member| member.info.get("role") == Some("master"))
        .map(|member| (member.id.as_str(), member))
        .collect();
    ensure!(primaries.len() == usize::from(shape.shards), "{} primaries", primaries.len());
    let mut followers: BTreeMap<&str, u16> = primaries.keys().map(|id| (*id, 0)).collect();
    for member in members.iter().filter(|member| member.info.get("role") == Some("slave")) {
        let own = member.nodes.iter().find(|node| node.flags.myself).context("no line of its own")?;
        let primary = own.primary.as_ref().context("a replica of nobody")?;
        let leader = primaries.get(primary.as_str()).with_context(|| format!("{} follows no primary", member.pod))?;
        *followers.entry(leader.id.as_str()).or_default() += 1;
        let up = member.info.get("master_link_status") == Some("up");
        let syncing = member.info.get("master_sync_in_progress") != Some("0");
        ensure!(up && !syncing, "{}: link up: {up}, sync running: {syncing}", member.pod);
        let same = member.info.get("master_replid") == leader.info.get("master_replid");
        ensure!(same, "{} and {} have different replication IDs", member.pod, leader.pod);
        let shard = |pod: &str| pod.rsplit_once('-').map(|(shard, _)| shard.to_owned());
        ensure!(shard(&member.pod) == shard(&leader.pod), "{} follows {} of another shard", member.pod, leader.pod);
    }
    ensure!(followers.values().all(|count| *count == shape.replicas), "replicas of each primary: {followers:?}");
    Ok(())
}

async fn keys_are_at_home(kubectl: &Kubectl, namespace: &str, cluster: &str, members: &[Member]) -> Result<()> {
    let credentials = credentials(kubectl, namespace, cluster, names::USER_OPERATOR).await?;
    for member in members.iter().filter(|member| member.info.get("role") == Some("master")) {
        let own = member.nodes.iter().find(|node| node.flags.myself).context("no line of its own")?;
        let foreign: Vec<u16> = (0..16384)
            .filter(|slot| !own.slots.iter().any(|range| (range.first..=range.last).contains(slot)))
            .collect();
        let connection = open(member.address, &credentials).await;
        let mut connection = connection.with_context(|| format!("connect to {}", member.pod))?;
        for batch in foreign.chunks(1000) {
            let ask = |slot: &u16| Command::new("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot.to_string());
            let counts = connection.pipeline(&batch.iter().map(ask).collect::<Vec<_>>()).await?;
            for (slot, count) in batch.iter().zip(counts) {
                let count = count.integer().with_context(|| format!("{}: keys of slot {slot}", member.pod))?;
                ensure!(count == 0, "{} holds {count} keys of slot {slot}, which it does not own", member.pod);
            }
        }
    }
    Ok(())
}

async fn children_match(kubectl: &Kubectl, namespace: &str, cluster: &str, shape: Shape) -> Result<()> {
    let selector = format!("{}={cluster}", names::LABEL_CLUSTER);
    let mut found = BTreeMap::new();
    for set in kubectl.clone().within(namespace).list("statefulsets", &selector).await? {
        let name = set["metadata"]["name"].as_str().context("name of a StatefulSet")?;
        if set["metadata"].get("ownerReferences").is_some() {
            bail!("StatefulSet {name} has an ownerReference: garbage collection could delete Redis");
        }
        found.insert(name.to_owned(), set["spec"]["replicas"].as_u64());
    }
    let wanted: BTreeMap<String, Option<u64>> =
        (0..shape.shards).map(|shard| (names::shard(cluster, shard), Some(u64::from(shape.replicas) + 1))).collect();
    ensure!(found == wanted, "StatefulSets {found:?}, wanted {wanted:?}");
    Ok(())
}
