//! Asks the primary that this member follows how far it is, once a second, beside everything else: neither a primary that is slow nor one
//! that is away may keep the looks at the own Redis. I/O; what follows from the answers is decided in [`crate::promotion`].

use std::{net::SocketAddr, sync::Arc, time::Duration};

use resp::{Connection, NodeId};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use types::names::PORT_REDIS;

use crate::{promotion::Word, replication::Seen, shared::Shared};

/// How often it is asked.
const EVERY: Duration = Duration::from_millis(1000);
/// Words that wait to be taken in: of more than one look nobody needs them.
pub const WAITING_MOST: usize = 4;

/// Runs until dropped. The connection stays open: the agent at the other end proves who it is only when it is made.
pub async fn ask(shared: &Arc<Shared>, mut seen: watch::Receiver<Seen>, words: mpsc::Sender<Word>) {
    let mut open: Option<(NodeId, SocketAddr, Connection)> = None;
    loop {
        let followed = seen.borrow_and_update().followed();
        let Some((id, ip)) = followed else {
            open = None;
            if seen.changed().await.is_err() {
                return;
            }
            continue;
        };
        let address = SocketAddr::new(ip, PORT_REDIS);
        if open.as_ref().is_none_or(|(of, at, redis)| *of != id || *at != address || redis.is_broken()) {
            open = shared.asker().open(&id, address).await.ok().map(|redis| (id.clone(), address, redis));
        }
        if let Some((of, _, redis)) = &mut open {
            match word(of, redis).await {
                // Where nobody takes them in, the own Redis does not answer: later ones say more.
                Some(word) => drop(words.try_send(word)),
                None => open = None,
            }
        }
        sleep(EVERY).await;
    }
}

/// `None`: it does not answer, or is no primary any more.
async fn word(of: &NodeId, redis: &mut Connection) -> Option<Word> {
    let asked = Instant::now().into_std();
    let info = redis.info(&["replication"]).await.ok()?;
    let offset = info.number("master_repl_offset").and_then(|offset| u64::try_from(offset).ok())?;
    let stream = info.get("master_replid").filter(|_| info.get("role") == Some("master"))?.to_owned();
    Some(Word { of: of.clone(), stream, offset, asked })
}
