//! Match conditions of webhooks and policies: expressions that say which requests they are about; pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::expression::{Answers, Machine, Program, Question, Scope, Stop, Value};
use crate::error::Cause;
use crate::object::name;

/// Most conditions of one webhook or policy, as in Kubernetes.
const CONDITIONS_MAX: usize = 64;
/// What all conditions of one webhook or policy may cost together, as in Kubernetes.
const BUDGET: u64 = 2_500_000;
/// What an evaluation says that ran out of its budget.
pub(super) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A condition as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawCondition {
    name: String,
    expression: String,
}

/// A condition.
#[derive(Clone, Debug)]
pub struct Condition {
    name: String,
    expression: String,
    program: Result<Program, String>,
}

/// Equal if written so: what an expression means follows from its text.
impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.expression == other.expression
    }
}

impl Eq for Condition {}

/// Whether a request is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Every condition holds.
    Yes,
    /// One does not.
    No,
    /// None says no, and one cannot be told.
    Unknown(String),
}

/// The conditions as they are evaluated.
pub(super) fn read(raw: &[RawCondition], scope: &Scope) -> Vec<Condition> {
    let condition = |raw: &RawCondition| Condition {
        name: raw.name.clone(),
        expression: raw.expression.clone(),
        program: Program::compile_to(raw.expression.trim(), scope, &["bool"]),
    };
    raw.iter().map(condition).collect()
}

/// Everything for which the conditions are refused when they are written.
pub(super) fn faults(raw: &[RawCondition], scope: &Scope, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if raw.len() > CONDITIONS_MAX {
        causes.push(too_many(path, raw.len()));
    }
    let mut names = BTreeSet::new();
    for (index, RawCondition { name, expression }) in raw.iter().enumerate().take(CONDITIONS_MAX) {
        let at = |field: &str| format!("{path}[{index}].{field}");
        causes.extend(expression_fault(expression.trim(), scope, &["bool"], &at("expression")));
        if name.is_empty() {
            causes.push(Cause::required(&at("name"), ""));
        } else if let Some(fault) = name::qualified_name(name) {
            causes.push(Cause::invalid(&at("name"), &format!("{name:?}"), &fault));
        } else if !names.insert(name) {
            causes.push(duplicate(&at("name"), name));
        }
    }
    causes
}

/// What is wrong with an expression, if anything.
pub(super) fn expression_fault(text: &str, scope: &Scope, wanted: &[&str], field: &str) -> Option<Cause> {
    if text.trim().is_empty() {
        return Some(Cause::required(field, ""));
    }
    let why = Program::compile_to(text, scope, wanted).err()?;
    Some(Cause::invalid(field, &format!("{text:?}"), &why))
}

pub(super) fn too_many(field: &str, count: usize) -> Cause {
    Cause {
        reason: "FieldValueTooMany".to_owned(),
        message: format!("Too many: {count}: must have at most {CONDITIONS_MAX} items"),
        field: field.to_owned(),
    }
}

pub(super) fn duplicate(field: &str, value: &str) -> Cause {
    Cause {
        reason: "FieldValueDuplicate".to_owned(),
        message: format!("Duplicate value: {value:?}"),
        field: field.to_owned(),
    }
}

/// What came of one expression: its value, why there is none, or a question that must be answered first.
///
/// # Errors
/// The question.
pub(super) fn evaluated(
    machine: &Machine<'_>,
    program: &Result<Program, String>,
    source: &str,
) -> Result<Result<Value, Failure>, Box<Question>> {
    let program = match program {
        Ok(program) => program,
        Err(why) => return Ok(Err(Failure::Expression(format!("compilation error: {why}")))),
    };
    let failed = |why: &str| Ok(Err(Failure::Expression(format!("expression '{source}' resulted in error: {why}"))));
    match machine.run(program) {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Failed(why)) => failed(&why),
        Err(Stop::Costly) => failed("operation cancelled: actual cost limit exceeded"),
        Err(Stop::OutOfBudget) => Ok(Err(Failure::OutOfBudget)),
        Err(Stop::Ask(question)) => Err(question),
    }
}

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It, alone.
    Expression(String),
    /// Nothing may be evaluated any more.
    OutOfBudget,
}

