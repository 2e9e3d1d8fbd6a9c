//! What every back end must do, as tests any of them can run: `conformance!(subject)` in a test module becomes one test
//! per check. A check knows the store only through its trait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod feeds;
mod random;
mod reads;
mod writes;

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tempfile::TempDir;

pub(crate) use feeds::*;
pub(crate) use random::*;
pub(crate) use reads::*;
pub(crate) use writes::*;

use crate::pins::PIN_AGE;
use crate::{Clock, Error, Key, Revision, Store, Write};

/// What makes a store: the clock it ages by in, the store and the directory it lives in out.
type Make = dyn Fn(Clock) -> (Arc<dyn Store>, Option<TempDir>);

/// Makes a store forget the past.
type Forget = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// A store under test, and the clock it ages by.
pub(crate) struct Subject {
    pub(crate) store: Arc<dyn Store>,
    now: Arc<Mutex<Duration>>,
    /// For a store that does not age by the clock.
    forget: Option<Box<Forget>>,
    /// What ends when the test ends: a directory, a process.
    _held: Box<dyn Any + Send + Sync>,
}

impl Subject {
    pub(crate) fn new(make: impl Fn(Clock) -> (Arc<dyn Store>, Option<TempDir>) + 'static) -> Subject {
        Subject::make(&make)
    }

    fn make(make: &Make) -> Subject {
        let now = Arc::new(Mutex::new(Duration::ZERO));
        let read = Arc::clone(&now);
        let (store, directory) = make(Clock::from_fn(move || *read.lock().unwrap()));
        Subject { store, now, forget: None, _held: Box::new(directory) }
    }

    /// A store in another process, which forgets when it is told to.
    pub(crate) fn over(
        store: Arc<dyn Store>,
        held: impl Any + Send + Sync,
        forget: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Subject {
        Subject { store, now: Arc::default(), forget: Some(Box::new(forget)), _held: Box::new(held) }
    }

    fn advance(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    /// Makes the store forget as much as it may.
    async fn forget(&self) {
        match &self.forget {
            Some(forget) => forget().await,
            None => self.advance(PIN_AGE + Duration::from_millis(1)),
        }
    }

    async fn create(&self, key: &Key, value: &'static str) -> Revision {
        self.store.write(Write::create(key.clone(), value.into())).await.unwrap().revision
    }

    async fn update(&self, key: &Key, expected: Revision, value: &'static str) -> Revision {
        self.store.write(Write::update(key.clone(), expected, value.into())).await.unwrap().revision
    }

    async fn delete(&self, key: &Key, expected: Revision) -> Revision {
        self.store.write(Write::delete(key.clone(), expected)).await.unwrap().revision
    }

    async fn read(&self, key: &Key) -> Option<(Revision, Bytes)> {
        self.store.get(key).await.unwrap().map(|stored| (stored.revision, stored.value))
    }

    async fn revision(&self) -> Revision {
        self.store.current_revision().await.unwrap()
    }

    async fn refused(&self, write: Write) -> crate::Refusal {
        match self.store.write(write).await {
            Err(Error::Refused(refusal)) => refusal,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
}

fn pod(namespace: &str, name: &str) -> Key {
    Key::new("pods", Some(namespace), name).unwrap()
}

macro_rules! checks {
    ($subject:expr; $($name:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::conformance::$name($subject).await;
            }
        )+
    };
}

macro_rules! conformance {
    ($subject:expr) => {
        crate::conformance::checks! { $subject;
            a_new_store_is_empty_and_at_revision_one,
            what_was_created_is_read_back_with_its_revision,
            a_create_of_what_exists_is_refused_with_what_is_there,
            an_update_needs_the_revision_last_written,
            a_delete_needs_the_revision_last_written_and_leaves_nothing,
            every_write_takes_the_next_revision_and_no_refusal_takes_any,
            values_are_bytes_of_any_size_up_to_the_limit,
            of_many_creates_of_one_key_exactly_one_wins,
            no_increment_is_lost_among_many_writers,
            a_closed_store_refuses_everything,
            a_list_holds_its_range_in_order_and_nothing_else,
            pages_are_one_snapshot_whatever_is_written_meanwhile,
            a_snapshot_nobody_pages_through_expires,
            the_future_cannot_be_listed,
            a_feed_tells_every_event_after_its_start_once_and_in_order,
            an_event_carries_what_it_replaced,
            feeds_are_independent_and_their_progress_covers_what_they_told,
            a_feed_from_too_long_ago_is_expired,
            a_feed_delivers_all_and_then_ends_when_the_store_is_closed,
            random_histories_match_a_model,
        }
    };
}

/// What only a store in this process promises besides.
macro_rules! local_conformance {
    ($subject:expr) => {
        crate::conformance::conformance!($subject);
        crate::conformance::checks! { $subject; events_appear_no_later_than_their_acknowledgement, }
    };
}

pub(crate) use checks;
pub(crate) use conformance;
pub(crate) use local_conformance;
