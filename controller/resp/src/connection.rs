//! One TCP connection to one Redis: authentication, deadlines, pipelining. Reconnecting is the caller's business.
//!
//! A connection that failed once (a lost deadline, a broken frame, an end of stream) answers every further call with
//! [`Error::Broken`]: a reply that arrives late would be taken for the answer to another command.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout_at},
};

use crate::{
    budget,
    decode::Decoder,
    frame::{self, Command, Limits, Reply},
    info::{ClusterInfo, Info},
    nodes::{self, Node, NodeId},
    reply::{self, ErrorReply, Role},
};

/// Bytes read from the socket at a time.
const READ_CHUNK: usize = 64 << 10;

/// What went wrong between us and one Redis.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was sent: the connection could not be made.
    #[error("connect to Redis at {address}: {source}")]
    Connect {
        /// Where to.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The connection broke while a command was under way: it may or may not have been executed.
    #[error("{command} at {address}: {source}")]
    Io {
        /// The command.
        command: String,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// No answer in time: the command may or may not have been executed.
    #[error("{command} at {address}: no answer within {deadline:?}")]
    Deadline {
        /// The command.
        command: String,
        /// Where.
        address: SocketAddr,
        /// How long was waited.
        deadline: Duration,
    },
    /// The peer does not speak RESP2, or says too much.
    #[error("{command} at {address}: {source}")]
    Frame {
        /// The command.
        command: String,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: frame::Error,
    },
    /// Redis answered with an error: the command was not executed.
    #[error("{command} at {address}: Redis refused: {reply}")]
    Refused {
        /// The command.
        command: String,
        /// Where.
        address: SocketAddr,
        /// Its words.
        reply: ErrorReply,
    },
    /// Redis answered something else than the command promises.
    #[error("{command} at {address}: {source}")]
    Shape {
        /// The command.
        command: String,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: reply::Error,
    },
    /// An earlier call left the connection in an unknown state; nothing was sent.
    #[error("{command} at {address}: the connection broke earlier")]
    Broken {
        /// The command.
        command: String,
        /// Where.
        address: SocketAddr,
    },
}

impl Error {
    /// Whether the command was surely not executed.
    #[must_use]
    pub fn surely_not_executed(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Refused { .. } | Self::Broken { .. } => true,
            Self::Io { .. } | Self::Deadline { .. } | Self::Frame { .. } | Self::Shape { .. } => false,
        }
    }

    /// Whether the peer said more than anybody may in answer to this.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        matches!(self, Self::Frame { source: frame::Error::TooLarge { .. }, .. })
    }

    /// The error reply, if Redis gave one.
    #[must_use]
    pub fn refusal(&self) -> Option<&ErrorReply> {
        match self {
            Self::Refused { reply, .. } => Some(reply),
            Self::Connect { .. }
            | Self::Io { .. }
            | Self::Deadline { .. }
            | Self::Frame { .. }
            | Self::Shape { .. }
            | Self::Broken { .. } => None,
        }
    }
}

/// A user and password. Neither `Debug` nor any error shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// A user and password.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }

    /// The user's name.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password, for commands that carry it (`MIGRATE … AUTH2`). Never print it.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, ***)", self.user)
    }
}

/// How to reach one Redis.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to connect to.
    pub address: SocketAddr,
    /// Source address, when it matters to the peer.
    pub source: Option<IpAddr>,
    /// Who we are; `None`: the default user without password.
    pub credentials: Option<Credentials>,
    /// How long connecting and authenticating may take.
    pub connect_timeout: Duration,
    /// How long one call may take (a pipeline is one call).
    pub deadline: Duration,
    /// Bounds on replies.
    pub limits: Limits,
}

impl Options {
    /// Two seconds to connect, five for a call.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            source: None,
            credentials: None,
            connect_timeout: Duration::from_secs(2),
            deadline: Duration::from_secs(5),
            limits: Limits::ADMIN,
        }
    }

    /// The same options with credentials.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The same options with a source address.
    #[must_use]
    pub fn source(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// The same options with another deadline for each call.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

/// One authenticated connection.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    deadline: Duration,
    stream: TcpStream,
    decoder: Decoder,
    broken: bool,
}

