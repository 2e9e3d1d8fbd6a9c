//! Cells of tables: text with paths in it, such as `{.status.replicas|0}/{.spec.shards}`.
//!
//! A path is a chain of fields, each optionally followed by `[type=Ready]`, which picks the first item of a list whose
//! field equals the text, or by `[0]`, which picks by position. `~` before a path counts the items of a list or the
//! members of an object. Behind `|` stands the next alternative: another path, or a literal, for an absent value.

use serde_json::Value;

/// A parsed cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(&'static str),
    /// The first alternative that is there.
    Value(Vec<Alternative>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Alternative {
    Literal(&'static str),
    Path { steps: Vec<Step>, count: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(&'static str),
    Item { field: &'static str, equals: &'static str },
    Index(usize),
}

impl Template {
    /// Reads a template. What is no path is text.
    #[must_use]
    pub fn parse(text: &'static str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                pieces.push(Piece::Text(before));
            }
            let (inside, tail) = after.split_once('}').unwrap_or((after, ""));
            pieces.push(Piece::Value(inside.split('|').map(alternative).collect()));
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
        Self(pieces)
    }

    /// The cell of an object: the value itself if the template is one path, else text; null if nothing is there.
    #[must_use]
    pub fn render(&self, object: &Value) -> Value {
        if let [piece @ Piece::Value(_)] = self.0.as_slice() {
            return piece.value(object).unwrap_or(Value::Null);
        }
        let texts = self.0.iter().map(|piece| match piece.value(object) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => "<none>".to_owned(),
        });
        Value::String(texts.collect())
    }
}

impl Piece {
    fn value(&self, object: &Value) -> Option<Value> {
        match self {
            Self::Text(text) => Some(Value::String((*text).to_owned())),
            Self::Value(alternatives) => alternatives.iter().find_map(|alternative| alternative.value(object)),
        }
    }
}

impl Alternative {
    fn value(&self, object: &Value) -> Option<Value> {
        match self {
            Self::Literal(text) => Some(serde_json::from_str(text).unwrap_or_else(|_no_json| (*text).into())),
            Self::Path { steps, count: false } => {
                steps.iter().try_fold(object, |at, step| step.follow(at)).filter(|found| !found.is_null()).cloned()
            }
            Self::Path { steps, count: true } => count(steps, object).map(Value::from),
        }
    }
}

/// Counts the items of a list or the members of an object; behind a condition, the items that meet it. What is counted
/// is never shown itself: it may be a secret.
fn count(steps: &[Step], object: &Value) -> Option<usize> {
    let (last, before) = steps.split_last()?;
    if let Step::Item { field, equals } = last {
        let list = before.iter().try_fold(object, |at, step| step.follow(at))?.as_array()?;
        return Some(list.iter().filter(|item| is(item, field, equals)).count());
    }
    match steps.iter().try_fold(object, |at, step| step.follow(at))? {
        Value::Array(items) => Some(items.len()),
        Value::Object(members) => Some(members.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn is(item: &Value, field: &str, equals: &str) -> bool {
    match item.get(field) {
        Some(Value::String(text)) => text == equals,
        Some(other) => {
            let shown = other.to_string();
            shown == equals
        }
        None => false,
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Field(name) => value.get(name),
            Self::Item { field, equals } => value.as_array()?.iter().find(|item| is(item, field, equals)),
            Self::Index(at) => value.as_array()?.get(*at),
        }
    }
}

fn alternative(text: &'static str) -> Alternative {
    let (chain, count) = text.strip_prefix('~').map_or((text, false), |chain| (chain, true));
    if !chain.starts_with('.') {
        return Alternative::Literal(text);
    }
    let mut steps = Vec::new();
    for part in chain.split('.').filter(|part| !part.is_empty()) {
        let (field, pick) = part.split_once('[').unwrap_or((part, ""));
        steps.push(Step::Field(field));
        let pick = pick.trim_end_matches(']');
        match (pick.split_once('='), pick.parse()) {
            (Some((field, equals)), _) => steps.push(Step::Item { field, equals }),
            (None, Ok(at)) => steps.push(Step::Index(at)),
            (None, Err(_)) => {}
        }
    }
    Alternative::Path { steps, count }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_single_path_keeps_the_type_and_a_mixture_is_text() {
        let object = json!({"spec": {"shards": 3}, "status": {"replicas": 2, "conditions": [{"type": "Ready", "status": "True"}]}});
        let cell = |text| Template::parse(text).render(&object);
        assert_eq!(cell("{.spec.shards}"), json!(3));
        assert_eq!(cell("{.status.replicas|0}/{.spec.shards}"), json!("2/3"));
        assert_eq!(cell("{.status.conditions[type=Ready].status}"), json!("True"));
        assert_eq!(cell("{~.status.conditions}"), json!(1));
        assert_eq!(cell("{.status.conditions[0].type}"), json!("Ready"));
        assert_eq!((cell("{~.spec}"), cell("{~.spec.shards}")), (json!(1), Value::Null));
        assert_eq!(cell("{.status.phase}"), Value::Null);
        assert_eq!(cell("{.status.phase|Pending}"), json!("Pending"));
        assert_eq!(cell("{.status.keys|0}/{.spec.none}"), json!("0/<none>"));
        assert_eq!(cell("{.status.phase|.spec.shards|x}"), json!(3));
        assert_eq!(cell("{~.status.conditions[status=True]}/{~.none|0}"), json!("1/0"));
    }
}
