//! Types of expressions, and which functions and operators there are for which of them; pure.
//!
//! The functions are those of Kubernetes 1.34 for new expressions, as data: one line for each signature.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Known only when it is evaluated.
    Dyn,
    /// A type without parameters, by name.
    Plain(String),
    /// A list.
    List(Box<Type>),
    /// A map.
    Map(Box<(Type, Type)>),
    /// A value that may be absent.
    Optional(Box<Type>),
    /// A type as a value.
    Of(Box<Type>),
    /// Any type, the same wherever the letter stands in a signature.
    Any(char),
}

impl Type {
    /// A type by its name.
    #[must_use]
    pub fn plain(name: &str) -> Self {
        Self::Plain(name.to_owned())
    }

    /// Whether it is this one.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Self::Plain(own) if own == name)
    }

    /// Whether a part of it is known only later, as of an empty list.
    pub(super) fn is_vague(&self) -> bool {
        match self {
            Self::Dyn => true,
            Self::Plain(_) | Self::Any(_) => false,
            Self::List(of) | Self::Optional(of) | Self::Of(of) => of.is_vague(),
            Self::Map(of) => of.0.is_vague() || of.1.is_vague(),
        }
    }

    /// A type from how it is written.
    pub(super) fn read(text: &str) -> Self {
        let inner = |head: &str| text.strip_prefix(head)?.strip_suffix(')');
        if let Some(item) = inner("list(") {
            return Self::List(Box::new(Self::read(item)));
        }
        if let Some((key, value)) = inner("map(").and_then(|both| both.split_once(", ")) {
            return Self::Map(Box::new((Self::read(key), Self::read(value))));
        }
        if let Some(item) = inner("optional_type(") {
            return Self::Optional(Box::new(Self::read(item)));
        }
        if let Some(item) = inner("type(") {
            return Self::Of(Box::new(Self::read(item)));
        }
        match text {
            "dyn" => Self::Dyn,
            "A" => Self::Any('A'),
            "B" => Self::Any('B'),
            name => Self::plain(name),
        }
    }

    /// Whether a value of type `given` may stand where this type is wanted; binds letters.
    pub(super) fn takes(&self, given: &Self, bound: &mut BTreeMap<char, Type>) -> bool {
        match (self, given) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Any(letter), given) => match bound.get(letter).cloned() {
                None => {
                    bound.insert(*letter, given.clone());
                    true
                }
                Some(Self::Dyn) => true,
                Some(before) => before.takes(given, bound) || given.takes(&before, bound),
            },
            (Self::Plain(wanted), Self::Plain(given)) => {
                wanted == given || (given == "null" && is_nullable(wanted)) || (wanted == "null" && is_nullable(given))
            }
            (Self::List(wanted), Self::List(given)) | (Self::Optional(wanted), Self::Optional(given)) => {
                wanted.takes(given, bound)
            }
            (Self::Of(wanted), Self::Of(given)) => wanted.takes(given, bound),
            (Self::Map(wanted), Self::Map(given)) => wanted.0.takes(&given.0, bound) && wanted.1.takes(&given.1, bound),
            (_, _) => false,
        }
    }

    fn filled(&self, bound: &BTreeMap<char, Type>) -> Self {
        let inner = |of: &Self| Box::new(of.filled(bound));
        match self {
            Self::Any(letter) => bound.get(letter).cloned().unwrap_or(Self::Dyn),
            Self::List(of) => Self::List(inner(of)),
            Self::Optional(of) => Self::Optional(inner(of)),
            Self::Of(of) => Self::Of(inner(of)),
            Self::Map(of) => Self::Map(Box::new((of.0.filled(bound), of.1.filled(bound)))),
            Self::Dyn | Self::Plain(_) => self.clone(),
        }
    }
}

/// Objects and times may be null; bare values may not.
fn is_nullable(name: &str) -> bool {
    name.contains('.') || matches!(name, "timestamp" | "duration" | "Object" | "JSONPatch")
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Plain(name) => f.write_str(name),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(both) => write!(f, "map({}, {})", both.0, both.1),
            Self::Optional(item) => write!(f, "optional_type({item})"),
            Self::Of(item) => write!(f, "type({item})"),
            Self::Any(letter) => write!(f, "{letter}"),
        }
    }
}

struct Signature {
    target: Option<Type>,
    args: Vec<Type>,
    result: Type,
}

/// Whether a function of this name exists, with its dots.
pub(super) fn is_function(name: &str) -> bool {
    TABLE.contains_key(name)
}

/// The type of a call; `None`: there is no such signature.
pub(super) fn result(name: &str, target: Option<&Type>, args: &[Type]) -> Option<Type> {
    let mut found: Option<Type> = None;
    for signature in TABLE.get(name).into_iter().flatten() {
        let mut bound = BTreeMap::new();
        let fits = match (&signature.target, target) {
            (None, None) => true,
            (Some(wanted), Some(given)) => wanted.takes(given, &mut bound),
            (_, _) => false,
        };
        let fits = fits
            && signature.args.len() == args.len()
            && signature.args.iter().zip(args).all(|(wanted, given)| wanted.takes(given, &mut bound));
        if fits {
            let result = signature.result.filled(&bound);
            found = match found {
                None => Some(result),
                Some(before) if before == result => Some(before),
                Some(_) => Some(Type::Dyn),
            };
        }
    }
    found
}

