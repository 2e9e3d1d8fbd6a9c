//! The seam to the disk: everything redb does to its file passes here, so that a test can end the process between any two
//! steps of it. Tests put a simulated disk in its place.
//!
//! It adds nothing but the failpoints. Every method is forwarded, the locks included: one left out would fall back to the
//! trait's "not supported", and two processes could open one file.

use std::io;
use std::ops::Bound;

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use crate::failpoint::{Point, reach};

/// A real file.
#[derive(Debug)]
pub(super) struct Seam(pub(super) FileBackend);

impl StorageBackend for Seam {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        reach(Point::InWrite);
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        reach(Point::BeforeSync);
        self.0.sync_data()?;
        reach(Point::AfterSync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        reach(Point::InWrite);
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(start, end)
    }
}
