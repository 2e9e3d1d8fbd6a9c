//! Asks the members that nodes.conf names what they see. I/O only; the answers are judged in [`crate::start`].
//!
//! An address proves nothing: pods come and go and addresses are given out again. A password is sent only to where an agent of this
//! cluster answers, by its certificate ([`crate::fellows`]); a peer counts only when it then answers with the node ID that was
//! expected, on the same connection that the rest is read from.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt, stream};
use resp::{AppendOnlyFile, Command, Connection, Credentials, Error, Info, Node, NodeId, Options};
use types::agent::{AgentPhase, Beat};

use self::round::Round;
use crate::{
    fellows::{Fellows, Word},
    start::{Peer, Takeover},
};

pub(crate) mod hear;
mod round;

/// How long one peer may take to answer everything.
const PEER_TIMEOUT: Duration = Duration::from_millis(1000);
/// How long a peer that is to act, as in a hand-over, may take to say who it is, and then for each answer: who gives up loses what only memory
/// holds, and a machine that is slow is no reason.
const ACT_TIMEOUT: Duration = Duration::from_millis(3000);
/// Peers asked at the same time.
const AT_ONCE: usize = 32;
/// After so many in a row that do not answer no more of those who vote are asked: the next would be as silent, for a second each.
const SILENT: usize = 2 * AT_ONCE;

/// What those have told who were asked.
#[derive(Debug, Default)]
pub struct Answers {
    /// Whose Redis answered.
    pub peers: BTreeMap<NodeId, Peer>,
    /// How far the copies of the asking member's data had come that lie on volumes, by the words of the agents there, whether or not
    /// their Redis answers.
    pub copies: BTreeMap<NodeId, Beat>,
    /// Who may be there, and has not said whom he follows: too late, or not while Redis loads or runs a script.
    pub unsaid: BTreeMap<NodeId, SocketAddr>,
}

impl Answers {
    fn add(&mut self, id: NodeId, copy: Option<Beat>, peer: Option<Peer>) {
        if let Some(beat) = copy {
            let noted = self.copies.entry(id.clone()).or_default();
            *noted = beat.max(*noted);
        }
        if let Some(peer) = peer {
            self.peers.insert(id, peer);
        }
    }
}

/// How to reach peers.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Own address: members accept connections from anywhere, but on loopback the source matters to people who read logs.
    pub source: IpAddr,
    /// The agents' user.
    pub credentials: Credentials,
    /// Who answers at an address.
    pub fellows: Fellows,
}

/// Why a peer does not count.
#[derive(Debug, thiserror::Error)]
pub enum NoPeer {
    /// No agent of this cluster is there: no password is sent.
    #[error(transparent)]
    Agent(#[from] crate::fellows::Error),
    /// Its Redis does not answer.
    #[error(transparent)]
    Redis(#[from] Error),
    /// Neither answers in time.
    #[error("{0} does not answer within {ACT_TIMEOUT:?}")]
    Late(SocketAddr),
    /// Another member answers.
    #[error("another member answers at {0}")]
    Another(SocketAddr),
    /// It is about to stop, or does not serve yet.
    #[error("{0} does not run, or is about to stop itself, by its agent's word")]
    NotRunning(SocketAddr),
}

impl NoPeer {
    /// Whether somebody has answered: it would say the same again.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Another(_) | Self::NotRunning(_) => true,
            Self::Agent(_) | Self::Redis(_) | Self::Late(_) => false,
        }
    }

    /// Whether the peer may be there all the same.
    fn may_be_there(&self) -> bool {
        match self {
            Self::Late(_) => true,
            Self::Redis(error) => matches!(error, Error::Deadline { .. } | Error::Refused { .. }),
            Self::Agent(_) | Self::Another(_) | Self::NotRunning(_) => false,
        }
    }
}