/// `string.(int)`, as messages show what a function was called with.
pub(super) fn shown(target: Option<&Type>, args: &[Type]) -> String {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    let target = target.map(|target| format!("{target}.")).unwrap_or_default();
    format!("{target}({})", args.join(", "))
}

static TABLE: LazyLock<BTreeMap<&'static str, Vec<Signature>>> = LazyLock::new(|| {
    let mut table: BTreeMap<&str, Vec<Signature>> = BTreeMap::new();
    for line in SIGNATURES.lines() {
        let Some((name, signatures)) = line.split_once(' ') else { continue };
        table.entry(name).or_default().extend(signatures.split(" | ").filter_map(signature));
    }
    table
});

/// `target.(arg; arg) result`.
fn signature(text: &str) -> Option<Signature> {
    let (head, result) = text.rsplit_once(" > ")?;
    let open = if head.starts_with('(') { 0 } else { head.find(".(")?.saturating_add(1) };
    let (target, args) = (head.get(..open.saturating_sub(1)).unwrap_or_default(), head.get(open..)?);
    let args = args.strip_prefix('(')?.strip_suffix(')')?;
    Some(Signature {
        target: Some(target).filter(|text| !text.is_empty()).map(Type::read),
        args: args.split("; ").filter(|text| !text.is_empty()).map(Type::read).collect(),
        result: Type::read(result),
    })
}

/// Every operator and function: name, then signatures.
const SIGNATURES: &str = include_str!("signatures.txt");

/// The fields of the types that requests and namespaces have; `None`: no such type, or any field.
pub(super) fn fields(name: &str) -> Option<&'static [(&'static str, &'static str)]> {
    FIELDS.iter().find(|(own, _)| *own == name).map(|(_, fields)| *fields)
}

type Fields = &'static [(&'static str, &'static str)];

const FIELDS: [(&str, Fields); 8] = [
    (
        "kubernetes.AdmissionRequest",
        &[
            ("kind", "kubernetes.GroupVersionKind"),
            ("resource", "kubernetes.GroupVersionResource"),
            ("subResource", "string"),
            ("requestKind", "kubernetes.GroupVersionKind"),
            ("requestResource", "kubernetes.GroupVersionResource"),
            ("requestSubResource", "string"),
            ("name", "string"),
            ("namespace", "string"),
            ("operation", "string"),
            ("userInfo", "kubernetes.UserInfo"),
            ("dryRun", "bool"),
            ("options", "dyn"),
        ],
    ),
    ("kubernetes.GroupVersionKind", &[("group", "string"), ("version", "string"), ("kind", "string")]),
    ("kubernetes.GroupVersionResource", &[("group", "string"), ("version", "string"), ("resource", "string")]),
    (
        "kubernetes.UserInfo",
        &[
            ("username", "string"),
            ("uid", "string"),
            ("groups", "list(string)"),
            ("extra", "map(string, list(string))"),
        ],
    ),
    (
        "kubernetes.Namespace",
        &[
            ("metadata", "kubernetes.NamespaceMetadata"),
            ("spec", "kubernetes.NamespaceSpec"),
            ("status", "kubernetes.NamespaceStatus"),
        ],
    ),
    (
        "kubernetes.NamespaceMetadata",
        &[
            ("name", "string"),
            ("generateName", "string"),
            ("namespace", "string"),
            ("labels", "map(string, string)"),
            ("annotations", "map(string, string)"),
            ("UID", "string"),
            ("creationTimestamp", "timestamp"),
            ("deletionGracePeriodSeconds", "int"),
            ("deletionTimestamp", "timestamp"),
            ("generation", "int"),
            ("resourceVersion", "string"),
            ("finalizers", "list(string)"),
        ],
    ),
    ("kubernetes.NamespaceSpec", &[("finalizers", "list(string)")]),
    ("kubernetes.NamespaceStatus", &[("conditions", "list(dyn)"), ("phase", "string")]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let count: usize = SIGNATURES.lines().map(|line| line.split(" | ").count()).sum();
        assert_eq!(TABLE.values().map(Vec::len).sum::<usize>(), count);
    }

    #[test]
    fn the_result_of_a_call_follows_its_arguments() {
        let list = Type::read("list(int)");
        assert_eq!(result("size", None, std::slice::from_ref(&list)), Some(Type::plain("int")));
        assert_eq!(result("max", Some(&list), &[]), Some(Type::plain("int")));
        assert_eq!(result("_+_", None, &[Type::Dyn, Type::Dyn]), Some(Type::Dyn));
        assert_eq!(result("_+_", None, &[Type::plain("int"), Type::plain("string")]), None);
        assert_eq!(result("_==_", None, &[Type::plain("string"), Type::plain("null")]), None);
        assert_eq!(
            result("_==_", None, &[Type::plain("kubernetes.Namespace"), Type::plain("null")]),
            Some(Type::plain("bool"))
        );
    }
}
