//! What a restart would find in the append-only file of the own Redis. Pure.

use resp::{AppendOnlyFile, Info};

/// The append-only file, by what Redis says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// It is not switched on.
    Off,
    /// Acknowledged writes are in no file. Redis could not write what it had accepted already (`EverySec`, on a full disk), or not write a file anew that
    /// may be the first that counts: to that nothing is written between two attempts, while every write is accepted.
    Failed,
    /// It is written anew, or is about to be.
    Rewriting,
    /// Everything.
    Current,
}

impl Log {
    /// By the section Persistence of INFO; `None`: it does not say.
    #[must_use]
    pub fn of(info: &Info) -> Option<Self> {
        info.flag("aof_enabled")?;
        let fails = |field: &str| info.get(field) == Some("err");
        Some(match info.append_only_file() {
            AppendOnlyFile::Off => Self::Off,
            AppendOnlyFile::Rewriting | AppendOnlyFile::Current if fails("aof_last_write_status") => Self::Failed,
            AppendOnlyFile::Rewriting if fails("aof_last_bgrewrite_status") => Self::Failed,
            AppendOnlyFile::Rewriting => Self::Rewriting,
            AppendOnlyFile::Current => Self::Current,
        })
    }
}
