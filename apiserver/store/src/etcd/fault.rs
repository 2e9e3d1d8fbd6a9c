//! What etcd's refusals and silences mean to who uses the store. Pure.
//!
//! The rule that matters: a write without a clear answer may have been done. It is neither a success nor a refusal.

use tonic::Code;

use super::wire::Failure;
use crate::{Error, Write};

/// What etcd says, at the end of its messages.
const COMPACTED: &str = "required revision has been compacted";
const FUTURE: &str = "required revision is a future revision";
const TOO_LARGE: &str = "request is too large";

/// Why a read at a revision was refused, if that was the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// etcd has forgotten it.
    Compacted,
    /// It has not happened yet.
    Future,
}

/// Whether a read failed because of the revision it asked for.
pub(super) fn past(failure: &Failure) -> Option<Past> {
    if failure.code != Code::OutOfRange {
        return None;
    }
    let says = |text| failure.message.contains(text);
    if says(COMPACTED) { Some(Past::Compacted) } else { says(FUTURE).then_some(Past::Future) }
}

/// A read that failed for any other reason.
pub(super) fn of_read(doing: &'static str, failure: Failure) -> Error {
    Error::Backend { doing, reason: format!("etcd: {}", failure.message) }
}

/// A write that failed.
pub(super) fn of_write(write: &Write, failure: Failure) -> Error {
    if failure.code == Code::InvalidArgument && failure.message.contains(TOO_LARGE) {
        // etcd was started with a smaller limit than it has by default, and does not say which.
        let size = write.value().map_or(0, bytes::Bytes::len);
        return Error::TooLarge { size, limit: size.saturating_sub(1) };
    }
    if !failure.sent || failure.is_refusal() {
        return Error::Backend { doing: "writing", reason: format!("etcd: {}", failure.message) };
    }
    Error::Unclear { reason: format!("etcd: {}", failure.message) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Key;

    fn failure(sent: bool, code: Code, message: &str) -> Failure {
        Failure { sent, code, message: message.to_owned() }
    }

    fn write() -> Write {
        Write::create(Key::new("pods", Some("a"), "b").unwrap(), bytes::Bytes::from_static(b"four"))
    }

    #[test]
    fn a_write_without_a_clear_answer_is_unclear() {
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::DeadlineExceeded, "no answer within 8 s"),
            (Code::Unknown, "connection reset by peer"),
            (Code::Cancelled, "stream closed"),
            (Code::Internal, "?"),
        ] {
            let expected = Error::Unclear { reason: format!("etcd: {message}") };
            assert_eq!(of_write(&write(), failure(true, code, message)), expected);
        }
    }

    #[test]
    fn a_write_that_etcd_refused_or_never_saw_was_not_done() {
        for (sent, code, message) in [
            (false, Code::Unknown, "connection refused"),
            (true, Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
            (true, Code::PermissionDenied, "etcdserver: permission denied"),
        ] {
            let expected = Error::Backend { doing: "writing", reason: format!("etcd: {message}") };
            assert_eq!(of_write(&write(), failure(sent, code, message)), expected);
        }
        let large = failure(true, Code::InvalidArgument, "etcdserver: request is too large");
        assert_eq!(of_write(&write(), large), Error::TooLarge { size: 4, limit: 3 });
    }

    #[test]
    fn the_past_and_the_future_are_told_apart_from_other_failures() {
        let of = |code, message| past(&failure(true, code, message));
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(of(Code::OutOfRange, compacted), Some(Past::Compacted));
        let future = "etcdserver: mvcc: required revision is a future revision";
        assert_eq!(of(Code::OutOfRange, future), Some(Past::Future));
        assert_eq!(of(Code::OutOfRange, "message too large"), None);
        assert_eq!(of(Code::Unavailable, compacted), None);
    }
}
