//! A write as the one transaction Kubernetes knows: compare what is there, then put or delete, else read. Pure.

use bytes::Bytes;

use super::message::{
    Compare, DeleteRangeRequest, KeyValue, Operand, Operation, Property, PutRequest, RangeRequest, Relation, RequestOp,
    TxnRequest, TxnResponse,
};
use crate::{Action, Error, Refusal, Revision, Stored, Write, Written};

/// The transaction that does `write` at `path`, and otherwise reads what is there.
pub(super) fn transaction(write: &Write, path: &Bytes) -> TxnRequest {
    let (expected, operation) = match &write.action {
        Action::Create { value } => (Revision(0), put(path, value)),
        Action::Update { value, expected } => (*expected, put(path, value)),
        Action::Delete { expected } => (*expected, Operation::Delete(DeleteRangeRequest { key: path.clone() })),
    };
    let mut compare = vec![condition(path, Relation::Equal, Property::ModRevision, wire(expected))];
    if !matches!(write.action, Action::Create { .. }) && expected == Revision(0) {
        // To etcd revision 0 means "absent". Who updates or deletes means something that is there.
        compare.push(condition(path, Relation::Greater, Property::Version, 0));
    }
    let read = Operation::Range(RangeRequest { key: path.clone(), ..RangeRequest::default() });
    TxnRequest { compare, success: vec![operation.into()], failure: vec![read.into()] }
}

/// What the transaction's answer means to who wrote.
pub(super) fn outcome(write: &Write, answer: TxnResponse) -> Result<Written, Error> {
    if answer.succeeded {
        let revision = answer.header.map(|header| revision(header.revision));
        return revision.map(|revision| Written { revision }).ok_or_else(no_header);
    }
    let found = answer.responses.into_iter().find_map(|response| response.range).unwrap_or_default();
    let current = found.kvs.into_iter().next().map(stored);
    Err(Error::Refused(match (&write.action, current) {
        (Action::Create { .. }, Some(current)) => Refusal::Exists { current },
        (Action::Update { .. } | Action::Delete { .. }, Some(current)) => Refusal::Conflict { current },
        (Action::Update { .. } | Action::Delete { .. }, None) => Refusal::Absent,
        (Action::Create { .. }, None) => {
            return Err(Error::Backend {
                doing: "creating",
                reason: "etcd refused although the key is absent".to_owned(),
            });
        }
    }))
}

/// A condition on the key at `path`.
pub(super) fn condition(path: &Bytes, relation: Relation, property: Property, number: i64) -> Compare {
    let operand = match property {
        Property::Version => Operand::Version(number),
        Property::ModRevision => Operand::ModRevision(number),
    };
    Compare { relation: relation.into(), property: property.into(), key: path.clone(), operand: Some(operand) }
}

/// Puts `value` at `path`.
pub(super) fn put(path: &Bytes, value: &Bytes) -> Operation {
    Operation::Put(PutRequest { key: path.clone(), value: value.clone() })
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> RequestOp {
        RequestOp { operation: Some(operation) }
    }
}

/// What a key holds.
pub(super) fn stored(kv: KeyValue) -> Stored {
    Stored { revision: revision(kv.mod_revision), value: kv.value }
}

/// etcd's revisions are signed, and never negative.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

/// The other way. What no etcd can reach stays out of reach.
pub(super) fn wire(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// An answer without a header, which no etcd gives. Of a write it is as good as none.
pub(super) fn no_header() -> Error {
    Error::Unclear { reason: "etcd answered without saying at which revision".to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::message::{RangeResponse, ResponseHeader, ResponseOp};
    use super::*;
    use crate::Key;

    fn key() -> Key {
        Key::new("pods", Some("a"), "b").unwrap()
    }

    fn refused(kvs: Vec<KeyValue>) -> TxnResponse {
        let range = Some(RangeResponse { kvs, ..RangeResponse::default() });
        let header = Some(ResponseHeader { revision: 9 });
        TxnResponse { header, succeeded: false, responses: vec![ResponseOp { range }] }
    }

    #[test]
    fn every_write_compares_the_revision_it_expects_and_reads_what_is_there_otherwise() {
        let path = Bytes::from_static(b"/registry/pods/a/b");
        let read: RequestOp = Operation::Range(RangeRequest { key: path.clone(), ..RangeRequest::default() }).into();
        let value = Bytes::from_static(b"x");
        let delete = Operation::Delete(DeleteRangeRequest { key: path.clone() });
        for (write, revision, operation) in [
            (Write::create(key(), value.clone()), 0, put(&path, &value)),
            (Write::update(key(), Revision(7), value.clone()), 7, put(&path, &value)),
            (Write::delete(key(), Revision(u64::MAX)), i64::MAX, delete),
        ] {
            let compare = vec![condition(&path, Relation::Equal, Property::ModRevision, revision)];
            let expected = TxnRequest { compare, success: vec![operation.into()], failure: vec![read.clone()] };
            assert_eq!(transaction(&write, &path), expected);
        }
    }

    #[test]
    fn an_update_that_expects_revision_zero_does_not_create() {
        let path = Bytes::from_static(b"/registry/pods/a/b");
        let transaction = transaction(&Write::delete(key(), Revision(0)), &path);
        let expected = [
            condition(&path, Relation::Equal, Property::ModRevision, 0),
            condition(&path, Relation::Greater, Property::Version, 0),
        ];
        assert_eq!(transaction.compare, expected);
    }

    #[test]
    fn an_answer_is_a_revision_or_a_refusal_with_what_is_there() {
        let (create, update) = (Write::create(key(), Bytes::new()), Write::update(key(), Revision(3), Bytes::new()));
        let done =
            TxnResponse { header: Some(ResponseHeader { revision: 9 }), succeeded: true, ..TxnResponse::default() };
        assert_eq!(outcome(&create, done), Ok(Written { revision: Revision(9) }));
        let kv = KeyValue { mod_revision: 5, value: Bytes::from_static(b"y"), ..KeyValue::default() };
        let current = Stored { revision: Revision(5), value: Bytes::from_static(b"y") };
        let (exists, conflict) = (Refusal::Exists { current: current.clone() }, Refusal::Conflict { current });
        assert_eq!(outcome(&create, refused(vec![kv.clone()])), Err(Error::Refused(exists)));
        assert_eq!(outcome(&update, refused(vec![kv])), Err(Error::Refused(conflict)));
        assert_eq!(outcome(&update, refused(Vec::new())), Err(Error::Refused(Refusal::Absent)));
        let headless = TxnResponse { succeeded: true, ..TxnResponse::default() };
        assert_eq!(outcome(&create, headless), Err(no_header()));
    }
}
