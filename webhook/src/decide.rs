//! The decision: a request and the facts in, a verdict out. Pure and total.
//!
//! A change is judged by its direction: what repairs, and what leaves a fault as it was, gets through.

mod action;
mod capacity;
mod cluster;
mod consequence;
mod disruption;
mod leftover;
mod mutate;
pub mod policy;
pub mod reach;
mod worse;

use std::collections::BTreeMap;

use serde_json::Value;
use types::{
    field::{Fault, FaultKind, Path, aggregate},
    validate,
};

use crate::{
    facts::Facts,
    review::{Operation, Request, Stage, Subject, Target},
};

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Operations of a JSON patch; only when the object may still be changed.
    pub patch: Vec<Value>,
    /// Why the request is refused; absent: it is allowed.
    pub denial: Option<Denial>,
    /// Told to the user, who is not held up.
    pub warnings: Vec<String>,
    /// Told to the audit log.
    pub audit: BTreeMap<String, String>,
    /// What is known may be behind, and the verdict another in a moment; if not, it stands.
    pub is_open: bool,
}

/// The category of a refusal, the gravest first: the answer's code follows from the gravest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Objection {
    /// The object could not be read.
    Malformed,
    /// It is wrong in itself, or as a change of what there is.
    Invalid,
    /// It cannot be done while something else is being done.
    Conflict,
    /// What a former object of the same name left behind is in its way.
    Leftover,
    /// It is not allowed here.
    Forbidden,
    /// What it depends on is not known (yet).
    Unknown,
}

/// Why a request is refused: every fault at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial(Vec<(Objection, Fault)>);

impl Denial {
    /// The gravest objection.
    #[must_use]
    pub fn objection(&self) -> Objection {
        self.0.iter().map(|(objection, _)| *objection).min().unwrap_or(Objection::Forbidden)
    }

    /// The faults.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter().map(|(_, fault)| fault)
    }

    /// All of it as one sentence.
    #[must_use]
    pub fn message(&self) -> String {
        let faults: Vec<Fault> = self.faults().cloned().collect();
        aggregate(&faults)
    }
}

impl Verdict {
    pub(crate) fn refuse(&mut self, objection: Objection, fault: Fault) {
        self.denial.get_or_insert_with(|| Denial(Vec::new())).0.push((objection, fault));
    }

    fn refuse_all(&mut self, objection: Objection, faults: impl IntoIterator<Item = Fault>) {
        for fault in faults {
            self.refuse(objection, fault);
        }
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Whether it might be another, if more were known: something is unknown, or does not exist as far as is known, or is still there.
    #[must_use]
    pub fn hangs_on_unknown(&self) -> bool {
        let open = |(objection, fault): &(Objection, Fault)| {
            matches!(objection, Objection::Unknown | Objection::Leftover) || fault.kind == FaultKind::NotFound
        };
        self.is_open || self.denial.as_ref().is_some_and(|denial| denial.0.iter().any(open))
    }

    /// Whether the request is allowed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }
}

/// Decides a request.
#[must_use]
pub fn decide(request: &Request<'_>, facts: &Facts) -> Verdict {
    match request.stage {
        Stage::Mutate => Verdict { patch: mutate::patch(request), ..Verdict::default() },
        Stage::Validate => judge(request, facts),
    }
}

fn judge(request: &Request<'_>, facts: &Facts) -> Verdict {
    let mut verdict = Verdict::default();
    let namespace = request.namespace.as_ref();
    let (object, old) = (request.object.as_ref(), request.old_object.as_ref());
    match (request.target, request.operation, object, old) {
        // Deletions of the other kinds are nobody's harm, and what is not ours is not judged.
        (Target::Other, _, _, _) | (_, Operation::Connect, _, _) => {}
        (Target::Cluster, Operation::Create, Some(Subject::Cluster(new)), _) => {
            cluster::create(&mut verdict, namespace, new, facts);
        }
        (Target::Cluster, Operation::Update, Some(Subject::Cluster(new)), Some(Subject::Cluster(old))) => {
            cluster::update(&mut verdict, namespace, new, old, facts);
        }
        (Target::Cluster, Operation::Delete, _, Some(Subject::Cluster(old))) => {
            verdict.refuse_all(Objection::Forbidden, validate::deletable(old).err());
        }
        (_, Operation::Delete, _, _) => {}
        (Target::Status, Operation::Create | Operation::Update, _, _) => {
            let why = "it is written by KUN's controller alone: what may be done is judged by what it says";
            verdict.refuse(Objection::Forbidden, Fault::forbidden(Path::new("status"), why));
        }
        (Target::Scale, _, Some(Subject::Scale(wanted)), None) => {
            cluster::scale(&mut verdict, request, wanted.replicas, None, facts);
        }
        (Target::Scale, _, Some(Subject::Scale(wanted)), Some(Subject::Scale(before))) => {
            cluster::scale(&mut verdict, request, wanted.replicas, Some(before), facts);
        }
        (Target::Backup, Operation::Create, Some(Subject::Backup(new)), _) => {
            action::backup(&mut verdict, namespace, new, facts);
        }
        (Target::Backup, Operation::Update, Some(Subject::Backup(new)), Some(Subject::Backup(old))) => {
            worse::shape(&mut verdict, validate::backup(new), || validate::backup(old));
            verdict.refuse_all(Objection::Invalid, validate::backup_update(new, old));
        }
        (Target::Operation, Operation::Create, Some(Subject::Operation(new)), _) => {
            action::operation(&mut verdict, namespace, new, facts);
        }
        (Target::Operation, Operation::Update, Some(Subject::Operation(new)), Some(Subject::Operation(old))) => {
            worse::shape(&mut verdict, validate::operation(new), || validate::operation(old));
            verdict.refuse_all(Objection::Invalid, validate::operation_update(new, old));
        }
        (Target::Policy, Operation::Create, Some(Subject::Policy(new)), _) => {
            verdict.refuse_all(Objection::Invalid, validate::policy(new));
        }
        (Target::Policy, Operation::Update, Some(Subject::Policy(new)), Some(Subject::Policy(old))) => {
            worse::shape(&mut verdict, validate::policy(new), || validate::policy(old));
        }
        (
            Target::Cluster | Target::Scale | Target::Backup | Target::Operation | Target::Policy,
            Operation::Create | Operation::Update,
            _,
            _,
        ) => verdict.refuse(Objection::Malformed, illegible(object, old)),
    }
    verdict
}

/// The fault of a request whose objects are not what its resource and operation call for.
fn illegible(object: Option<&Subject>, old: Option<&Subject>) -> Fault {
    let of = |name: &str, subject: Option<&Subject>| match subject {
        Some(Subject::Malformed(why)) => Some(Fault::invalid(Path::new(name), Value::Null, why.as_str())),
        Some(
            Subject::Cluster(_)
            | Subject::Scale(_)
            | Subject::Backup(_)
            | Subject::Operation(_)
            | Subject::Policy(_)
            | Subject::Foreign,
        )
        | None => None,
    };
    let why = "the objects of the request are not of the kind that its resource and operation call for";
    of("object", object)
        .or_else(|| of("oldObject", old))
        .unwrap_or_else(|| Fault::invalid(Path::new("object"), Value::Null, why))
}
