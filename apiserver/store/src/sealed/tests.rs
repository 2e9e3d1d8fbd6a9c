//! The conformance suite through the seal, and what only sealing can get wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::Path;

use futures::{StreamExt, stream};
use tempfile::TempDir;

use super::*;
use crate::cache::{Cache, Describe, End, Error as CacheError, Filter, Options, Paths, Query};
use crate::conformance::{Subject, local_conformance};
use crate::seal::{Method, Pattern, Provider, Rule, SealKey};
use crate::{Change, DEFAULT_PREFIX, Embedded, EmbeddedOptions, Event, Memory, VALUE_LIMIT};

/// A sealed store as one sees it who opens all that it gives.
struct Open(Sealed);

impl Open {
    fn stored(&self, key: &Key, stored: Stored) -> Stored {
        assert!(stored.value.starts_with(b"k8s:enc:aesgcm:v1:a:"), "nothing is kept unsealed");
        Stored { value: self.0.seals.open(key, &stored.value).unwrap().value, ..stored }
    }
}

impl Store for Open {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        async move { Ok(self.0.get(key).await?.map(|stored| self.stored(key, stored))) }.boxed()
    }

    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<Page, Error>> {
        async move {
            let mut page = self.0.list(options).await?;
            for (key, stored) in &mut page.items {
                *stored = self.stored(key, stored.clone());
            }
            Ok(page)
        }
        .boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, Error>> {
        self.0.write(write)
    }

    fn watch(&self, from: Revision) -> BoxFuture<'_, Result<Feed, Error>> {
        async move {
            let this = Open(Sealed::new(Arc::clone(&self.0.inner), Arc::clone(&self.0.seals)));
            let feed = self.0.watch(from).await?;
            let batches = stream::unfold((this, feed), |(this, mut feed)| async move {
                let batch = feed.next().await.map(|mut batch| {
                    batch.events = batch.events.into_iter().map(|event| this.event(event)).collect();
                    batch
                });
                Some((batch, (this, feed)))
            });
            Ok(Feed::new(batches.boxed()))
        }
        .boxed()
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.0.current_revision()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

impl Open {
    fn event(&self, event: Event) -> Event {
        let Event { revision, key, change } = event;
        let change = match change {
            Change::Put { value, previous } => Change::Put {
                value: self.stored(&key, Stored { revision, value }).value,
                previous: previous.map(|stored| self.stored(&key, stored)),
            },
            Change::Delete { previous } => Change::Delete { previous: self.stored(&key, previous) },
        };
        Event { revision, key, change }
    }
}

fn ring(keys: &[(&str, u8)]) -> Keyring {
    let key = |(name, byte): &(&str, u8)| SealKey::new(Method::AesGcm, name, &[*byte; 32]).unwrap();
    let providers = vec![Provider::Keys(Method::AesGcm, keys.iter().map(key).collect())];
    Keyring::new(vec![Rule { resources: vec![Pattern::All], providers }])
}

fn seals(keys: &[(&str, u8)]) -> Arc<Seals> {
    Seals::new(ring(keys), DEFAULT_PREFIX)
}

local_conformance!(Subject::new(|clock| {
    let directory = TempDir::new().unwrap();
    let options = EmbeddedOptions { clock, ..EmbeddedOptions::default() };
    let inner = Arc::new(Embedded::open(&directory.path().join("store"), options).unwrap());
    (Arc::new(Open(Sealed::new(inner, seals(&[("a", 1)])))), Some(directory))
}));

fn key(name: &str) -> Key {
    Key::new("secrets", Some("shop"), name).unwrap()
}

fn secret(name: &str) -> Bytes {
    format!(r#"{{"kind":"Secret","metadata":{{"name":"{name}","uid":"u-{name}"}},"data":"not to be seen"}}"#).into()
}

async fn cache(store: Arc<dyn Store>) -> Cache {
    let describe: Arc<dyn Describe> = Arc::new(Paths::new([]));
    Cache::start(store, [("secrets".to_owned(), describe)], Options::default()).await.unwrap()
}

fn is_in(path: &Path, text: &[u8]) -> bool {
    std::fs::read(path).unwrap().windows(text.len()).any(|window| window == text)
}

#[tokio::test]
async fn neither_the_file_nor_a_backup_of_it_holds_the_plain_text_and_a_restored_one_opens() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let inner = Arc::new(Embedded::open(&path("store"), EmbeddedOptions::default()).unwrap());
    let store = Sealed::new(inner.clone(), seals(&[("a", 1)]));
    store.write(Write::create(key("token"), secret("token"))).await.unwrap();
    inner.backup(std::fs::File::create(path("backup")).unwrap()).unwrap();
    store.close().await;
    Embedded::restore(&path("restored"), &path("backup"), Revision(100)).unwrap();
    for name in ["store", "backup", "restored"] {
        assert!(!is_in(&path(name), b"not to be seen"), "{name}");
        assert!(is_in(&path(name), b"k8s:enc:aesgcm:v1:a:"), "{name}");
    }
    let restored = Arc::new(Embedded::open(&path("restored"), EmbeddedOptions::default()).unwrap());
    let cache = cache(Arc::new(Sealed::new(restored, seals(&[("a", 1)])))).await;
    let object = cache.resource("secrets").unwrap().get(&key("token")).unwrap().unwrap();
    assert!(std::str::from_utf8(object.as_bytes()).unwrap().contains("not to be seen"));
}

#[tokio::test]
async fn the_cache_shows_plain_objects_and_says_which_are_stale() {
    let inner: Arc<dyn Store> = Arc::new(Memory::default());
    let seals = seals(&[("a", 1)]);
    let cache = cache(Arc::new(Sealed::new(Arc::clone(&inner), Arc::clone(&seals)))).await;
    let secrets = cache.resource("secrets").unwrap();
    let first = cache.write(Write::create(key("token"), secret("token"))).await.unwrap().revision;
    let object = secrets.get(&key("token")).unwrap().unwrap();
    assert_eq!((object.revision(), object.is_stale()), (first, false));
    let mut watch = secrets.watch(first, Filter::default()).unwrap();
    seals.exchange(ring(&[("b", 2), ("a", 1)]));
    assert_eq!(watch.next().await.unwrap_err(), End::Reloaded, "who watched lists again");
    let stale = secrets.get(&key("token")).unwrap().unwrap();
    assert_eq!((stale.json(), stale.is_stale()), (object.json(), true));
    let second = cache.write(Write::update(key("token"), first, secret("token"))).await.unwrap().revision;
    assert!(!secrets.get(&key("token")).unwrap().unwrap().is_stale());
    assert!(inner.get(&key("token")).await.unwrap().unwrap().value.starts_with(b"k8s:enc:aesgcm:v1:b:"));
    let refused = cache.write(Write::update(key("token"), first, secret("token"))).await.unwrap_err();
    let current = Stored { revision: second, value: secret("token") };
    assert_eq!(refused, Error::Refused(Refusal::Conflict { current }), "a refusal shows what is there, not its seal");
}

#[tokio::test]
async fn one_value_that_nobody_can_open_fails_lists_and_hides_no_other_from_a_get_or_a_watch() {
    let inner: Arc<dyn Store> = Arc::new(Memory::default());
    let lost = Sealed::new(Arc::clone(&inner), seals(&[("lost", 9)]));
    lost.write(Write::create(key("lost"), secret("lost"))).await.unwrap();
    let seals = seals(&[("a", 1)]);
    let cache = cache(Arc::new(Sealed::new(inner, Arc::clone(&seals)))).await;
    let secrets = cache.resource("secrets").unwrap();
    let reason = "no matching key was found for the provided AES transformer".to_owned();
    let unreadable = CacheError::Undecodable { key: key("lost"), reason };
    assert_eq!(secrets.get(&key("lost")).unwrap_err(), unreadable);
    assert_eq!(secrets.list(&Query::default()).unwrap_err(), unreadable);
    assert_eq!(secrets.list_and_watch(Filter::default()).unwrap_err(), unreadable);
    let mut watch = secrets.watch(cache.revision(), Filter::default()).unwrap();
    let first = cache.write(Write::create(key("good"), secret("good"))).await.unwrap().revision;
    let second = cache.write(Write::update(key("good"), first, secret("good"))).await.unwrap().revision;
    for revision in [first, second] {
        assert_eq!(watch.next().await.unwrap().revision(), revision);
    }
    seals.exchange(ring(&[("a", 1), ("lost", 9)]));
    assert_eq!(watch.next().await.unwrap_err(), End::Reloaded);
    assert_eq!(secrets.list(&Query::default()).unwrap().items.len(), 2, "the key was found again");
    assert!(secrets.get(&key("lost")).unwrap().unwrap().is_stale());
}

#[tokio::test]
async fn a_value_moved_to_another_key_does_not_open() {
    let inner: Arc<dyn Store> = Arc::new(Memory::default());
    let store = Arc::new(Sealed::new(Arc::clone(&inner), seals(&[("a", 1)])));
    store.write(Write::create(key("a"), secret("a"))).await.unwrap();
    let value = inner.get(&key("a")).await.unwrap().unwrap().value;
    inner.write(Write::create(key("b"), value)).await.unwrap();
    let cache = cache(store).await;
    let reason = "cipher: message authentication failed".to_owned();
    let moved = CacheError::Undecodable { key: key("b"), reason };
    assert_eq!(cache.resource("secrets").unwrap().get(&key("b")).unwrap_err(), moved);
}

#[tokio::test]
async fn what_fits_unsealed_fits_sealed_and_one_byte_more_does_not() {
    let store = Sealed::new(Arc::new(Memory::default()), seals(&[(&"n".repeat(253), 1)]));
    let most = Bytes::from(vec![b'x'; VALUE_LIMIT]);
    store.write(Write::create(key("a"), most)).await.unwrap();
    let more = Bytes::from(vec![b'x'; VALUE_LIMIT + 1]);
    let refused = store.write(Write::create(key("b"), more)).await.unwrap_err();
    assert_eq!(refused, Error::TooLarge { size: VALUE_LIMIT + 1, limit: VALUE_LIMIT });
}
