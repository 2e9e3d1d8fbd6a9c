//! Functions; pure. Those that could make much out of little are ours, with a limit; the library has the others.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::convert::{self, some};
use super::eval::{Machine, SIZE_MAX, Stop, Stopped};
use super::foreign;
use super::value::{Value, tenth};

/// Largest compiled regular expression, in bytes: a short pattern must not become a large machine.
const REGEX_MAX: usize = 1024 * 1024;
/// What compiling a regular expression costs, besides what Kubernetes charges for using it.
const REGEX_COST: u64 = 100;
/// Most digits of a precision in a format: `%.9f` is fine, `%.999999999f` is a gigabyte.
const PRECISION_DIGITS_MAX: usize = 3;

/// Calls a function.
pub(super) fn call(machine: &Machine<'_>, name: &str, target: Option<Value>, args: Vec<Value>) -> Stopped<Value> {
    if let Some(Value::Rights(rights)) = &target {
        return rights.call(name, &args, machine.answers(), |cost| machine.spend(cost));
    }
    match (name, &target, args.as_slice()) {
        ("size", Some(of), []) | ("size", None, [of]) => size(of),
        ("contains" | "startsWith" | "endsWith", Some(Value::String(of)), [Value::String(part)]) => {
            machine.spend(tenth(of.len()).saturating_mul(tenth(part.len())))?;
            Ok(Value::Bool(match name {
                "contains" => of.contains(&**part),
                "startsWith" => of.starts_with(&**part),
                _ends => of.ends_with(&**part),
            }))
        }
        ("matches", Some(Value::String(of)), [Value::String(pattern)])
        | ("matches", None, [Value::String(of), Value::String(pattern)]) => {
            Ok(Value::Bool(regex(machine, of, pattern)?.is_match(of)))
        }
        ("find", Some(Value::String(of)), [Value::String(pattern)]) => {
            let regex = regex(machine, of, pattern)?;
            Ok(Value::text(regex.find(of).map_or("", |found| found.as_str())))
        }
        ("findAll", Some(Value::String(of)), [Value::String(pattern), most @ ..]) => {
            find_all(machine, of, pattern, most)
        }
        ("join", Some(Value::List(items)), separator) => join(machine, items, separator),
        ("replace", Some(Value::String(of)), [Value::String(old), Value::String(new), most @ ..]) => {
            replace(machine, (of, old, new), most)
        }
        ("int" | "uint" | "double" | "bool" | "bytes" | "string" | "duration" | "timestamp", None, [value]) => {
            machine.spend(value.weight())?;
            convert::convert(name, value)
        }
        ("dyn", None, [value]) => Ok(value.clone()),
        ("type", None, [value]) => Ok(Value::Type(value.kind().into())),
        (time, Some(of), []) if time.starts_with("get") && is_time(of) => convert::part(name, of, None),
        (time, Some(of), [Value::String(zone)]) if time.starts_with("get") && is_time(of) => {
            convert::part(name, of, Some(zone))
        }
        ("optional.of", None, [value]) => Ok(some(value.clone())),
        ("optional.ofNonZeroValue", None, [value]) if value.is_zero() => Ok(Value::Optional(None)),
        ("optional.ofNonZeroValue", None, [value]) => Ok(some(value.clone())),
        ("optional.none", None, []) => Ok(Value::Optional(None)),
        (_, Some(Value::Optional(value)), _) => optional(name, value.as_ref(), &args),
        (_, _, _) => library(machine, name, target, args),
    }
}

