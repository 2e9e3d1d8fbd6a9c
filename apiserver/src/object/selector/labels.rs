//! The grammar of label selectors, fault for fault as Kubernetes reads it.

use std::collections::BTreeSet;

use super::{Operator, REQUIREMENTS_MAX, Requirement, too_many};
use crate::{
    error::{Error, Result},
    object::name,
};

/// The words that stand for an operator between a key and its values, in the order of Kubernetes' message.
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Reads a label selector.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>> {
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
    if let Some(fault) = name::qualified_name(key) {
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
        if let Some(fault) = name::label_value(value) {
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
