//! A client of one connection, in either version of HTTP.

use std::convert::Infallible;

use bytes::Bytes;
use certs::{ALPN_H1, ALPN_H2, Issued, client_config};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::stage::Server;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// One open connection.
pub(crate) enum Client {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

/// Status and text of an answer, with its headers.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A TLS connection to the server, or the reason it was not made.
pub(crate) async fn dial(
    server: &Server,
    identity: Option<&Issued>,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let config = client_config(server.authority.certificate_pem(), identity, alpn).unwrap();
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::IpAddress(server.address.ip().into());
    TlsConnector::from(config).connect(name, stream).await
}

impl Client {
    pub(crate) async fn h1(server: &Server, identity: Option<&Issued>) -> Self {
        let stream = dial(server, identity, &[ALPN_H1]).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self::One(sender)
    }

    pub(crate) async fn h2(server: &Server, identity: Option<&Issued>) -> Self {
        let stream = dial(server, identity, &[ALPN_H2]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(ALPN_H2));
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self::Two(sender)
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Two(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let response = self.send(request(method, path, headers, full(body))).await.unwrap();
        read(response).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], "").await
    }
}

pub(crate) fn request(method: Method, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(format!("https://server{path}")).header("host", "server");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).unwrap()
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

pub(crate) async fn read(response: Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    Answer { code: head.status.as_u16(), headers: head.headers, text: String::from_utf8(text.to_vec()).unwrap() }
}
