//! OpenAPI v2 as gnostic's protobuf (`openapi.v2.Document`): what kubectl asks for before it asks for JSON.
//!
//! A small encoder by hand: it walks the v2 JSON document and writes the few messages that document uses. Field numbers
//! are those of gnostic's published OpenAPIv2.proto.

use serde_json::{Map, Value};

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7f).unwrap_or_default();
            value >>= 7;
            if value == 0 {
                self.0.push(low);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, LENGTH_DELIMITED);
        // A usize always fits: no target has more than 64 bits.
        self.varint(u64::try_from(bytes.len()).unwrap_or_default());
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, inner: &Self) {
        self.bytes(field, &inner.0);
    }

    /// Absent and empty texts are the same in proto3.
    fn text(&mut self, field: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u64, value: Option<&Value>) {
        for text in value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: Option<&Value>) {
        if value.and_then(Value::as_bool) == Some(true) {
            self.tag(field, VARINT);
            self.varint(1);
        }
    }

    fn integer(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_u64).filter(|number| *number > 0) {
            self.tag(field, VARINT);
            self.varint(number);
        }
    }

    fn double(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_f64).filter(|number| *number != 0.0) {
            self.tag(field, FIXED64);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// The document. What the JSON form has beyond what [`super::v2`] writes is left out.
#[must_use]
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document.get("swagger"));
    let mut info = Message::default();
    info.text(1, document.pointer("/info/title"));
    info.text(2, document.pointer("/info/version"));
    out.message(2, &info);
    let mut paths = Message::default();
    for (path, item) in members(document.get("paths")) {
        paths.message(2, &named(path, &path_item(item)));
    }
    out.message(8, &paths);
    let mut definitions = Message::default();
    for (name, definition) in members(document.get("definitions")) {
        definitions.message(1, &named(name, &schema(definition)));
    }
    out.message(9, &definitions);
    out.0
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

/// Named*: name = 1, value = 2.
fn named(name: &str, value: &Message) -> Message {
    let mut out = Message::default();
    out.bytes(1, name.as_bytes());
    out.message(2, value);
    out
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(found) = item.get(method) {
            out.message(field, &operation(found));
        }
    }
    parameters(&mut out, 9, item);
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(3, value.get("description"));
    out.text(5, value.get("operationId"));
    out.texts(6, value.get("produces"));
    out.texts(7, value.get("consumes"));
    parameters(&mut out, 8, value);
    let mut responses = Message::default();
    for (code, found) in members(value.get("responses")) {
        let mut choice = Message::default();
        choice.message(1, &response(found));
        responses.message(1, &named(code, &choice));
    }
    out.message(9, &responses);
    out.texts(10, value.get("schemes"));
    extensions(&mut out, 13, value);
    out
}

fn response(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, value.get("description"));
    if let Some(found) = value.get("schema") {
        let mut item = Message::default();
        item.message(1, &schema(found));
        out.message(2, &item);
    }
    out
}

fn parameters(out: &mut Message, field: u64, owner: &Value) {
    for parameter in owner.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        let mut choice = Message::default();
        match parameter.get("in").and_then(Value::as_str) {
            Some("body") => choice.message(1, &body_parameter(parameter)),
            Some("path") => choice.message(2, &simple_parameter(parameter, 4, 5, 18)),
            _ => choice.message(2, &simple_parameter(parameter, 3, 6, 20)),
        }
        let mut item = Message::default();
        item.message(1, &choice);
        out.message(field, &item);
    }
}

fn body_parameter(parameter: &Value) -> Message {
    let mut out = Message::default();
    out.text(2, parameter.get("name"));
    out.text(3, parameter.get("in"));
    out.flag(4, parameter.get("required"));
    if let Some(found) = parameter.get("schema") {
        out.message(5, &schema(found));
    }
    out
}

/// NonBodyParameter; path and query differ in the field of the choice, of `type`, and of `uniqueItems`.
fn simple_parameter(parameter: &Value, choice: u64, of: u64, unique: u64) -> Message {
    let mut inner = Message::default();
    inner.flag(1, parameter.get("required"));
    inner.text(2, parameter.get("in"));
    inner.text(3, parameter.get("description"));
    inner.text(4, parameter.get("name"));
    inner.text(of, parameter.get("type"));
    inner.flag(unique, parameter.get("uniqueItems"));
    let mut out = Message::default();
    out.message(choice, &inner);
    out
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, value.get("$ref"));
    out.text(2, value.get("format"));
    out.text(4, value.get("description"));
    if let Some(default) = value.get("default") {
        out.message(5, &any(default));
    }
    out.double(7, value.get("maximum"));
    out.double(9, value.get("minimum"));
    out.integer(11, value.get("maxLength"));
    out.integer(12, value.get("minLength"));
    out.text(13, value.get("pattern"));
    out.integer(14, value.get("maxItems"));
    out.integer(15, value.get("minItems"));
    out.texts(19, value.get("required"));
    for item in value.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.message(20, &any(item));
    }
    if let Some(inner) = value.get("additionalProperties").filter(|inner| inner.is_object()) {
        let mut item = Message::default();
        item.message(1, &schema(inner));
        out.message(21, &item);
    }
    if let Some(of) = value.get("type").and_then(Value::as_str) {
        let mut item = Message::default();
        item.bytes(1, of.as_bytes());
        out.message(22, &item);
    }
    if let Some(items) = value.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        out.message(23, &item);
    }
    if let Some(properties) = value.get("properties") {
        let mut inner = Message::default();
        for (name, property) in members(Some(properties)) {
            inner.message(1, &named(name, &schema(property)));
        }
        out.message(25, &inner);
    }
    extensions(&mut out, 31, value);
    out
}

/// `x-…` members, as NamedAny.
fn extensions(out: &mut Message, field: u64, owner: &Value) {
    let own: Map<String, Value> =
        members(Some(owner)).filter(|(key, _)| key.starts_with("x-")).map(|(k, v)| (k.clone(), v.clone())).collect();
    for (key, value) in &own {
        out.message(field, &named(key, &any(value)));
    }
}

/// Any: its content as YAML, of which JSON is a part.
fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.bytes(2, value.to_string().as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_texts_are_encoded_as_protobuf_says() {
        let mut message = Message::default();
        message.integer(11, Some(&json!(300)));
        message.text(1, Some(&json!("ab")));
        message.text(2, Some(&json!("")));
        message.flag(16, Some(&json!(true)));
        message.double(7, Some(&json!(1.0)));
        let expected = [0x58, 0xac, 0x02, 0x0a, 2, b'a', b'b', 0x80, 0x01, 1, 0x39, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        assert_eq!(message.0, expected);
    }

    #[test]
    fn a_schema_holds_its_type_properties_and_extensions() {
        let encoded = schema(&json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-k": true})).0;
        let mut expected = vec![0xb2, 0x01, 8, 0x0a, 6];
        expected.extend(b"object");
        // properties (25) → additional_properties (1) → name "a", value: type (22) → "string"
        expected.extend([0xca, 0x01, 18, 0x0a, 16, 0x0a, 1, b'a', 0x12, 11, 0xb2, 0x01, 8, 0x0a, 6]);
        expected.extend(b"string");
        // vendor_extension (31) → name "x-k", value.yaml "true"
        expected.extend([0xfa, 0x01, 13, 0x0a, 3]);
        expected.extend(b"x-k");
        expected.extend([0x12, 6, 0x12, 4]);
        expected.extend(b"true");
        assert_eq!(encoded, expected);
    }
}
