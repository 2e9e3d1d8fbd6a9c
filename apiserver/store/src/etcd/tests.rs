//! The store on a real etcd: the conformance suite, and what only it can get wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../../tests/etcd/server.rs"]
mod server;

use futures::FutureExt;
use futures::future::BoxFuture;

use self::server::Server;
use super::message::{CompactionRequest, CompactionResponse};
use super::*;
use crate::conformance::{Subject, conformance};

conformance!(match server::binary() {
    Some(binary) => subject(Server::fast(binary)).await,
    None => return,
});

fn options(server: &Server) -> EtcdOptions {
    EtcdOptions { servers: vec![server.url()], tls: None, prefix: DEFAULT_PREFIX.to_owned(), compact_every: None }
}

async fn subject(server: Server) -> Subject {
    let store = Arc::new(Etcd::connect(options(&server)).await.unwrap());
    let forget = {
        let store = Arc::clone(&store);
        move || -> BoxFuture<'static, ()> {
            let client = store.client.clone();
            async move { compact(&client).await }.boxed()
        }
    };
    Subject::over(store, server, forget)
}

/// Has etcd forget everything before now.
async fn compact(client: &Client) {
    let revision = request::wire(client.revision().await.unwrap());
    let question = CompactionRequest { revision };
    let answer: Result<CompactionResponse, Failure> =
        client.wire.call(wire::COMPACT, question, Effect::Write, wire::SMALL).await;
    answer.unwrap();
}
