//! YAML bodies: the first document, with the keys that occur twice in a mapping told by their line, as Kubernetes' reader
//! tells them.

use std::collections::BTreeSet;

use serde_json::Value;
use serde_saphyr::{
    DuplicateKeyPolicy,
    granit_parser::{Event, Parser, ScanError, Span},
};

/// Most repeated keys that are told.
const REPEATED_MAX: usize = 100;
/// Deepest nesting that is looked at; the reader of the value has a limit of its own below it.
const DEPTH_MAX: usize = 256;

/// What a document holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The value; of keys that occur twice the last one counts.
    pub value: Value,
    /// `line 10: key "a" already set in map`, in the order of the document.
    pub repeated: Vec<String>,
}

/// Reads the first document of a text; what follows it is nobody's.
pub fn read(text: &str) -> Result<Read, String> {
    let (document, repeated) = survey(text).map_err(|error| error.to_string())?;
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let value =
        serde_saphyr::from_str_with_options(document, options).map_err(|error| first_line(&error.to_string()))?;
    Ok(Read { value, repeated })
}

/// Messages of the reader carry a drawing of the place; the first line says it.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Where the first document ends, and which of its keys are repeated.
fn survey(text: &str) -> Result<(&str, Vec<String>), ScanError> {
    let mut mappings = Mappings::default();
    let mut first_is_over = false;
    for found in Parser::new_from_str(text) {
        let (event, span) = match found {
            Ok(found) => found,
            // What is wrong behind the first document is nobody's.
            Err(_) if first_is_over => break,
            Err(error) => return Err(error),
        };
        match event {
            Event::DocumentStart(..) if first_is_over => {
                let end = span.start.byte_offset().unwrap_or(text.len());
                return Ok((text.get(..end).unwrap_or(text), mappings.repeated));
            }
            Event::DocumentEnd => first_is_over = true,
            other => mappings.see(&other, &span),
        }
    }
    Ok((text, mappings.repeated))
}

/// The mappings and lists that are open, and the keys they have had.
#[derive(Default)]
struct Mappings {
    open: Vec<Open>,
    repeated: Vec<String>,
}

enum Open {
    /// The keys so far; whether the next node is a key.
    Mapping(BTreeSet<String>, bool),
    List,
}

impl Mappings {
    fn see(&mut self, event: &Event<'_>, span: &Span) {
        match event {
            Event::Scalar(text, ..) => {
                self.key(text, span);
                self.node();
            }
            Event::Alias(_) => self.node(),
            Event::MappingStart(..) if self.open.len() < DEPTH_MAX => {
                self.open.push(Open::Mapping(BTreeSet::new(), true));
            }
            Event::SequenceStart(..) if self.open.len() < DEPTH_MAX => self.open.push(Open::List),
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
                self.node();
            }
            _ => {}
        }
    }

    fn key(&mut self, text: &str, span: &Span) {
        let Some(Open::Mapping(keys, true)) = self.open.last_mut() else { return };
        if !keys.insert(text.to_owned()) && self.repeated.len() < REPEATED_MAX {
            self.repeated.push(format!("line {}: key {text:?} already set in map", span.start.line()));
        }
    }

    /// A node is complete: keys and values take turns.
    fn node(&mut self) {
        if let Some(Open::Mapping(_, is_key)) = self.open.last_mut() {
            *is_key = !*is_key;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_key_that_occurs_twice_the_last_value_counts_and_its_line_is_told() {
        let text = "a: 1\nb:\n  c: [x, {d: 1}]\n  e: 2\n  e: 3\na: 4\n";
        let expected = Read {
            value: json!({"a": 4, "b": {"c": ["x", {"d": 1}], "e": 3}}),
            repeated: vec![
                "line 5: key \"e\" already set in map".into(),
                "line 6: key \"a\" already set in map".into(),
            ],
        };
        assert_eq!(read(text), Ok(expected));
        assert_eq!(read("- {a: 1}\n- {a: 1}\n").unwrap().repeated, Vec::<String>::new());
    }

    #[test]
    fn only_the_first_document_is_read() {
        for text in ["a: 1\n---\na: 2\n", "---\na: 1\n...\n---\n{\n", "a: 1\n--- [\n"] {
            assert_eq!(read(text), Ok(Read { value: json!({"a": 1}), repeated: Vec::new() }), "{text}");
        }
        assert!(read("a: [").is_err() && read("a: b: c").is_err());
    }
}
