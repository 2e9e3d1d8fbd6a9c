//! Asks the primary that this member follows how far it is, once a second, beside everything else: neither a primary that is slow nor one
//! that is away may keep the looks at the own Redis. I/O; what follows from the answers is decided in [`crate::promotion`].

use std::{net::SocketAddr, sync::Arc, time::Duration};

use resp::{Connection, NodeId};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};
use types::names::PORT_REDIS;

use crate::{promotion::Word, replication::Seen, shared::Shared};

/// How often it is asked.
const EVERY: Duration = Duration::from_millis(1000);
/// How long an answer may take, on a connection that is there: what it says was so after the question, and to make another connection takes
/// longer while the primary stands still.
const ANSWER: Duration = Duration::from_secs(15);

/// Keeps asking whom the looks show as followed, and tells the last word, and when no more words come. Runs until dropped.
pub async fn ask(
    shared: &Arc<Shared>,
    mut seen: watch::Receiver<Seen>,
    words: watch::Sender<Option<Word>>,
    lost: &Notify,
) {
    loop {
        let followed = seen.borrow_and_update().followed();
        let asks = async {
            match &followed {
                Some((id, ip)) => keep_asking(shared, id, SocketAddr::new(*ip, PORT_REDIS), &words, lost).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = asks => {}
            changed = seen.wait_for(|seen| seen.followed() != followed) => if changed.is_err() { return },
        }
    }
}

/// The connection stays open: the agent at the other end proves who it is only when it is made. Never ends.
async fn keep_asking(
    shared: &Arc<Shared>,
    id: &NodeId,
    address: SocketAddr,
    words: &watch::Sender<Option<Word>>,
    lost: &Notify,
) {
    let mut open: Option<Connection> = None;
    loop {
        if open.as_ref().is_none_or(Connection::is_broken) {
            open = shared.asker().open(id, address).await.ok();
            open.iter_mut().for_each(|redis| redis.set_deadline(ANSWER));
        }
        if let Some(redis) = &mut open {
            match word(id, redis).await {
                Some(word) => drop(words.send_replace(Some(word))),
                None if redis.is_broken() => lost.notify_one(),
                None => {}
            }
        }
        sleep(EVERY).await;
    }
}

/// `None`: it does not answer, not now (a script runs), or is no primary any more.
async fn word(of: &NodeId, redis: &mut Connection) -> Option<Word> {
    let asked = Instant::now().into_std();
    let info = redis.info(&["replication"]).await.ok()?;
    let offset = info.number("master_repl_offset").and_then(|offset| u64::try_from(offset).ok())?;
    let stream = info.get("master_replid").filter(|_| info.get("role") == Some("master"))?.to_owned();
    Some(Word { of: of.clone(), stream, offset, asked })
}
