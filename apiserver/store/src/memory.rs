//! A store in memory, for tests. It forgets everything when dropped and otherwise behaves as a durable one does.

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::BoxFuture;
use imbl::OrdMap;

use crate::decide::decide;
use crate::feed::{Feed, Log};
use crate::lock::lock;
use crate::pins::Pins;
use crate::{Change, Clock, Error, Event, Key, ListOptions, Page, Revision, Store, Stored, Write, Written, check_size};

type Objects = OrdMap<Key, Stored>;

/// The store in memory.
#[derive(Debug)]
pub struct Memory {
    state: Mutex<State>,
    log: Arc<Log>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects,
    pins: Pins<Objects>,
    closed: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new(Clock::system())
    }
}

impl Memory {
    /// An empty store whose paging snapshots age by `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Memory {
        Memory { state: Mutex::default(), log: Log::new(Revision::FIRST), clock }
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = lock(&self.state);
        if state.closed { Err(Error::Closed) } else { Ok(state) }
    }

    fn write_now(&self, write: &Write) -> Result<Written, Error> {
        check_size(write)?;
        let mut state = self.open()?;
        let change = decide(write, state.objects.get(&write.key).cloned())?;
        let revision = self.log.revision().next();
        match &change {
            Change::Put { value, .. } => {
                state.objects.insert(write.key.clone(), Stored { revision, value: value.clone() });
            }
            Change::Delete { .. } => {
                state.objects.remove(&write.key);
            }
        }
        self.log.publish(vec![Event { revision, key: write.key.clone(), change }]);
        Ok(Written { revision })
    }

    fn list_now(&self, options: &ListOptions) -> Result<Page, Error> {
        let mut state = self.open()?;
        let current = self.log.revision();
        let revision = options.at.unwrap_or(current);
        let now = self.clock.now();
        if revision > current {
            return Err(Error::Future { requested: revision, current });
        }
        let objects = if revision == current { Some(state.objects.clone()) } else { state.pins.get(revision, now) };
        let oldest = state.pins.oldest().unwrap_or(current);
        let objects = objects.ok_or(Error::Expired { requested: revision, oldest, current })?;
        let (items, next) = page(&objects, options);
        if next.is_some() {
            state.pins.pin(revision, objects, now);
        }
        Ok(Page { items, revision, next })
    }
}

fn page(objects: &Objects, options: &ListOptions) -> (Vec<(Key, Stored)>, Option<Key>) {
    let (from, to) = options.range.bounds();
    let after = options.after.as_ref().map(Key::text).filter(|after| *after >= from.as_str());
    let start = after.map_or(Bound::Included(from.as_str()), Bound::Excluded);
    if after.is_some_and(|after| after >= to.as_str()) {
        return (Vec::new(), None);
    }
    let mut rest = objects.range::<_, str>((start, Bound::Excluded(to.as_str())));
    let limit = options.limit.unwrap_or(usize::MAX).max(1);
    let items: Vec<_> = rest.by_ref().take(limit).map(|(key, stored)| (key.clone(), stored.clone())).collect();
    let next = rest.next().and_then(|_| items.last().map(|(key, _)| key.clone()));
    (items, next)
}

impl Store for Memory {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        async move { Ok(self.open()?.objects.get(key).cloned()) }.boxed()
    }

    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<Page, Error>> {
        async move { self.list_now(&options) }.boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, Error>> {
        async move { self.write_now(&write) }.boxed()
    }

    fn watch(&self, from: Revision) -> BoxFuture<'_, Result<Feed, Error>> {
        async move { self.log.feed(from) }.boxed()
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        async move { Ok(self.log.revision()) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            lock(&self.state).closed = true;
            self.log.close();
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Memory;
    use crate::conformance::{Subject, local_conformance};

    local_conformance!(Subject::new(|clock| (Arc::new(Memory::new(clock)), None)));
}
