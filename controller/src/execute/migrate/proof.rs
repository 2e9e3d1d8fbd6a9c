//! What is asked right before keys are sent, of both ends, on the connections of this move.
//!
//! **Who gets the password.** MIGRATE … AUTH2 makes the source log in at an address with our password. Who is there was asked when the move
//! began (CLUSTER MYID), on a connection that is still the same: it is bound to that process, and ends with it. So the target says on it that
//! it is there before every exchange that carries keys, however long the move waited meanwhile (for the user's limit, for a replica, for us): an
//! address that a process has left, and another has taken, is sent nothing. What remains is the moment between its answer and the source's
//! connection.
//!
//! **What is replaced.** A copy at the target is older than the source's as long as no client was sent there for its key: while the slot is
//! marked at both ends, and owned by the source (`migrate`, 1 and 3). Both is asked for again right before REPLACE is sent, and what was asked
//! too long ago does not count: a source that has been silent for a node timeout may have been replaced, and its heir's keys may be at the
//! target by now. A source that is stopped after that, before it has read the command, is what remains (`late`).
//!
//! **What is still on its way.** The source gives MIGRATE up when the target does not answer in time, and closes its connection; what it had
//! sent may still lie in the network, or unread at the target, and is carried out whenever it gets there: with REPLACE over newer copies, without it in
//! place of what was deleted meanwhile. The target shows that connection until it has read its end. So nothing is sent again, and no move
//! begins, whoever has made the one before, while it shows one that the source does not use any more. (A connection that the target has not
//! accepted yet it does not show: only if the network lost its very first packets. And as a move begins, the source says only whether it keeps
//! any connection: one to another target, used less than ten seconds ago, counts for one to this one.)

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use plan::Open;
use resp::{Connection, Role};
use types::names::USER_OPERATOR;

use super::keys::Ends;
use super::{Error, Move, Table, table};
use crate::redis::{DEADLINE, Error as RedisError};

/// How often to look whether the target has read the end of a connection: that one alone is asked about.
const LOOK: Duration = Duration::from_millis(20);

/// The target is who it was, and a primary.
pub(super) async fn is_there(target: &mut Connection) -> Result<(), Error> {
    match target.role().await.map_err(RedisError::from)? {
        Role::Primary { .. } => Ok(()),
        Role::Replica { .. } => Err(Error::Precondition("the target is not a primary".to_owned())),
    }
}

/// The source has given up no connection that still brings something to the target, in whatever move that was.
pub(super) async fn nothing_is_left_on_its_way(ends: &mut Ends, order: Move<'_>) -> Result<(), Error> {
    // One that is only near may be what another source has used in a move before this one.
    all_have_ended(ends, true, |list| from_source(list, order.from.address.ip(), false)).await
}

/// No connection of the source's brings anything to the target but the one that this move uses, if it uses one.
pub(super) async fn nothing_is_on_its_way(ends: &mut Ends, order: Move<'_>, uses_one: bool) -> Result<(), Error> {
    all_have_ended(ends, uses_one, |list| from_source(list, order.from.address.ip(), true)).await
}

/// Waits a moment until the target shows none of these, or but the one that the source keeps.
async fn all_have_ended(ends: &mut Ends, but_one: bool, of: impl Fn(&str) -> Vec<String>) -> Result<(), Error> {
    let begun = Instant::now();
    let mut words: Vec<String> = ["CLIENT", "LIST", "TYPE", "normal"].map(str::to_owned).into();
    loop {
        let list = ends.target.call(&words).await.map_err(RedisError::from)?;
        let open = of(list.text().unwrap_or_default());
        if open.is_empty() || (but_one && open.len() == 1 && keeps_one(&mut ends.source).await?) {
            return Ok(());
        }
        if begun.elapsed() > DEADLINE {
            let why = "a connection over which the source has sent keys before is still open at the target";
            return Err(Error::Precondition(why.to_owned()));
        }
        // The source opens no other one meanwhile, and a list of all takes long where there are many clients.
        words.truncate(2);
        words.push("ID".to_owned());
        words.extend(open);
        tokio::time::sleep(LOOK).await;
    }
}

/// The source keeps a connection over which it has sent keys. To be asked after the target has shown what is open: the source ends one that
/// it has not used for ten seconds, and one that it has given up would be taken for that one.
async fn keeps_one(source: &mut Connection) -> Result<bool, Error> {
    let info = source.info(&["stats"]).await.map_err(RedisError::from)?;
    Ok(info.number("migrate_cached_sockets").is_some_and(|kept| kept > 0))
}

