//! Operators and equality; pure.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::eval::{Machine, SIZE_MAX, Stop, Stopped};
use super::value::{Key, Value, tenth};

/// An operator on its values, by the name it has in Kubernetes' messages.
pub(super) fn operate(machine: &Machine<'_>, name: &str, args: &[Value]) -> Stopped<Value> {
    match (name, args) {
        ("!_", [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        ("-_", [Value::Int(value)]) => value.checked_neg().map(Value::Int).ok_or_else(|| overflow("integer")),
        ("-_", [Value::Double(value)]) => Ok(Value::Double(-value)),
        ("_==_", [one, two]) => Ok(Value::Bool(same(machine, one, two)?)),
        ("_!=_", [one, two]) => Ok(Value::Bool(!same(machine, one, two)?)),
        ("@in", [item, Value::List(list)]) => {
            for other in list.iter() {
                if same(machine, item, other)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        ("@in", [key, Value::Map(map)]) => Ok(Value::Bool(Key::of(key).is_some_and(|key| map.contains_key(&key)))),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [one, two]) => compare(machine, name, one, two),
        ("_+_", [one, two]) => add(machine, one, two),
        ("_-_", [one, two]) => subtract(one, two),
        ("_*_" | "_/_" | "_%_", [one, two]) => multiply(name, one, two),
        (_, _) => Err(Stop::no_overload()),
    }
}

fn overflow(what: &str) -> Stop {
    Stop::failed(format!("{what} overflow"))
}

/// An element of a list or a map.
pub(super) fn item(of: &Value, key: &Value) -> Stopped<Value> {
    match of {
        Value::List(items) => {
            let index = match Key::of(key) {
                Some(Key::Int(index)) => index,
                Some(Key::Bool(_) | Key::Uint(_) | Key::String(_)) | None => {
                    return Err(Stop::failed(format!("unsupported index type '{}' in list", key.kind())));
                }
            };
            let found = usize::try_from(index).ok().and_then(|index| items.get(index));
            found.cloned().ok_or_else(|| Stop::failed(format!("index out of bounds: {index}")))
        }
        Value::Map(entries) => {
            let key = Key::of(key).ok_or_else(Stop::no_overload)?;
            entries.get(&key).cloned().ok_or_else(|| Stop::failed(format!("no such key: {key}")))
        }
        Value::Object(_, fields) => match key {
            Value::String(name) => {
                fields.get(&**name).cloned().ok_or_else(|| Stop::failed(format!("no such key: {name}")))
            }
            _other => Err(Stop::no_overload()),
        },
        _other => Err(Stop::no_overload()),
    }
}

/// Equality, paid for as far as it has to look.
fn same(machine: &Machine<'_>, one: &Value, two: &Value) -> Stopped<bool> {
    match (one, two) {
        (Value::String(one), Value::String(two)) => {
            machine.spend(tenth(one.len().min(two.len())))?;
            Ok(one == two)
        }
        (Value::Bytes(one), Value::Bytes(two)) => {
            machine.spend(tenth(one.len().min(two.len())))?;
            Ok(one == two)
        }
        (Value::List(one), Value::List(two)) => {
            machine.spend(1)?;
            if one.len() != two.len() {
                return Ok(false);
            }
            for (one, two) in one.iter().zip(two.iter()) {
                if !same(machine, one, two)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(one), Value::Map(two)) => {
            machine.spend(1)?;
            if one.len() != two.len() {
                return Ok(false);
            }
            for ((key, one), (other, two)) in one.iter().zip(two.iter()) {
                machine.spend(1)?;
                if key != other || !same(machine, one, two)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(..) | Value::Optional(_), _) => {
            machine.spend(one.weight())?;
            Ok(one == two)
        }
        (_, _) => {
            machine.spend(1)?;
            Ok(one == two)
        }
    }
}

fn compare(machine: &Machine<'_>, name: &str, one: &Value, two: &Value) -> Stopped<Value> {
    if let (Value::String(one), Value::String(two)) = (one, two) {
        machine.spend(tenth(one.len().min(two.len())))?;
    }
    let is_nan = |value: &Value| matches!(value, Value::Double(number) if number.is_nan());
    if is_nan(one) || is_nan(two) {
        return Err(Stop::failed("NaN values cannot be ordered"));
    }
    let order = one.order(two).ok_or_else(Stop::no_overload)?;
    Ok(Value::Bool(match name {
        "_<_" => order.is_lt(),
        "_<=_" => order.is_le(),
        "_>_" => order.is_gt(),
        _greater_or_equal => order.is_ge(),
    }))
}

fn add(machine: &Machine<'_>, one: &Value, two: &Value) -> Stopped<Value> {
    let grown = |one: usize, two: usize| {
        let size = one.saturating_add(two);
        machine.spend(tenth(size))?;
        if size > SIZE_MAX { Err(Stop::Costly) } else { Ok(()) }
    };
    Ok(match (one, two) {
        (Value::Int(one), Value::Int(two)) => Value::Int(one.checked_add(*two).ok_or_else(|| overflow("integer"))?),
        (Value::Uint(one), Value::Uint(two)) => {
            Value::Uint(one.checked_add(*two).ok_or_else(|| overflow("unsigned integer"))?)
        }
        (Value::Double(one), Value::Double(two)) => Value::Double(one + two),
        (Value::String(one), Value::String(two)) => {
            grown(one.len(), two.len())?;
            Value::String([&**one, &**two].concat().into())
        }
        (Value::Bytes(one), Value::Bytes(two)) => {
            grown(one.len(), two.len())?;
            Value::Bytes([&**one, &**two].concat().into())
        }
        (Value::List(one), Value::List(two)) => {
            grown(one.len(), two.len())?;
            Value::List(Arc::new(one.iter().chain(two.iter()).cloned().collect()))
        }
        (Value::Duration(one), Value::Duration(two)) => {
            Value::Duration(one.checked_add(*two).ok_or_else(|| overflow("duration"))?)
        }
        (Value::Timestamp(time), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(time)) => {
            moved(*time, *span)?
        }
        (_, _) => return Err(Stop::no_overload()),
    })
}

fn moved(time: Timestamp, span: SignedDuration) -> Stopped<Value> {
    time.checked_add(span).map(Value::Timestamp).map_err(|_| overflow("timestamp"))
}

fn subtract(one: &Value, two: &Value) -> Stopped<Value> {
    Ok(match (one, two) {
        (Value::Int(one), Value::Int(two)) => Value::Int(one.checked_sub(*two).ok_or_else(|| overflow("integer"))?),
        (Value::Uint(one), Value::Uint(two)) => {
            Value::Uint(one.checked_sub(*two).ok_or_else(|| overflow("unsigned integer"))?)
        }
        (Value::Double(one), Value::Double(two)) => Value::Double(one - two),
        (Value::Duration(one), Value::Duration(two)) => {
            Value::Duration(one.checked_sub(*two).ok_or_else(|| overflow("duration"))?)
        }
        (Value::Timestamp(time), Value::Duration(span)) => {
            moved(*time, span.checked_neg().ok_or_else(|| overflow("duration"))?)?
        }
        (Value::Timestamp(one), Value::Timestamp(two)) => Value::Duration(one.duration_since(*two)),
        (_, _) => return Err(Stop::no_overload()),
    })
}

fn multiply(name: &str, one: &Value, two: &Value) -> Stopped<Value> {
    let by_zero = || Stop::failed(if name == "_%_" { "modulus by zero" } else { "division by zero" });
    let is_product = name == "_*_";
    match (one, two) {
        (Value::Int(_), Value::Int(0)) if !is_product => Err(by_zero()),
        (Value::Uint(_), Value::Uint(0)) if !is_product => Err(by_zero()),
        (Value::Int(one), Value::Int(two)) => {
            let result = match name {
                "_*_" => one.checked_mul(*two),
                "_/_" => one.checked_div(*two),
                _remainder => one.checked_rem(*two),
            };
            result.map(Value::Int).ok_or_else(|| overflow("integer"))
        }
        (Value::Uint(one), Value::Uint(two)) => {
            let result = match name {
                "_*_" => one.checked_mul(*two),
                "_/_" => one.checked_div(*two),
                _remainder => one.checked_rem(*two),
            };
            result.map(Value::Uint).ok_or_else(|| overflow("unsigned integer"))
        }
        (Value::Double(one), Value::Double(two)) if is_product => Ok(Value::Double(one * two)),
        (Value::Double(one), Value::Double(two)) if name == "_/_" => Ok(Value::Double(one / two)),
        (_, _) => Err(Stop::no_overload()),
    }
}
