//! The commit thread: the one writer of the file.
//!
//! Order of things, on which every promise rests: decide on each write of a batch in the order they came → commit with
//! fsync → publish the events → acknowledge. Nobody hears of anything, refusals included, before it is durable.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use futures::future::{BoxFuture, FutureExt};
use redb::{Database, Durability};
use tokio::sync::oneshot;

use super::file::{META, OBJECTS, REVISION, current};
use crate::decide::decide;
use crate::failpoint::{Point, reach};
use crate::feed::Log;
use crate::lock::lock;
use crate::{Change, Error, Event, Refusal, Revision, Write, Written};

/// How many writes may wait for the thread. The API server lets 200 mutating requests in at once, and its own parts add
/// some; more than this means that the disk stands still, and waiting longer helps nobody.
pub(super) const QUEUE_LIMIT: usize = 4096;

/// How many writes one commit takes. Beyond this the fsync is no longer what costs.
const BATCH_WRITES: usize = 256;

/// How many bytes of values one commit takes, so that large objects do not make one commit take seconds.
const BATCH_BYTES: usize = 8 << 20;

/// A write that waits, and who waits for it.
struct Job {
    write: Write,
    reply: oneshot::Sender<Result<Written, Error>>,
}

/// The way into the thread.
#[derive(Debug)]
pub(super) struct Queue(Mutex<Option<SyncSender<Job>>>);

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({})", self.write.key)
    }
}

impl Queue {
    /// Queues a write at once; what is returned waits for its outcome. Dropping that does not take the write back.
    pub(super) fn push(&self, write: Write) -> Result<BoxFuture<'static, Result<Written, Error>>, Error> {
        let (reply, outcome) = oneshot::channel();
        let queue = lock(&self.0);
        match queue.as_ref().ok_or(Error::Closed)?.try_send(Job { write, reply }) {
            Ok(()) => Ok(outcome.map(|outcome| outcome.unwrap_or_else(|_| Err(gone()))).boxed()),
            Err(TrySendError::Full(_)) => Err(Error::Busy { limit: QUEUE_LIMIT }),
            Err(TrySendError::Disconnected(_)) => Err(gone()),
        }
    }

    /// Lets nothing more in. The thread ends when it has done what is queued.
    pub(super) fn close(&self) {
        *lock(&self.0) = None;
    }
}

fn gone() -> Error {
    Error::Poisoned { reason: "the commit thread has ended unexpectedly".to_owned() }
}

/// Why the first commit failed that did; never taken back.
pub(super) type Poison = Arc<OnceLock<String>>;

/// Starts the thread.
pub(super) fn start(database: Arc<Database>, log: Arc<Log>, poison: Poison) -> io::Result<(Queue, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel(QUEUE_LIMIT);
    let committer = Committer { database, log, jobs, poison };
    let thread = thread::Builder::new().name("store-commit".to_owned()).spawn(move || committer.run())?;
    Ok((Queue(Mutex::new(Some(sender))), thread))
}

struct Committer {
    database: Arc<Database>,
    log: Arc<Log>,
    jobs: Receiver<Job>,
    poison: Poison,
}

/// What a batch did, not yet committed or just committed.
struct Outcome {
    events: Vec<Event>,
    results: Vec<Result<Written, Refusal>>,
}

impl Committer {
    fn run(self) {
        while let Ok(first) = self.jobs.recv() {
            let batch = self.gather(first);
            self.settle(batch);
        }
    }

    /// The first job and those that wait behind it, up to the limits.
    fn gather(&self, first: Job) -> Vec<Job> {
        let size = |job: &Job| job.write.value().map_or(0, bytes::Bytes::len);
        let mut bytes = size(&first);
        let mut batch = vec![first];
        while batch.len() < BATCH_WRITES && bytes < BATCH_BYTES {
            let Ok(job) = self.jobs.try_recv() else { break };
            bytes += size(&job);
            batch.push(job);
        }
        batch
    }

    fn settle(&self, batch: Vec<Job>) {
        if self.poison.get().is_none() {
            match self.commit(&batch) {
                Ok(outcome) => return self.acknowledge(batch, outcome),
                Err(error) => {
                    tracing::error!(%error, "a commit failed; the store refuses all writes until it is restarted");
                    self.poison.get_or_init(|| error.to_string());
                    self.log.wake();
                }
            }
        }
        let reason = self.poison.get().cloned().unwrap_or_default();
        for job in batch {
            reply(job, Err(Error::Poisoned { reason: reason.clone() }));
        }
    }

    fn acknowledge(&self, batch: Vec<Job>, outcome: Outcome) {
        reach(Point::BeforeNotice);
        self.log.publish(outcome.events);
        reach(Point::BeforeAcknowledgement);
        for (job, result) in batch.into_iter().zip(outcome.results) {
            reply(job, result.map_err(Error::Refused));
        }
        reach(Point::AfterAcknowledgement);
    }

    /// Does a batch in one transaction. On return it is durable.
    fn commit(&self, batch: &[Job]) -> Result<Outcome, redb::Error> {
        reach(Point::BeforeTransaction);
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let outcome = apply(&transaction, batch, self.log.revision())?;
        if outcome.events.is_empty() {
            transaction.abort()?;
        } else {
            transaction.commit()?;
        }
        Ok(outcome)
    }
}

/// Decides on every write in turn and puts what it changes into the transaction.
fn apply(transaction: &redb::WriteTransaction, batch: &[Job], start: Revision) -> Result<Outcome, redb::Error> {
    let mut outcome = Outcome { events: Vec::new(), results: Vec::with_capacity(batch.len()) };
    let mut revision = start;
    let mut objects = transaction.open_table(OBJECTS)?;
    for Job { write, reply: _ } in batch {
        match decide(write, current(&objects, &write.key)?) {
            Err(refusal) => outcome.results.push(Err(refusal)),
            Ok(change) => {
                revision = revision.next();
                let key = write.key.text().as_bytes();
                match &change {
                    Change::Put { value, .. } => drop(objects.insert(key, (revision.0, value.as_ref()))?),
                    Change::Delete { .. } => drop(objects.remove(key)?),
                }
                outcome.events.push(Event { revision, key: write.key.clone(), change });
                outcome.results.push(Ok(Written { revision }));
            }
        }
    }
    if revision > start {
        transaction.open_table(META)?.insert(REVISION, revision.0)?;
    }
    Ok(outcome)
}

fn reply(job: Job, result: Result<Written, Error>) {
    // Whoever asked may have gone away; the write stands all the same.
    let _ = job.reply.send(result);
}