impl Asker {
    /// Asks whom the table names, and then those whose present address the answers reveal.
    pub async fn gather(&self, known: &[Node], me: &NodeId) -> Answers {
        let (mut tried, mut answers) = (BTreeSet::new(), Answers::default());
        self.ask_round(Round::of(known.iter(), me, &tried, &answers.peers), me, &mut tried, &mut answers).await;
        let told = answers.peers.values().flat_map(|peer| &peer.table);
        self.ask_round(Round::of(told, me, &tried, &answers.peers), me, &mut tried, &mut answers).await;
        answers
    }

    async fn ask_round(
        &self,
        Round { first, voters, voting }: Round,
        me: &NodeId,
        tried: &mut BTreeSet<(NodeId, SocketAddr)>,
        answers: &mut Answers,
    ) {
        tried.extend(first.iter().chain(&voters).cloned());
        self.ask_all(first, me, answers, |_, _| false).await;
        let is_enough = |answers: &Answers, silent| silent >= SILENT || voting.has_heard_enough(&answers.peers);
        if !is_enough(answers, 0) {
            self.ask_all(voters, me, answers, is_enough).await;
        }
    }

    /// Until it `is_enough`, by the answers and how many of the last ones have given none.
    async fn ask_all(
        &self,
        targets: Vec<(NodeId, SocketAddr)>,
        me: &NodeId,
        answers: &mut Answers,
        is_enough: impl Fn(&Answers, usize) -> bool,
    ) {
        let asked = stream::iter(targets).map(|(id, address)| async move {
            let mut copy = None;
            let asked = tokio::time::timeout(PEER_TIMEOUT, self.ask(&id, address, me, &mut copy));
            let peer = asked.await.unwrap_or(Err(NoPeer::Late(address)));
            if let Err(error) = &peer {
                tracing::debug!(%id, %address, %error, "a peer did not answer");
            }
            (id, address, copy, peer)
        });
        let (mut asked, mut silent) = (std::pin::pin!(asked.buffer_unordered(AT_ONCE)), 0);
        while let Some((id, address, copy, peer)) = asked.next().await {
            silent = if peer.is_ok() { 0 } else { silent + 1 };
            if peer.as_ref().is_err_and(NoPeer::may_be_there) {
                answers.unsaid.insert(id.clone(), address);
            }
            answers.add(id, copy, peer.ok());
            if is_enough(answers, silent) {
                return;
            }
        }
    }

    /// Opens a connection to a peer and makes sure that it is who it should be: first by the agent at its address, then by its own word.
    ///
    /// # Errors
    /// When it does not answer, or somebody else does.
    pub async fn open(&self, id: &NodeId, address: SocketAddr) -> Result<Connection, NoPeer> {
        let opened = async {
            self.fellows.ask(address.ip()).await?;
            self.log_in(id, address).await
        };
        tokio::time::timeout(ACT_TIMEOUT, opened).await.unwrap_or(Err(NoPeer::Late(address)))
    }

    /// The same of one that is to take a role over: whoever is about to stop would end with what it has just been given.
    ///
    /// # Errors
    /// When it does not answer, stops, or somebody else does.
    pub async fn open_lasting(&self, id: &NodeId, address: SocketAddr) -> Result<Connection, NoPeer> {
        let opened = async {
            let word = self.fellows.ask(address.ip()).await?;
            if is_lasting(&word) { self.log_in(id, address).await } else { Err(NoPeer::NotRunning(address)) }
        };
        tokio::time::timeout(ACT_TIMEOUT, opened).await.unwrap_or(Err(NoPeer::Late(address)))
    }

    /// Whether one that has taken a role over runs on, by its agent's word.
    ///
    /// # Errors
    /// When its agent does not answer, or says that it does not, or that another member is there now.
    pub async fn lasts(&self, id: &NodeId, address: SocketAddr) -> Result<(), NoPeer> {
        let word = tokio::time::timeout(ACT_TIMEOUT, self.fellows.ask(address.ip())).await;
        let word = word.map_err(|_| NoPeer::Late(address))??;
        if !may_be(&word, id) {
            return Err(NoPeer::Another(address));
        }
        if is_lasting(&word) { Ok(()) } else { Err(NoPeer::NotRunning(address)) }
    }