impl Connection {
    /// Connects and authenticates.
    ///
    /// # Errors
    /// When the address does not answer in time or refuses the credentials.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let address = options.address;
        let until = deadline_after(options.connect_timeout);
        let refused = |source| Error::Connect { address, source };
        let stream = timeout_at(until, dial(options))
            .await
            .map_err(|_| refused(std::io::ErrorKind::TimedOut.into()))?
            .map_err(refused)?;
        let mut connection =
            Self { address, deadline: options.deadline, stream, decoder: Decoder::new(options.limits), broken: false };
        if let Some(credentials) = &options.credentials {
            let auth = Command::new("AUTH").arg(&credentials.user).arg(&credentials.password);
            connection.command_until(&auth, until, options.connect_timeout).await.map_err(not_connected)?;
        }
        Ok(connection)
    }

    /// Whom this connection talks to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether an earlier failure made the connection useless.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Changes how long each further call may take.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Sends one command given as words and returns its reply.
    ///
    /// # Errors
    /// An error reply is [`Error::Refused`].
    pub async fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Reply, Error> {
        self.command(&Command::from_words(words)).await
    }

    /// Sends one command and returns its reply.
    ///
    /// # Errors
    /// An error reply is [`Error::Refused`].
    pub async fn command(&mut self, command: &Command) -> Result<Reply, Error> {
        self.command_until(command, deadline_after(self.deadline), self.deadline).await
    }

    async fn command_until(&mut self, command: &Command, until: Instant, allowed: Duration) -> Result<Reply, Error> {
        let replies = self.exchange(std::slice::from_ref(command), until, allowed).await?;
        match replies.into_iter().next() {
            Some(Reply::Error(text)) => Err(Error::Refused {
                command: command.name().to_owned(),
                address: self.address,
                reply: ErrorReply::parse(&text),
            }),
            Some(reply) => Ok(reply),
            None => Err(Error::Broken { command: command.name().to_owned(), address: self.address }),
        }
    }

    /// Sends all commands at once and returns their replies in order; error replies are among them as [`Reply::Error`].
    ///
    /// # Errors
    /// When the connection fails; some of the commands may then have been executed.
    pub async fn pipeline(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Error> {
        self.exchange(commands, deadline_after(self.deadline), self.deadline).await
    }

    async fn exchange(&mut self, commands: &[Command], until: Instant, allowed: Duration) -> Result<Vec<Reply>, Error> {
        let Some(first) = commands.first() else { return Ok(Vec::new()) };
        let name = || match commands.len() {
            1 => first.name().to_owned(),
            several => format!("a pipeline of {several} commands beginning with {}", first.name()),
        };
        let address = self.address;
        if self.broken {
            return Err(Error::Broken { command: name(), address });
        }
        let mut wire = Vec::new();
        commands.iter().for_each(|command| command.encode(&mut wire));
        // Until the exchange is complete the connection counts as broken, also when this future is dropped half way.
        self.broken = true;
        let (mut reader, mut writer) = self.stream.split();
        let decoder = &mut self.decoder;
        // Writing and reading go on side by side: a peer whose replies nobody reads may stop reading our commands.
        let write = async { writer.write_all(&wire).await.map_err(Fault::Io) };
        let read = read_replies(&mut reader, decoder, commands);
        let outcome = timeout_at(until, async { tokio::try_join!(write, read) }).await;
        match outcome {
            Ok(Ok(((), replies))) => {
                self.broken = false;
                Ok(replies)
            }
            Ok(Err(Fault::Io(source))) => Err(Error::Io { command: name(), address, source }),
            Ok(Err(Fault::Frame(source))) => Err(Error::Frame { command: name(), address, source }),
            Err(_) => Err(Error::Deadline { command: name(), address, deadline: allowed }),
        }
    }

    /// Leaves RESP: the socket and the bytes already read from it. For PSYNC.
    #[must_use]
    pub fn into_parts(self) -> (TcpStream, BytesMut) {
        (self.stream, self.decoder.into_rest())
    }

    fn shape(&self, command: &str) -> impl Fn(reply::Error) -> Error + use<> {
        let (command, address) = (command.to_owned(), self.address);
        move |source| Error::Shape { command: command.clone(), address, source }
    }

    /// `CLUSTER MYID`: who answers at this address.
    ///
    /// # Errors
    /// As [`Self::call`], or when the reply is not an ID.
    pub async fn my_id(&mut self) -> Result<NodeId, Error> {
        let reply = self.call(&["CLUSTER", "MYID"]).await?;
        NodeId::parse(reply.text().unwrap_or_default()).map_err(self.shape("CLUSTER MYID"))
    }

    /// `CLUSTER NODES`: this node's own table.
    ///
    /// # Errors
    /// As [`Self::call`], or when the reply is not a table.
    pub async fn cluster_nodes(&mut self) -> Result<Vec<Node>, Error> {
        let reply = self.call(&["CLUSTER", "NODES"]).await?;
        nodes::parse(reply.text().unwrap_or_default()).map_err(self.shape("CLUSTER NODES"))
    }

    /// `CLUSTER INFO`: this node's own view.
    ///
    /// # Errors
    /// As [`Self::call`], or when the reply is of another form.
    pub async fn cluster_info(&mut self) -> Result<ClusterInfo, Error> {
        let reply = self.call(&["CLUSTER", "INFO"]).await?;
        ClusterInfo::parse(reply.text().unwrap_or_default()).map_err(self.shape("CLUSTER INFO"))
    }

    /// `INFO` with the given sections (none: the default ones).
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn info(&mut self, sections: &[&str]) -> Result<Info, Error> {
        let reply = self.command(&Command::new("INFO").args(sections)).await?;
        Ok(Info::parse(reply.text().unwrap_or_default()))
    }

    /// `ROLE`.
    ///
    /// # Errors
    /// As [`Self::call`], or when the reply is of another form.
    pub async fn role(&mut self) -> Result<Role, Error> {
        let reply = self.call(&["ROLE"]).await?;
        Role::parse(&reply).map_err(self.shape("ROLE"))
    }

    /// `CONFIG GET` of the given parameters.
    ///
    /// # Errors
    /// As [`Self::call`], or when the reply is of another form.
    pub async fn config_get(&mut self, parameters: &[&str]) -> Result<BTreeMap<String, String>, Error> {
        let reply = self.command(&Command::new("CONFIG").arg("GET").args(parameters)).await?;
        reply::config_get(&reply).map_err(self.shape("CONFIG GET"))
    }

    /// `CONFIG SET` of one parameter.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn config_set(&mut self, parameter: &str, value: &str) -> Result<(), Error> {
        self.call(&["CONFIG", "SET", parameter, value]).await.map(|_| ())
    }
}

