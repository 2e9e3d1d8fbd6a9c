//! Label and field selectors: the full grammar of Kubernetes, parsed once per request, matched per object.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// Most requirements of one selector; a longer one is a mistake or an attack.
const REQUIREMENTS_MAX: usize = 1000;

/// What a request selects. Empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

/// Which fields a selector may name, and how the refusal of others is worded.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// The paths.
    pub known: &'a [&'a str],
    /// The kind is one of Kubernetes' own, whose refusals tell what is known; those of custom resources do not.
    pub is_built_in: bool,
}

impl Selector {
    /// Reads both selectors of a request.
    pub fn parse(labels: Option<&str>, fields: Option<&str>, known: Fields<'_>) -> Result<Self> {
        Ok(Self {
            labels: parse_labels(labels.unwrap_or_default())?,
            fields: parse_fields(fields.unwrap_or_default(), known)?,
        })
    }

    /// True if every object is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name the fields admit, if they do.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let term = self.fields.iter().find(|term| term.equal && term.path == "metadata.name")?;
        Some(&term.value)
    }

    /// The labels that every selected object has: the key and, where only one will do, the value.
    pub fn needed(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.labels.iter().filter_map(|requirement| match &requirement.operator {
            Operator::Exists | Operator::Greater(_) | Operator::Less(_) => Some((requirement.key.as_str(), None)),
            Operator::In(list) => match list.as_slice() {
                [one] => Some((&requirement.key, Some(one.as_str()))),
                _ => Some((&requirement.key, None)),
            },
            Operator::Absent | Operator::NotIn(_) => None,
        })
    }

    /// Decides from the labels and fields of an object; absent fields read as empty, as in Kubernetes.
    pub fn matches<'a>(
        &self,
        label: impl Fn(&str) -> Option<&'a str>,
        field: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        self.fields.iter().all(|term| (field(&term.path).unwrap_or_default() == term.value) == term.equal)
            && self.labels.iter().all(|requirement| requirement.operator.admits(label(&requirement.key)))
    }
}

impl Operator {
    fn admits(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(list) => value.is_some_and(|value| list.iter().any(|item| item == value)),
            Self::NotIn(list) => value.is_none_or(|value| !list.iter().any(|item| item == value)),
            Self::Greater(bound) => {
                value.and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value > *bound)
            }
            Self::Less(bound) => value.and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value < *bound),
        }
    }
}

fn parse_fields(text: &str, known: Fields<'_>) -> Result<Vec<FieldTerm>> {
    let mut terms = split_escaped(text);
    if terms.len() > REQUIREMENTS_MAX {
        return Err(too_many());
    }
    terms.sort_unstable();
    let read = terms.iter().map(|term| field_term(text, term)).collect::<Result<Vec<_>>>()?;
    // A term of nothing selects everything.
    let read: Vec<FieldTerm> =
        read.into_iter().filter(|term| !(term.path.is_empty() && term.value.is_empty())).collect();
    match read.iter().find(|term| !known.known.contains(&term.path.as_str())) {
        Some(odd) => Err(unknown_field(&odd.path, known)),
        None => Ok(read),
    }
}

fn unknown_field(path: &str, known: Fields<'_>) -> Error {
    if !known.is_built_in {
        return Error::bad_request(format!("field label not supported: {path}"));
    }
    let list: Vec<String> = known.known.iter().map(|path| format!("{path:?}")).collect();
    Error::bad_request(format!("{path:?} is not a known field selector: only {}", list.join(", ")))
}

fn field_term(whole: &str, term: &str) -> Result<FieldTerm> {
    let invalid = || Error::bad_request(format!("invalid selector: '{whole}'; can't understand '{term}'"));
    let at = term.find('=').ok_or_else(invalid)?;
    let (left, right) = term.split_at(at);
    let (path, equal) = left.strip_suffix('!').map_or((left, true), |path| (path, false));
    let value = match right.strip_prefix("==") {
        Some(value) if equal => value,
        Some(_) | None => right.strip_prefix('=').unwrap_or(right),
    };
    Ok(FieldTerm { path: path.to_owned(), value: unescape(value).ok_or_else(invalid)?, equal })
}

