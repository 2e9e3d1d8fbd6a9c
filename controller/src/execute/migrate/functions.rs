//! Libraries of functions (FUNCTION LOAD) belong to no slot: a client loads them at every primary that there is, and a FCALL fails at one that comes
//! later. So a primary that is about to get its first slots is given, before the first key, what it lacks of the libraries of who gives it the slots
//! (`redis-cli --cluster add-node` does the same). What it alone has stays.
//!
//! Of a library that it has as well the code of those counts who own slots: a shard that was away comes back with the code that lies on its volume, and
//! nobody loads there anew what all others have. That code is replaced, at a primary without slots only, which serves nobody. What somebody has changed
//! there since its process started is not: it was acknowledged, and may be the next release, which all others are about to get. Such a primary gets no
//! slot until all have the same code; and none gets its first one while owners have unlike code, for whichever it got would be wrong for some keys.
//!
//! What remains: code that was loaded at a primary without slots just before its process ended, or came to it with a whole copy of its shard's former
//! primary, is taken for old; and so is what is loaded in the moment between the last look and the replacement.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use plan::NodeId;
use resp::{Command, Connection, ErrorKind, Info, Reply};

use super::keys::Ends;
use super::{Error, Move, leading, table};
use crate::lease::Guard;
use crate::redis::{Access, Error as RedisError};

/// Why a primary without slots cannot be made to run what those run who own some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// It refuses to load it.
    #[error("the target refuses to load it: {0}")]
    Refused(String),
    /// It has other code, which may be newer.
    #[error("the target has other code, and libraries were changed there since its server has started")]
    Changed,
    /// Somebody else who owns slots has other code than the source.
    #[error("{0} owns slots, too, and has other code than the source")]
    Owners(NodeId),
}

/// Their code, by their names.
type Libraries = BTreeMap<String, Bytes>;

pub(super) async fn bring(ends: &mut Ends, order: Move<'_>, access: &Access, guard: &Guard) -> Result<(), Error> {
    let Some(wanted) = libraries(&mut ends.source).await?.filter(|wanted| !wanted.is_empty()) else { return Ok(()) };
    let Some(there) = libraries(&mut ends.target).await? else { return Ok(()) };
    agree(order, access, &wanted).await?;
    let older = wanted.iter().filter(|(library, code)| there.get(*library).is_some_and(|there| there != *code));
    for (replaced, (library, code)) in (0..).zip(older) {
        may_replace(&mut ends.target, order, library, replaced).await?;
        leading(guard)?;
        load(&mut ends.target, library, code, &["REPLACE"]).await?;
    }
    // Last: what is loaded counts as a change.
    for (library, code) in wanted.iter().filter(|(library, _)| !there.contains_key(*library)) {
        leading(guard)?;
        load(&mut ends.target, library, code, &[]).await?;
    }
    Ok(())
}

/// All who own slots have the source's code of what they have of these.
async fn agree(order: Move<'_>, access: &Access, wanted: &Libraries) -> Result<(), Error> {
    let asked = order.others.iter().map(|other| async move {
        let mut owner = access.open_node(other.address, other.id).await?;
        let library = differs(&mut owner, order, wanted).await?;
        Ok::<_, Error>(library.map(|library| Error::Library { library, why: Unlike::Owners(other.id) }))
    });
    let found = futures::future::try_join_all(asked).await?;
    found.into_iter().flatten().next().map_or(Ok(()), Err)
}

/// The first of these libraries of which this primary has other code, if it owns slots.
async fn differs(owner: &mut Connection, order: Move<'_>, wanted: &Libraries) -> Result<Option<String>, Error> {
    if table(owner, order.from.id).await?.mine.is_empty() {
        return Ok(None);
    }
    let names = names(owner).await?.unwrap_or_default();
    for (library, wanted) in wanted.iter().filter(|(library, _)| names.contains(*library)) {
        if code(owner, library).await?.is_some_and(|code| code != *wanted) {
            return Ok(Some(library.clone()));
        }
    }
    Ok(None)
}

/// Asked immediately before: the target owns no slot, and nobody has changed its libraries since it has started, but we just now so many times.
async fn may_replace(target: &mut Connection, order: Move<'_>, library: &str, replaced: u64) -> Result<(), Error> {
    if !table(target, order.from.id).await?.mine.is_empty() {
        return Err(Error::Precondition(format!("the target owns slots by now: its code of {library} stays")));
    }
    if changes(&target.info(&["commandstats"]).await.map_err(RedisError::from)?) == replaced {
        return Ok(());
    }
    Err(Error::Library { library: library.to_owned(), why: Unlike::Changed })
}

