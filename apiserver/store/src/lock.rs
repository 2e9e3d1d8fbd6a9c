//! Taking a mutex whose holder can only have panicked between two whole states.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Poisoning is passed over: the sections that hold our locks change state in single steps, and product
/// code does not panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