/// Splits at commas that are not escaped; empty terms say nothing.
fn split_escaped(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        match (c, escaped, terms.last_mut()) {
            (',', false, _) => terms.push(String::new()),
            (_, _, Some(term)) => term.push(c),
            (_, _, None) => {}
        }
        escaped = c == '\\' && !escaped;
    }
    terms.retain(|term| !term.is_empty());
    terms
}

/// `\\`, `\,` and `\=` stand for themselves; a bare `=` or any other escape is an error.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|next| matches!(next, '\\' | ',' | '='))?),
            '=' => return None,
            other => out.push(other),
        }
    }
    Some(out)
}

/// The words that stand for an operator between a key and its values, in the order of Kubernetes' message.
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

fn parse_labels(text: &str) -> Result<Vec<Requirement>> {
    let mut tokens = Tokens { rest: text };
    let mut list = Vec::new();
    loop {
        match tokens.peek() {
            None => return Ok(list),
            Some(token) if token != "!" && !is_word(token) => {
                return Err(found(token, ", expected: !, identifier, or 'end of string'"));
            }
            Some(_) => {}
        }
        if list.len() == REQUIREMENTS_MAX {
            return Err(too_many());
        }
        list.push(requirement(&mut tokens).map_err(of_requirement)?);
        match tokens.next() {
            None => return Ok(list),
            Some(",") => match tokens.peek() {
                Some(next) if next == "!" || is_word(next) => {}
                next => return Err(found(next.unwrap_or_default(), ", expected: identifier after ','")),
            },
            Some(other) => return Err(found(other, ", expected: ',' or 'end of string'")),
        }
    }
}

