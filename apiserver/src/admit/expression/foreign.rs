//! The function library of `kube-cel`, called one function at a time; pure. Its interpreter is not used.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, Expr, IdedExpr};
use cel::objects::{Key as ForeignKey, Map, OptionalValue, Value as Foreign};
use cel::{Context, ExecutionError};
use jiff::{SignedDuration, Timestamp};
use kube_cel::KubeCelExt;

use super::eval::{Stop, Stopped};
use super::value::{Key, Opaque, Value};

/// What Kubernetes says of a text that is no quantity.
const NO_QUANTITY: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Calls a function of the library. A fault of the library itself is an error of the expression.
pub(super) fn call(name: &str, target: Option<&Value>, args: &[Value]) -> Stopped<Value> {
    let called = catch_unwind(AssertUnwindSafe(|| run(name, target, args)));
    called.unwrap_or_else(|_panic| Err(Stop::failed(format!("internal error in the function '{name}'"))))
}

fn run(name: &str, target: Option<&Value>, args: &[Value]) -> Stopped<Value> {
    let mut scope = LIBRARY.new_inner_scope();
    let mut node = |index: usize, value: &Value| {
        let name = format!("a{index}");
        scope.add_variable_from_value(name.clone(), given(value)?);
        Ok(IdedExpr { id: 0, expr: Expr::Ident(name) })
    };
    let target = target.map(|target| node(0, target).map(Box::new)).transpose()?;
    let numbered = args.iter().enumerate().map(|(index, arg)| node(index.saturating_add(1), arg));
    let args: Vec<IdedExpr> = numbered.collect::<Stopped<_>>()?;
    let call = CallExpr { func_name: name.to_owned(), target, args };
    let found = Foreign::resolve(&IdedExpr { id: 0, expr: Expr::Call(call) }, &scope);
    let found = found.map_err(|error| if name == "quantity" { Stop::failed(NO_QUANTITY) } else { fault(error) })?;
    taken(&found)
}

fn fault(error: ExecutionError) -> Stop {
    match error {
        ExecutionError::FunctionError { message, .. } => Stop::Failed(message),
        ExecutionError::UndeclaredReference(_)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::InvalidArgumentCount { .. } => Stop::no_overload(),
        other => Stop::Failed(other.to_string()),
    }
}

/// Whether two values of the library are the same.
pub(super) fn is_same(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Foreign(one), Value::Foreign(two)) => Foreign::Opaque(one.0.clone()) == Foreign::Opaque(two.0.clone()),
        (_, _) => false,
    }
}

fn given(value: &Value) -> Stopped<Foreign> {
    Ok(match value {
        Value::Null => Foreign::Null,
        Value::Bool(value) => Foreign::Bool(*value),
        Value::Int(value) => Foreign::Int(*value),
        Value::Uint(value) => Foreign::UInt(*value),
        Value::Double(value) => Foreign::Float(*value),
        Value::String(text) => Foreign::String(Arc::new(text.to_string())),
        Value::Bytes(bytes) => Foreign::Bytes(Arc::new(bytes.to_vec())),
        Value::List(items) => Foreign::List(Arc::new(items.iter().map(given).collect::<Stopped<_>>()?)),
        Value::Map(entries) => {
            let entry = |(key, value): (&Key, &Value)| Ok((given_key(key), given(value)?));
            Foreign::Map(Map { map: Arc::new(entries.iter().map(entry).collect::<Stopped<HashMap<_, _>>>()?) })
        }
        Value::Duration(span) => {
            let nanos = i64::try_from(span.as_nanos()).map_err(|_| Stop::failed("duration overflow"))?;
            Foreign::Duration(chrono::Duration::nanoseconds(nanos))
        }
        Value::Timestamp(time) => {
            let parsed = chrono::DateTime::parse_from_rfc3339(&time.to_string());
            Foreign::Timestamp(parsed.map_err(|_| Stop::failed("timestamp overflow"))?)
        }
        Value::Optional(None) => Foreign::Opaque(Arc::new(OptionalValue::none())),
        Value::Optional(Some(value)) => Foreign::Opaque(Arc::new(OptionalValue::of(given(value)?))),
        Value::Foreign(value) => Foreign::Opaque(value.0.clone()),
        Value::Type(_) | Value::Object(..) | Value::Rights(_) | Value::Variables => return Err(Stop::no_overload()),
    })
}

fn given_key(key: &Key) -> ForeignKey {
    match key {
        Key::Bool(value) => ForeignKey::Bool(*value),
        Key::Int(value) => ForeignKey::Int(*value),
        Key::Uint(value) => ForeignKey::Uint(*value),
        Key::String(text) => ForeignKey::String(Arc::new(text.to_string())),
    }
}

fn taken(value: &Foreign) -> Stopped<Value> {
    Ok(match value {
        Foreign::Null => Value::Null,
        Foreign::Bool(value) => Value::Bool(*value),
        Foreign::Int(value) => Value::Int(*value),
        Foreign::UInt(value) => Value::Uint(*value),
        Foreign::Float(value) => Value::Double(*value),
        Foreign::String(text) => Value::text(text),
        Foreign::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
        Foreign::List(items) => Value::list(items.iter().map(taken).collect::<Stopped<_>>()?),
        Foreign::Map(map) => {
            let entry = |(key, value): (&ForeignKey, &Foreign)| Ok((taken_key(key), taken(value)?));
            Value::Map(Arc::new(map.map.iter().map(entry).collect::<Stopped<BTreeMap<_, _>>>()?))
        }
        Foreign::Duration(span) => {
            Value::Duration(SignedDuration::from_nanos(span.num_nanoseconds().ok_or_else(Stop::no_overload)?))
        }
        Foreign::Timestamp(time) => {
            let time = Timestamp::from_millisecond(time.timestamp_millis());
            Value::Timestamp(time.map_err(|_| Stop::failed("timestamp overflow"))?)
        }
        Foreign::Opaque(inner) => match inner.downcast_ref::<OptionalValue>() {
            Some(optional) => Value::Optional(optional.value().map(taken).transpose()?.map(Arc::new)),
            None => Value::Foreign(Opaque(inner.clone())),
        },
        Foreign::Function(..) => return Err(Stop::no_overload()),
    })
}

fn taken_key(key: &ForeignKey) -> Key {
    match key {
        ForeignKey::Bool(value) => Key::Bool(*value),
        ForeignKey::Int(value) => Key::Int(*value),
        ForeignKey::Uint(value) => i64::try_from(*value).map_or(Key::Uint(*value), Key::Int),
        ForeignKey::String(text) => Key::String(text.as_str().into()),
    }
}
