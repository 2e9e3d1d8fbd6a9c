//! The exchanges of a move one after the other, each while the replicas acknowledge the one before it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::keys::{Ends, Round, Sent, Stream};
use super::replicas::Replicas;
use super::{Bucket, Error, HAND_OVER, Move, Moved, hand_over};
use crate::lease::Guard;
use crate::redis::Access;

/// A move returns after this time even if slots are left, so that the status shows progress and a changed limit or
/// pause is noticed; what is open is resumed by the next round.
const SLICE: Duration = Duration::from_secs(4);

/// A move under way.
pub(super) struct Flow {
    stream: Stream,
    replicas: Replicas,
    /// What replicas may lack of the last exchange; they have all of those before it.
    sent: Sent,
    /// Slots of which the last exchange took the last key.
    emptied: Vec<u16>,
    /// Slots that are whole at the target and its replicas.
    arrived: Vec<u16>,
    pub(super) moved: Moved,
}

impl Flow {
    /// The replicas lack nothing yet.
    pub(super) fn new(stream: Stream, replicas: Replicas, moved: Moved) -> Self {
        Self { stream, replicas, sent: Sent::default(), emptied: Vec::new(), arrived: Vec::new(), moved }
    }

    /// Moves keys and hands slots over until nothing is left, time is up or a replica holds it; gives what the target refused.
    pub(super) async fn run(
        &mut self,
        ends: &mut Ends,
        order: Move<'_>,
        access: &Access,
        guard: &Guard,
        bucket: &Mutex<Bucket>,
    ) -> Result<Option<Error>, Error> {
        let deadline = Instant::now() + SLICE;
        let refusal = loop {
            let round = match self.exchange(ends, order, guard, bucket).await {
                Ok(Some(round)) => round,
                Ok(None) => break None,
                Err(refusal @ Error::Migrate { .. }) => break Some(refusal),
                Err(error) => return Err(error),
            };
            self.sent = round.sent;
            self.emptied.extend_from_slice(&round.empty);
            self.moved.add(round);
            if self.moved.held.is_some() {
                break None;
            }
            if self.arrived.len() >= HAND_OVER {
                let arrived = std::mem::take(&mut self.arrived);
                hand_over(ends, order, access, guard, &arrived, &mut self.moved).await?;
            }
            if Instant::now() > deadline {
                self.stream.stop();
            }
        };
        // Of an exchange that was refused something may have been moved all the same.
        if self.moved.held.is_none() && (self.sent.keys > 0 || refusal.is_some()) {
            self.moved.held = self.replicas.follow().await?;
        }
        if self.moved.held.is_none() {
            self.arrived.append(&mut self.emptied);
        }
        hand_over(ends, order, access, guard, &self.arrived, &mut self.moved).await?;
        Ok(refusal)
    }

    /// The next exchange with the source, while the replicas acknowledge the last one.
    async fn exchange(
        &mut self,
        ends: &mut Ends,
        order: Move<'_>,
        guard: &Guard,
        bucket: &Mutex<Bucket>,
    ) -> Result<Option<Round>, Error> {
        if self.sent.keys == 0 {
            self.arrived.append(&mut self.emptied);
            return self.stream.round(ends, order, guard, bucket, self.sent).await;
        }
        // Neither is broken off: a connection whose answers nobody awaits is of no use any more.
        let (held, round) =
            tokio::join!(self.replicas.follow(), self.stream.round(ends, order, guard, bucket, self.sent));
        let round = round?;
        self.moved.held = held?;
        if self.moved.held.is_none() {
            self.arrived.append(&mut self.emptied);
        }
        Ok(round)
    }
}
