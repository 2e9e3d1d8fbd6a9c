//! Which form of an answer the client accepts: JSON or YAML, the object itself, a table, or metadata alone.
//!
//! A clause that cannot be served is skipped, never answered with an error: garbage collector and namespace controller
//! put protobuf first and JSON second. Pure.

use crate::error::{Error, Result};

/// Bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

impl Format {
    /// Its media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// What is made of the object before it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Nothing.
    Object,
    /// `meta.k8s.io` Table.
    Table(MetaVersion),
    /// `meta.k8s.io` PartialObjectMetadata, or a list of them.
    Metadata(MetaVersion),
}

/// Version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// v1.
    V1,
    /// v1beta1, the same content.
    V1Beta1,
}

impl MetaVersion {
    /// As `apiVersion`.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What an answer consists of; decides which `as=` fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One object.
    One,
    /// A stream of objects.
    Stream,
    /// A list.
    Many,
    /// Documents without views, such as discovery.
    Plain,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Bytes.
    pub format: Format,
    /// View.
    pub view: View,
    /// Indented, for people.
    pub pretty: bool,
}

const ACCEPTED: [&str; 2] = ["application/json", "application/yaml"];

/// Picks the first clause, by quality and order, that can be served.
pub fn negotiate(accept: Option<&str>, shape: Shape, pretty: bool) -> Result<Negotiated> {
    let accept = accept.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    let found = clauses(accept)
        .into_iter()
        .find_map(|clause| Some((clause.serve(shape)?, clause.parameter("pretty") == Some("1"))));
    let ((format, view), asked_pretty) = found.ok_or_else(|| Error::NotAcceptable(ACCEPTED.to_vec()))?;
    Ok(Negotiated { format, view, pretty: pretty || asked_pretty })
}

/// `pretty` of the query beats the client's name; people use curl, Wget and browsers.
#[must_use]
pub fn is_pretty(query: Option<&str>, user_agent: &str) -> bool {
    match query {
        Some(value) => !matches!(value, "false" | "0"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| user_agent.starts_with(name)),
    }
}

/// One clause of an Accept header.
pub(crate) struct Clause<'a> {
    pub(crate) media_type: &'a str,
    quality: u16,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn serve(&self, shape: Shape) -> Option<(Format, View)> {
        let format = match self.media_type {
            "application/json" | "*/*" | "application/*" => Format::Json,
            // YAML has no form for a stream of events.
            "application/yaml" if shape != Shape::Stream => Format::Yaml,
            _ => return None,
        };
        Some((format, self.view(shape)?))
    }

    fn view(&self, shape: Shape) -> Option<View> {
        let Some(wanted) = self.parameter("as") else { return Some(View::Object) };
        let version = match (self.parameter("g"), self.parameter("v")) {
            (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
            (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
            _ => return None,
        };
        match (wanted, shape) {
            ("Table", Shape::One | Shape::Stream | Shape::Many) => Some(View::Table(version)),
            ("PartialObjectMetadata", Shape::One | Shape::Stream)
            | ("PartialObjectMetadataList", Shape::Stream | Shape::Many) => Some(View::Metadata(version)),
            _ => None,
        }
    }
}

/// The clauses of an Accept header, best first. Those of quality 0 are refusals and left out.
pub(crate) fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut list: Vec<Clause<'_>> = accept.split(',').map(clause).filter(|clause| clause.quality > 0).collect();
    list.sort_by_key(|clause| std::cmp::Reverse(clause.quality));
    list
}

fn clause(text: &str) -> Clause<'_> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
        .collect();
    let quality =
        parameters.iter().find(|(key, _)| *key == "q").and_then(|(_, value)| thousandths(value)).unwrap_or(1000);
    Clause { media_type, quality, parameters }
}

/// `0.25` → 250.
fn thousandths(quality: &str) -> Option<u16> {
    let (whole, part) = quality.split_once('.').unwrap_or((quality, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    let value = whole.parse::<u16>().ok()?.checked_mul(1000)?.checked_add(part.parse().ok()?)?;
    (value <= 1000).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(accept: &str) -> Result<(Format, View)> {
        negotiate(Some(accept), Shape::One, false).map(|found| (found.format, found.view))
    }
    fn many(accept: &str) -> Result<(Format, View)> {
        negotiate(Some(accept), Shape::Many, false).map(|found| (found.format, found.view))
    }

    #[test]
    fn protobuf_is_skipped_and_the_json_clause_behind_it_is_served() {
        let gc = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                  application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(many(gc), Ok((Format::Json, View::Metadata(MetaVersion::V1))));
        assert_eq!(one("application/vnd.kubernetes.protobuf, */*"), Ok((Format::Json, View::Object)));
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(many(kubectl), Ok((Format::Json, View::Table(MetaVersion::V1))));
    }

    #[test]
    fn a_stream_is_json_whatever_else_is_asked_for() {
        let stream = |accept| negotiate(Some(accept), Shape::Stream, false).map(|found| (found.format, found.view));
        assert_eq!(stream("application/yaml"), Err(Error::NotAcceptable(ACCEPTED.to_vec())));
        assert_eq!(stream("application/yaml, */*;q=0.1"), Ok((Format::Json, View::Object)));
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(stream(list), Ok((Format::Json, View::Metadata(MetaVersion::V1))));
    }

    #[test]
    fn nothing_that_fits_is_a_406_that_names_what_would_fit() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "application/json;as=Table;g=meta.k8s.io;v=v2",
            "text/html",
            "application/json;q=0",
        ] {
            assert_eq!(one(accept), Err(Error::NotAcceptable(ACCEPTED.to_vec())), "{accept}");
        }
    }

    #[test]
    fn quality_beats_order_and_absence_means_json() {
        assert_eq!(one("application/json;q=0.5, application/yaml"), Ok((Format::Yaml, View::Object)));
        assert_eq!(one("application/yaml;q=0.1,*/*;q=0.8"), Ok((Format::Json, View::Object)));
        assert_eq!(negotiate(None, Shape::One, true).map(|found| found.format), Ok(Format::Json));
        assert_eq!(one(""), Ok((Format::Json, View::Object)));
    }

    #[test]
    fn a_clause_may_ask_for_indentation() {
        let pretty = |accept| negotiate(Some(accept), Shape::One, false).map(|found| found.pretty);
        assert_eq!(pretty("application/json;pretty=1"), Ok(true));
        assert_eq!(pretty("application/json, application/json;pretty=1"), Ok(false));
    }

    #[test]
    fn people_get_indented_json_unless_they_say_otherwise() {
        assert!(is_pretty(None, "curl/8.0") && is_pretty(Some("true"), "kubectl") && is_pretty(Some(""), ""));
        assert!(!is_pretty(Some("false"), "curl/8.0") && !is_pretty(None, "kubectl/v1.32"));
    }
}
