//! `authorizer`: a question about somebody's rights, put together step by step; pure.
//!
//! An expression cannot wait. A question that was not answered yet stops the evaluation; whoever evaluates finds the
//! answer and evaluates again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::eval::{Stop, Stopped};
use super::value::Value;

/// Who is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// Who makes the request.
    #[default]
    Requester,
    /// A service account: namespace and name.
    ServiceAccount(String, String),
}

/// What somebody may want to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Who.
    pub asker: Asker,
    /// The verb; of a path: the HTTP method in lower case.
    pub verb: String,
    /// A path that is no resource; empty for a resource.
    pub path: String,
    /// API group.
    pub group: String,
    /// Plural.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Label and field selector, by the names of the query parameters.
    pub selectors: BTreeMap<String, String>,
}

/// What is known about a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it is granted.
    pub allowed: bool,
    /// Why or why not.
    pub reason: String,
    /// Why it is not known.
    pub error: Option<String>,
}

/// Answers by question.
pub type Answers = BTreeMap<Question, Answer>;

/// The authorizer, or what it was asked so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Nothing yet but who.
    Authorizer(Asker),
    /// A path.
    Path(Question),
    /// A group.
    Group(Question),
    /// A resource.
    Resource(Question),
    /// The answer.
    Decision(Answer),
}

/// What Kubernetes charges for a question.
const COST: u64 = 350_000;

impl Rights {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::Path(_) => "kubernetes.authorization.PathCheck",
            Self::Group(_) => "kubernetes.authorization.GroupCheck",
            Self::Resource(_) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Calls one of its functions. `spend` is charged for a question, `answers` are what is known.
    pub(super) fn call(
        &self,
        name: &str,
        args: &[Value],
        answers: &Answers,
        spend: impl FnOnce(u64) -> Stopped<()>,
    ) -> Stopped<Value> {
        let texts: Option<Vec<&str>> =
            args.iter().map(|arg| if let Value::String(text) = arg { Some(&**text) } else { None }).collect();
        let texts = texts.ok_or_else(no_overload)?;
        let next = match (self, name, texts.as_slice()) {
            (Self::Authorizer(_), "path", [""]) => return Err(Stop::failed("path must not be empty")),
            (Self::Authorizer(asker), "path", [path]) => {
                Self::Path(Question { asker: asker.clone(), path: (*path).to_owned(), ..Question::default() })
            }
            (Self::Authorizer(asker), "group", [group]) => {
                Self::Group(Question { asker: asker.clone(), group: (*group).to_owned(), ..Question::default() })
            }
            (Self::Authorizer(_), "serviceAccount", [namespace, name]) => {
                if !is_name(name) {
                    return Err(Stop::failed("Invalid service account name"));
                }
                if !is_name(namespace) {
                    return Err(Stop::failed("Invalid service account namespace"));
                }
                Self::Authorizer(Asker::ServiceAccount((*namespace).to_owned(), (*name).to_owned()))
            }
            (Self::Group(_), "resource", [""]) => return Err(Stop::failed("resource must not be empty")),
            (Self::Group(question), "resource", [resource]) => {
                Self::Resource(Question { resource: (*resource).to_owned(), ..question.clone() })
            }
            (Self::Resource(question), _, [text]) if name != "check" => Self::Resource(narrowed(question, name, text)?),
            (Self::Resource(question) | Self::Path(question), "check", [verb]) => {
                spend(COST)?;
                let question = Question { verb: (*verb).to_owned(), ..question.clone() };
                match answers.get(&question) {
                    Some(answer) => Self::Decision(answer.clone()),
                    None => return Err(Stop::Ask(Box::new(question))),
                }
            }
            (Self::Decision(answer), _, []) => return told(answer, name),
            (_, _, _) => return Err(no_overload()),
        };
        Ok(Value::Rights(Arc::new(next)))
    }
}

fn no_overload() -> Stop {
    Stop::failed("no such overload")
}

fn is_name(text: &str) -> bool {
    let is_part = |next: char| next.is_ascii_lowercase() || next.is_ascii_digit() || next == '-' || next == '.';
    let is_end = |next: Option<char>| next.is_some_and(|next| next.is_ascii_alphanumeric());
    text.len() <= 253 && text.chars().all(is_part) && is_end(text.chars().next()) && is_end(text.chars().last())
}

fn narrowed(question: &Question, name: &str, text: &str) -> Stopped<Question> {
    let mut question = question.clone();
    match name {
        "subresource" => text.clone_into(&mut question.subresource),
        "namespace" => text.clone_into(&mut question.namespace),
        "name" => text.clone_into(&mut question.name),
        "fieldSelector" | "labelSelector" => {
            question.selectors.insert(name.to_owned(), text.to_owned());
        }
        _unknown => return Err(no_overload()),
    }
    Ok(question)
}

fn told(answer: &Answer, name: &str) -> Stopped<Value> {
    Ok(match name {
        "allowed" => Value::Bool(answer.allowed),
        "reason" => Value::text(&answer.reason),
        "errored" => Value::Bool(answer.error.is_some()),
        "error" => Value::text(answer.error.as_deref().unwrap_or_default()),
        _unknown => return Err(no_overload()),
    })
}
