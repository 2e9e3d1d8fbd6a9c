//! Members of one identity: what each of them says of itself, so that it can be told which of them is at home.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use plan::{Claim, NodeId, Pod, Seen};

use super::node::Raw;
use super::{Probed, Question};

/// How long an agent may take: it delays the look, and as long as it does not say, nothing is done.
const PATIENCE: Duration = Duration::from_millis(500);
/// Agents asked at the same time.
const AT_ONCE: usize = 8;

/// The processes of identities that more than one member has.
pub(super) fn claims<'a>(answered: impl Iterator<Item = (Pod, &'a Raw)>) -> BTreeMap<Pod, Claim> {
    let mut by_id: BTreeMap<NodeId, Vec<(Pod, &Raw)>> = BTreeMap::new();
    for (pod, raw) in answered {
        by_id.entry(raw.id).or_default().push((pod, raw));
    }
    let twins = by_id.into_values().filter(|members| members.len() > 1).flatten();
    twins.filter_map(|(pod, raw)| Some((pod, raw.claim()?))).collect()
}

/// Asks their agents who is at home on their volumes. Whoever does not say stays as not known.
pub(super) async fn ask(question: Question<'_>, probed: &mut Probed) {
    let ask = |pod: Pod, address: SocketAddr, name: &str| {
        let name = name.to_owned();
        async move {
            let report = question.agents.report(address.ip(), question.whose);
            let report = tokio::time::timeout(PATIENCE, report).await.ok()?.ok()?;
            let home = report.home.as_deref().and_then(NodeId::parse);
            (report.pod == name).then_some((pod, home))
        }
    };
    let places = probed.observed.claims.keys().filter_map(|pod| Some((*pod, question.places.get(pod)?)));
    let asked: Vec<_> = places.filter_map(|(pod, place)| Some(ask(pod, address(probed, pod)?, &place.name))).collect();
    let told: Vec<_> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    for (pod, home) in told.into_iter().flatten() {
        if let Some(claim) = probed.observed.claims.get_mut(&pod) {
            claim.home = home;
        }
    }
}

fn address(probed: &Probed, pod: Pod) -> Option<SocketAddr> {
    match &probed.observed.members.get(&pod)?.seen {
        Seen::Node(node) => node.address.parse().ok(),
        Seen::Absent | Seen::Stopped | Seen::Starting | Seen::Held { .. } | Seen::Unknown { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::super::node::raw;
    use super::*;

    #[test]
    fn only_members_of_one_identity_are_asked_what_they_are() {
        let id = |byte: u8| NodeId::from_bytes([byte; 20]);
        let info = |process: &str, up: u64| format!("run_id:{process}\nuptime_in_seconds:{up}\n");
        let raws =
            [(1, "a", 7), (1, "b", 9), (2, "c", 8)].map(|(node, process, up)| raw(id(node), &info(process, up), ""));
        let pods = [Pod::new(0, 0), Pod::new(0, 1), Pod::new(1, 0)];
        let told = claims(pods.into_iter().zip(&raws));
        let claim = |process: &str, up_seconds| Claim { home: None, process: process.to_owned(), up_seconds };
        assert_eq!(told, [(pods[0], claim("a", 7)), (pods[1], claim("b", 9))].into());
    }
}
