//! Label and field selectors: the full grammar of Kubernetes, parsed once per request, matched per object.

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

impl Selector {
    /// Reads both selectors of a request. `known` are the paths a field selector may name.
    pub fn parse(labels: Option<&str>, fields: Option<&str>, known: &[&str]) -> Result<Self> {
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

fn parse_fields(text: &str, known: &[&str]) -> Result<Vec<FieldTerm>> {
    let terms = split_escaped(text);
    if terms.len() > REQUIREMENTS_MAX {
        return Err(too_many());
    }
    terms.iter().map(|term| field_term(term, known)).collect()
}

fn field_term(term: &str, known: &[&str]) -> Result<FieldTerm> {
    let invalid = || Error::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'"));
    let at = term.find('=').ok_or_else(invalid)?;
    let (left, right) = term.split_at(at);
    let (path, equal) = left.strip_suffix('!').map_or((left, true), |path| (path, false));
    let value = right.strip_prefix("==").or_else(|| right.strip_prefix('=')).unwrap_or(right);
    if !known.contains(&path) {
        let list: Vec<String> = known.iter().map(|path| format!("{path:?}")).collect();
        let list = list.join(", ");
        return Err(Error::bad_request(format!("{path:?} is not a known field selector: only {list}")));
    }
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

fn parse_labels(text: &str) -> Result<Vec<Requirement>> {
    let mut tokens = Tokens { rest: text };
    let mut list = Vec::new();
    if tokens.peek().is_none() {
        return Ok(list);
    }
    loop {
        if list.len() == REQUIREMENTS_MAX {
            return Err(too_many());
        }
        list.push(requirement(&mut tokens)?);
        match tokens.next() {
            None => return Ok(list),
            Some(",") => {}
            Some(other) => return Err(found(other, "',' or 'end of string'")),
        }
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement> {
    let first = tokens.next().unwrap_or_default();
    let (key, negated) = if first == "!" { (tokens.next().unwrap_or_default(), true) } else { (first, false) };
    let fault = crate::object::name::qualified_name(key);
    if is_operator(key) || key.is_empty() {
        return Err(found(key, "identifier"));
    }
    if let Some(fault) = fault {
        return Err(Error::bad_request(format!("unable to parse requirement: key: Invalid value: {key:?}: {fault}")));
    }
    let operator = match tokens.peek() {
        None | Some(",") => return Ok(requirement_of(key, if negated { Operator::Absent } else { Operator::Exists })),
        Some(other) if negated => return Err(found(other, "',' or 'end of string'")),
        Some(operator) => operator.to_owned(),
    };
    tokens.next();
    let operator = match operator.as_str() {
        "=" | "==" => Operator::In(vec![value(tokens)?]),
        "!=" => Operator::NotIn(vec![value(tokens)?]),
        "in" => Operator::In(values(tokens)?),
        "notin" => Operator::NotIn(values(tokens)?),
        ">" => Operator::Greater(number(tokens)?),
        "<" => Operator::Less(number(tokens)?),
        other => return Err(found(other, "'=', '!=', '==', 'in', notin'")),
    };
    Ok(requirement_of(key, operator))
}

fn requirement_of(key: &str, operator: Operator) -> Requirement {
    Requirement { key: key.to_owned(), operator }
}

/// One value; nothing before a comma or the end is the empty value.
fn value(tokens: &mut Tokens<'_>) -> Result<String> {
    match tokens.peek() {
        None | Some("," | ")") => Ok(String::new()),
        Some(token) if is_operator(token) && token != "in" && token != "notin" => Err(found(token, "identifier")),
        Some(token) => {
            let value = token.to_owned();
            tokens.next();
            match crate::object::name::label_value(&value) {
                Some(fault) => {
                    let head = "unable to parse requirement: values[0]: Invalid value";
                    Err(Error::bad_request(format!("{head}: {value:?}: {fault}")))
                }
                None => Ok(value),
            }
        }
    }
}

fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>> {
    match tokens.next() {
        Some("(") => {}
        other => return Err(found(other.unwrap_or_default(), "'('")),
    }
    let mut list = Vec::new();
    loop {
        list.push(value(tokens)?);
        match tokens.next() {
            Some(",") if list.len() < REQUIREMENTS_MAX => {}
            Some(",") => return Err(too_many()),
            Some(")") => return Ok(list),
            other => return Err(found(other.unwrap_or_default(), "',' or ')'")),
        }
    }
}

fn number(tokens: &mut Tokens<'_>) -> Result<i64> {
    let text = value(tokens)?;
    text.parse().map_err(|_not_a_number| {
        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
        Error::bad_request(format!("unable to parse requirement: values[0]: Invalid value: {text:?}: {detail}"))
    })
}

fn found(token: &str, expected: &str) -> Error {
    Error::bad_request(format!("unable to parse requirement: found '{token}', expected: {expected}"))
}

fn too_many() -> Error {
    Error::bad_request(format!("the selector has more than {REQUIREMENTS_MAX} requirements"))
}

fn is_operator(token: &str) -> bool {
    matches!(token, "=" | "==" | "!=" | "!" | ">" | "<" | "(" | ")" | "," | "in" | "notin")
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

    fn labels<'a>(key: &str, of: &'a [(&'a str, &'a str)]) -> Option<&'a str> {
        of.iter().find(|(have, _)| *have == key).map(|(_, value)| *value)
    }

    fn selects(selector: &str, of: &[(&str, &str)]) -> bool {
        Selector::parse(Some(selector), None, &[]).unwrap().matches(|key| labels(key, of), |_| None)
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
        let fault = |text| Selector::parse(Some(text), None, &[]).unwrap_err();
        assert_eq!(fault("a in x"), Error::bad_request("unable to parse requirement: found 'x', expected: '('"));
        assert_eq!(fault("a=b,"), Error::bad_request("unable to parse requirement: found '', expected: identifier"));
        for text in ["=", "a b", "a=b c", "!a=b", "a in (b", "a>x", "-a", "a=é", "a=b!c", "a in ()x"] {
            assert!(matches!(fault(text), Error::BadRequest(_)), "{text}");
        }
    }

    #[test]
    fn a_field_selector_may_only_name_known_fields() {
        let known = ["metadata.name", "metadata.namespace"];
        let parse = |text| Selector::parse(None, Some(text), &known);
        let selector = parse("metadata.name=a,metadata.namespace!=b").unwrap();
        assert_eq!(selector.name(), Some("a"));
        let field = |path: &str| labels(path, &[("metadata.name", "a"), ("metadata.namespace", "c")]);
        assert!(selector.matches(|_| None, field));
        assert_eq!(
            parse("x=1").unwrap_err(),
            Error::bad_request("\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        );
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
            let selector = Selector::parse(Some(&terms.join(",")), None, &[]).unwrap();
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
            drop(Selector::parse(Some(&text), Some(&text), &["a"]));
        }
    }
}