/// The connections of MIGRATE from there that are open, by CLIENT LIST. One that has not logged in yet counts. Redis binds them to no address of
/// its own (`bind-source-addr`), so where all are on one machine what they did last tells them: those are the near ones. Pure.
fn from_source(list: &str, source: IpAddr, or_near: bool) -> Vec<String> {
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| Some(field.split_once('=').filter(|(key, _)| *key == name)?.1.to_owned()))
    };
    let is_there = |line: &&str| {
        let from = field(line, "addr").and_then(|at| at.parse::<SocketAddr>().ok()).map(|at| at.ip());
        let (command, user) = (field(line, "cmd").unwrap_or_default(), field(line, "user").unwrap_or_default());
        let is_ours = user == USER_OPERATOR;
        match from {
            Some(ip) if ip == source => is_ours || command == "NULL",
            Some(ip) => or_near && ip.is_loopback() && is_ours && command == "restore-asking",
            None => false,
        }
    };
    list.lines().filter(is_there).filter_map(|line| field(line, "id")).collect()
}

/// These slots are half moved from the one end to the other, as both ends say now.
pub(super) async fn are_half_moved(ends: &mut Ends, order: Move<'_>, slots: &[u16]) -> Result<(), Error> {
    let begun = Instant::now();
    let source = table(&mut ends.source, order.to.id).await?;
    let target = table(&mut ends.target, order.from.id).await?;
    half_moved(order, [&source, &target], slots)?;
    if is_young(begun.elapsed(), order.node_timeout) {
        return Ok(());
    }
    Err(Error::Precondition("the ends took too long to say that the slots are still half moved".to_owned()))
}

/// Whether what the source said then is still true of it: nobody is elected in its place within the node timeout. Pure.
pub(super) fn is_young(age: Duration, node_timeout: Duration) -> bool {
    age < node_timeout / 2
}

