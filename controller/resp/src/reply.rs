//! What replies mean: classified errors, roles, configuration. Pure.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::frame::Reply;

/// A reply that is not what the command promises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read the reply as {what}: {why}")]
pub struct Error {
    /// What was expected.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl Error {
    pub(crate) fn new(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }
}

/// An error reply: its class and its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// The class, by the first word.
    pub kind: ErrorKind,
    /// Redis' own words.
    pub text: String,
}

impl std::fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Classes of error replies that somebody acts upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The slot belongs to another node.
    Moved {
        /// The slot.
        slot: u16,
        /// The owner; `None` when Redis does not know its address.
        to: Option<SocketAddr>,
    },
    /// The key may already be at the importing node: ask there once, after ASKING.
    Ask {
        /// The slot.
        slot: u16,
        /// The importing node.
        to: Option<SocketAddr>,
    },
    /// Keys of one command are on both sides of a move: try again.
    TryAgain,
    /// The cluster, or this slot, is not served now.
    ClusterDown,
    /// Keys of different slots in one command.
    CrossSlot,
    /// The data set is being loaded.
    Loading,
    /// A replica whose link is down and that may not serve stale data.
    MasterDown,
    /// A write at a replica.
    ReadOnly,
    /// Fewer replicas in sync than min-replicas-to-write.
    NoReplicas,
    /// Persistence fails and writes are refused.
    MisConf,
    /// Above maxmemory.
    OutOfMemory,
    /// No, or wrong, authentication.
    NotAuthenticated,
    /// The user may not run this. A hard stop, never a reason to go on (reliability.md A4, 20).
    NoPermission,
    /// The target key of MIGRATE/RESTORE exists.
    BusyKey,
    /// A script or another exclusive operation runs.
    Busy,
    /// MIGRATE could not reach or was refused by its target.
    IoErr,
    /// Everything else.
    Other,
}

impl ErrorReply {
    /// Classifies the text of an error reply.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut words = text.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        let kind = match first {
            "MOVED" => redirection(&mut words).map_or(ErrorKind::Other, |(slot, to)| ErrorKind::Moved { slot, to }),
            "ASK" => redirection(&mut words).map_or(ErrorKind::Other, |(slot, to)| ErrorKind::Ask { slot, to }),
            "TRYAGAIN" => ErrorKind::TryAgain,
            "CLUSTERDOWN" => ErrorKind::ClusterDown,
            "CROSSSLOT" => ErrorKind::CrossSlot,
            "LOADING" => ErrorKind::Loading,
            "MASTERDOWN" => ErrorKind::MasterDown,
            "READONLY" => ErrorKind::ReadOnly,
            "NOREPLICAS" => ErrorKind::NoReplicas,
            "MISCONF" => ErrorKind::MisConf,
            "OOM" => ErrorKind::OutOfMemory,
            "NOAUTH" | "WRONGPASS" => ErrorKind::NotAuthenticated,
            "NOPERM" => ErrorKind::NoPermission,
            "BUSYKEY" => ErrorKind::BusyKey,
            "BUSY" => ErrorKind::Busy,
            "IOERR" => ErrorKind::IoErr,
            // `first` is a word from the peer, not an enum of ours.
            _ => ErrorKind::Other,
        };
        Self { kind, text: text.to_owned() }
    }

    /// Whether the command was surely not executed and the same command may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Moved { .. }
            | ErrorKind::Ask { .. }
            | ErrorKind::TryAgain
            | ErrorKind::ClusterDown
            | ErrorKind::Loading
            | ErrorKind::MasterDown
            | ErrorKind::ReadOnly
            | ErrorKind::NoReplicas
            | ErrorKind::Busy => true,
            ErrorKind::CrossSlot
            | ErrorKind::MisConf
            | ErrorKind::OutOfMemory
            | ErrorKind::NotAuthenticated
            | ErrorKind::NoPermission
            | ErrorKind::BusyKey
            | ErrorKind::IoErr
            | ErrorKind::Other => false,
        }
    }
}

fn redirection<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(u16, Option<SocketAddr>)> {
    let slot = words.next()?.parse().ok().filter(|slot| *slot < crate::slot::SLOTS)?;
    Some((slot, words.next().and_then(address)))
}

/// `ip:port` as Redis prints it, where an IPv6 address has no brackets. `None` for unknown endpoints (`:0`, `?:6379`).
#[must_use]
pub fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some(SocketAddr::new(host.parse().ok()?, port))
}

/// The reply of `ROLE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A primary.
    Primary {
        /// Its replication offset.
        offset: i64,
        /// Its connected replicas.
        replicas: Vec<AttachedReplica>,
    },
    /// A replica.
    Replica {
        /// Host of the primary, as configured.
        host: String,
        /// Port of the primary.
        port: u16,
        /// State of the link.
        link: Link,
        /// Its replication offset, -1 before the first sync.
        offset: i64,
    },
}

/// A replica as its primary sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedReplica {
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Acknowledged offset.
    pub offset: i64,
}

/// State of a replica's link to its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// `none` or `connect`: to be connected.
    Connect,
    /// `connecting` or `handshake`.
    Connecting,
    /// A full synchronisation runs.
    Sync,
    /// In sync.
    Connected,
    /// `unknown`.
    Unknown,
}

