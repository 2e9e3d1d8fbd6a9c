//! Addresses of pods: one of the node's loopback range per pod, fresh for each new pod and not reused soon.
//!
//! `next` is pure; the cursor is kept in a file, so that a restart of the node does not hand out the address of a pod
//! that was just deleted: in Redis an address that comes back with another identity is a hazard.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Smallest range: fewer addresses would be reused too soon.
const PREFIX_LONGEST: u8 = 24;
/// Largest range: all of 127.0.0.0/8.
const PREFIX_SHORTEST: u8 = 8;
/// How many addresses in a row may be found taken by strangers before the node gives up.
const TRIES: usize = 256;

/// A failure to find or record an address.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a range the node can use.
    #[error("{0}")]
    Range(String),
    /// Every address tried is taken.
    #[error(
        "no free address in {cidr}: {in_use} belong to pods and the next {TRIES} are in use by other programs; choose another --pod-cidr"
    )]
    Exhausted {
        /// The range.
        cidr: Cidr,
        /// Addresses of pods.
        in_use: usize,
    },
    /// The cursor.
    #[error("recording the last used address in {path}")]
    Cursor {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A range of loopback addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: u32,
    prefix: u8,
}

impl FromStr for Cidr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            Error::Range(format!("{text:?} is not a range of pod addresses: {why}; for example 127.77.0.0/16"))
        };
        let (address, prefix) = text.split_once('/').ok_or_else(|| wrong("it has no /prefix"))?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong("it does not begin with an IPv4 address"))?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong("its prefix is not a number"))?;
        if !(PREFIX_SHORTEST..=PREFIX_LONGEST).contains(&prefix) {
            return Err(wrong(&format!("its prefix must be {PREFIX_SHORTEST} to {PREFIX_LONGEST}")));
        }
        if !address.is_loopback() {
            return Err(wrong("pods are local processes, their addresses must lie in 127.0.0.0/8"));
        }
        let base = address.to_bits();
        if base & !mask(prefix) != 0 {
            return Err(wrong("it has bits set after its prefix"));
        }
        Ok(Self { base, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.prefix)
    }
}

impl Cidr {
    /// Whether an address lies in the range.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.base
    }

    /// The address after `last` that is no pod's, going round; skips the first and the last of the range and, in
    /// 127.0.0.0/24, the machine's own 127.0.0.1.
    #[must_use]
    pub fn next(&self, last: Option<Ipv4Addr>, in_use: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let size = !mask(self.prefix);
        let start = last.filter(|a| self.contains(*a)).map_or(0, |a| a.to_bits() & !mask(self.prefix));
        (1..=size)
            .map(|step| (u64::from(start) + u64::from(step)) % (u64::from(size) + 1))
            .filter_map(|offset| u32::try_from(offset).ok())
            .filter(|offset| *offset != 0 && *offset != size)
            .map(|offset| Ipv4Addr::from_bits(self.base | offset))
            .find(|address| *address != Ipv4Addr::LOCALHOST && !in_use.contains(address))
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Cursor {
    last: Option<Ipv4Addr>,
}

/// Hands out addresses.
#[derive(Debug)]
pub struct Pool {
    cidr: Cidr,
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last: Option<Ipv4Addr>,
    in_use: BTreeSet<Ipv4Addr>,
}

impl Pool {
    /// Opens the pool; `in_use` are the addresses of the pods found on disk.
    #[must_use]
    pub fn open(cidr: Cidr, file: PathBuf, in_use: BTreeSet<Ipv4Addr>) -> Self {
        // An unreadable cursor costs nothing but freshness: the range then starts after its highest address in use.
        let cursor = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Cursor>(&bytes).ok());
        let last = cursor.and_then(|c| c.last).or_else(|| in_use.last().copied());
        Self { cidr, file, state: Mutex::new(State { last, in_use }) }
    }

    /// An address on which none of `ports` is taken, recorded before it is returned.
    pub fn take(&self, ports: &[u16]) -> Result<Ipv4Addr, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES {
            let Some(address) = self.cidr.next(state.last, &state.in_use) else { break };
            state.last = Some(address);
            if ports.iter().all(|port| is_free(address, *port)) {
                self.save(address)?;
                state.in_use.insert(address);
                return Ok(address);
            }
        }
        Err(Error::Exhausted { cidr: self.cidr, in_use: state.in_use.len() })
    }

    /// The pod of this address has gone.
    pub fn release(&self, address: Ipv4Addr) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).in_use.remove(&address);
    }

    fn save(&self, address: Ipv4Addr) -> Result<(), Error> {
        let failed = |source| Error::Cursor { path: self.file.clone(), source };
        let bytes = serde_json::to_vec(&Cursor { last: Some(address) }).map_err(|e| failed(e.into()))?;
        super::record::write_atomically(&self.file, &bytes).map_err(failed)
    }
}

fn is_free(address: Ipv4Addr, port: u16) -> bool {
    TcpListener::bind(SocketAddrV4::new(address, port)).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn cidr() -> Cidr {
        "127.86.0.0/24".parse().unwrap()
    }

    #[test]
    fn a_range_must_be_loopback_wide_enough_and_well_formed() {
        assert_eq!("127.77.0.0/16".parse::<Cidr>().unwrap().to_string(), "127.77.0.0/16");
        for (text, part) in [
            ("10.0.0.0/16", "must lie in 127.0.0.0/8"),
            ("127.77.0.0", "no /prefix"),
            ("127.77.0.0/x", "not a number"),
            ("127.77.0.0/30", "must be 8 to 24"),
            ("127.77.1.1/16", "bits set"),
            ("::1/64", "IPv4"),
            ("127.0.0.1\n/16", "IPv4"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("127.77.0.0/16"), "{text:?}: {error}");
        }
    }

    #[test]
    fn addresses_go_round_and_skip_the_first_the_last_and_those_in_use() {
        let used = BTreeSet::from([Ipv4Addr::new(127, 86, 0, 2)]);
        assert_eq!(cidr().next(None, &used), Some(Ipv4Addr::new(127, 86, 0, 1)));
        assert_eq!(cidr().next(Some(Ipv4Addr::new(127, 86, 0, 1)), &used), Some(Ipv4Addr::new(127, 86, 0, 3)));
        assert_eq!(cidr().next(Some(Ipv4Addr::new(127, 86, 0, 254)), &used), Some(Ipv4Addr::new(127, 86, 0, 1)));
        let all: BTreeSet<Ipv4Addr> = (1..=254).map(|n| Ipv4Addr::new(127, 86, 0, n)).collect();
        assert_eq!(cidr().next(None, &all), None);
        let machine: Cidr = "127.0.0.0/24".parse().unwrap();
        assert_eq!(machine.next(None, &BTreeSet::new()), Some(Ipv4Addr::new(127, 0, 0, 2)));
    }

    #[test]
    fn a_released_address_is_not_handed_out_again_even_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("addresses.json");
        let pool = Pool::open(cidr(), file.clone(), BTreeSet::new());
        let first = pool.take(&[]).unwrap();
        pool.release(first);
        let second = pool.take(&[]).unwrap();
        assert_ne!(first, second);
        let reopened = Pool::open(cidr(), file, BTreeSet::from([second]));
        assert_eq!(reopened.take(&[]).unwrap(), Ipv4Addr::new(127, 86, 0, 3));
    }

    #[test]
    fn an_address_another_program_listens_on_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.86.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let pool = Pool::open(cidr(), dir.path().join("a"), BTreeSet::new());
        assert_eq!(pool.take(&[port]).unwrap(), Ipv4Addr::new(127, 86, 0, 2));
    }
}
