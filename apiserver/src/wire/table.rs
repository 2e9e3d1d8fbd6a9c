//! Objects as rows: `meta.k8s.io` Table and PartialObjectMetadata. Pure; time is an argument.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::negotiate::MetaVersion;
use crate::{
    error::{Error, Result},
    object::meta,
    registry::Kind,
};

/// What a row carries besides its cells (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// PartialObjectMetadata.
    Metadata,
    /// The object.
    Object,
}

impl Include {
    /// Reads the query parameter.
    pub fn parse(text: Option<&str>) -> Result<Self> {
        match text {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(Error::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', \
                 'None', or empty"
            ))),
        }
    }
}

/// The head of a table: everything but its rows.
#[must_use]
pub fn table(
    kind: &Kind,
    version: MetaVersion,
    list_meta: Map<String, Value>,
    rows: Vec<Value>,
    with_columns: bool,
) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": version.api_version(),
        "metadata": list_meta,
        "columnDefinitions": if with_columns { columns(kind) } else { Value::Null },
        "rows": rows,
    })
}

fn columns(kind: &Kind) -> Value {
    let own = kind.columns.iter().map(|own| column(own.name, own.kind, own.format, own.description, own.priority));
    Value::Array(arranged(kind, name_column(u8::from(kind.is_report)), own.collect(), age_column()))
}

fn column(name: &str, of: &str, format: &str, about: &str, priority: u8) -> Value {
    json!({"name": name, "type": of, "format": format, "description": about, "priority": priority})
}

fn name_column(priority: u8) -> Value {
    column("Name", "string", "name", "Name must be unique within a namespace.", priority)
}

fn age_column() -> Value {
    column("Age", "string", "", "Time since the object was created.", 0)
}

/// Name, then the columns of the kind, then Age before those of `-o wide`, where kubectl shows it. A report ends with
/// its name and has no age.
fn arranged(kind: &Kind, name: Value, own: Vec<Value>, age: Value) -> Vec<Value> {
    let mut list = own;
    if kind.is_report {
        list.push(name);
    } else {
        list.insert(kind.columns.iter().take_while(|own| own.priority == 0).count(), age);
        list.insert(0, name);
    }
    list
}

/// One row.
#[must_use]
pub fn row(kind: &Kind, version: MetaVersion, include: Include, object: &Value, now: Timestamp) -> Value {
    let own = kind.columns.iter().map(|column| cell(column.kind, column.cell.render(object), now)).collect();
    let age = json!(age(meta::text(object, "creationTimestamp"), now));
    let cells = arranged(kind, json!(meta::text(object, "name")), own, age);
    with_object(cells, version, include, object)
}

fn with_object(cells: Vec<Value>, version: MetaVersion, include: Include, object: &Value) -> Value {
    let mut row = Map::new();
    row.insert("cells".into(), Value::Array(cells));
    match include {
        Include::None => {
            row.insert("object".into(), Value::Null);
        }
        Include::Metadata => {
            row.insert("object".into(), metadata(version, object.get("metadata").cloned().unwrap_or_default()));
        }
        Include::Object => {
            row.insert("object".into(), object.clone());
        }
    }
    Value::Object(row)
}

/// A Scale as a table: what is asked for and what there is.
#[must_use]
pub fn scale(version: MetaVersion, include: Include, scale: &Value, now: Timestamp) -> Value {
    let number = |name: &str, about: &str| column(name, "integer", "", about, 0);
    let columns = [
        name_column(0),
        number("Desired", "Number of desired replicas"),
        number("Available", "Number of actual replicas"),
        age_column(),
    ];
    let replicas = |pointer: &str| scale.pointer(pointer).cloned().unwrap_or_else(|| json!(0));
    let cells = vec![
        json!(meta::text(scale, "name")),
        replicas("/spec/replicas"),
        replicas("/status/replicas"),
        json!(age(meta::text(scale, "creationTimestamp"), now)),
    ];
    json!({
        "kind": "Table",
        "apiVersion": version.api_version(),
        "metadata": {"resourceVersion": meta::text(scale, "resourceVersion")},
        "columnDefinitions": columns,
        "rows": [with_object(cells, version, include, scale)],
    })
}

fn cell(kind: &str, value: Value, now: Timestamp) -> Value {
    match (kind, &value) {
        ("date", Value::String(time)) => json!(age(time, now)),
        _ => value,
    }
}

/// PartialObjectMetadata of a `metadata`.
#[must_use]
pub fn metadata(version: MetaVersion, metadata: Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata})
}

/// Time since a timestamp, as kubectl prints it.
#[must_use]
pub fn age(since: &str, now: Timestamp) -> String {
    match since.parse::<Timestamp>() {
        Ok(since) => human(now.as_second().saturating_sub(since.as_second())),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Seconds in the two units that matter at their size.
fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let both = |big: i64, big_name: char, small: i64, small_name: char| match seconds % big / small {
        0 => format!("{}{big_name}", seconds / big),
        rest => format!("{}{big_name}{rest}{small_name}", seconds / big),
    };
    match seconds {
        i64::MIN..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => both(MINUTE, 'm', 1, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => both(HOUR, 'h', MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => both(DAY, 'd', HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => both(YEAR, 'y', DAY, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_172_000, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
        assert_eq!(age("not a time", Timestamp::UNIX_EPOCH), "<unknown>");
    }

    #[test]
    fn include_object_takes_three_words() {
        assert_eq!(Include::parse(None), Ok(Include::Metadata));
        assert!(matches!(Include::parse(Some("Everything")), Err(Error::BadRequest(_))));
    }
}
