//! Puts `metadata.resourceVersion` into an encoded object without parsing it. Pure.
//!
//! Stored objects carry no revision of their own, because the revision is known only when the write is committed. It is
//! spliced in as the first member of the top-level `metadata`.

use bytes::Bytes;

use crate::Revision;

/// The member's text up to its digits.
const MEMBER: &[u8] = b"\"resourceVersion\":\"";

/// Why a revision could not be spliced in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// The bytes are not one JSON object.
    #[error("looking for metadata: the value is not a JSON object")]
    NotAnObject,
    /// The object has no `metadata` object.
    #[error("looking for metadata: the object has no member metadata that is an object")]
    NoMetadata,
}

/// The encoded object with `metadata.resourceVersion` set. `value` must not have that member yet.
///
/// # Errors
/// When `value` is not a JSON object with a `metadata` object.
pub fn with_revision(value: &[u8], revision: Revision) -> Result<Bytes, SpliceError> {
    let mut out = Vec::with_capacity(value.len() + MEMBER.len() + 24);
    splice(value, revision, &mut out)?;
    Ok(out.into())
}

/// Appends the object with its revision to `out` and returns where in `out` the revision's digits begin.
pub(super) fn splice(value: &[u8], revision: Revision, out: &mut Vec<u8>) -> Result<usize, SpliceError> {
    let at = metadata_start(value)?;
    let (head, tail) = value.split_at_checked(at).ok_or(SpliceError::NotAnObject)?;
    out.extend_from_slice(head);
    out.extend_from_slice(MEMBER);
    let digits = out.len();
    out.extend_from_slice(revision.to_string().as_bytes());
    out.push(b'"');
    if tail.trim_ascii_start().first() != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(tail);
    Ok(digits)
}

/// The offset just after the opening brace of the top-level `metadata`.
fn metadata_start(value: &[u8]) -> Result<usize, SpliceError> {
    let mut scan = Scan { value, at: 0 };
    scan.expect(b'{').ok_or(SpliceError::NotAnObject)?;
    loop {
        let name = scan.string().ok_or(SpliceError::NoMetadata)?;
        scan.expect(b':').ok_or(SpliceError::NotAnObject)?;
        if name == b"metadata" {
            return scan.expect(b'{').map(|()| scan.at).ok_or(SpliceError::NoMetadata);
        }
        scan.skip_value().ok_or(SpliceError::NotAnObject)?;
        scan.expect(b',').ok_or(SpliceError::NoMetadata)?;
    }
}

/// A position in JSON text. Methods return None where the text is not what they look for.
struct Scan<'a> {
    value: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&mut self) -> Option<u8> {
        while self.value.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.value.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// A string's raw content.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.value.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.value.get(start..self.at - 1)
    }

    /// Any value. Brackets are only counted; whether they match is for the parser, which reads every object anyway.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
            if depth == 0 && matches!(self.peek()?, b',' | b'}') {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn spliced(text: &str) -> String {
        String::from_utf8(with_revision(text.as_bytes(), Revision(42)).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn the_revision_becomes_the_first_member_of_metadata() {
        assert_eq!(spliced(r#"{"metadata":{"name":"a"}}"#), r#"{"metadata":{"resourceVersion":"42","name":"a"}}"#);
        assert_eq!(spliced(r#"{ "metadata" : { } }"#), r#"{ "metadata" : {"resourceVersion":"42" } }"#);
    }

    #[test]
    fn only_the_top_level_metadata_counts() {
        let text = r#"{"spec":{"metadata":{"x":"}\"]"}},"n":-1.5e3,"a":[{},[]],"metadata":{"name":"a"}}"#;
        let value: Value = serde_json::from_str(&spliced(text)).unwrap();
        assert_eq!(value["metadata"], json!({"name": "a", "resourceVersion": "42"}));
        assert_eq!(value["spec"], json!({"metadata": {"x": "}\"]"}}));
    }

    #[test]
    fn what_has_no_metadata_is_refused() {
        for text in ["", "[]", "7", "{", "{\"a", "{\"a\\"] {
            assert!(with_revision(text.as_bytes(), Revision(1)).is_err(), "{text}");
        }
        for text in ["{}", r#"{"a":1}"#, r#"{"metadata":3}"#, r#"{"metadata":null,"a":1}"#] {
            assert_eq!(with_revision(text.as_bytes(), Revision(1)), Err(SpliceError::NoMetadata), "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::from),
            "[\"\\\\{}\\[\\],:\n]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"\\\\{]{1,3}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_but_the_revision_changes(
            before in prop::collection::btree_map("[a-l\"\\\\]{1,3}", any_json(), 0..4),
            inner in prop::collection::btree_map("[a-z\"\\\\]{1,3}", any_json(), 0..3),
            pretty: bool,
        ) {
            let mut object: serde_json::Map<String, Value> = before.into_iter().collect();
            object.insert("metadata".into(), Value::Object(inner.into_iter().collect()));
            let mut object = Value::Object(object);
            let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
            let got: Value = serde_json::from_slice(&with_revision(&text, Revision(7)).unwrap()).unwrap();
            object["metadata"]["resourceVersion"] = json!("7");
            prop_assert_eq!(got, object);
        }

        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(prop::sample::select(b"{}[]\",:\\ametd1".to_vec()), 0..40)) {
            let _ = with_revision(&text, Revision(7));
        }
    }
}
