//! Fields that may be written as a number or as a string (`cpu: 2`, `size: 10Gi`), kept as text.
//!
//! For use as `#[serde(deserialize_with = …)]` and `#[schemars(schema_with = …)]`; it knows no field.

use std::{collections::BTreeMap, fmt};

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};

/// A required field.
pub(crate) fn one<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Text::deserialize(from)?.0)
}

/// An optional field.
pub(crate) fn option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Text>::deserialize(from)?.map(|text| text.0))
}

/// A map of such fields.
pub(crate) fn map<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let found = BTreeMap::<String, Text>::deserialize(from)?;
    Ok(found.into_iter().map(|(key, text)| (key, text.0)).collect())
}

/// Schema of `one` and `option`.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// Schema of `map`.
pub(crate) fn map_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}})
}

struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string or an integer")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }
    fn visit_string<E: de::Error>(self, text: String) -> Result<Text, E> {
        Ok(Text(text))
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }
}