impl Role {
    /// Reads the reply of `ROLE`.
    ///
    /// # Errors
    /// When the reply is not of that shape.
    pub fn parse(reply: &Reply) -> Result<Self, Error> {
        let items = reply.items().ok_or_else(|| Error::new("ROLE", "not an array"))?;
        let field = |index: usize| items.get(index).ok_or_else(|| Error::new("ROLE", format!("no element {index}")));
        let text = |index: usize| {
            field(index)?.text().ok_or_else(|| Error::new("ROLE", format!("element {index} is not a string")))
        };
        let number = |index: usize| {
            field(index)?.integer().ok_or_else(|| Error::new("ROLE", format!("element {index} is not a number")))
        };
        match text(0)? {
            "master" => Ok(Self::Primary {
                offset: number(1)?,
                replicas: field(2)?.items().unwrap_or_default().iter().filter_map(attached).collect(),
            }),
            "slave" => Ok(Self::Replica {
                host: text(1)?.to_owned(),
                port: u16::try_from(number(2)?).map_err(|_| Error::new("ROLE", "the port is out of range"))?,
                link: link(text(3)?),
                offset: number(4)?,
            }),
            other => Err(Error::new("ROLE", format!("role {other:?} is neither master nor slave"))),
        }
    }
}

fn attached(reply: &Reply) -> Option<AttachedReplica> {
    match reply.items()? {
        [host, port, offset, ..] => Some(AttachedReplica {
            host: host.text()?.to_owned(),
            port: u16::try_from(port.integer()?).ok()?,
            offset: offset.integer()?,
        }),
        _ => None,
    }
}

fn link(text: &str) -> Link {
    match text {
        "none" | "connect" => Link::Connect,
        "connecting" | "handshake" => Link::Connecting,
        "sync" => Link::Sync,
        "connected" => Link::Connected,
        // A word from the peer, not an enum of ours.
        _ => Link::Unknown,
    }
}

/// Reads the reply of `CONFIG GET`: alternating names and values.
///
/// # Errors
/// When the reply is not of that shape.
pub fn config_get(reply: &Reply) -> Result<BTreeMap<String, String>, Error> {
    let items = reply.items().ok_or_else(|| Error::new("CONFIG GET", "not an array"))?;
    items
        .chunks(2)
        .map(|pair| match pair {
            [name, value] => Ok((
                name.text().ok_or_else(|| Error::new("CONFIG GET", "a name is not a string"))?.to_owned(),
                value.text().ok_or_else(|| Error::new("CONFIG GET", "a value is not a string"))?.to_owned(),
            )),
            _ => Err(Error::new("CONFIG GET", "an odd number of elements")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(bytes::Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn redirections_carry_slot_and_address() {
        let kind = |text| ErrorReply::parse(text).kind;
        let to = Some("127.0.0.1:6381".parse().unwrap());
        assert_eq!(kind("MOVED 3999 127.0.0.1:6381"), ErrorKind::Moved { slot: 3999, to });
        assert_eq!(kind("ASK 16383 127.0.0.1:6381"), ErrorKind::Ask { slot: 16383, to });
        assert_eq!(
            kind("MOVED 1 2001:db8::1:6379"),
            ErrorKind::Moved { slot: 1, to: Some("[2001:db8::1]:6379".parse().unwrap()) }
        );
        assert_eq!(kind("MOVED 1 ?:6379"), ErrorKind::Moved { slot: 1, to: None });
        assert_eq!(kind("MOVED 99999 127.0.0.1:1"), ErrorKind::Other);
        assert_eq!(kind("MOVED"), ErrorKind::Other);
    }

    #[test]
    fn errors_are_classified_by_their_first_word() {
        let table = [
            ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorKind::TryAgain, true),
            ("CLUSTERDOWN Hash slot not served", ErrorKind::ClusterDown, true),
            ("LOADING Redis is loading the dataset in memory", ErrorKind::Loading, true),
            ("NOPERM this user has no permissions", ErrorKind::NoPermission, false),
            ("WRONGPASS invalid username-password pair", ErrorKind::NotAuthenticated, false),
            ("MISCONF Errors writing to the AOF file", ErrorKind::MisConf, false),
            ("ERR unknown", ErrorKind::Other, false),
            ("", ErrorKind::Other, false),
        ];
        for (text, kind, transient) in table {
            let parsed = ErrorReply::parse(text);
            assert_eq!(parsed, ErrorReply { kind, text: text.to_owned() });
            assert_eq!(parsed.is_transient(), transient, "{text}");
        }
    }

    #[test]
    fn both_roles_are_read() {
        let attached = Reply::Array(vec![bulk("127.0.0.2"), bulk("6379"), bulk("90")]);
        assert_eq!(
            Role::parse(&Reply::Array(vec![bulk("master"), Reply::Integer(100), Reply::Array(vec![attached])])),
            Ok(Role::Primary {
                offset: 100,
                replicas: vec![AttachedReplica { host: "127.0.0.2".into(), port: 6379, offset: 90 }]
            })
        );
        let replica = |state| {
            Reply::Array(vec![bulk("slave"), bulk("127.0.0.1"), Reply::Integer(6379), bulk(state), Reply::Integer(-1)])
        };
        for (state, link) in [("connect", Link::Connect), ("sync", Link::Sync), ("connected", Link::Connected)] {
            assert_eq!(
                Role::parse(&replica(state)),
                Ok(Role::Replica { host: "127.0.0.1".into(), port: 6379, link, offset: -1 })
            );
        }
        assert_eq!(Role::parse(&Reply::Nil), Err(Error::new("ROLE", "not an array")));
    }

    #[test]
    fn configuration_is_read_in_pairs() {
        let pair = Reply::Array(vec![bulk("save"), bulk("")]);
        assert_eq!(config_get(&pair), Ok(BTreeMap::from([("save".to_owned(), String::new())])));
        assert!(config_get(&Reply::Array(vec![bulk("save")])).is_err());
    }
}