/// A connection that breaks during AUTH was never made: no command of the caller's was sent.
fn not_connected(error: Error) -> Error {
    match error {
        Error::Io { address, source, .. } => Error::Connect { address, source },
        Error::Deadline { address, .. } => Error::Connect { address, source: std::io::ErrorKind::TimedOut.into() },
        Error::Refused { .. }
        | Error::Connect { .. }
        | Error::Frame { .. }
        | Error::Shape { .. }
        | Error::Broken { .. } => error,
    }
}

enum Fault {
    Io(std::io::Error),
    Frame(frame::Error),
}

async fn read_replies(
    reader: &mut tokio::net::tcp::ReadHalf<'_>,
    decoder: &mut Decoder,
    commands: &[Command],
) -> Result<Vec<Reply>, Fault> {
    let mut replies = Vec::with_capacity(commands.len());
    let most = |read: usize| commands.get(read).and_then(|command| budget::of(command.name()));
    decoder.expect(most(0));
    let is_bounded = commands.iter().all(|command| budget::of(command.name()).is_some());
    let mut received: usize = 0;
    loop {
        while let Some(reply) = decoder.decode().map_err(Fault::Frame)? {
            replies.push(reply);
            if replies.len() == commands.len() {
                return Ok(replies);
            }
            decoder.expect(most(replies.len()));
        }
        decoder.buffer().reserve(READ_CHUNK);
        let got = reader.read_buf(decoder.buffer()).await.map_err(Fault::Io)?;
        if got == 0 {
            return Err(Fault::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        received = received.saturating_add(got);
        if is_bounded && received > budget::PIPELINE {
            let (what, limit) = ("the answers to a pipeline", budget::PIPELINE);
            return Err(Fault::Frame(frame::Error::TooLarge { what, got: received, limit }));
        }
    }
}

async fn dial(options: &Options) -> std::io::Result<TcpStream> {
    let socket = if options.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = options.source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let stream = socket.connect(options.address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A deadline that cannot overflow the clock, however long the caller is ready to wait.
fn deadline_after(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or(now)
}
