//! Whether the own node runs elsewhere, by who answers there.

use std::{collections::BTreeSet, io::ErrorKind, net::SocketAddr, time::Duration};

use futures::{StreamExt, stream};
use resp::NodeId;
use tokio::net::TcpStream;
use types::agent::AgentPhase;

use super::{AT_ONCE, Asker, NoPeer, PEER_TIMEOUT};
use crate::{
    fellows::{self, Word},
    start::double::Heard,
};

/// How long a port may take that is open: a round trip, and one lost packet is no reason.
const PORT_TIMEOUT: Duration = Duration::from_millis(300);

impl Asker {
    /// Whether the node `me` of the pod `pod` runs at these addresses.
    pub async fn hear(&self, me: &NodeId, pod: &str, places: BTreeSet<SocketAddr>) -> Vec<(SocketAddr, Heard)> {
        let asked = stream::iter(places).map(|at| async move {
            let heard = self.hear_of(me, pod, at).await;
            tracing::debug!(%at, ?heard, "whether this node runs there");
            (at, heard)
        });
        asked.buffer_unordered(AT_ONCE).collect().await
    }

    /// By the agent there, and where that one does not know, by its Redis. A pod of this name whose Redis is busy runs this node for all that is
    /// known.
    async fn hear_of(&self, me: &NodeId, pod: &str, at: SocketAddr) -> Heard {
        let word = match tokio::time::timeout(PEER_TIMEOUT, self.fellows.ask(at.ip())).await {
            Ok(Ok(word)) => word,
            Ok(Err(error)) => return by_port(by_nobody(&error), at).await,
            Err(_) => return by_port(Heard::Nothing, at).await,
        };
        if let Some(heard) = by_its_agent(&word, me, pod) {
            return heard;
        }
        let redis = tokio::time::timeout(PEER_TIMEOUT, self.log_in(me, at)).await;
        let runs = if is_stopping(&word) { Heard::Stops } else { Heard::Runs };
        match redis.unwrap_or(Err(NoPeer::Late(at))) {
            Ok(_) => runs,
            Err(NoPeer::Another(_)) => Heard::Not,
            Err(NoPeer::Agent(_) | NoPeer::Redis(_) | NoPeer::Late(_) | NoPeer::NotRunning(_)) => {
                if is_of(&word, pod) {
                    runs
                } else {
                    Heard::Nothing
                }
            }
        }
    }
}

/// An agent that stands still leaves its Redis as it is. No password is sent there: that the port is open says enough, and not whose it is.
async fn by_port(heard: Heard, at: SocketAddr) -> Heard {
    if heard != Heard::Nothing {
        return heard;
    }
    if is_open(at).await { Heard::Quiet } else { Heard::Nothing }
}

/// Whether anybody listens at one of these.
pub(crate) async fn is_any_open(places: BTreeSet<SocketAddr>) -> bool {
    let mut asked = std::pin::pin!(stream::iter(places).map(is_open).buffer_unordered(AT_ONCE));
    while let Some(is_open) = asked.next().await {
        if is_open {
            return true;
        }
    }
    false
}

async fn is_open(at: SocketAddr) -> bool {
    matches!(tokio::time::timeout(PORT_TIMEOUT, TcpStream::connect(at)).await, Ok(Ok(_)))
}

/// Whether it is the agent of a pod of this name, by its own word.
fn is_of(word: &Word, pod: &str) -> bool {
    match word {
        Word::Report(report) => report.pod == pod,
        Word::Silent | Word::Strange => false,
    }
}

fn is_stopping(word: &Word) -> bool {
    match word {
        Word::Report(report) => report.phase == AgentPhase::Stopping,
        Word::Silent | Word::Strange => false,
    }
}

/// Whether a node runs where no agent of this cluster answers. An answer that cannot be believed will not be believed later.
fn by_nobody(error: &fellows::Error) -> Heard {
    use ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    match error {
        error if !error.is_of_the_wire() => Heard::Strange,
        fellows::Error::Connect { source, .. }
            if matches!(source.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable) =>
        {
            Heard::Gone
        }
        fellows::Error::Connect { .. } | fellows::Error::Http { .. } | fellows::Error::Stranger { .. } => {
            Heard::Nothing
        }
    }
}