impl Failure {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Expression(text) => text,
            Self::OutOfBudget => OUT_OF_BUDGET,
        }
    }
}

/// Judges conditions. All are evaluated: one that says no counts more than one that cannot be told.
///
/// # Errors
/// A question that must be answered first.
pub(super) fn met(
    conditions: &[Condition],
    names: &BTreeMap<String, Value>,
    answers: &Answers,
) -> Result<Met, Box<Question>> {
    let machine = Machine::new(names, &[], answers, BUDGET);
    let mut unknown: Vec<String> = Vec::new();
    for Condition { name: _, expression, program } in conditions {
        match evaluated(&machine, program, expression)? {
            Ok(Value::Bool(false)) => return Ok(Met::No),
            Ok(_true) => {}
            Err(failure @ Failure::OutOfBudget) => return Ok(Met::Unknown(failure.text().to_owned())),
            Err(failure) if unknown.iter().any(|known| known == failure.text()) => {}
            Err(failure) => unknown.push(failure.text().to_owned()),
        }
    }
    Ok(match unknown.as_slice() {
        [] => Met::Yes,
        [only] => Met::Unknown(only.clone()),
        several => Met::Unknown(format!("[{}]", several.join(", "))),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn raw(expressions: &[&str]) -> Vec<RawCondition> {
        let raw =
            |(index, text): (usize, &&str)| RawCondition { name: format!("c{index}"), expression: (*text).to_owned() };
        expressions.iter().enumerate().map(raw).collect()
    }

    fn judged(expressions: &[&str]) -> Met {
        let names = BTreeMap::from([("object".to_owned(), Value::of(&json!({"a": 1})))]);
        met(&read(&raw(expressions), &Scope::admission()), &names, &Answers::new()).unwrap()
    }

    #[test]
    fn one_no_counts_more_than_what_cannot_be_told() {
        assert_eq!(judged(&[]), Met::Yes);
        assert_eq!(judged(&["object.a == 1", "true"]), Met::Yes);
        assert_eq!(judged(&["object.b == 1", "object.a == 2"]), Met::No);
        let b = "expression 'object.b == 1' resulted in error: no such key: b";
        assert_eq!(judged(&["object.b == 1", "true"]), Met::Unknown(b.to_owned()));
        let c = "expression 'object.c == 1' resulted in error: no such key: c";
        assert_eq!(judged(&["object.b == 1", "object.c == 1", "object.b == 1"]), Met::Unknown(format!("[{b}, {c}]")));
        let costly = "[1,2,3,4,5,6,7,8,9].all(a,[1,2,3,4,5,6,7,8,9].all(b,[1,2,3,4,5,6,7,8,9].all(c,[1,2,3,4,5,6,7,8,9].all(d,[1,2,3,4,5,6,7,8,9].all(e,[1,2,3,4,5,6,7,8,9].all(f,[1,2,3,4,5,6,7,8,9].all(g, true)))))))";
        let one = format!("expression '{costly}' resulted in error: operation cancelled: actual cost limit exceeded");
        assert_eq!(judged(&[costly]), Met::Unknown(one));
        assert_eq!(judged(&[costly, costly, costly]), Met::Unknown(OUT_OF_BUDGET.to_owned()));
    }

    #[test]
    fn what_is_wrong_with_conditions_is_told_with_its_field() {
        let faults = |raw: &[RawCondition]| {
            let causes = faults(raw, &Scope::admission(), "m");
            causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect::<Vec<_>>()
        };
        assert_eq!(faults(&raw(&["true", "object.a == 1"])), [""; 0]);
        let mut twice = raw(&["true", " "]);
        twice[1].name = "c0".to_owned();
        assert_eq!(faults(&twice), ["m[1].expression: Required value", "m[1].name: Duplicate value: \"c0\""]);
        assert_eq!(faults(&raw(&["1"])), ["m[0].expression: Invalid value: \"1\": must evaluate to bool but got int"]);
        let unknown = faults(&raw(&["foo"]));
        assert_eq!(
            unknown,
            [
                "m[0].expression: Invalid value: \"foo\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^"
            ]
        );
        let many = vec!["true"; 65];
        assert_eq!(faults(&raw(&many)), ["m: Too many: 65: must have at most 64 items"]);
    }
}
