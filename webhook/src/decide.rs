//! The decision: a request and the facts in, a verdict out. Pure and total.
//!
//! A change is judged by its direction: what repairs, and what leaves a fault as it was, gets through.

mod action;
mod capacity;
mod cluster;
mod disruption;
mod mutate;
pub mod policy;
mod worse;

use std::collections::BTreeMap;

use serde_json::Value;
use types::{
    field::{Fault, FaultKind, Path, aggregate},
    validate,
};

use crate::{
    facts::Facts,
    lean,
    review::{Operation, Request, Stage, Target},
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
    fn refuse(&mut self, objection: Objection, fault: Fault) {
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

    fn malformed(error: &serde_json::Error) -> Self {
        let mut verdict = Self::default();
        verdict.refuse(Objection::Malformed, Fault::invalid(Path::new("object"), Value::Null, error.to_string()));
        verdict
    }

    /// Whether it might be another, if more were known: something is unknown, or does not exist as far as is known.
    #[must_use]
    pub fn hangs_on_unknown(&self) -> bool {
        let open = |(objection, fault): &(Objection, Fault)| {
            *objection == Objection::Unknown || fault.kind == FaultKind::NotFound
        };
        self.denial.as_ref().is_some_and(|denial| denial.0.iter().any(open))
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
    let verdict = match request.stage {
        Stage::Mutate => mutate::patch(request).map(|patch| Verdict { patch, ..Verdict::default() }),
        Stage::Validate => judge(request, facts),
    };
    verdict.unwrap_or_else(|error| Verdict::malformed(&error))
}

fn judge(request: &Request<'_>, facts: &Facts) -> Result<Verdict, serde_json::Error> {
    let mut verdict = Verdict::default();
    match (request.target, request.operation, request.object, request.old_object) {
        (Target::Cluster, Operation::Create, Some(object), _) => {
            cluster::create(&mut verdict, &request.namespace, &lean::cluster(object)?, facts);
        }
        (Target::Cluster, Operation::Update, Some(object), Some(old)) => {
            // Finalizers, labels and annotations come and go without touching the spec.
            let (new, old) = (lean::cluster(object)?, lean::cluster(old)?);
            cluster::update(&mut verdict, &request.namespace, &new, &old, facts);
        }
        (Target::Cluster, Operation::Delete, _, Some(old)) => {
            let protected = validate::deletable(&lean::cluster(old)?).err();
            verdict.refuse_all(Objection::Forbidden, protected);
        }
        (Target::Scale, Operation::Update, Some(object), old) => {
            let old = old.map(lean::scale).transpose()?;
            cluster::scale(&mut verdict, request, lean::scale(object)?, old, facts);
        }
        (Target::Backup, Operation::Create, Some(object), _) => {
            action::backup(&mut verdict, &request.namespace, &lean::backup(object)?, facts);
        }
        (Target::Backup, Operation::Update, Some(object), Some(old)) => {
            let (new, old) = (lean::backup(object)?, lean::backup(old)?);
            worse::shape(&mut verdict, validate::backup(&new), &validate::backup(&old));
            verdict.refuse_all(Objection::Invalid, validate::backup_update(&new, &old));
        }
        (Target::Operation, Operation::Create, Some(object), _) => {
            action::operation(&mut verdict, &request.namespace, &lean::operation(object)?, facts);
        }
        (Target::Operation, Operation::Update, Some(object), Some(old)) => {
            let (new, old) = (lean::operation(object)?, lean::operation(old)?);
            worse::shape(&mut verdict, validate::operation(&new), &validate::operation(&old));
            verdict.refuse_all(Objection::Invalid, validate::operation_update(&new, &old));
        }
        (Target::Policy, Operation::Create, Some(object), _) => {
            verdict.refuse_all(Objection::Invalid, validate::policy(&lean::policy(object)?));
        }
        (Target::Policy, Operation::Update, Some(object), Some(old)) => {
            let (new, old) = (lean::policy(object)?, lean::policy(old)?);
            worse::shape(&mut verdict, validate::policy(&new), &validate::policy(&old));
        }
        // Deletions of the other kinds are nobody's harm; what has no object or is not ours is not judged.
        (
            Target::Cluster | Target::Scale | Target::Backup | Target::Operation | Target::Policy | Target::Other,
            Operation::Create | Operation::Update | Operation::Delete | Operation::Connect,
            _,
            _,
        ) => {}
    }
    Ok(verdict)
}