/// How often libraries were changed since the process started. What it has read from its files, or has got with a whole copy, is not counted. Pure.
fn changes(stats: &Info) -> u64 {
    let count = |command: &str| {
        let fields = resp::info::fields(stats.get(&format!("cmdstat_function|{command}"))?);
        let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
        // One that was carried out and failed is in both.
        Some(number("calls")?.saturating_sub(number("failed_calls").unwrap_or(0)))
    };
    ["load", "restore", "delete", "flush"].into_iter().filter_map(count).sum()
}

/// `None` where nobody has allowed us to ask, as agents of earlier releases do not.
async fn libraries(end: &mut Connection) -> Result<Option<Libraries>, Error> {
    let Some(names) = names(end).await? else { return Ok(None) };
    let mut libraries = Libraries::new();
    for name in names {
        if let Some(code) = code(end, &name).await? {
            libraries.insert(name, code);
        }
    }
    Ok(Some(libraries))
}

/// `None` as of [`libraries`].
async fn names(end: &mut Connection) -> Result<Option<BTreeSet<String>>, Error> {
    match end.call(&["FUNCTION", "LIST"]).await {
        Ok(reply) => {
            Ok(Some(listed(&reply, "library_name").filter_map(|name| Some(name.text()?.to_owned())).collect()))
        }
        Err(error) if error.refusal().is_some_and(|reply| reply.kind == ErrorKind::NoPermission) => {
            tracing::warn!(address = %end.address(), "function libraries are not compared: this pod's agent is of an earlier release");
            Ok(None)
        }
        Err(error) => Err(RedisError::from(error).into()),
    }
}

/// One at a time, as each may be large. Names have letters, digits and underscores only: none is a pattern (`functionsVerifyName`). `None`: somebody has
/// deleted it.
async fn code(end: &mut Connection, library: &str) -> Result<Option<Bytes>, Error> {
    let reply = end.call(&["FUNCTION", "LIST", "LIBRARYNAME", library, "WITHCODE"]).await.map_err(RedisError::from)?;
    let code = listed(&reply, "library_code").next();
    Ok(code.and_then(|code| if let Reply::Bulk(code) = code { Some(code.clone()) } else { None }))
}

async fn load(target: &mut Connection, library: &str, wanted: &Bytes, how: &[&str]) -> Result<(), Error> {
    let command = Command::new("FUNCTION").arg("LOAD").args(how).arg(wanted);
    let Err(error) = target.command(&command).await else { return Ok(()) };
    let why = match error.refusal() {
        // Somebody was faster.
        Some(reply) if is_there(&reply.text, library) => match code(target, library).await? {
            Some(there) if there == *wanted => return Ok(()),
            Some(_) | None => Unlike::Changed,
        },
        Some(reply) if !reply.is_transient() => Unlike::Refused(reply.text.clone()),
        Some(_) | None => return Err(RedisError::from(error).into()),
    };
    Err(Error::Library { library: library.to_owned(), why })
}

/// Whether Redis says that it has this very library (`functionsCreateWithLibraryCtx`). In nearly the same words it says that it has a function of another
/// library of the name of one of these, and then the library is not there. Pure.
fn is_there(text: &str, library: &str) -> bool {
    text == format!("ERR Library '{library}' already exists")
}