fn half_moved(order: Move<'_>, [source, target]: [&Table; 2], slots: &[u16]) -> Result<(), Error> {
    let is_half_moved = |slot: &u16| {
        source.mine.contains(*slot)
            && source.open.get(slot) == Some(&Open::Migrating(order.to.id))
            && !target.mine.contains(*slot)
            && target.open.get(slot) == Some(&Open::Importing(order.from.id))
    };
    match slots.iter().find(|slot| !is_half_moved(slot)) {
        None => Ok(()),
        Some(slot) => {
            Err(Error::Precondition(format!("slot {slot} is not on its way any more: no copy of its keys is replaced")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{BTreeMap, BTreeSet};

    use plan::SlotSet;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use types::engine::Engine;

    use super::*;
    use crate::execute::migrate::End;
    use crate::redis::Abreast;
    use crate::resolve::Moving;
    use crate::testing::id;

    #[test]
    fn a_connection_of_the_sources_is_known_by_its_address_and_its_user() {
        let line = |id: u8, addr: &str, cmd: &str, user: &str| {
            format!(
                "id={id} addr={addr} laddr=10.0.1.0:6379 fd=9 name= age=1 idle=0 flags=N db=0 cmd={cmd} user={user} redir=-1\n"
            )
        };
        let source = "10.0.0.0".parse().unwrap();
        let others = [
            line(1, "10.0.0.1:40001", "restore-asking", USER_OPERATOR),
            line(2, "10.0.0.0:40003", "cluster|nodes", "kun-agent"),
            line(3, "10.0.0.0:40004", "get", "default"),
            line(4, "127.0.0.1:40005", "role", USER_OPERATOR),
            line(5, "127.0.0.1:40006", "NULL", "default"),
            line(6, "/var/run/redis.sock:0", "NULL", USER_OPERATOR),
        ];
        let migrate = line(7, "10.0.0.0:40001", "restore-asking", USER_OPERATOR);
        let arrives = line(8, "10.0.0.0:40002", "NULL", "default");
        let nearby = line(9, "127.0.0.1:40007", "restore-asking", USER_OPERATOR);
        let all = [&others[..], &[migrate, arrives, nearby]].concat();
        let open = [false, true].map(|or_near| from_source(&all.concat(), source, or_near));
        assert_eq!(open, [vec!["7", "8"], vec!["7", "8", "9"]]);
    }

    /// A connection to a server that gives these answers one after the other.
    async fn answering(answers: &'static [&'static str]) -> Connection {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 1 << 10];
            for answer in answers {
                if client.read(&mut asked).await.unwrap() == 0 {
                    return;
                }
                client.write_all(format!("${}\r\n{answer}\r\n", answer.len()).as_bytes()).await.unwrap();
            }
        });
        Connection::open(&resp::Options::new(address).deadline(hung::answer())).await.unwrap()
    }

    /// What is still open at the target when a move may begin, or why it may not.
    async fn left_open(lists: &'static [&'static str], kept: &'static [&'static str]) -> Result<String, String> {
        let mut ends = Ends {
            source: answering(kept).await,
            target: answering(lists).await,
            to: "10.0.0.1:6379".parse().unwrap(),
            more_source: Abreast::default(),
            more_target: Abreast::default(),
        };
        let last = std::cell::RefCell::new(String::new());
        let of = |list: &str| -> Vec<String> {
            list.clone_into(&mut last.borrow_mut());
            list.split_whitespace().map(str::to_owned).collect()
        };
        all_have_ended(&mut ends, true, of).await.map_err(|why| why.to_string())?;
        Ok(last.into_inner())
    }

    /// Before, the source was asked first: what it closed meanwhile no longer stood beside the one that it had given up.
    #[tokio::test]
    async fn one_is_counted_on_only_while_the_source_still_keeps_it() {
        const KEEPS: &str = "migrate_cached_sockets:1";
        const KEEPS_NONE: &str = "migrate_cached_sockets:0";
        const LOOKS: [(&[&str], &[&str], &str); 4] = [
            (&["7 8", "8", ""], &[KEEPS_NONE], ""),
            (&["7 8", "7"], &[KEEPS], "7"),
            (&["8", "8", ""], &[KEEPS_NONE, KEEPS_NONE], ""),
            (&[""], &[], ""),
        ];
        for (lists, kept, left) in LOOKS {
            assert_eq!(left_open(lists, kept).await, Ok(left.to_owned()), "{lists:?}");
        }
    }

    #[test]
    fn what_a_source_said_counts_for_less_than_it_takes_to_replace_it() {
        let young = |millis| is_young(Duration::from_millis(millis), Duration::from_secs(5));
        assert_eq!([0, 2_499, 2_500, 5_000].map(young), [true, true, false, false]);
    }

    #[test]
    fn copies_are_replaced_only_where_a_slot_is_marked_at_both_ends_and_the_sources() {
        let [from, to, other] = [id(0, 0), id(1, 0), id(2, 0)];
        let end = |id| End { id, address: "10.0.0.0:6379".parse().unwrap() };
        let (node_timeout, slots) = (Duration::from_secs(5), SlotSet::range(7, 7));
        let moving = Moving { max_bytes_per_second: None, batch_keys: 1, max_key_bytes: 1, paused: false };
        let order = Move {
            from: end(from),
            to: end(to),
            slots: &slots,
            others: &[],
            unproven: &[],
            joining: None,
            engine: Engine::Redis,
            node_timeout,
            moving,
        };
        let table = |owns: bool, mark: Option<Open>| Table {
            mine: if owns { slots.clone() } else { SlotSet::EMPTY },
            theirs: SlotSet::EMPTY,
            epochs: BTreeMap::new(),
            primaries: BTreeSet::new(),
            open: mark.map(|mark| (7, mark)).into_iter().collect::<BTreeMap<_, _>>(),
        };
        let replaces = |source, target| half_moved(order, [&source, &target], &[7]).map_err(|why| why.to_string());
        let (migrating, importing) = (Some(Open::Migrating(to)), Some(Open::Importing(from)));
        assert_eq!(replaces(table(true, migrating), table(false, importing)), Ok(()));
        let why = "not moved: slot 7 is not on its way any more: no copy of its keys is replaced".to_owned();
        for (source, target) in [
            (table(false, migrating), table(false, importing)),
            (table(true, None), table(false, importing)),
            (table(true, Some(Open::Migrating(other))), table(false, importing)),
            (table(true, migrating), table(true, importing)),
            (table(true, migrating), table(false, None)),
            (table(true, migrating), table(false, Some(Open::Importing(other)))),
        ] {
            assert_eq!(replaces(source, target), Err(why.clone()));
        }
    }
}
