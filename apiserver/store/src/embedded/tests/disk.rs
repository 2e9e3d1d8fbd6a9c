//! A disk that can fail and lose power. What was written since the last successful sync is only in its "page cache":
//! when the power goes, any part of it may be missing, down to single sectors, and the write under way is torn anywhere.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

use super::tally::next_random;

/// What a real disk writes at once.
const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What a reader sees.
    visible: Vec<u8>,
    /// What survives a power cut for certain.
    durable: Vec<u8>,
    /// What was done since the last sync, in order; the last may have been under way when the power went.
    pending: Vec<Change>,
    sync_fails: bool,
    /// How many more changes and syncs succeed before everything fails.
    power: Option<usize>,
    /// Whether anything was asked for without power.
    is_dark: bool,
    error: Option<Failure>,
    syncs: usize,
}

/// One operation that fails among others that do not.
#[derive(Debug, Clone, Copy)]
struct Failure {
    /// How many more succeed before, reads among them.
    after: usize,
    errno: Errno,
    /// Decides how much of a write is done all the same.
    random: u64,
}

/// What a disk says when it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errno {
    InputOutput,
    NoSpace,
}

impl Errno {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Errno::InputOutput => 5,
            Errno::NoSpace => 28,
        })
    }
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    Resize { len: usize },
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Resize { len } => bytes.resize(*len, 0),
            Change::Write { offset, data } => {
                let end = offset + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(data);
            }
        }
    }

    /// The same change in pieces that may each be lost.
    fn sectors(self) -> Vec<Change> {
        match self {
            Change::Resize { len } => vec![Change::Resize { len }],
            Change::Write { offset, data } => data
                .chunks(SECTOR)
                .enumerate()
                .map(|(n, chunk)| Change::Write { offset: offset + n * SECTOR, data: chunk.to_vec() })
                .collect(),
        }
    }

    /// Its first part, cut at any byte.
    fn torn(self, random: u64) -> Change {
        match self {
            Change::Resize { len } => Change::Resize { len },
            Change::Write { offset, mut data } => {
                data.truncate(usize::try_from(random).unwrap() % (data.len() + 1));
                Change::Write { offset, data }
            }
        }
    }
}

/// What is left of the unsynced changes when the power is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    All,
    /// So far and no further; the last one is torn at any byte.
    Beginning,
    /// The disk reordered them: only what came late is there.
    End,
    /// Any whole changes; the last one is torn at any byte.
    SomeChanges,
    /// Any sectors.
    SomeSectors,
}

const WAYS: [Left; 6] = [Left::Nothing, Left::All, Left::Beginning, Left::End, Left::SomeChanges, Left::SomeSectors];

impl Disk {
    pub(super) fn fail_syncs(&self, fail: bool) {
        self.0.lock().unwrap().sync_fails = fail;
    }

    /// Lets `operations` more succeed, then none.
    pub(super) fn cut_power_after(&self, operations: usize) {
        self.0.lock().unwrap().power = Some(operations);
    }

    /// Lets `after` more operations succeed, reads among them; the next one fails, and those behind it succeed again.
    pub(super) fn fail_after(&self, after: usize, errno: Errno, seed: u64) {
        self.0.lock().unwrap().error = Some(Failure { after, errno, random: next_random(seed) });
    }

    /// Whether that has happened. It will not happen any more.
    pub(super) fn has_failed(&self) -> bool {
        self.0.lock().unwrap().error.take().is_none()
    }

    pub(super) fn syncs(&self) -> usize {
        self.0.lock().unwrap().syncs
    }

    /// The disk as found when the power is back and nothing unsynced survived.
    pub(super) fn without_what_was_not_synced(&self) -> Disk {
        self.left(Left::Nothing, 1)
    }

    /// The disk as found when the power is back: chance decides what survived, and in which way.
    pub(super) fn after_power_cut(&self, seed: u64) -> Disk {
        let random = next_random(seed);
        self.left(WAYS[usize::try_from(random % 6).unwrap()], next_random(random))
    }

    fn left(&self, left: Left, mut random: u64) -> Disk {
        let state = self.0.lock().unwrap();
        let pending = state.pending.clone();
        let split = usize::try_from(random).unwrap() % (pending.len() + 1);
        let mut coin = || {
            random = next_random(random);
            random.is_multiple_of(2)
        };
        let mut changes: Vec<Change> = match left {
            Left::Nothing => Vec::new(),
            Left::All => pending,
            Left::Beginning => pending.into_iter().take(split).collect(),
            Left::End => pending.into_iter().skip(split).collect(),
            Left::SomeChanges => pending.into_iter().filter(|_| coin()).collect(),
            Left::SomeSectors => pending.into_iter().flat_map(Change::sectors).filter(|_| coin()).collect(),
        };
        if let (Left::Beginning | Left::SomeChanges, Some(last)) = (left, changes.pop()) {
            changes.push(last.torn(next_random(random)));
        }
        let mut durable = state.durable.clone();
        changes.iter().for_each(|change| change.apply(&mut durable));
        Disk(Arc::new(Mutex::new(State { visible: durable.clone(), durable, ..State::default() })))
    }

    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if let Err(off) = state.spend() {
            if !std::mem::replace(&mut state.is_dark, true) {
                // It was under way.
                state.pending.push(change);
            }
            return Err(off);
        }
        let failed = state.fail();
        let done = match &failed {
            Ok(()) => change,
            Err((_, random)) => change.torn(*random),
        };
        done.apply(&mut state.visible);
        state.pending.push(done);
        failed.map_err(|(error, _)| error)
    }
}

impl State {
    fn spend(&mut self) -> io::Result<()> {
        match &mut self.power {
            None => Ok(()),
            Some(0) => Err(io::Error::other("the power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn fail(&mut self) -> Result<(), (io::Error, u64)> {
        match &mut self.error {
            None => Ok(()),
            Some(Failure { after: 0, errno, random }) => {
                let failed = (errno.error(), *random);
                self.error = None;
                Err(failed)
            }
            Some(Failure { after, .. }) => {
                *after -= 1;
                Ok(())
            }
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().visible.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.fail().map_err(|(error, _)| error)?;
        let start = usize::try_from(offset).unwrap();
        let found = state.visible.get(start..start + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::Resize { len: usize::try_from(len).unwrap() })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Change::Write { offset: usize::try_from(offset).unwrap(), data: data.to_vec() })
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.spend()?;
        state.fail().map_err(|(error, _)| error)?;
        if state.sync_fails {
            return Err(io::Error::other("the disk failed to sync"));
        }
        let State { durable, pending, .. } = &mut *state;
        pending.drain(..).for_each(|change| change.apply(durable));
        state.syncs += 1;
        Ok(())
    }
}