fn is_time(value: &Value) -> bool {
    matches!(value, Value::Timestamp(_) | Value::Duration(_))
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn size(of: &Value) -> Stopped<Value> {
    Ok(count(match of {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(entries) => entries.len(),
        _other => return Err(Stop::no_overload()),
    }))
}

fn optional(name: &str, value: Option<&Arc<Value>>, args: &[Value]) -> Stopped<Value> {
    match (name, value, args) {
        ("hasValue", value, []) => Ok(Value::Bool(value.is_some())),
        ("value", Some(value), []) | ("orValue", Some(value), [_]) => Ok((**value).clone()),
        ("value", None, []) => Err(Stop::failed("optional.none() dereference")),
        ("or", Some(value), [_]) => Ok(Value::Optional(Some(value.clone()))),
        ("or", None, [other @ Value::Optional(_)]) | ("orValue", None, [other]) => Ok(other.clone()),
        (_, _, _) => Err(Stop::no_overload()),
    }
}

fn regex(machine: &Machine<'_>, of: &str, pattern: &str) -> Stopped<Regex> {
    let use_of = tenth(of.len()).saturating_mul(u64::try_from(pattern.len().div_ceil(4)).unwrap_or(u64::MAX).max(1));
    machine.spend(REGEX_COST.saturating_add(use_of))?;
    let built = RegexBuilder::new(pattern).size_limit(REGEX_MAX).dfa_size_limit(REGEX_MAX).build();
    built.map_err(|error| {
        let why = error.to_string();
        Stop::failed(format!("error parsing regexp: {}", why.lines().last().unwrap_or_default()))
    })
}

/// How many at most: all, if nothing or a negative number is said.
fn limit(most: &[Value]) -> Stopped<usize> {
    match most {
        [] => Ok(usize::MAX),
        [Value::Int(number)] => Ok(usize::try_from(*number).unwrap_or(usize::MAX)),
        _other => Err(Stop::no_overload()),
    }
}

fn find_all(machine: &Machine<'_>, of: &str, pattern: &str, most: &[Value]) -> Stopped<Value> {
    let regex = regex(machine, of, pattern)?;
    let found: Vec<Value> = regex.find_iter(of).take(limit(most)?).map(|found| Value::text(found.as_str())).collect();
    machine.spend(u64::try_from(found.len()).unwrap_or(u64::MAX))?;
    Ok(Value::list(found))
}

/// Pays for a string before it is made.
fn afford(machine: &Machine<'_>, length: usize) -> Stopped<()> {
    machine.spend(tenth(length))?;
    if length > SIZE_MAX { Err(Stop::Costly) } else { Ok(()) }
}

fn join(machine: &Machine<'_>, items: &[Value], separator: &[Value]) -> Stopped<Value> {
    let separator = match separator {
        [] => "",
        [Value::String(text)] => text,
        _other => return Err(Stop::no_overload()),
    };
    machine.spend(u64::try_from(items.len()).unwrap_or(u64::MAX))?;
    let text = |item: &Value| if let Value::String(text) = item { Ok(text.clone()) } else { Err(Stop::no_overload()) };
    let texts: Vec<Arc<str>> = items.iter().map(text).collect::<Stopped<_>>()?;
    let inner: usize = texts.iter().map(|text| text.len()).fold(0, usize::saturating_add);
    afford(machine, inner.saturating_add(separator.len().saturating_mul(texts.len())))?;
    Ok(Value::text(&texts.iter().map(|text| &**text).collect::<Vec<_>>().join(separator)))
}

fn replace(machine: &Machine<'_>, (of, old, new): (&str, &str, &str), most: &[Value]) -> Stopped<Value> {
    machine.spend(tenth(of.len()).saturating_mul(2))?;
    let times = of.matches(old).count().min(limit(most)?);
    afford(machine, of.len().saturating_add(times.saturating_mul(new.len())))?;
    Ok(Value::text(&of.replacen(old, new, times)))
}

/// Kubernetes reads a suffix without digits as none of it: `k` is zero. The library does not.
fn with_digits(value: &Value) -> Value {
    let Value::String(text) = value else { return value.clone() };
    let bare = text.trim_start_matches(['+', '-']);
    let is_suffix = bare.starts_with(|first: char| first.is_ascii_alphabetic());
    let sign = text.strip_suffix(bare).unwrap_or_default();
    if is_suffix { Value::text(&format!("{sign}0{bare}")) } else { value.clone() }
}

/// The functions of the library. None of them makes more than a few times what it was given, once formats are checked.
fn library(machine: &Machine<'_>, name: &str, target: Option<Value>, args: Vec<Value>) -> Stopped<Value> {
    let weights = target.iter().chain(&args).map(Value::weight);
    // Sets compare everything with everything.
    let cost = if name.starts_with("sets.") {
        weights.fold(1, u64::saturating_mul)
    } else {
        weights.fold(1, u64::saturating_add)
    };
    machine.spend(cost)?;
    if let ("format", Some(Value::String(template))) = (name, &target) {
        let is_absurd = |part: &str| part.chars().take_while(char::is_ascii_digit).count() > PRECISION_DIGITS_MAX;
        if template.split('.').skip(1).any(is_absurd) {
            return Err(Stop::failed("could not parse formatting clause: the precision is too large"));
        }
    }
    let args = if matches!(name, "quantity" | "isQuantity") { args.iter().map(with_digits).collect() } else { args };
    let found = foreign::call(name, target.as_ref(), &args)?;
    // The library answers with the format itself, where Kubernetes says that there may be none.
    Ok(match (name, found) {
        ("format.named", Value::Null) => Value::Optional(None),
        ("format.named", found @ Value::Foreign(_)) => some(found),
        (_, found) => found,
    })
}
