//! A store whose disk has failed: no write succeeds, nothing is said to be absent, and what clients hear is 5xx.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use store::{Error, Feed, Key, ListOptions, Memory, Page, Revision, Store, Stored, Write, Written};

use crate::support::{Api, CLUSTERS, cluster};

/// A store that fails from some moment on, as the embedded one does after a failed sync.
#[derive(Default)]
struct Failing {
    inner: Memory,
    has_failed: AtomicBool,
}

impl Failing {
    fn poison(&self) -> Result<(), Error> {
        match self.has_failed.load(Ordering::SeqCst) {
            true => Err(Error::Poisoned { reason: "the disk failed to sync".to_owned() }),
            false => Ok(()),
        }
    }
}

impl Store for Failing {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        self.inner.get(key)
    }

    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<Page, Error>> {
        self.inner.list(options)
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, Error>> {
        async move {
            self.poison()?;
            self.inner.write(write).await
        }
        .boxed()
    }

    fn watch(&self, from: Revision) -> BoxFuture<'_, Result<Feed, Error>> {
        self.inner.watch(from)
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.inner.current_revision()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

#[tokio::test]
async fn after_a_failed_commit_every_write_is_a_503_and_what_was_acknowledged_is_still_read() {
    let store = Arc::new(Failing::default());
    let api = Api::replica(store.clone()).await;
    let path = format!("{CLUSTERS}/orders");
    let created = api.cluster("orders").await;
    store.has_failed.store(true, Ordering::SeqCst);
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let replies = [
        api.post(CLUSTERS, &cluster("other")).await,
        api.put(&path, &{
            let mut changed = created.clone();
            changed["metadata"]["labels"] = json!({"a": "b"});
            changed
        })
        .await,
        api.merge(&path, &change).await,
        api.delete(&path).await,
        api.delete(CLUSTERS).await,
    ];
    for reply in replies {
        let (code, reason, message) = reply.fault();
        assert_eq!((code, reason.as_str()), (503, "ServiceUnavailable"), "{message}");
        assert!(message.contains("refuses all writes until it is restarted"), "{message}");
    }
    assert_eq!(api.get(&path).await.ok(), created);
    assert_eq!(api.get(&format!("{CLUSTERS}/other")).await.code, 404, "it was never acknowledged");
}
