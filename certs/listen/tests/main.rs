//! Strangers who connect and say nothing, and those who have something to ask meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use certs::{ALPN_H1, ALPN_H2, Authority, ClientAuth, Issued, Leaf, Usage};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use listen::{Caller, Limits, Options};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

struct World {
    authority: Authority,
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

fn limits() -> Limits {
    Limits {
        connections: 8,
        per_address: 4,
        head: Duration::from_secs(600),
        streams: 4,
        ping: Duration::from_secs(600),
    }
}

fn issued(authority: &Authority, name: &str) -> Issued {
    let leaf = Leaf {
        common_name: name.to_owned(),
        organizations: vec![],
        dns_names: vec!["door".to_owned()],
        ips: vec![],
        usage: Usage::BOTH,
        lifetime: Duration::from_secs(3600),
    };
    authority.issue(&leaf).unwrap()
}

async fn serving(limits: Limits) -> World {
    let authority = Authority::create("test").unwrap();
    let alpn: [&[u8]; 2] = [ALPN_H2, ALPN_H1];
    let server = issued(&authority, "server");
    let tls = certs::server_config(&server, authority.certificate_pem(), ClientAuth::Requested, &alpn).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let keeps: listen::Keeps = Box::new(|identity| identity.common_name == "controller");
    let options = Options { listener, tls, limits, keeps, shutdown: shutdown.clone(), drain: hung::process() };
    let serving = tokio::spawn(listen::serve(options, |caller: Caller| {
        let name = caller.identity.map_or_else(|| "nobody".to_owned(), |identity| identity.common_name);
        service_fn(move |_: Request<Incoming>| {
            let name = name.clone();
            async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(name)))) }
        })
    }));
    World { authority, address, shutdown, serving }
}

impl World {
    /// A connection from 127.0.0.`last`, after its handshake.
    async fn connect(&self, last: u8, name: Option<&str>, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let identity = name.map(|name| issued(&self.authority, name));
        let config = certs::client_config(self.authority.certificate_pem(), identity.as_ref(), &[alpn]).unwrap();
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
        let stream = socket.connect(self.address).await?;
        tokio_rustls::TlsConnector::from(Arc::clone(&config)).connect("door".try_into().unwrap(), stream).await
    }

    /// The same where whoever is slow is shown out: as soon as a handshake is done in time.
    async fn connect_in_time(&self, last: u8, alpn: &[u8]) -> TlsStream<TcpStream> {
        let connected = async {
            loop {
                if let Ok(stream) = self.connect(last, None, alpn).await {
                    return stream;
                }
            }
        };
        tokio::time::timeout(hung::answer(), connected).await.expect("no handshake is done in time")
    }

    /// What is answered to a caller from 127.0.0.`last`.
    async fn ask(&self, last: u8, name: Option<&str>, alpn: &[u8]) -> String {
        let stream = TokioIo::new(self.connect(last, name, alpn).await.unwrap());
        let request = Request::get("/").header("host", "door").body(Full::<Bytes>::default()).unwrap();
        let response = if alpn == ALPN_H2 {
            let (mut sender, driver) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(driver);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, driver) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(driver);
            sender.send_request(request).await.unwrap()
        };
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }
}

/// Returns when the server has closed the connection.
async fn closed(stream: &mut TlsStream<TcpStream>) {
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(hung::answer(), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "it is still open");
}

#[tokio::test]
async fn strangers_who_say_nothing_keep_nobody_out() {
    let world = serving(limits()).await;
    let mut silent = Vec::new();
    for last in 2..10 {
        silent.push(world.connect(last, None, ALPN_H1).await.unwrap());
    }
    assert_eq!(world.ask(20, None, ALPN_H1).await, "nobody");
    assert_eq!(world.ask(21, Some("controller"), ALPN_H2).await, "controller");
    // Two of them made room, the oldest first.
    closed(&mut silent[0]).await;
    closed(&mut silent[1]).await;
}

#[tokio::test]
async fn one_address_has_only_its_share() {
    let world = serving(limits()).await;
    let mut mine = Vec::new();
    for _ in 0..4 {
        mine.push(world.connect(2, None, ALPN_H1).await.unwrap());
    }
    // It makes room for itself.
    assert_eq!(world.ask(2, None, ALPN_H1).await, "nobody");
    closed(&mut mine[0]).await;
    assert_eq!(world.ask(3, None, ALPN_H1).await, "nobody");
    // Who is expected stays, whatever comes.
    let mut expected = world.connect(4, Some("controller"), ALPN_H2).await.unwrap();
    let mut others = Vec::new();
    for last in 5..15 {
        others.push(world.connect(last, Some("somebody"), ALPN_H1).await.unwrap());
    }
    closed(&mut others[0]).await;
    let more = tokio::time::timeout(Duration::from_millis(300), expected.read_to_end(&mut Vec::new())).await;
    assert!(more.is_err(), "it was sent away");
}

#[tokio::test]
async fn who_never_asks_is_shown_out_in_either_version_of_http() {
    let world = serving(Limits { head: Duration::from_millis(300), ..limits() }).await;
    for alpn in [ALPN_H1, ALPN_H2] {
        let mut silent = world.connect_in_time(2, alpn).await;
        closed(&mut silent).await;
    }
    // Not even a handshake.
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let ended = tokio::time::timeout(hung::answer(), stream.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "it is still open");
}

#[tokio::test]
async fn who_has_asked_may_ask_again_later() {
    let world = serving(Limits { head: Duration::from_millis(300), ..limits() }).await;
    let request = || Request::get("/").header("host", "door").body(Full::<Bytes>::default()).unwrap();
    let asked = async {
        loop {
            let stream = TokioIo::new(world.connect_in_time(2, ALPN_H2).await);
            let Ok((mut sender, driver)) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await
            else {
                continue;
            };
            tokio::spawn(driver);
            // Where the machine stands still before it, the first request comes too late.
            if sender.send_request(request()).await.is_ok_and(|answer| answer.status() == 200) {
                return sender;
            }
        }
    };
    let mut sender = tokio::time::timeout(hung::answer(), asked).await.unwrap();
    for _ in 0..2 {
        // Longer than the first request may take.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(sender.send_request(request()).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn after_a_goodbye_nobody_is_let_in_and_serving_ends() {
    let world = serving(limits()).await;
    assert_eq!(world.ask(2, None, ALPN_H1).await, "nobody");
    world.shutdown.cancel();
    tokio::time::timeout(hung::process(), world.serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(world.address).await.is_err());
}
