//! Libraries of functions (FUNCTION LOAD) belong to no slot: a client loads them at every primary that there is, and a FCALL fails at one that comes
//! later. So a primary that is about to get its first slots is given, before the first key, what it lacks of the libraries of who gives it the slots
//! (`redis-cli --cluster add-node` does the same). What it has stays as it is: somebody may have loaded a newer one meanwhile.

use std::collections::BTreeSet;

use resp::{Command, Connection, ErrorKind, Reply};

use super::keys::Ends;
use super::{Error, leading};
use crate::lease::Guard;
use crate::redis::Error as RedisError;

/// Why a primary without slots cannot be made to run what those run who own some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// It refuses to load it.
    #[error("the target refuses to load it: {0}")]
    Refused(String),
}

pub(super) async fn bring(ends: &mut Ends, guard: &Guard) -> Result<(), Error> {
    let Some(wanted) = libraries(&mut ends.source).await? else { return Ok(()) };
    if wanted.is_empty() {
        return Ok(());
    }
    let Some(there) = libraries(&mut ends.target).await? else { return Ok(()) };
    for library in wanted.difference(&there) {
        let Some(code) = code(&mut ends.source, library).await? else { continue };
        leading(guard)?;
        load(&mut ends.target, library, &code).await?;
    }
    Ok(())
}

/// Their names; `None` where nobody has allowed us to ask, as agents of earlier releases do not.
async fn libraries(end: &mut Connection) -> Result<Option<BTreeSet<String>>, Error> {
    match end.call(&["FUNCTION", "LIST"]).await {
        Ok(reply) => {
            Ok(Some(listed(&reply, "library_name").filter_map(|name| Some(name.text()?.to_owned())).collect()))
        }
        Err(error) if error.refusal().is_some_and(|reply| reply.kind == ErrorKind::NoPermission) => {
            tracing::warn!(address = %end.address(), "function libraries are not copied: this pod's agent is of an earlier release");
            Ok(None)
        }
        Err(error) => Err(RedisError::from(error).into()),
    }
}

/// One at a time, as each may be large. Names have letters, digits and underscores only: none is a pattern (`functionsVerifyName`). `None`: somebody has
/// deleted it.
async fn code(source: &mut Connection, library: &str) -> Result<Option<bytes::Bytes>, Error> {
    let reply =
        source.call(&["FUNCTION", "LIST", "LIBRARYNAME", library, "WITHCODE"]).await.map_err(RedisError::from)?;
    let code = listed(&reply, "library_code").next();
    Ok(code.and_then(|code| if let Reply::Bulk(code) = code { Some(code.clone()) } else { None }))
}

async fn load(target: &mut Connection, library: &str, code: &[u8]) -> Result<(), Error> {
    let command = Command::new("FUNCTION").arg("LOAD").arg(code);
    let Err(error) = target.command(&command).await else { return Ok(()) };
    match error.refusal() {
        // Somebody was faster.
        Some(reply) if is_there(&reply.text, library) => Ok(()),
        Some(reply) if !reply.is_transient() => {
            Err(Error::Library { library: library.to_owned(), why: Unlike::Refused(reply.text.clone()) })
        }
        Some(_) | None => Err(RedisError::from(error).into()),
    }
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
    use super::*;

    #[test]
    fn a_library_is_there_only_if_redis_names_this_very_one() {
        let says = |text: &str| is_there(text, "one");
        assert!(says("ERR Library 'one' already exists"));
        for other in ["Library 'one2' already exists", "Function one already exists", "Function 'one' already exists"] {
            assert!(!says(&format!("ERR {other}")), "{other}");
        }
    }
}
