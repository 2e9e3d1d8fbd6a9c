//! The agent's own connection to its Redis, shared by probes, metrics and upkeep. I/O.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use resp::{Command, Connection, Credentials, Error, Options, Reply};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::config::Inputs;

/// How long Redis may take to answer a probe. Longer than an ordinary slow command, shorter than a probe's own timeout.
const DEADLINE: Duration = Duration::from_millis(1500);

/// A connection that is made again when it broke.
#[derive(Debug)]
pub struct Local {
    address: SocketAddr,
    inputs: watch::Receiver<Arc<Inputs>>,
    connection: Mutex<Option<Connection>>,
    answered: Mutex<Instant>,
}

impl Local {
    /// A client of the Redis at `address`. Connects on first use.
    #[must_use]
    pub fn new(address: SocketAddr, inputs: watch::Receiver<Arc<Inputs>>) -> Self {
        Self { address, inputs, connection: Mutex::new(None), answered: Mutex::new(Instant::now()) }
    }

    /// The agents' user, with the password of now.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        self.inputs.borrow().agent_credentials()
    }

    /// Every write is to be kept in an append-only file.
    #[must_use]
    pub fn logs_writes(&self) -> bool {
        self.inputs.borrow().config.append_only.keeps_every_write()
    }

    /// After how long without an answer a member counts as failed.
    #[must_use]
    pub fn node_timeout(&self) -> Duration {
        Duration::from_millis(self.inputs.borrow().config.node_timeout_millis)
    }

    /// A connection of one's own.
    ///
    /// # Errors
    /// When Redis does not answer or refuses the password.
    pub async fn open(&self, deadline: Duration) -> Result<Connection, Error> {
        self.open_as(self.credentials(), deadline).await
    }

    /// The same as another user.
    ///
    /// # Errors
    /// When Redis does not answer or refuses the password.
    pub async fn open_as(&self, user: Credentials, deadline: Duration) -> Result<Connection, Error> {
        let mut options = Options::new(self.address).credentials(user).deadline(deadline);
        options.source = Some(self.address.ip());
        options.connect_timeout = deadline.max(DEADLINE);
        Connection::open(&options).await
    }

    /// Sends commands and returns their replies in order; error replies are among them. Redis may have closed a connection
    /// meanwhile (it does when users change), so one that breaks is made again once: only for commands that may be repeated.
    ///
    /// # Errors
    /// When Redis cannot be reached or does not answer in time.
    pub async fn ask(&self, commands: &[Command]) -> Result<Vec<Reply>, Error> {
        match self.ask_once(commands).await {
            Err(Error::Io { .. }) => self.ask_once(commands).await,
            outcome => outcome,
        }
    }

    async fn ask_once(&self, commands: &[Command]) -> Result<Vec<Reply>, Error> {
        let mut held = self.connection.lock().await;
        let connection = match held.take().filter(|connection| !connection.is_broken()) {
            Some(connection) => held.insert(connection),
            None => {
                let opened = self.open(DEADLINE).await;
                if opened.as_ref().is_err_and(|error| error.refusal().is_some()) {
                    self.note_answer().await;
                }
                held.insert(opened?)
            }
        };
        let replies = connection.pipeline(commands).await?;
        drop(held);
        self.note_answer().await;
        Ok(replies)
    }

    /// When Redis last answered anything, an error included.
    pub async fn last_answer(&self) -> Instant {
        *self.answered.lock().await
    }

    async fn note_answer(&self) {
        *self.answered.lock().await = Instant::now();
    }
}
