//! What is asked right before keys are sent, of both ends, on the connections of this move.
//!
//! **Who gets the password.** MIGRATE … AUTH2 makes the source log in at an address with our password. Who is there was asked when the move
//! began (CLUSTER MYID), on a connection that is still the same: it is bound to that process, and ends with it. So the target says on it that
//! it is there before every exchange that carries keys, however long the move waited meanwhile (for the user's limit, for a replica, for us): an
//! address that a process has left, and another has taken, is sent nothing. What remains is the moment between its answer and the source's
//! connection.

use resp::Role;

use super::Error;
use super::keys::Ends;
use crate::redis::Error as RedisError;

/// The target is who it was, and a primary.
pub(super) async fn is_there(ends: &mut Ends) -> Result<(), Error> {
    match ends.target.role().await.map_err(RedisError::from)? {
        Role::Primary { .. } => Ok(()),
        Role::Replica { .. } => Err(Error::Precondition("the target is not a primary".to_owned())),
    }
}
