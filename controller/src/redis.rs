//! How the controller reaches Redis: its own user, short deadlines, and the identity checked on the very connection
//! that carries the next command. It must not know why it talks to a node.

use std::net::SocketAddr;
use std::time::Duration;

use plan::NodeId;
use resp::{Command, Connection, Options, Reply};
use types::{engine::Engine, names};

/// How much of the time for a question connecting and authenticating may take, as a fraction.
const CONNECT: (u32, u32) = (4, 5);
/// How long a question may take before the node counts as not seen, where it is not given more time.
pub const DEADLINE: Duration = Duration::from_secs(1);

/// Why a node could not be asked or told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wire failed, or Redis refused.
    #[error(transparent)]
    Redis(#[from] resp::Error),
    /// Somebody else answers at this address.
    #[error("the node at {address} is {found}, not {expected}")]
    Identity {
        /// Where.
        address: SocketAddr,
        /// Who was expected.
        expected: NodeId,
        /// Who answered.
        found: String,
    },
    /// The answer is not of the documented form.
    #[error("{what} at {address}: {why}")]
    Answer {
        /// What was asked.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// What is wrong with the answer.
        why: String,
    },
    /// Redis refused one command of several.
    #[error("{command} at {address}: Redis refused: {text}")]
    Refused {
        /// Which command.
        command: String,
        /// Where.
        address: SocketAddr,
        /// Its words.
        text: String,
    },
}

impl Error {
    /// Whoever answers says more than anybody may in answer to this.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_too_long())
    }

    /// The words of a Redis that answers and refuses, as while it loads.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Refused { text, .. } => Some(text.clone()),
            Self::Redis(error) => error.refusal().map(ToString::to_string),
            Self::Identity { .. } | Self::Answer { .. } => None,
        }
    }
}

/// Reaches the nodes of one cluster.
#[derive(Clone, Debug)]
pub struct Access {
    credentials: resp::Credentials,
}

impl Access {
    /// With the password of `kun-operator`.
    #[must_use]
    pub fn new(password: &str) -> Self {
        Self { credentials: resp::Credentials::new(names::USER_OPERATOR, password) }
    }

    /// Who we are, for MIGRATE … AUTH2.
    #[must_use]
    pub fn credentials(&self) -> &resp::Credentials {
        &self.credentials
    }

    /// Connects and authenticates. Whoever answers is not known yet.
    ///
    /// # Errors
    /// When nobody answers, or the password is refused.
    pub async fn open(&self, address: SocketAddr) -> Result<Connection, Error> {
        self.open_within(address, DEADLINE).await
    }

    /// As [`Access::open`], with so much time for each question.
    ///
    /// # Errors
    /// As [`Access::open`].
    pub async fn open_within(&self, address: SocketAddr, deadline: Duration) -> Result<Connection, Error> {
        let mut options = Options::new(address).credentials(self.credentials.clone()).deadline(deadline);
        options.connect_timeout = deadline * CONNECT.0 / CONNECT.1;
        Ok(Connection::open(&options).await?)
    }

    /// Connects to exactly this node: `CLUSTER MYID` is asked on the connection that is returned.
    ///
    /// # Errors
    /// When another node answers there.
    pub async fn open_node(&self, address: SocketAddr, id: NodeId) -> Result<Connection, Error> {
        let mut connection = self.open(address).await?;
        let found = connection.my_id().await?;
        if NodeId::parse(found.as_str()) == Some(id) {
            return Ok(connection);
        }
        Err(Error::Identity { address, expected: id, found: found.as_str().to_owned() })
    }
}

/// Sends commands at once and wants a good answer to each of them.
///
/// # Errors
/// At the first command that was refused; those after it may have been executed.
pub async fn all(connection: &mut Connection, commands: &[Command]) -> Result<Vec<Reply>, Error> {
    let replies = connection.pipeline(commands).await?;
    for (command, reply) in commands.iter().zip(&replies) {
        if let Reply::Error(text) = reply {
            let address = connection.address();
            return Err(Error::Refused { command: command.name().to_owned(), address, text: text.clone() });
        }
    }
    Ok(replies)
}

/// Commands of one pipeline at most: a node serves nobody else while it works through what it has read of one.
pub const PIPELINE: usize = 512;

/// As [`all`], in pipelines of at most [`PIPELINE`] commands.
///
/// # Errors
/// As [`all`].
pub async fn all_in_turns(connection: &mut Connection, commands: &[Command]) -> Result<Vec<Reply>, Error> {
    in_turns(connection, commands, PIPELINE).await
}

/// Commands of one pipeline of SETSLOT at most: Valkey does them one after the other, each only once the replicas have it (about a
/// millisecond, on a busy machine ten), and the pipeline has one deadline.
const SET_SLOTS: usize = 32;

/// Connections over which SETSLOT goes to one node of Valkey at the same time: what they wait for they wait for together.
const ABREAST: usize = 16;

/// Further connections to one node, for SETSLOT of many slots.
#[derive(Debug, Default)]
pub struct Abreast(Vec<Connection>);

impl Access {
    /// As many further connections as it takes to be quick with this engine, each as [`Access::open_node`].
    ///
    /// # Errors
    /// When another node answers there.
    pub async fn open_abreast(&self, engine: Engine, address: SocketAddr, id: NodeId) -> Result<Abreast, Error> {
        let more = match engine {
            Engine::Redis => 0,
            Engine::Valkey => ABREAST.saturating_sub(1),
        };
        let open = (0..more).map(|_| self.open_node(address, id));
        futures::future::try_join_all(open).await.map(Abreast)
    }
}

/// As [`all`], for many `CLUSTER SETSLOT`, in no order: all are sent, and all answers awaited.
///
/// # Errors
/// As [`all`].
pub async fn set_slots(connection: &mut Connection, more: &mut Abreast, commands: &[Command]) -> Result<(), Error> {
    let share = commands.len().div_ceil(more.0.len().saturating_add(1)).max(1);
    let connections = std::iter::once(connection).chain(&mut more.0);
    let sent = connections.zip(commands.chunks(share)).map(|(one, part)| in_turns(one, part, SET_SLOTS));
    futures::future::join_all(sent).await.into_iter().try_for_each(|told| told.map(drop))
}

async fn in_turns(connection: &mut Connection, commands: &[Command], most: usize) -> Result<Vec<Reply>, Error> {
    let mut replies = Vec::with_capacity(commands.len());
    for turn in commands.chunks(most) {
        replies.extend(all(connection, turn).await?);
    }
    Ok(replies)
}
