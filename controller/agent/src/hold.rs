//! A running member that is to be held: its node runs at its home, too, and here on a copy of that one's files.
//!
//! Redis does not notice, and both take writes for the same slots. The controller says which of the two is to stop, and what it has seen;
//! this agent believes nothing of it that it can ask itself. First the volume says that it is to be held, durably, then the server is
//! stopped and writes down all that it has: whatever dies in between, nothing is lost and nothing is started again. No role is handed over
//! from here: whoever took it would bring these data over those of the node at its home.

use std::{fs, io, path::Path, sync::Arc};

use resp::{Command, Info, Node, Reply};
use serde::{Deserialize, Serialize};
use types::agent::{AgentPhase, Hold};

use crate::{
    disk,
    identity::Verdict,
    marker::{self, Owner},
    shared::Shared,
};

/// Name of the file that says so.
pub const FILE: &str = "kun-held.json";
/// Largest file that is read.
const MOST: u64 = 4096;

/// Why an order is not followed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What it is based upon is not so.
    #[error("{0}")]
    Untrue(String),
    /// The own Redis does not tell who it is.
    #[error("ask the own Redis who it is: {0}")]
    Redis(String),
    /// The volume cannot say that it is to be held: a restart would start it again.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// The same.
    #[error("write {FILE}: {0}")]
    Writer(#[from] tokio::task::JoinError),
}

/// What the volume says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The node that ran here and at its home.
    pub node: String,
    /// The member that it is at home at.
    pub home: String,
}

impl Held {
    /// Whether it is of what lies there: a person may have put something else in its place.
    #[must_use]
    pub fn is_of(&self, verdict: &Verdict, holds_data: bool) -> bool {
        match verdict {
            Verdict::Intact(identity) => self.node.is_empty() || identity.id.as_str() == self.node,
            Verdict::Damaged { .. } => true,
            Verdict::Blank => holds_data,
        }
    }

    /// Why the member is held, and what to do.
    #[must_use]
    pub fn reason(&self, pod: &str) -> String {
        format!(
            "its server was stopped because it ran node {} while that node ran at its home, member {}, too. What clients wrote to this process \
             alone lies on the volume of {pod} and nowhere else: look at it first if that matters. To give it up, delete the claim and the pod \
             of {pod}: it comes back empty",
            self.node.get(..8).unwrap_or_default(),
            self.home
        )
    }
}

/// Reads what the volume says.
///
/// # Errors
/// When it cannot be read: unknown is not absent.
pub fn read(dir: &Path) -> Result<Option<Held>, disk::Error> {
    let path = dir.join(FILE);
    let failed = |source| disk::Error::Read { path: path.clone(), source };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
        Ok(file) if file.len() > MOST => return Ok(Some(illegible())),
        Ok(_) => {}
    }
    let bytes = fs::read(&path).map_err(failed)?;
    Ok(Some(serde_json::from_slice(&bytes).unwrap_or_else(|_| illegible())))
}

/// It is there, so nothing is started.
fn illegible() -> Held {
    Held { node: String::new(), home: format!("which {FILE} does not say") }
}

fn write(dir: &Path, held: &Held) -> Result<(), disk::Error> {
    let failed = |error| disk::Error::Write { path: dir.join(FILE), source: io::Error::other(error) };
    disk::replace(dir, FILE, &serde_json::to_vec(held).map_err(failed)?)
}

/// What is so, by this agent's own look.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    order: Hold,
    /// The node at home on its volume.
    home: Option<String>,
    phase: AgentPhase,
}

/// Why the order is not followed; `None`: all of it is so.
fn untrue(order: &Hold, own: &Own) -> Option<String> {
    let words = [
        ("pod", order.pod == own.order.pod, &own.order.pod),
        ("node", order.node == own.order.node, &own.order.node),
        ("process", order.process == own.order.process, &own.order.process),
    ];
    if own.phase != AgentPhase::Running {
        return Some(format!("its server does not run, it is {:?}", own.phase));
    }
    if let Some((what, _, is)) = words.into_iter().find(|(_, is_so, _)| !is_so) {
        return Some(format!("its {what} is {is}"));
    }
    if order.address != own.order.address {
        return Some(format!("it is at {}", own.order.address));
    }
    if order.epoch != own.order.epoch {
        return Some(format!("its configuration epoch is {}", own.order.epoch));
    }
    if order.home == own.order.pod {
        return Some("it is told to be held for the sake of itself".to_owned());
    }
    own.home.as_ref().filter(|home| **home == order.node).map(|home| format!("node {home} is at home on its volume"))
}

/// Has the server stopped if all that the order is based upon is so; returns once the volume says that it is to be held.
///
/// # Errors
/// When something of it is not so, or the volume cannot say it.
pub async fn obey(shared: &Arc<Shared>, order: Hold) -> Result<(), Error> {
    let own = own(shared).await?;
    if let Some(why) = untrue(&order, &own) {
        return Err(Error::Untrue(format!("this member is not held: {why}")));
    }
    let held = Held { node: order.node.clone(), home: order.home.clone() };
    let dir = shared.options.data_dir.clone();
    tokio::task::spawn_blocking(move || write(&dir, &held)).await??;
    tracing::warn!(?order, "the controller has this member held: its node runs at its home, too");
    shared.ordered.send_replace(true);
    Ok(())
}