/// Faults of a requirement say so; those of what stands between two of them do not.
fn of_requirement(error: Error) -> Error {
    match error {
        Error::BadRequest(text) => Error::BadRequest(format!("unable to parse requirement: {text}")),
        other => other,
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement> {
    let first = tokens.next().unwrap_or_default();
    let (key, negated) = if first == "!" { (tokens.next().unwrap_or_default(), true) } else { (first, false) };
    if !is_word(key) {
        return Err(found(key, ", expected: identifier"));
    }
    if let Some(fault) = crate::object::name::qualified_name(key) {
        return Err(invalid("<nil>", key, &fault));
    }
    match tokens.peek() {
        None | Some(",") => {
            return Ok(requirement_of(key, if negated { Operator::Absent } else { Operator::Exists }));
        }
        Some(_) => {}
    }
    // What follows a negated key is read as if it were not negated, as in Kubernetes.
    let operator = match tokens.next().unwrap_or_default() {
        "=" | "==" => Operator::In(vec![value(tokens, key)?]),
        "!=" => Operator::NotIn(vec![value(tokens, key)?]),
        "in" => Operator::In(values(tokens, key)?),
        "notin" => Operator::NotIn(values(tokens, key)?),
        ">" => Operator::Greater(number(tokens, key)?),
        "<" => Operator::Less(number(tokens, key)?),
        other => return Err(found(other, &format!(", expected: {BINARY_OPERATORS}"))),
    };
    Ok(requirement_of(key, operator))
}

fn requirement_of(key: &str, operator: Operator) -> Requirement {
    Requirement { key: key.to_owned(), operator }
}

/// One value; nothing before a comma or the end is the empty value.
fn value(tokens: &mut Tokens<'_>, key: &str) -> Result<String> {
    match tokens.peek() {
        None | Some(",") => Ok(String::new()),
        Some(token) if !is_word(token) => Err(found(token, ", expected: identifier")),
        Some(token) => {
            tokens.next();
            checked(vec![token.to_owned()], key).map(|mut list| list.pop().unwrap_or_default())
        }
    }
}

/// The values in parentheses, sorted, each once; nothing between two commas is the empty value.
fn values(tokens: &mut Tokens<'_>, key: &str) -> Result<Vec<String>> {
    match tokens.next() {
        Some("(") => {}
        other => return Err(found(other.unwrap_or_default(), " expected: '('")),
    }
    match tokens.peek() {
        Some(")") => {
            tokens.next();
            return Ok(vec![String::new()]);
        }
        Some(token) if token == "," || is_word(token) => {}
        other => return Err(found(other.unwrap_or_default(), ", expected: ',', ')' or identifier")),
    }
    let mut set = BTreeSet::new();
    loop {
        if set.len() == REQUIREMENTS_MAX {
            return Err(too_many());
        }
        match tokens.next() {
            Some(",") => {
                if set.is_empty() {
                    set.insert(String::new());
                }
                match tokens.peek() {
                    Some(")") => {
                        set.insert(String::new());
                        break;
                    }
                    Some(",") => {
                        tokens.next();
                        set.insert(String::new());
                    }
                    _ => {}
                }
            }
            Some(token) if is_word(token) => {
                set.insert(token.to_owned());
                match tokens.peek() {
                    Some(",") => {}
                    Some(")") => break,
                    other => return Err(found(other.unwrap_or_default(), ", expected: ',' or ')'")),
                }
            }
            other => return Err(found(other.unwrap_or_default(), ", expected: ',', or identifier")),
        }
    }
    tokens.next();
    checked(set.into_iter().collect(), key)
}

fn checked(values: Vec<String>, key: &str) -> Result<Vec<String>> {
    for (at, value) in values.iter().enumerate() {
        if let Some(fault) = crate::object::name::label_value(value) {
            return Err(invalid(&format!("values[{at}][{key}]"), value, &fault));
        }
    }
    Ok(values)
}

fn number(tokens: &mut Tokens<'_>, key: &str) -> Result<i64> {
    let text = value(tokens, key)?;
    let fault = "for 'Gt', 'Lt' operators, the value must be an integer";
    text.parse().map_err(|_not_a_number| invalid("values[0]", &text, fault))
}

fn invalid(place: &str, value: &str, fault: &str) -> Error {
    Error::bad_request(format!("{place}: Invalid value: {value:?}: {fault}"))
}

fn found(token: &str, expected: &str) -> Error {
    Error::bad_request(format!("found '{token}'{expected}"))
}

fn too_many() -> Error {
    Error::bad_request(format!("the selector has more than {REQUIREMENTS_MAX} requirements"))
}

/// A key or a value. The words `in` and `notin` are operators only between the two.
fn is_word(token: &str) -> bool {
    !matches!(token, "" | "=" | "==" | "!=" | "!" | ">" | "<" | "(" | ")" | ",")
}

/// Cuts a selector into words and operators; white space separates.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let first = text.chars().next()?;
        let two = text.get(..2).unwrap_or_default();
        let length = match first {
            _ if two == "==" || two == "!=" => 2,
            '=' | '!' | '>' | '<' | '(' | ')' | ',' => 1,
            _ => text.find(|c: char| c.is_whitespace() || "=!><(),".contains(c)).unwrap_or(text.len()),
        };
        text.get(..length)
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek()?;
        let text = self.rest.trim_start();
        self.rest = text.get(token.len()..).unwrap_or_default();
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const NONE: Fields<'static> = Fields { known: &[], is_built_in: false };

    fn labels<'a>(key: &str, of: &'a [(&'a str, &'a str)]) -> Option<&'a str> {
        of.iter().find(|(have, _)| *have == key).map(|(_, value)| *value)
    }

    fn selects(selector: &str, of: &[(&str, &str)]) -> bool {
        Selector::parse(Some(selector), None, NONE).unwrap().matches(|key| labels(key, of), |_| None)
    }

    #[test]
    fn every_form_of_a_label_requirement_is_understood() {
        let object = [("app", "redis"), ("tier", "3"), ("a.b/c", "")];
        for yes in [
            "",
            "app",
            "app=redis",
            "app==redis",
            "app!=x",
            "none!=x",
            "app in (redis,x)",
            "app notin (x, y)",
            "!none",
            "tier>2",
            "tier<4",
            "app=redis,tier in (3)",
            "a.b/c=",
            "a.b/c",
            " app = redis , !none ",
            "a.b/c in (,x)",
        ] {
            assert!(selects(yes, &object), "{yes}");
        }
        for no in ["app=x", "!app", "none", "app notin (redis)", "tier>3", "app>1", "none in (x)", "app=redis,none"] {
            assert!(!selects(no, &object), "{no}");
        }
    }

    #[test]
    fn a_broken_label_selector_is_a_bad_request_that_names_the_place() {
        let fault = |text| Selector::parse(Some(text), None, NONE).unwrap_err().to_string();
        for (text, told) in [
            ("a in x", "unable to parse requirement: found 'x' expected: '('"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("=", "found '=', expected: !, identifier, or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in ()x", "found 'x', expected: ',' or 'end of string'"),
            ("a=b!c", "found '!', expected: ',' or 'end of string'"),
            ("a==(", "unable to parse requirement: found '(', expected: identifier"),
        ] {
            assert_eq!(fault(text), told, "{text}");
        }
        for (text, place) in
            [("-a", "<nil>: "), ("a=-", "values[0][a]: "), ("a in (b,-)", "values[0][a]: "), ("a>x", "values[0]: ")]
        {
            assert!(fault(text).starts_with(&format!("unable to parse requirement: {place}Invalid value: ")), "{text}");
        }
    }

    #[test]
    fn the_words_of_operators_are_keys_and_values_where_no_operator_can_be() {
        assert!(selects("in in (notin)", &[("in", "notin")]));
        assert!(selects("notin", &[("notin", "")]) && selects("a=in", &[("a", "in")]));
    }

    #[test]
    fn a_field_selector_may_only_name_known_fields() {
        let known = ["metadata.name", "metadata.namespace"];
        let parse = |text| Selector::parse(None, Some(text), Fields { known: &known, is_built_in: true });
        let selector = parse("metadata.name=a,metadata.namespace!=b").unwrap();
        assert_eq!(selector.name(), Some("a"));
        let field = |path: &str| labels(path, &[("metadata.name", "a"), ("metadata.namespace", "c")]);
        assert!(selector.matches(|_| None, field));
        assert_eq!(
            parse("x=1").unwrap_err(),
            Error::bad_request("\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        );
        let custom = Selector::parse(None, Some("x=1"), Fields { known: &known, is_built_in: false });
        assert_eq!(custom, Err(Error::bad_request("field label not supported: x")));
        assert!(parse("=,!=").unwrap().is_empty());
        assert_eq!(
            parse("nonsense").unwrap_err(),
            Error::bad_request("invalid selector: 'nonsense'; can't understand 'nonsense'")
        );
        assert!(parse(r"metadata.name=a\,b").unwrap().matches(|_| None, |_| Some("a,b")));
    }

    proptest! {
        #[test]
        fn what_lacks_a_needed_label_is_not_selected(
            terms in prop::collection::vec("[ab]|![ab]|[ab] *(=|!=) *[xy1]|[ab] (in|notin) \\([xy](,[xy])?\\)|[ab] [<>] 1", 1..4),
            has in prop::collection::btree_map("[ab]", "[xy12]", 0..3),
        ) {
            let selector = Selector::parse(Some(&terms.join(",")), None, NONE).unwrap();
            let lacks = |(key, value): (&str, Option<&str>)| match (has.get(key), value) {
                (Some(has), Some(value)) => has != value,
                (Some(_), None) => false,
                (None, _) => true,
            };
            if selector.needed().any(lacks) {
                prop_assert!(!selector.matches(|key| has.get(key).map(String::as_str), |_| None));
            }
        }

        #[test]
        fn no_text_breaks_the_parser(text in "[a-c=!<>(), in-]{0,24}") {
            drop(Selector::parse(Some(&text), Some(&text), Fields { known: &["a"], is_built_in: true }));
        }
    }
}