/// Whether the node `me` of the pod `pod` runs there, by its agent's word; `None`: that one does not know who its Redis is, or is not understood.
fn by_its_agent(word: &Word, me: &NodeId, pod: &str) -> Option<Heard> {
    let Word::Report(report) = word else { return None };
    let is_named = report.node_id.as_ref().map(|told| told == me.as_str());
    match (report.phase, is_named) {
        (AgentPhase::Running, Some(true)) => Some(Heard::Runs),
        (AgentPhase::Stopping, Some(true)) => Some(Heard::Stops),
        // It has no image that could start it.
        (AgentPhase::Starting, Some(true) | None) if report.held_because.is_some() => Some(Heard::Not),
        // It has not looked yet what lies on its volume: another pod that was given the address has its own.
        (AgentPhase::Starting, None) if report.pod != pod => Some(Heard::Not),
        (AgentPhase::Starting, Some(true) | None) => Some(Heard::Begins),
        (AgentPhase::Held, Some(true) | None) => Some(Heard::Not),
        (AgentPhase::Running | AgentPhase::Stopping, None) => None,
        (AgentPhase::Running | AgentPhase::Stopping | AgentPhase::Starting | AgentPhase::Held, Some(false)) => {
            Some(Heard::Not)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use std::collections::BTreeMap;

    use certs::Authority;
    use tokio::net::TcpListener;
    use types::names::{PORT_AGENT, PORT_REDIS};

    use super::*;
    use crate::peers::tests::{again, asker, certificates, saying};

    #[test]
    fn a_node_runs_elsewhere_by_the_word_of_an_agent_that_runs_it() {
        let [me, other] = ["a", "b"].map(|digit| NodeId::parse(&digit.repeat(40)).unwrap());
        let said = |pod: &str, phase: &str, id: Option<&NodeId>, why: Option<&str>| {
            let report = serde_json::json!({
                "pod": pod, "phase": phase, "heldBecause": why, "nodeId": id.map(NodeId::as_str), "holdsData": true, "starts": 1,
            });
            by_its_agent(&Word::Report(Box::new(serde_json::from_value(report).unwrap())), &me, "orders-0-0")
        };
        let by = |phase: &str, id: Option<&NodeId>| said("orders-0-0", phase, id, None);
        let phases = ["Running", "Stopping", "Starting", "Held"];
        let told = phases.map(|phase| by(phase, Some(&me)));
        assert_eq!(told, [Heard::Runs, Heard::Stops, Heard::Begins, Heard::Not].map(Some));
        assert_eq!(phases.map(|phase| by(phase, Some(&other))), [Some(Heard::Not); 4]);
        // It began blank: its Redis is asked.
        assert_eq!(phases.map(|phase| by(phase, None)), [None, None, Some(Heard::Begins), Some(Heard::Not)]);
        // Another member was given the address, and has not looked yet what lies on its volume.
        assert_eq!(said("orders-1-0", "Starting", None, None), Some(Heard::Not));
        assert_eq!(said("orders-1-0", "Starting", Some(&me), None), Some(Heard::Begins));
        assert_eq!(said("orders-0-0", "Starting", Some(&me), Some("its image is none of Redis")), Some(Heard::Not));
        assert_eq!([Word::Silent, Word::Strange].map(|word| by_its_agent(&word, &me, "orders-0-0")), [None, None]);
    }

    #[tokio::test]
    async fn where_a_node_runs_is_no_strangers_word() {
        let authority = Authority::create("agents").unwrap();
        let me = NodeId::parse(&"a".repeat(40)).unwrap();
        let report = serde_json::json!({
            "pod": "orders-0-0", "phase": "Running", "heldBecause": null, "nodeId": me.as_str(), "holdsData": true, "starts": 1,
        });
        let others = Authority::create("others").unwrap();
        for (last, by, cluster, heard) in [
            (14, &authority, "orders", Heard::Runs),
            (15, &authority, "other", Heard::Strange),
            (17, &others, "orders", Heard::Strange),
        ] {
            let at = SocketAddr::from(([127, 84, 250, last], PORT_REDIS));
            saying(at.ip(), certificates(by, cluster), "200 OK", report.to_string()).await;
            let hears = async || asker(&authority).hear(&me, "orders-0-0", BTreeSet::from([at])).await;
            assert_eq!(again(hears, |told| told != &[(at, heard)]).await, [(at, heard)]);
        }
    }

    /// Its agent began blank and does not know the node ID; a script runs, or the password is another one by now.
    #[tokio::test]
    async fn a_redis_that_is_busy_runs_what_its_pods_name_says() {
        let (authority, me) = (Authority::create("agents").unwrap(), NodeId::parse(&"a".repeat(40)).unwrap());
        for (last, pod, phase, heard) in [
            (20, "orders-0-0", "Running", Heard::Runs),
            (21, "orders-0-0", "Stopping", Heard::Stops),
            (22, "orders-1-0", "Running", Heard::Nothing),
        ] {
            let at = SocketAddr::from(([127, 84, 250, last], PORT_REDIS));
            let report = serde_json::json!({
                "pod": pod, "phase": phase, "heldBecause": null, "nodeId": null, "holdsData": true, "starts": 1,
            });
            let _busy = TcpListener::bind(at).await.unwrap();
            saying(at.ip(), certificates(&authority, "orders"), "200 OK", report.to_string()).await;
            let hears = async || asker(&authority).hear(&me, "orders-0-0", BTreeSet::from([at])).await;
            assert_eq!(again(hears, |told| told != &[(at, heard)]).await, [(at, heard)]);
        }
    }

    /// Only one of them may run what answers late.
    #[tokio::test]
    async fn an_address_that_nobody_has_is_told_from_one_that_is_silent() {
        let (authority, me) = (Authority::create("agents").unwrap(), NodeId::parse(&"a".repeat(40)).unwrap());
        let [nobody, silent, strange, quiet] =
            [16, 18, 19, 23].map(|last| SocketAddr::from(([127, 84, 250, last], PORT_REDIS)));
        let _silent = TcpListener::bind(SocketAddr::new(silent.ip(), PORT_AGENT)).await.unwrap();
        let _quiet = [PORT_AGENT, PORT_REDIS].map(|port| std::net::TcpListener::bind((quiet.ip(), port)).unwrap());
        let talks = TcpListener::bind(SocketAddr::new(strange.ip(), PORT_AGENT)).await.unwrap();
        tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            let mut open = vec![];
            loop {
                let (mut stream, _) = talks.accept().await.unwrap();
                let _ = stream.write_all(b"220 mail.example.com ESMTP ready\r\n").await;
                open.push(stream);
            }
        });
        let expected =
            [(nobody, Heard::Gone), (silent, Heard::Nothing), (strange, Heard::Strange), (quiet, Heard::Quiet)];
        let expected: BTreeMap<SocketAddr, Heard> = expected.into();
        let hears = async || {
            let heard =
                asker(&authority).hear(&me, "orders-0-0", BTreeSet::from([nobody, silent, strange, quiet])).await;
            heard.into_iter().collect::<BTreeMap<SocketAddr, Heard>>()
        };
        assert_eq!(again(hears, |heard| *heard != expected).await, expected);
    }
}