/// The file is asked for whose home the volume is, and not what was true when this process began.
async fn own(shared: &Arc<Shared>) -> Result<Own, Error> {
    let commands = [Command::new("INFO").arg("server"), Command::new("CLUSTER").arg("NODES")];
    let replies = shared.local.ask(&commands).await.map_err(|error| Error::Redis(error.to_string()))?;
    let words = |index: usize| replies.get(index).and_then(Reply::text).unwrap_or_default();
    let table: Vec<Node> = resp::nodes::parse(words(1)).map_err(|error| Error::Redis(error.to_string()))?;
    let me = table.into_iter().find(|node| node.flags.myself);
    let me = me.ok_or_else(|| Error::Redis("its table does not name it".to_owned()))?;
    let order = Hold {
        node: me.id.to_string(),
        pod: shared.options.pod_name.clone(),
        address: shared.options.pod_ip,
        epoch: me.config_epoch,
        process: Info::parse(words(0)).get("run_id").unwrap_or_default().to_owned(),
        home: String::new(),
    };
    Ok(Own { order, home: at_home(shared)?, phase: shared.phase() })
}

/// The node at home on this member's volume.
fn at_home(shared: &Shared) -> Result<Option<String>, disk::Error> {
    Ok(match marker::read(&shared.options.data_dir)? {
        Owner::Member(owner) if owner.is(&shared.member()) => owner.node,
        Owner::Member(_) | Owner::Nobody | Owner::Illegible => None,
    })
}

/// Ends once the member is to be held.
pub async fn ordered(shared: &Shared) {
    let mut ordered = shared.ordered.subscribe();
    if ordered.wait_for(|ordered| *ordered).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Why no role may be handed over from here; `None`: nothing is known against it. A server that does not answer hands nothing over either.
pub async fn keeps_its_role(shared: &Arc<Shared>) -> Option<String> {
    match read(&shared.options.data_dir) {
        Ok(None) => {}
        Ok(Some(held)) => return Some(format!("it is to be held: node {} is at home at {}", held.node, held.home)),
        Err(error) => return Some(error.to_string()),
    }
    let (home, me) = (at_home(shared).ok()??, own(shared).await.ok()?.order.node);
    (home != me).then(|| format!("it runs node {me}, and node {home} is at home on its volume"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::identity::{judge, tests::id};

    fn order() -> Hold {
        Hold {
            node: id(1).to_string(),
            pod: "orders-0-1".into(),
            address: [127, 84, 0, 2].into(),
            epoch: 3,
            process: "c".repeat(40),
            home: "orders-0-0".into(),
        }
    }

    #[test]
    fn an_order_is_followed_only_if_all_that_it_is_based_upon_is_so() {
        let own = Own {
            order: Hold { home: String::new(), ..order() },
            home: Some(id(2).to_string()),
            phase: AgentPhase::Running,
        };
        assert_eq!(untrue(&order(), &own), None);
        let wrong = [
            Hold { node: id(3).to_string(), ..order() },
            Hold { pod: "orders-1-1".into(), ..order() },
            Hold { address: [127, 84, 0, 3].into(), ..order() },
            Hold { epoch: 4, ..order() },
            Hold { process: "d".repeat(40), ..order() },
            Hold { home: "orders-0-1".into(), ..order() },
        ];
        for order in wrong {
            assert!(untrue(&order, &own).is_some(), "{order:?}");
        }
        let phases = [AgentPhase::Starting, AgentPhase::Held, AgentPhase::Stopping];
        assert!(phases.iter().all(|phase| untrue(&order(), &Own { phase: *phase, ..own.clone() }).is_some()));
        let at = |home: Option<String>| untrue(&order(), &Own { home, ..own.clone() });
        assert_eq!(at(None), None, "files that came there without a word");
        assert!(at(Some(id(1).to_string())).is_some());
    }

    #[test]
    fn a_volume_that_is_to_be_held_says_so_until_something_else_lies_there() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let held = Held { node: id(1).to_string(), home: "orders-0-0".into() };
        write(dir.path(), &held).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(held.clone()));
        assert!(held.reason("orders-0-1").contains("node 00000000 while that node ran at its home, member orders-0-0"));
        let file = |last| {
            format!(
                "{} 127.84.0.1:6379@16379 myself,master - 0 0 3 connected\nvars currentEpoch 6 lastVoteEpoch 0\n",
                id(last)
            )
        };
        let of = |text: Option<String>, holds_data| held.is_of(&judge(text.as_deref().map(str::as_bytes)), holds_data);
        let told = [
            of(Some(file(1)), true),
            of(Some(String::new()), true),
            of(None, true),
            of(Some(file(2)), true),
            of(None, false),
        ];
        assert_eq!(told, [true, true, true, false, false]);
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(illegible()), "it is there, so nothing is started");
    }
}
