//! How far the replicas of both ends are. What moves had been replicated for long: at the target it is in one memory only until that
//! one's replicas have it, and the source's replicas still have it until they have heard that it is gone. A primary that dies meanwhile
//! is replaced by a replica that lacks these keys, or has them once more, to be put over newer ones later. So a move goes on only as
//! fast as the replicas of both ends do.
//!
//! What a replica has is what it has acknowledged, in its primary's own words (INFO). It acknowledges once a second, and at once when its
//! primary asks it to, which that does for a client that waits (WAIT). What WAIT answers says nothing of a move: it is about what that
//! very connection has written, MIGRATE writes to the target over another one, and from Redis 7.2 on, and in Valkey, whoever has written nothing is
//! answered at once. So it is asked for more replicas than there are, which makes the primary ask them all, and how far
//! they are is then looked up.
//!
//! Replicas that are linked (`online`) are waited for, also one that has acknowledged nothing so far: it may have been linked a moment ago,
//! and be elected a moment later. One that is still sent its first copy is not in sync, and takes nobody's place.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use resp::{Command, Connection, Info};

use super::keys::deadline;
use super::{End, Error, Move};
use crate::redis::{Access, Error as RedisError};

/// More replicas than any primary has.
const MORE_THAN_ANY: &str = "10000";
/// How long WAIT waits for them, in milliseconds: it is over before they are looked at.
const WAITS: &str = "1";
/// When to look how far they are, and how often at last. Redis ends a WAIT only when something happens, or ten times a second, and its
/// millisecond is over in the second one after it began: the look that comes then is what happens.
pub(super) const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// A replica that does not follow for so long holds the move, and the status says so. Twice the time in which it acknowledges by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// A replica that holds a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Its primary, an end of the move.
    pub primary: SocketAddr,
    /// Where it is, in its primary's words.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What it has not acknowledged; `None`: it has acknowledged nothing since it was linked.
    pub bytes: Option<u64>,
}

/// The replicas of both ends.
pub(super) struct Replicas {
    source: Watch,
    target: Watch,
}

impl Replicas {
    pub(super) async fn open(order: Move<'_>, access: &Access) -> Result<Self, RedisError> {
        let (source, target) =
            tokio::try_join!(Watch::open(order.from, order, access), Watch::open(order.to, order, access))?;
        Ok(Self { source, target })
    }

    /// Waits until they have all that has been written until now; gives who has not when patience ends.
    pub(super) async fn follow(&mut self) -> Result<Option<Behind>, Error> {
        let (source, target) = tokio::try_join!(self.source.follow(), self.target.follow())?;
        Ok(target.or(source))
    }
}

/// Two connections to a primary: while one waits, the other looks.
struct Watch {
    asks: Connection,
    looks: Connection,
    /// It had a replica when it was last looked at.
    linked: bool,
}

impl Watch {
    async fn open(end: End, order: Move<'_>, access: &Access) -> Result<Self, RedisError> {
        let open = || access.open_node(end.address, end.id);
        let (mut asks, mut looks) = tokio::try_join!(open(), open())?;
        asks.set_deadline(deadline(order.node_timeout));
        looks.set_deadline(deadline(order.node_timeout));
        Ok(Self { asks, looks, linked: true })
    }

    async fn follow(&mut self) -> Result<Option<Behind>, Error> {
        if !self.linked {
            self.linked = !standing(&info(&mut self.looks).await?, self.looks.address())?.online.is_empty();
        }
        if !self.linked {
            return Ok(None);
        }
        let (begun, mut pause, mut wanted) = (Instant::now(), LOOK.0, None);
        loop {
            let (asked, seen) = tokio::try_join!(ask(&mut self.asks), look(&mut self.looks, pause))?;
            // What they acknowledge is what came before they were asked, so it is compared with that.
            let wanted = *wanted.get_or_insert(standing(&asked, self.asks.address())?.written);
            let seen = standing(&seen, self.looks.address())?;
            self.linked = !seen.online.is_empty();
            let Some(behind) = seen.behind(wanted, self.looks.address()) else { return Ok(None) };
            if begun.elapsed() > PATIENCE {
                return Ok(Some(behind));
            }
            pause = (pause * 2).min(LOOK.1);
        }
    }
}