    /// A connection to a peer whose agent has been asked already.
    async fn log_in(&self, id: &NodeId, address: SocketAddr) -> Result<Connection, NoPeer> {
        let mut options = Options::new(address).credentials(self.credentials.clone()).deadline(ACT_TIMEOUT);
        options.connect_timeout = ACT_TIMEOUT;
        options.source = Some(self.source);
        let mut connection = Connection::open(&options).await?;
        let is_it = connection.my_id().await? == *id;
        if is_it { Ok(connection) } else { Err(NoPeer::Another(address)) }
    }

    /// `noted` is what its agent has told, and stays told if its Redis does not answer.
    async fn ask(
        &self,
        id: &NodeId,
        address: SocketAddr,
        me: &NodeId,
        noted: &mut Option<Beat>,
    ) -> Result<Peer, NoPeer> {
        let word = self.fellows.ask(address.ip()).await?;
        *noted = copy(&word, id, me);
        let mut connection = self.log_in(id, address).await?;
        let table = connection.cluster_nodes().await?;
        let info = connection.info(&["replication", "persistence", "keyspace"]).await?;
        Ok(Peer { current_ago: current_ago(&word, me), lags: lags(&word, &info), ..peer(address, table, &info) })
    }

    /// Sends `CLUSTER FAILOVER` to a replica of a dead primary, and gives the connection. OK means scheduled; only who takes over by itself has done it.
    ///
    /// # Errors
    /// When it does not answer, refuses, or is somebody else.
    pub async fn force_failover(&self, id: &NodeId, address: SocketAddr, how: Takeover) -> Result<Connection, NoPeer> {
        let mut connection = self.open_lasting(id, address).await?;
        let how = match how {
            Takeover::Elected => "FORCE",
            Takeover::ByItself => "TAKEOVER",
        };
        connection.command(&Command::new("CLUSTER").arg("FAILOVER").arg(how)).await?;
        Ok(connection)
    }
}

/// Whether a member runs and is to go on, by its agent's word. One of another release whose word is not understood may.
fn is_lasting(word: &Word) -> bool {
    match word {
        Word::Report(report) => report.phase == AgentPhase::Running,
        Word::Silent | Word::Strange => true,
    }
}

/// Whether the node there is this one, as far as its agent knows: of one that was started blank it does not know the node ID.
fn may_be(word: &Word, id: &NodeId) -> bool {
    match word {
        Word::Report(report) => report.node_id.as_ref().is_none_or(|told| told == id.as_str()),
        Word::Silent | Word::Strange => true,
    }
}

/// How far the copy of `me`'s data had come that lies on the volume of `id`, by its agent's word. Who has a copy of this member's is one of its
/// replicas, also if its node ID is not known.
fn copy(word: &Word, id: &NodeId, me: &NodeId) -> Option<Beat> {
    let Word::Report(report) = word else { return None };
    report.copy.as_ref().filter(|copy| may_be(word, id) && copy.of == me.as_str()).map(|copy| copy.beat)
}

/// How long ago the copy of `me`'s data there was known to have everything, by its agent's word.
fn current_ago(word: &Word, me: &NodeId) -> Option<Duration> {
    let Word::Report(report) = word else { return None };
    let following = report.following.as_ref()?;
    let current = following.current_millis.filter(|_| following.of == me.as_str());
    Some(current.map_or(Duration::MAX, Duration::from_millis))
}

/// Whether what lies on its volume lags behind its memory, by its agent's word; one that does not tell may rewrite its file for that reason.
fn lags(word: &Word, info: &Info) -> bool {
    let told = match word {
        Word::Report(report) => report.lags,
        Word::Silent | Word::Strange => None,
    };
    match info.append_only_file() {
        AppendOnlyFile::Failed => true,
        AppendOnlyFile::Off | AppendOnlyFile::Rewriting => told.unwrap_or(true),
        AppendOnlyFile::Current => told.unwrap_or(false),
    }
}

