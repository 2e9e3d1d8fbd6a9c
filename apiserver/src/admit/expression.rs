//! Expressions in CEL, as admission conditions and policies are written; pure.
//!
//! The language, its types, its costs and its messages are ours, after Kubernetes' own: the interpreter of the crate
//! `cel` (0.13) cannot be bounded, takes `!!x` for `!x`, and finds fields in what has none, each of which would let
//! through what a policy forbids. The library of functions on quantities, addresses, versions, URLs, formats and
//! strings is that of `kube-cel`.
//!
//! Work is bounded by a budget in Kubernetes' units, and depth by the parser. Nothing here waits: what an expression
//! asks of the authorizer stops it ([`Stop::Ask`]), and it is evaluated again with the answer.

use std::collections::BTreeMap;

mod call;
mod check;
mod convert;
mod eval;
mod foreign;
mod kind;
mod operate;
mod rights;
mod syntax;
mod token;
mod value;

pub use eval::{Machine, Stop, Stopped};
pub use kind::Type;
pub use rights::{Answer, Answers, Asker, Question, Rights};
pub use value::{Key, Opaque, Value};

/// What is wrong with an expression, and where, counted in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Issue {
    at: usize,
    text: String,
}

/// What an expression may refer to.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Names and their types.
    names: BTreeMap<String, Type>,
    /// The fields of `variables`; `None`: there is no such name.
    variables: Option<BTreeMap<String, Type>>,
    /// Whether patches can be built: `Object{}` and `JSONPatch{}`.
    builds: bool,
}

/// Variables of a policy in their order: understood, or why not.
pub type Variables = Vec<(String, Result<Program, String>)>;

/// Name of the type that `variables` has.
const VARIABLES: &str = "kubernetes.variables";

impl Scope {
    /// What every admission expression sees: the object, the old one, the request and the namespace.
    #[must_use]
    pub fn admission() -> Self {
        let names = [
            ("object", Type::Dyn),
            ("oldObject", Type::Dyn),
            ("request", Type::plain("kubernetes.AdmissionRequest")),
            ("namespaceObject", Type::plain("kubernetes.Namespace")),
        ];
        let names = names.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
        Self { names, variables: None, builds: false }
    }

    /// The same, and the authorizer.
    #[must_use]
    pub fn with_authorizer(mut self) -> Self {
        let check = Type::plain("kubernetes.authorization.ResourceCheck");
        self.names.insert("authorizer.requestResource".to_owned(), check);
        self.names.insert("authorizer".to_owned(), Type::plain("kubernetes.authorization.Authorizer"));
        self
    }

    /// The same, without the authorizer.
    #[must_use]
    pub fn without_authorizer(mut self) -> Self {
        self.names.retain(|name, _| !name.starts_with("authorizer"));
        self
    }

    /// The same, and parameters if `has`.
    #[must_use]
    pub fn with_params(mut self, has: bool) -> Self {
        if has {
            self.names.insert("params".to_owned(), Type::Dyn);
        }
        self
    }

    /// The same, and `variables`, none yet.
    #[must_use]
    pub fn with_variables(mut self) -> Self {
        self.names.insert("variables".to_owned(), Type::plain(VARIABLES));
        self.variables = Some(BTreeMap::new());
        self
    }

    /// The same, and the types patches are built of.
    #[must_use]
    pub fn with_patches(mut self) -> Self {
        self.builds = true;
        self
    }

    /// From now on there is a variable of this name and type.
    pub fn add_variable(&mut self, name: &str, of: Type) {
        self.variables.get_or_insert_default().insert(name.to_owned(), of);
    }
}

/// An expression, understood.
#[derive(Clone, Debug)]
pub struct Program {
    source: String,
    root: syntax::Expr,
    result: Type,
}

impl Program {
    /// Understands an expression, or says in Kubernetes' words why it cannot be.
    pub fn compile(source: &str, scope: &Scope) -> Result<Self, String> {
        let root = syntax::parse(source).map_err(|issue| failed(source, &[issue]))?;
        let (result, issues) = check::check(&root, scope);
        if !issues.is_empty() {
            return Err(failed(source, &issues));
        }
        Ok(Self { source: source.to_owned(), root, result })
    }

    /// The same, for an expression whose result must be one of these types (a result known only later may be any).
    pub fn compile_to(source: &str, scope: &Scope, wanted: &[&str]) -> Result<Self, String> {
        let program = Self::compile(source, scope)?;
        let fits = wanted.iter().any(|wanted| program.result == Type::read(wanted));
        if fits {
            return Ok(program);
        }
        // This one message writes the type of null in full.
        let full = |name: &str| if name == "null" { "null_type".to_owned() } else { name.to_owned() };
        let got = full(&program.result.to_string());
        Err(match wanted {
            [wanted] => format!("must evaluate to {} but got {got}", full(wanted)),
            several => {
                let several: Vec<String> = several.iter().map(|wanted| full(wanted)).collect();
                format!("must evaluate to one of [{}] but got {got}", several.join(" "))
            }
        })
    }

    /// As written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type of its result.
    #[must_use]
    pub fn result(&self) -> &Type {
        &self.result
    }
}

fn failed(source: &str, issues: &[Issue]) -> String {
    let shown: Vec<String> = issues.iter().map(|issue| shown(source, issue)).collect();
    format!("compilation failed: {}", shown.join("\n"))
}

/// An issue with its line, and a mark under its place.
fn shown(source: &str, issue: &Issue) -> String {
    let before: Vec<char> = source.chars().take(issue.at).collect();
    let row = before.iter().filter(|next| **next == '\n').count();
    let column = before.iter().rev().take_while(|next| **next != '\n').count();
    let line = source.split('\n').nth(row).unwrap_or_default();
    let (text, dots) = (&issue.text, ".".repeat(column));
    format!("ERROR: <input>:{}:{}: {text}\n | {line}\n | {dots}^", row.saturating_add(1), column.saturating_add(1))
}

#[cfg(test)]
mod tests;