/// What the entries of FUNCTION LIST say under this name: each is a list of names and values by turns.
fn listed<'r>(reply: &'r Reply, name: &'static str) -> impl Iterator<Item = &'r Reply> {
    let entries = reply.items().unwrap_or_default().iter().filter_map(Reply::items);
    entries.filter_map(move |entry| {
        let mut pairs = entry.chunks_exact(2);
        pairs.find_map(|pair| if let [key, value] = pair { (key.text() == Some(name)).then_some(value) } else { None })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use plan::SlotSet;
    use resp::Limits;
    use resp::decode::Decoder;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use types::engine::Engine;

    use super::*;
    use crate::execute::migrate::End;
    use crate::redis::Abreast;
    use crate::resolve::Moving;
    use crate::testing::id;

    /// Code of the library `one`; none where there is no such library.
    type Code = Option<&'static str>;

    /// A primary that answers what is asked of its libraries.
    #[derive(Clone, Copy)]
    struct Fake {
        code: Code,
        owns_slots: bool,
        changes: u64,
    }

    impl Fake {
        fn answer(self, words: &[&str]) -> Reply {
            let text = |text: &str| Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()));
            let slots = if self.owns_slots { "0-99" } else { "" };
            match words {
                ["FUNCTION", "LIST", ..] => {
                    let entry = |code| ["library_name", "one", "library_code", code].map(text).to_vec();
                    Reply::Array(self.code.map(entry).map(Reply::Array).into_iter().collect())
                }
                ["INFO", _] => text(&format!("cmdstat_function|load:calls={},failed_calls=2\r\n", self.changes + 2)),
                ["CLUSTER", "NODES"] => {
                    text(&format!("{} 10.0.0.1:6379@16379 myself,master - 0 0 1 connected {slots}\n", id(1, 0)))
                }
                _ => Reply::Status("OK".to_owned()),
            }
        }
    }

    /// A connection to it, and whatever is loaded there.
    async fn connected(fake: Fake) -> (Connection, Arc<Mutex<Vec<String>>>) {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let loads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&loads);
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut asked = Decoder::new(Limits::ADMIN);
            while client.read_buf(asked.buffer()).await.is_ok_and(|bytes| bytes > 0) {
                while let Some(command) = asked.decode().unwrap() {
                    let words: Vec<&str> = command.items().unwrap().iter().filter_map(Reply::text).collect();
                    if words.starts_with(&["FUNCTION", "LOAD"]) {
                        noted.lock().unwrap().push(words.join(" "));
                    }
                    let mut answer = Vec::new();
                    fake.answer(&words).encode(&mut answer);
                    client.write_all(&answer).await.unwrap();
                }
            }
        });
        let options = resp::Options::new(address).deadline(hung::answer());
        (Connection::open(&options).await.unwrap(), loads)
    }

    /// What is loaded at the source and at the target, and why no more.
    async fn sent(code: Code, target: Fake) -> (Vec<String>, Vec<String>, String) {
        let (source, at_source) = connected(Fake { code, owns_slots: true, changes: 0 }).await;
        let (target, at_target) = connected(target).await;
        let to = target.address();
        let (more_source, more_target) = (Abreast::default(), Abreast::default());
        let mut ends = Ends { source, target, to, more_source, more_target };
        let moving = Moving { max_bytes_per_second: None, batch_keys: 1, max_key_bytes: 1, paused: false };
        let (end, slots) = (|shard| End { id: id(shard, 0), address: to }, SlotSet::range(0, 0));
        let order = Move {
            from: end(0),
            to: end(1),
            slots: &slots,
            others: &[],
            unproven: &[],
            joining: None,
            engine: Engine::Redis,
            node_timeout: Duration::from_secs(5),
            moving,
        };
        let done = bring(&mut ends, order, &Access::new("password"), &Guard::always()).await;
        let noted = |loads: &Mutex<Vec<String>>| loads.lock().unwrap().clone();
        (noted(&at_source), noted(&at_target), done.map_or_else(|why| why.to_string(), |()| "done".to_owned()))
    }

    /// What a primary serves with, and what was acknowledged there and may be the next release, stays.
    #[tokio::test]
    async fn code_is_replaced_only_where_no_slot_is_owned_and_none_was_loaded() {
        for (code, there, owns_slots, changes) in all() {
            let (at_source, at_target, why) = sent(code, Fake { code: there, owns_slots, changes }).await;
            let differs = code.is_some() && there.is_some() && code != there;
            let wanted = match (code, there) {
                (Some(code), None) => vec![format!("FUNCTION LOAD {code}")],
                (Some(code), Some(_)) if differs && !owns_slots && changes == 0 => {
                    vec![format!("FUNCTION LOAD REPLACE {code}")]
                }
                (None | Some(_), None | Some(_)) => Vec::new(),
            };
            assert_eq!(at_target, wanted, "{code:?} {there:?} {owns_slots} {changes}");
            assert_eq!(at_source, Vec::<String>::new());
            assert_eq!(why == "done", !differs || !wanted.is_empty(), "{why}");
        }
    }

    fn all() -> Vec<(Code, Code, bool, u64)> {
        let codes = [None, Some("#!lua name=one\nold"), Some("#!lua name=one\nnew")];
        let pairs = codes.iter().flat_map(|code| codes.iter().map(|there| (*code, *there)));
        let owners = pairs.flat_map(|(code, there)| [false, true].map(|owns| (code, there, owns)));
        owners.flat_map(|(code, there, owns)| [0, 1].map(|changes| (code, there, owns, changes))).collect()
    }

    #[test]
    fn a_library_is_there_only_if_redis_names_this_very_one() {
        let says = |text: &str| is_there(text, "one");
        assert!(says("ERR Library 'one' already exists"));
        for other in ["Library 'one2' already exists", "Function one already exists", "Function 'one' already exists"] {
            assert!(!says(&format!("ERR {other}")), "{other}");
        }
    }

    #[test]
    fn what_was_refused_or_only_asked_changes_no_library() {
        let of = |text: &str| changes(&Info::parse(text));
        assert_eq!(of("cmdstat_function|list:calls=7,usec=1,rejected_calls=0,failed_calls=0\r\n"), 0);
        assert_eq!(of("cmdstat_function|load:calls=3,usec=1,rejected_calls=4,failed_calls=3\r\n"), 0);
        let all = ["load", "restore", "delete", "flush"]
            .map(|what| format!("cmdstat_function|{what}:calls=1,failed_calls=0\r\n"));
        assert_eq!(of(&all.concat()), 4);
    }
}