/// Reads what one peer said about itself.
fn peer(address: SocketAddr, table: Vec<Node>, info: &Info) -> Peer {
    let is_replica = info.get("role") == Some("slave");
    // A replica that was never in sync since it started says 1 (`genRedisInfoString`).
    let offset = info.number("slave_repl_offset").filter(|offset| is_replica && *offset > 1);
    // One that was started and has no address of its primary says that it is one, under the replication ID of its copy (`clusterCron`). Keys that
    // expire are deleted there, which is counted as if it had come from the primary: what it says of its offset cannot be compared.
    let is_lost = !is_replica && table.iter().any(|node| node.flags.myself && node.primary.is_some());
    let is_down = is_replica && info.get("master_link_status") != Some("up");
    // -1: it was never up since the process started, and what is held came from the disk, however old.
    let down = info.number("master_link_down_since_seconds").and_then(|seconds| u64::try_from(seconds).ok());
    Peer {
        address,
        table,
        offset: offset.unwrap_or_default(),
        stream: info.get("master_replid").map(str::to_owned),
        went_on_from: went_on_from(info),
        syncing: info.flag("master_sync_in_progress").unwrap_or_default(),
        loading: info.flag("loading").unwrap_or_default(),
        lags: false,
        fails: info.append_only_file() == AppendOnlyFile::Failed,
        link_down_for: (is_down || is_lost).then(|| down.map_or(Duration::MAX, Duration::from_secs)),
        fed: is_replica.then(|| fed(info)).flatten(),
        current_ago: None,
        keys: info.keys(),
    }
}

/// -1: of no other history (`clearReplicationId2`).
fn went_on_from(info: &Info) -> Option<(String, i64)> {
    let end = info.number("second_repl_offset").filter(|end| *end >= 0)?;
    Some((info.get("master_replid2")?.to_owned(), end))
}

