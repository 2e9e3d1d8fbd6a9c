//! Checks of writing: compare-and-set, revisions, limits.

use std::sync::Arc;

use bytes::Bytes;

use super::{Subject, pod};
use crate::{Error, Refusal, Revision, Stored, VALUE_LIMIT, Write};

pub(crate) async fn a_new_store_is_empty_and_at_revision_one(subject: Subject) {
    assert_eq!((subject.revision().await, subject.read(&pod("a", "a")).await), (Revision(1), None));
}

pub(crate) async fn what_was_created_is_read_back_with_its_revision(subject: Subject) {
    let key = pod("a", "a");
    let revision = subject.create(&key, "one").await;
    assert_eq!(revision, Revision(2));
    assert_eq!(subject.read(&key).await, Some((revision, "one".into())));
    assert_eq!(subject.read(&pod("a", "ab")).await, None);
}

pub(crate) async fn a_create_of_what_exists_is_refused_with_what_is_there(subject: Subject) {
    let key = pod("a", "a");
    let revision = subject.create(&key, "one").await;
    let current = Stored { revision, value: "one".into() };
    assert_eq!(subject.refused(Write::create(key.clone(), "two".into())).await, Refusal::Exists { current });
    assert_eq!(subject.read(&key).await, Some((revision, "one".into())));
}

pub(crate) async fn an_update_needs_the_revision_last_written(subject: Subject) {
    let key = pod("a", "a");
    assert_eq!(subject.refused(Write::update(key.clone(), Revision(1), "x".into())).await, Refusal::Absent);
    let first = subject.create(&key, "one").await;
    let second = subject.update(&key, first, "two").await;
    let current = Stored { revision: second, value: "two".into() };
    for expected in [first, Revision(0), second.next()] {
        let refusal = subject.refused(Write::update(key.clone(), expected, "x".into())).await;
        assert_eq!(refusal, Refusal::Conflict { current: current.clone() });
    }
    assert_eq!(subject.read(&key).await, Some((second, "two".into())));
}

pub(crate) async fn a_delete_needs_the_revision_last_written_and_leaves_nothing(subject: Subject) {
    let key = pod("a", "a");
    assert_eq!(subject.refused(Write::delete(key.clone(), Revision(1))).await, Refusal::Absent);
    let first = subject.create(&key, "one").await;
    let refusal = subject.refused(Write::delete(key.clone(), first.next())).await;
    assert_eq!(refusal, Refusal::Conflict { current: Stored { revision: first, value: "one".into() } });
    let gone = subject.delete(&key, first).await;
    assert_eq!((gone, subject.read(&key).await), (first.next(), None));
    assert_eq!(subject.refused(Write::delete(key.clone(), gone)).await, Refusal::Absent);
    assert_eq!(subject.create(&key, "again").await, gone.next());
}

pub(crate) async fn every_write_takes_the_next_revision_and_no_refusal_takes_any(subject: Subject) {
    let mut last = subject.revision().await;
    for n in 0..10 {
        let key = pod("a", &format!("p{n}"));
        let revision = subject.create(&key, "one").await;
        assert_eq!(revision, last.next());
        subject.refused(Write::create(key, "two".into())).await;
        last = subject.revision().await;
        assert_eq!(last, revision);
    }
}

pub(crate) async fn values_are_bytes_of_any_size_up_to_the_limit(subject: Subject) {
    let values = [Bytes::new(), Bytes::from_static(b"\0\xff\n"), Bytes::from(vec![7; VALUE_LIMIT])];
    for (n, value) in values.into_iter().enumerate() {
        let key = pod("a", &format!("p{n}"));
        let revision = subject.store.write(Write::create(key.clone(), value.clone())).await.unwrap().revision;
        assert_eq!(subject.read(&key).await, Some((revision, value)));
    }
    let (key, value) = (pod("a", "big"), Bytes::from(vec![7; VALUE_LIMIT + 1]));
    let refused = subject.store.write(Write::create(key.clone(), value)).await;
    assert_eq!(refused, Err(Error::TooLarge { size: VALUE_LIMIT + 1, limit: VALUE_LIMIT }));
    assert_eq!(subject.read(&key).await, None);
}

pub(crate) async fn of_many_creates_of_one_key_exactly_one_wins(subject: Subject) {
    let subject = Arc::new(subject);
    let tasks: Vec<_> = (0..32_u8)
        .map(|n| {
            let subject = Arc::clone(&subject);
            tokio::spawn(async move {
                let won = subject.store.write(Write::create(pod("a", "a"), vec![n].into())).await;
                won.ok().map(|written| (written.revision, Bytes::from(vec![n])))
            })
        })
        .collect();
    let mut winners = Vec::new();
    for task in tasks {
        winners.extend(task.await.unwrap());
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(subject.read(&pod("a", "a")).await.as_ref(), winners.first());
}

pub(crate) async fn no_increment_is_lost_among_many_writers(subject: Subject) {
    const WRITERS: u64 = 16;
    const INCREMENTS: u64 = 20;
    let subject = Arc::new(subject);
    subject.create(&pod("a", "counter"), "0").await;
    let writer = |subject: Arc<Subject>| async move {
        let key = pod("a", "counter");
        let mut seen = subject.store.get(&key).await.unwrap().unwrap();
        for _ in 0..INCREMENTS {
            loop {
                let count: u64 = std::str::from_utf8(&seen.value).unwrap().parse().unwrap();
                let value = Bytes::from((count + 1).to_string());
                match subject.store.write(Write::update(key.clone(), seen.revision, value.clone())).await {
                    Ok(written) => {
                        seen = Stored { revision: written.revision, value };
                        break;
                    }
                    Err(Error::Refused(Refusal::Conflict { current })) => seen = current,
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    };
    let tasks: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(writer(Arc::clone(&subject)))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (revision, value) = subject.read(&pod("a", "counter")).await.unwrap();
    assert_eq!((revision, value), (Revision(2 + WRITERS * INCREMENTS), (WRITERS * INCREMENTS).to_string().into()));
}

pub(crate) async fn a_closed_store_refuses_everything(subject: Subject) {
    let key = pod("a", "a");
    subject.create(&key, "one").await;
    subject.store.close().await;
    assert_eq!(subject.store.write(Write::create(pod("a", "b"), "x".into())).await, Err(Error::Closed));
    assert_eq!(subject.store.get(&key).await, Err(Error::Closed));
    subject.store.close().await;
}
