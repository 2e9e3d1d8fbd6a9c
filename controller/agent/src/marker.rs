//! Whose data a volume holds: a file beside the data set that names the member.
//!
//! A node's identity lies in nodes.conf and comes along with a volume that is cloned, swapped or restored to the wrong claim. Started
//! there, it serves another shard's slots at an address where its replicas follow it and drop what they have.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::disk::{self, Error};

/// Name of the file.
pub const FILE: &str = "kun-member.json";
/// Largest file that is read.
const MOST: u64 = 4096;

/// The member that a volume belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its namespace.
    pub namespace: String,
    /// Its RedisCluster.
    pub cluster: String,
    /// Its pod, which says its shard as well.
    pub pod: String,
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pod {} of RedisCluster {}/{}", self.pod, self.namespace, self.cluster)
    }
}

/// What a volume says of whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nothing: it is new, or was written before there were markers.
    Nobody,
    /// A member.
    Member(Member),
    /// The file is there and says nothing legible.
    Illegible,
}

/// Reads the marker.
///
/// # Errors
/// When it cannot be read: unknown is not absent.
pub fn read(dir: &Path) -> Result<Owner, Error> {
    let path = dir.join(FILE);
    let failed = |source| Error::Read { path: path.clone(), source };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Owner::Nobody),
        Err(source) => return Err(failed(source)),
        Ok(file) if file.len() > MOST => return Ok(Owner::Illegible),
        Ok(_) => {}
    }
    let bytes = fs::read(&path).map_err(failed)?;
    Ok(serde_json::from_slice(&bytes).map_or(Owner::Illegible, Owner::Member))
}

/// Writes the marker, durably; what was there before stays until the new one is whole.
///
/// # Errors
/// When it cannot be written.
pub fn write(dir: &Path, member: &Member) -> Result<(), Error> {
    let failed = |error| Error::Write { path: dir.join(FILE), source: io::Error::other(error) };
    disk::replace(dir, FILE, &serde_json::to_vec(member).map_err(failed)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_volume_says_whose_it_is_or_nothing_or_nothing_legible() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), Owner::Nobody);
        let member = Member { namespace: "shop".into(), cluster: "orders".into(), pod: "orders-1-0".into() };
        write(dir.path(), &member).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Owner::Member(member.clone()));
        assert_eq!(member.to_string(), "pod orders-1-0 of RedisCluster shop/orders");
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(read(dir.path()).unwrap(), Owner::Illegible);
        fs::write(dir.path().join(FILE), "x".repeat(5000)).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Owner::Illegible);
    }
}
