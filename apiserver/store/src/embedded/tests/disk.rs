//! A disk that can fail and lose power. What was written since the last successful sync is only in its "page cache":
//! when the power goes, any part of it may be missing, down to single sectors.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

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
    /// What was done since the last sync, in order.
    pending: Vec<Change>,
    sync_fails: bool,
    /// How many more changes and syncs succeed before everything fails.
    power: Option<usize>,
    syncs: usize,
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
}

impl Disk {
    pub(super) fn fail_syncs(&self, fail: bool) {
        self.0.lock().unwrap().sync_fails = fail;
    }

    /// Lets `operations` more succeed, then none.
    pub(super) fn cut_power_after(&self, operations: usize) {
        self.0.lock().unwrap().power = Some(operations);
    }

    pub(super) fn syncs(&self) -> usize {
        self.0.lock().unwrap().syncs
    }

    /// The disk as found when the power is back: `survives` decides on each unsynced sector in turn.
    pub(super) fn after_power_cut(&self, mut survives: impl FnMut() -> bool) -> Disk {
        let state = self.0.lock().unwrap();
        let mut durable = state.durable.clone();
        for change in state.pending.iter().cloned().flat_map(Change::sectors) {
            if matches!(change, Change::Resize { .. }) || survives() {
                change.apply(&mut durable);
            }
        }
        Disk(Arc::new(Mutex::new(State { visible: durable.clone(), durable, ..State::default() })))
    }

    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.spend()?;
        change.apply(&mut state.visible);
        state.pending.push(change);
        Ok(())
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
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().visible.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock().unwrap();
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
        if state.sync_fails {
            return Err(io::Error::other("the disk failed to sync"));
        }
        state.durable = state.visible.clone();
        state.pending.clear();
        state.syncs += 1;
        Ok(())
    }
}
