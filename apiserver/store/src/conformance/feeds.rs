//! Checks of following a store.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, pod};
use crate::{Change, Error, Event, Feed, Revision, Stored};

/// The next `count` events of a feed.
async fn take(feed: &mut Feed, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let batch = tokio::time::timeout(hung::answer(), feed.next()).await.expect("an event").unwrap();
        assert!(batch.events.last().is_none_or(|event| event.revision <= batch.revision));
        events.extend(batch.events);
    }
    events
}

pub(crate) async fn a_feed_tells_every_event_after_its_start_once_and_in_order(subject: Subject) {
    let subject = Arc::new(subject);
    for n in 0..10 {
        subject.create(&pod("a", &format!("before{n}")), "x").await;
    }
    let mut feed = subject.store.watch(Revision(6)).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let subject = Arc::clone(&subject);
            tokio::spawn(async move {
                for n in 0..20 {
                    subject.create(&pod("a", &format!("w{writer}-{n}")), "x").await;
                }
            })
        })
        .collect();
    let events = take(&mut feed, 165).await;
    let revisions: Vec<u64> = events.iter().map(|event| event.revision.0).collect();
    assert_eq!(revisions, (7..=171).collect::<Vec<_>>());
    for event in events {
        let read = subject.read(&event.key).await;
        assert_eq!(read.map(|(revision, _)| revision), Some(event.revision));
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

pub(crate) async fn an_event_carries_what_it_replaced(subject: Subject) {
    let key = pod("a", "a");
    let mut feed = subject.store.watch(Revision::FIRST).await.unwrap();
    let first = subject.create(&key, "one").await;
    let second = subject.update(&key, first, "two").await;
    let third = subject.delete(&key, second).await;
    let one = Stored { revision: first, value: "one".into() };
    let two = Stored { revision: second, value: "two".into() };
    let event = |revision, change| Event { revision, key: key.clone(), change };
    let expected = [
        event(first, Change::Put { value: "one".into(), previous: None }),
        event(second, Change::Put { value: "two".into(), previous: Some(one) }),
        event(third, Change::Delete { previous: two }),
    ];
    assert_eq!(take(&mut feed, 3).await, expected);
}

pub(crate) async fn feeds_are_independent_and_their_progress_covers_what_they_told(subject: Subject) {
    let mut early = subject.store.watch(Revision::FIRST).await.unwrap();
    let first = subject.create(&pod("a", "a"), "x").await;
    let mut late = subject.store.watch(first).await.unwrap();
    let second = subject.create(&pod("a", "b"), "x").await;
    assert_eq!(take(&mut late, 1).await.first().map(|event| event.revision), Some(second));
    let told: Vec<_> = take(&mut early, 2).await.iter().map(|event| event.revision).collect();
    assert_eq!(told, [first, second]);
    assert!(tokio::time::timeout(Duration::from_millis(20), take(&mut early, 1)).await.is_err());
    let third = subject.create(&pod("a", "c"), "x").await;
    assert_eq!(take(&mut early, 1).await.first().map(|event| event.revision), Some(third));
}

pub(crate) async fn a_feed_from_too_long_ago_is_expired(subject: Subject) {
    // One byte more than the tail that is kept for feeds about to begin, in five values.
    let value: &'static str = Box::leak("x".repeat(210_000).into_boxed_str());
    for n in 0..6 {
        subject.create(&pod("a", &format!("p{n}")), value).await;
    }
    subject.forget().await;
    let error = subject.store.watch(Revision::FIRST).await.unwrap_err();
    let Error::Expired { requested: Revision(1), oldest, current: Revision(7) } = error else { panic!("{error:?}") };
    let mut feed = subject.store.watch(oldest).await.unwrap();
    subject.create(&pod("a", "after"), "x").await;
    assert_eq!(take(&mut feed, 1).await.first().map(|event| event.revision), Some(oldest.next()));
}

pub(crate) async fn a_feed_delivers_all_and_then_ends_when_the_store_is_closed(subject: Subject) {
    let mut feed = subject.store.watch(Revision::FIRST).await.unwrap();
    let revision = subject.create(&pod("a", "a"), "x").await;
    subject.store.close().await;
    assert_eq!(take(&mut feed, 1).await.first().map(|event| event.revision), Some(revision));
    assert_eq!(feed.next().await, Err(Error::Closed));
}

pub(crate) async fn events_appear_no_later_than_their_acknowledgement(subject: Subject) {
    let mut feed = subject.store.watch(Revision::FIRST).await.unwrap();
    for n in 0..50 {
        let revision = subject.create(&pod("a", &format!("p{n}")), "x").await;
        assert_eq!(subject.revision().await, revision);
        let batch = futures::FutureExt::now_or_never(feed.next()).expect("it is there already").unwrap();
        assert_eq!(batch.revision, revision);
    }
}