/// Whether one at least is linked to this primary.
pub(super) async fn has_replica(primary: &mut Connection) -> Result<bool, Error> {
    let info = info(primary).await?;
    Ok(!standing(&info, primary.address())?.online.is_empty())
}

/// How far the primary is, and all its replicas asked to acknowledge that.
async fn ask(asks: &mut Connection) -> Result<Info, Error> {
    let wait = Command::new("WAIT").arg(MORE_THAN_ANY).arg(WAITS);
    let replies = asks.pipeline(&[Command::new("INFO").arg("replication"), wait]).await.map_err(RedisError::from)?;
    Ok(Info::parse(replies.first().and_then(resp::Reply::text).unwrap_or_default()))
}

async fn look(looks: &mut Connection, after: Duration) -> Result<Info, Error> {
    tokio::time::sleep(after).await;
    info(looks).await
}

async fn info(looks: &mut Connection) -> Result<Info, Error> {
    Ok(looks.info(&["replication"]).await.map_err(RedisError::from)?)
}

/// What a primary says of itself and of its replicas.
struct Standing {
    written: i64,
    /// Those that are linked.
    online: Vec<resp::ReplicaLine>,
}

fn standing(info: &Info, address: SocketAddr) -> Result<Standing, Error> {
    let written = info.number("master_repl_offset").filter(|_| info.get("role") == Some("master"));
    let Some(written) = written else {
        return Err(Error::Precondition(format!("the node at {address} is not a primary any more")));
    };
    let online = info.replicas().into_iter().filter(|replica| replica.state == "online").collect();
    Ok(Standing { written, online })
}

impl Standing {
    /// Who is the furthest behind.
    fn behind(self, wanted: i64, primary: SocketAddr) -> Option<Behind> {
        let behind = self.online.into_iter().filter(|replica| replica.offset < wanted);
        behind.min_by_key(|replica| replica.offset).map(|replica| Behind {
            primary,
            host: replica.host,
            port: replica.port,
            bytes: (replica.offset > 0).then_some(wanted.abs_diff(replica.offset)),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Who holds a move that wants offset 500, and by how many bytes.
    fn holds(role: &str, replicas: &[&str]) -> Result<Option<(String, Option<u64>)>, String> {
        let lines = replicas.iter().zip(0..).map(|(line, n)| format!("slave{n}:port=6379,lag=0,{line}\r\n"));
        let lines: String = lines.collect();
        let count = replicas.len();
        let text = format!("role:{role}\r\nconnected_slaves:{count}\r\n{lines}master_repl_offset:537\r\n");
        let address = "10.0.0.1:6379".parse().unwrap();
        let standing = standing(&Info::parse(&text), address).map_err(|error| error.to_string())?;
        Ok(standing.behind(500, address).map(|behind| (behind.host, behind.bytes)))
    }

    #[test]
    fn every_linked_replica_that_lacks_something_holds_a_move() {
        let held = |host: &str, bytes| Ok(Some((host.to_owned(), bytes)));
        assert_eq!(holds("master", &[]), Ok(None));
        assert_eq!(holds("master", &["ip=a,state=online,offset=500", "ip=b,state=online,offset=537"]), Ok(None));
        assert_eq!(
            holds("master", &["ip=a,state=online,offset=499", "ip=b,state=online,offset=400"]),
            held("b", Some(100))
        );
        // It has been linked and has acknowledged nothing yet.
        assert_eq!(holds("master", &["ip=a,state=online,offset=499", "ip=b,state=online,offset=0"]), held("b", None));
        assert_eq!(holds("master", &["ip=a,state=wait_bgsave,offset=0", "ip=b,state=send_bulk,offset=0"]), Ok(None));
    }

    #[test]
    fn an_end_that_has_become_a_replica_ends_the_move() {
        let why = "not moved: the node at 10.0.0.1:6379 is not a primary any more";
        assert_eq!(holds("slave", &[]), Err(why.to_owned()));
    }
}