/// What a replica says of its link. Redis counts whole seconds (`genRedisInfoString`): there may have been one more.
fn fed(info: &Info) -> Option<(SocketAddr, Duration)> {
    let host: IpAddr = info.get("master_host")?.parse().ok()?;
    let port = u16::try_from(info.number("master_port")?).ok()?;
    let seconds = u64::try_from(info.number("master_last_io_seconds_ago")?).ok()?;
    let is_up = info.get("master_link_status") == Some("up");
    is_up.then(|| (SocketAddr::new(host, port), Duration::from_secs(seconds + 1)))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use certs::{Authority, ClientAuth, Leaf, Material, Reloading, Usage};
    use tokio::net::TcpListener;
    use types::names::{self, PORT_AGENT, PORT_REDIS};

    use super::*;

    /// The certificates of the agents of one cluster.
    pub(super) fn certificates(authority: &Authority, cluster: &str) -> Reloading {
        certificates_of(authority, names::agent_user("shop", cluster))
    }

    pub(crate) fn certificates_of(authority: &Authority, common_name: String) -> Reloading {
        let leaf = Leaf {
            common_name,
            organizations: vec![],
            dns_names: vec![names::AGENT_SERVER_NAME.to_owned()],
            ips: vec![],
            usage: Usage::BOTH,
            lifetime: Duration::from_secs(3600),
        };
        let authorities_pem = authority.certificate_pem().to_owned();
        Reloading::new(Material { identity: Some(authority.issue(&leaf).unwrap()), authorities_pem }).unwrap()
    }

    pub(super) fn asker(authority: &Authority) -> Asker {
        let own = names::agent_user("shop", "orders");
        Asker {
            source: [127, 84, 0, 1].into(),
            credentials: Credentials::new("kun-agent", "canary"),
            fellows: Fellows::new(&certificates(authority, "orders"), own).unwrap(),
        }
    }

    /// Asks again where the machine stood still for longer than a peer is waited for.
    pub(super) async fn again<T>(ask: impl AsyncFn() -> T, is_late: impl Fn(&T) -> bool) -> T {
        let begin = std::time::Instant::now();
        loop {
            let told = ask().await;
            if !is_late(&told) || begin.elapsed() > hung::answer() {
                return told;
            }
        }
    }

    /// Answers as an agent of `cluster`, with `status`.
    async fn agent(ip: IpAddr, certificates: Reloading, status: &'static str) {
        saying(ip, certificates, status, String::new()).await;
    }

    /// The same with a report.
    pub(super) async fn saying(ip: IpAddr, certificates: Reloading, status: &'static str, report: String) {
        let tls = certificates.server_config(ClientAuth::Requested, &[certs::ALPN_H1]).unwrap();
        let listener = TcpListener::bind(SocketAddr::new(ip, PORT_AGENT)).await.unwrap();
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{report}", report.len());
            let acceptor = tokio_rustls::TlsAcceptor::from(tls);
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = [0; 1024];
                if stream.read(&mut head).await.unwrap_or_default() > 0 {
                    // Who was late is not waited for any more.
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            }
        });
    }

    /// Whether anybody connects to the Redis at `ip` while a peer is opened there, and what came of that.
    async fn opened(asker: &Asker, ip: IpAddr) -> (bool, NoPeer) {
        let redis = TcpListener::bind(SocketAddr::new(ip, PORT_REDIS)).await.unwrap();
        let id = NodeId::parse(&"a".repeat(40)).unwrap();
        let connected = tokio::spawn(async move { redis.accept().await.is_ok() });
        let open = async || asker.open(&id, SocketAddr::new(ip, PORT_REDIS)).await.unwrap_err();
        let is_late = |error: &NoPeer| matches!(error, NoPeer::Late(_)) && !connected.is_finished();
        let error = again(open, is_late).await;
        let was_reached = connected.is_finished();
        connected.abort();
        let _ = connected.await;
        (was_reached, error)
    }

    #[tokio::test]
    async fn no_password_is_sent_to_where_another_clusters_agent_answers() {
        let authority = Authority::create("agents").unwrap();
        let ip = IpAddr::from([127, 84, 250, 1]);
        agent(ip, certificates(&authority, "other"), "200 OK").await;
        let (was_reached, error) = opened(&asker(&authority), ip).await;
        let NoPeer::Agent(crate::fellows::Error::Stranger { expected, found, .. }) = error else { panic!("{error}") };
        assert_eq!((expected, found), (names::agent_user("shop", "orders"), names::agent_user("shop", "other")));
        assert!(!was_reached);
    }

    #[tokio::test]
    async fn no_password_is_sent_to_where_no_agent_answers() {
        let authority = Authority::create("agents").unwrap();
        let ip = IpAddr::from([127, 84, 250, 2]);
        let (was_reached, error) = opened(&asker(&authority), ip).await;
        assert!(matches!(error, NoPeer::Agent(crate::fellows::Error::Connect { .. })), "{error}");
        // Another authority's agent is none.
        agent(ip, certificates(&Authority::create("others").unwrap(), "orders"), "200 OK").await;
        let (reached_again, error) = opened(&asker(&authority), ip).await;
        assert!(matches!(error, NoPeer::Agent(crate::fellows::Error::Connect { .. })), "{error}");
        assert_eq!([was_reached, reached_again], [false, false]);
    }

    #[tokio::test]
    async fn what_lies_on_a_volume_is_told_while_the_redis_there_does_not_answer() {
        let authority = Authority::create("agents").unwrap();
        let [me, other, replica] = ["a", "b", "c"].map(|digit| NodeId::parse(&digit.repeat(40)).unwrap());
        let beat = Beat { epoch: 5, count: 50 };
        for (last, node, of, copies) in [
            (4, replica.as_str(), &me, BTreeMap::from([(replica.clone(), beat)])),
            (5, replica.as_str(), &other, BTreeMap::new()),
            (6, other.as_str(), &me, BTreeMap::new()),
        ] {
            let ip = IpAddr::from([127, 84, 250, last]);
            let report = serde_json::json!({
                "pod": "orders-0-1", "phase": "Starting", "heldBecause": null, "nodeId": node, "holdsData": true, "starts": 0,
                "copy": { "of": of.as_str(), "beat": beat },
            });
            saying(ip, certificates(&authority, "orders"), "200 OK", report.to_string()).await;
            let line = format!("{replica} {ip}:{PORT_REDIS}@16379 slave {me} 0 0 5 connected\n");
            let known = resp::nodes::parse(&line).unwrap();
            let answers =
                again(async || asker(&authority).gather(&known, &me).await, |answers| answers.copies != copies).await;
            assert_eq!((answers.peers, answers.copies), (BTreeMap::new(), copies));
        }
    }

    #[tokio::test]
    async fn who_is_about_to_stop_is_given_no_role() {
        let authority = Authority::create("agents").unwrap();
        let report = |phase: &str, id: Option<&NodeId>| {
            serde_json::json!({
                "pod": "orders-0-1", "phase": phase, "heldBecause": null, "nodeId": id.map(NodeId::as_str), "holdsData": true,
                "starts": 1,
            })
        };
        let [id, other] = ["a", "b"].map(|digit| NodeId::parse(&digit.repeat(40)).unwrap());
        for (last, phase) in [(7, "Stopping"), (8, "Held"), (9, "Starting")] {
            let address = SocketAddr::from(([127, 84, 250, last], PORT_REDIS));
            saying(address.ip(), certificates(&authority, "orders"), "200 OK", report(phase, None).to_string()).await;
            let open = async || asker(&authority).open_lasting(&id, address).await.unwrap_err();
            let error = again(open, |error| matches!(error, NoPeer::Late(_))).await;
            assert!(matches!(error, NoPeer::NotRunning(_)), "{error}");
        }
        for (last, phase, at_home, why) in [
            (10, "Stopping", Some(&id), Some("does not run, or is about to stop itself, by its agent's word")),
            (11, "Running", None, None),
            (12, "Running", Some(&id), None),
            (13, "Running", Some(&other), Some("another member answers at")),
        ] {
            let address = SocketAddr::from(([127, 84, 250, last], PORT_REDIS));
            saying(address.ip(), certificates(&authority, "orders"), "200 OK", report(phase, at_home).to_string())
                .await;
            let lasts = async || asker(&authority).lasts(&id, address).await;
            let told = again(lasts, |told| matches!(told, Err(NoPeer::Late(_)))).await;
            let told = told.map_err(|error| error.to_string());
            let is_so = match (&told, why) {
                (Err(told), Some(why)) => told.contains(why),
                (Ok(()), None) => true,
                (Ok(()), Some(_)) | (Err(_), None) => false,
            };
            assert!(is_so, "{phase}, {at_home:?}: {told:?}");
        }
    }

    #[test]
    fn a_file_lags_as_its_agent_says_or_may_where_it_says_nothing() {
        let word = |told: serde_json::Value| {
            let report = serde_json::json!({
                "pod": "orders-0-1", "phase": "Running", "heldBecause": null, "nodeId": null, "holdsData": true, "starts": 0, "lags": told,
            });
            Word::Report(Box::new(serde_json::from_value(report).unwrap()))
        };
        let says = |word: Word| {
            ["0", "1"].map(|is| lags(&word, &Info::parse(&format!("aof_enabled:1\naof_rewrite_in_progress:{is}\n"))))
        };
        assert_eq!([says(word(false.into())), says(word(true.into()))], [[false; 2], [true; 2]]);
        let failed = Info::parse("aof_enabled:1\naof_last_write_status:err\n");
        assert!(lags(&word(false.into()), &failed), "it has just failed");
        assert_eq!([word(serde_json::Value::Null), Word::Silent, Word::Strange].map(says), [[false, true]; 3]);
    }

    #[test]
    fn a_copy_is_as_old_as_its_agent_says() {
        let [me, other] = ["a", "b"].map(|digit| NodeId::parse(&digit.repeat(40)).unwrap());
        let word = |following: serde_json::Value| {
            let report = serde_json::json!({
                "pod": "orders-0-1", "phase": "Running", "heldBecause": null, "nodeId": null, "holdsData": true, "starts": 0,
                "following": following,
            });
            Word::Report(Box::new(serde_json::from_value(report).unwrap()))
        };
        let of = |id: &NodeId, millis: Option<u64>| {
            current_ago(&word(serde_json::json!({"of": id.as_str(), "currentMillis": millis})), &me)
        };
        assert_eq!(of(&me, Some(1500)), Some(Duration::from_millis(1500)));
        assert_eq!([of(&me, None), of(&other, Some(1500))], [Some(Duration::MAX); 2], "it is not known to be whole");
        assert_eq!([current_ago(&word(serde_json::Value::Null), &me), current_ago(&Word::Silent, &me)], [None, None]);
        let blank = peer(
            SocketAddr::from(([127, 84, 0, 2], 6379)),
            vec![],
            &Info::parse(
                "role:slave\nslave_repl_offset:1\nmaster_link_status:down\nmaster_link_down_since_seconds:-1\n",
            ),
        );
        assert_eq!((blank.offset, blank.link_down_for), (0, Some(Duration::MAX)));
    }

    /// Before, it counted as fed until this very moment, and by an offset that grows with every key that expires there.
    #[test]
    fn a_replica_that_calls_itself_a_primary_is_not_compared() {
        let [me, primary] = ["a", "b"].map(|digit| NodeId::parse(&digit.repeat(40)).unwrap());
        let replica = format!("{me} 127.84.0.2:6379@16379 myself,slave {primary} 0 0 5 connected\n");
        let owner = format!("{me} 127.84.0.2:6379@16379 myself,master - 0 0 5 connected 0-5\n");
        let of = |table: &str, info: &str| {
            let table = resp::nodes::parse(table).unwrap();
            let peer = peer(SocketAddr::from(([127, 84, 0, 2], 6379)), table, &Info::parse(info));
            (peer.offset, peer.link_down_for)
        };
        let primarys = "role:master\nmaster_replid:one\nmaster_repl_offset:1041\n";
        assert_eq!(of(&replica, primarys), (0, Some(Duration::MAX)));
        assert_eq!(of(&owner, primarys), (0, None));
        let up = "role:slave\nmaster_link_status:up\nslave_repl_offset:1000\nmaster_repl_offset:1041\n";
        assert_eq!(of(&replica, up), (1000, None));
    }

    #[test]
    fn a_replica_tells_who_feeds_it_while_its_link_is_up() {
        let of = |role: &str, link: &str, ago: i8| {
            let text = format!(
                "role:{role}\nmaster_host:127.84.0.1\nmaster_port:6379\nmaster_link_status:{link}\nmaster_last_io_seconds_ago:{ago}\n"
            );
            peer(SocketAddr::from(([127, 84, 0, 2], 6379)), vec![], &Info::parse(&text)).fed
        };
        let at = SocketAddr::from(([127, 84, 0, 1], 6379));
        assert_eq!(of("slave", "up", 0), Some((at, Duration::from_secs(1))));
        assert_eq!([of("slave", "down", 3), of("slave", "up", -1), of("master", "up", 0)], [None; 3]);
    }

    #[tokio::test]
    async fn an_agent_of_an_earlier_release_counts_by_its_certificate() {
        let authority = Authority::create("agents").unwrap();
        let ip = IpAddr::from([127, 84, 250, 3]);
        agent(ip, certificates(&authority, "orders"), "403 Forbidden").await;
        let (was_reached, error) = opened(&asker(&authority), ip).await;
        assert!(was_reached);
        assert!(matches!(error, NoPeer::Redis(_) | NoPeer::Late(_)), "{error}");
    }
}
