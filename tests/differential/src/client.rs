//! A bare HTTP/1.1 client over TLS: it sends what a scenario says and keeps what comes back, byte for byte.
//!
//! It must not know which of the two servers it talks to, nor what the bytes mean.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use certs::Issued;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, Response, body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a server is and who asks.
#[derive(Clone)]
pub(crate) struct Access {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

/// One request, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Verb of HTTP.
    pub method: String,
    /// Path and query, encoded.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Empty for none.
    pub body: Vec<u8>,
}

/// What came back.
pub(crate) struct Answer {
    /// Code of HTTP.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body as far as it was read.
    pub body: Bytes,
}

/// One user's connection to one server.
pub(crate) struct Session {
    access: Access,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// A watch that has begun.
pub(crate) struct Stream {
    /// Code and headers; the body is empty.
    pub head: Answer,
    body: Incoming,
    rest: Vec<u8>,
    // The connection lives as long as this.
    _sender: SendRequest<Full<Bytes>>,
}

impl Access {
    /// The server at this address, for the user of this certificate.
    pub(crate) fn new(address: SocketAddr, authority_pem: &str, identity: &Issued) -> Result<Self> {
        let tls = certs::client_config(authority_pem, Some(identity), &[certs::ALPN_H1])?;
        Ok(Self { address, tls })
    }

    /// A session of its own.
    pub(crate) fn session(&self) -> Session {
        Session { access: self.clone(), connection: None }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await.context("connect")?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await.context("TLS handshake")?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(call.method.as_str()).uri(&call.target);
        request = request.header("host", self.address.to_string());
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        Ok(request.body(Full::new(Bytes::from(call.body.clone())))?)
    }
}

impl Session {
    /// Sends one request and reads the whole answer.
    pub(crate) async fn send(&mut self, call: &Call) -> Result<Answer> {
        let exchange = async {
            let response = self.exchange(call).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.context("read the body")?.to_bytes();
            anyhow::Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        match tokio::time::timeout(hung::process(), exchange).await {
            Ok(answer) => answer.with_context(|| format!("{} {}", call.method, call.target)),
            Err(_) => bail!("no answer to {} {}", call.method, call.target),
        }
    }

    async fn exchange(&mut self, call: &Call) -> Result<Response<Incoming>> {
        // A server closes a connection after some refusals; a request that was not sent may be sent again.
        if let Some(connection) = &mut self.connection
            && connection.ready().await.is_err()
        {
            self.connection = None;
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.access.connect().await?,
        };
        let response = connection.send_request(self.access.request(call)?).await.context("send")?;
        self.connection = Some(connection);
        Ok(response)
    }

    /// Begins a watch on a connection of its own. Returns once the headers are there.
    pub(crate) async fn watch(&self, call: &Call) -> Result<Stream> {
        let mut sender = self.access.connect().await?;
        let sent = sender.send_request(self.access.request(call)?);
        let response = tokio::time::timeout(hung::process(), sent).await.context("no headers of a watch")??;
        let (head, body) = response.into_parts();
        let head = Answer { status: head.status.as_u16(), headers: head.headers, body: Bytes::new() };
        Ok(Stream { head, body, rest: Vec::new(), _sender: sender })
    }
}

impl Stream {
    /// The next line; `None` at the end of the stream.
    async fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let tail = self.rest.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.rest, tail)));
            }
            match self.body.frame().await {
                None if self.rest.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.rest))),
                Some(frame) => {
                    if let Ok(data) = frame.context("read the stream")?.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// Lines until the stream ends, or until `enough` says so and nothing more came for `quiet`, or until `limit`.
    /// The second value tells whether the server ended the stream.
    pub(crate) async fn lines(
        &mut self,
        mut enough: impl FnMut(&[Vec<u8>]) -> bool,
        quiet: Duration,
        limit: Duration,
    ) -> Result<(Vec<Vec<u8>>, bool)> {
        let begin = Instant::now();
        let mut lines = Vec::new();
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            let wait = if enough(&lines) { quiet.min(left) } else { left };
            match tokio::time::timeout(wait, self.line()).await {
                Err(_) => return Ok((lines, false)),
                Ok(line) => match line? {
                    None => return Ok((lines, true)),
                    Some(line) => lines.push(line),
                },
            }
        }
    }
}
