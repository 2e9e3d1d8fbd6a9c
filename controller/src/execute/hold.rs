//! A member that runs another one's node is stopped and held by its agent.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod as KubePod;
use plan::{NodeId, Who};
use types::agent::{AgentPhase, Hold};

use super::{Done, Error, Nodes, World};

fn refused(why: impl Into<String>) -> Error {
    Error::Refused(why.into())
}

/// What was seen of the double.
pub(super) struct Seen<'a> {
    pub(super) address: &'a str,
    pub(super) epoch: u64,
    pub(super) process: &'a str,
}

pub(super) async fn hold(
    world: World<'_>,
    nodes: &Nodes,
    double: Who,
    home: Who,
    seen: Seen<'_>,
) -> Result<Done, Error> {
    is_at_home(world, nodes, home).await?;
    let address: SocketAddr = seen.address.parse().map_err(|_| refused(format!("{:?} is no address", seen.address)))?;
    let name = |pod: &plan::Pod| world.places.get(pod).map(|place| place.name.clone());
    let (Some(pod), Some(home_pod)) = (name(&double.pod), name(&home.pod)) else {
        return Err(refused(format!("{double} or {home} is no place of this cluster")));
    };
    let report = world.agents.report(address.ip(), &world.whose()).await?;
    if report.pod != pod || report.phase != AgentPhase::Running {
        return Err(refused(format!("the agent at {address} is {}, {:?}", report.pod, report.phase)));
    }
    if report.home.as_deref().and_then(NodeId::parse) == Some(double.id) {
        return Err(refused(format!("the node {} is at home on the volume of {double}", double.id.short())));
    }
    let order = Hold {
        node: double.id.to_string(),
        pod,
        address: address.ip(),
        epoch: seen.epoch,
        process: seen.process.to_owned(),
        home: home_pod.clone(),
    };
    world.leading()?;
    world.agents.hold(address.ip(), &world.whose(), &order).await?;
    let note = format!(
        "the server of {double} is stopped and held with what it has: it ran node {} of {home_pod} too",
        double.id.short()
    );
    Ok(Done { note: Some(note), ..Done::default() })
}

/// The node answers there now, owns what it owned, and its pod stays: else what the double has may be all there is.
async fn is_at_home(world: World<'_>, nodes: &Nodes, home: Who) -> Result<(), Error> {
    let seen = crate::probe::nodes(&world.probed.observed).filter(|node| node.id == home.id);
    let owned = seen.fold(plan::SlotSet::EMPTY, |owned, node| owned.union(node.slots()));
    let mut redis = nodes.at(world.address(home)?, home.id).await?;
    let mine = redis.table().await?.mine();
    if !owned.difference(&mine).is_empty() {
        return Err(refused(format!("{home} does not own all slots any more that node {} owned", home.id.short())));
    }
    let place = world.places.get(&home.pod).ok_or_else(|| refused(format!("{home} is no place of this cluster")))?;
    let live: Option<KubePod> = world.kubernetes.live(&world.resolved.key.namespace, &place.name).await?;
    let stays = live.is_some_and(|pod| pod.metadata.uid == place.uid && pod.metadata.deletion_timestamp.is_none());
    if stays { Ok(()) } else { Err(refused(format!("the pod {} goes, or has been replaced", place.name))) }
}
