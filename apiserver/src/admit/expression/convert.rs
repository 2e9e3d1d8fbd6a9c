//! Conversions between types, and times; pure.

use std::sync::Arc;

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, Zoned};

use super::eval::{Stop, Stopped};
use super::value::{self, Value};

/// A value as one of another type.
pub(super) fn convert(to: &str, value: &Value) -> Stopped<Value> {
    let found = match to {
        "int" => int(value)?,
        "uint" => uint(value)?,
        "double" => double(value),
        "bool" => boolean(value),
        "bytes" => match value {
            Value::Bytes(_) => Some(value.clone()),
            Value::String(text) => Some(Value::Bytes(text.as_bytes().into())),
            _other => None,
        },
        "string" => text(value)?,
        "duration" => match value {
            Value::Duration(_) => Some(value.clone()),
            Value::Int(seconds) => Some(Value::Duration(SignedDuration::from_secs(*seconds))),
            Value::String(text) => duration(text).map(Value::Duration),
            _other => None,
        },
        "timestamp" => match value {
            Value::Timestamp(_) => Some(value.clone()),
            Value::Int(seconds) => Timestamp::from_second(*seconds).ok().map(Value::Timestamp),
            Value::String(text) => text.parse().ok().map(Value::Timestamp),
            _other => None,
        },
        _unknown => None,
    };
    let to = match to {
        "duration" => "google.protobuf.Duration",
        "timestamp" => "google.protobuf.Timestamp",
        other => other,
    };
    found.ok_or_else(|| Stop::failed(format!("type conversion error from '{}' to '{to}'", value.kind())))
}

fn int(value: &Value) -> Stopped<Option<Value>> {
    let overflow = || Stop::failed("integer overflow");
    Ok(match value {
        Value::Int(_) => Some(value.clone()),
        Value::Uint(number) => Some(Value::Int(i64::try_from(*number).map_err(|_| overflow())?)),
        Value::Double(number) => Some(Value::Int(value::whole(number.trunc()).ok_or_else(overflow)?)),
        Value::String(text) => text.parse().ok().map(Value::Int),
        Value::Timestamp(time) => Some(Value::Int(time.as_second())),
        Value::Duration(span) => Some(Value::Int(i64::try_from(span.as_nanos()).map_err(|_| overflow())?)),
        _other => None,
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the bounds are checked first")]
fn uint(value: &Value) -> Stopped<Option<Value>> {
    let overflow = || Stop::failed("unsigned integer overflow");
    Ok(match value {
        Value::Uint(_) => Some(value.clone()),
        Value::Int(number) => Some(Value::Uint(u64::try_from(*number).map_err(|_| overflow())?)),
        Value::Double(number) if (0.0..18_446_744_073_709_551_616.0).contains(number) => {
            Some(Value::Uint(*number as u64))
        }
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => text.parse().ok().map(Value::Uint),
        _other => None,
    })
}

#[allow(clippy::cast_precision_loss, reason = "this is what a conversion to a double is")]
fn double(value: &Value) -> Option<Value> {
    match value {
        Value::Double(_) => Some(value.clone()),
        Value::Int(number) => Some(Value::Double(*number as f64)),
        Value::Uint(number) => Some(Value::Double(*number as f64)),
        Value::String(text) => text.parse().ok().map(Value::Double),
        _other => None,
    }
}

fn boolean(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(_) => Some(value.clone()),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
            _other => None,
        },
        _other => None,
    }
}

fn text(value: &Value) -> Stopped<Option<Value>> {
    Ok(match value {
        Value::String(_) => Some(value.clone()),
        Value::Bool(value) => Some(Value::text(&value.to_string())),
        Value::Int(number) => Some(Value::text(&number.to_string())),
        Value::Uint(number) => Some(Value::text(&number.to_string())),
        Value::Double(number) => Some(Value::text(&number.to_string())),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Some(Value::text(text)),
            Err(_) => return Err(Stop::failed("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Timestamp(time) => Some(Value::text(&time.to_string())),
        Value::Duration(span) => Some(Value::text(&value::seconds(*span))),
        Value::Foreign(_) => Some(super::foreign::call("string", None, std::slice::from_ref(value))?),
        _other => None,
    })
}

const UNITS: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("μs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// `1h30m`, `-1.5s`, as Go writes durations.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut sum = SignedDuration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let number: f64 = number.parse().ok()?;
        // The longest unit first: `ms` is not `m`.
        let (unit, seconds) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit))?;
        sum = sum.checked_add(SignedDuration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = tail.strip_prefix(unit)?;
    }
    if negative { sum.checked_neg() } else { Some(sum) }
}

/// A part of a time: `getHours` and its like.
pub(super) fn part(name: &str, of: &Value, zone: Option<&str>) -> Stopped<Value> {
    let number = match of {
        Value::Duration(span) if zone.is_none() => {
            let nanos = span.as_nanos();
            let unit = match name {
                "getHours" => 3_600_000_000_000,
                "getMinutes" => 60_000_000_000,
                "getSeconds" => 1_000_000_000,
                "getMilliseconds" => 1_000_000,
                _unknown => return Err(Stop::no_overload()),
            };
            i64::try_from(nanos / unit).map_err(|_| Stop::failed("integer overflow"))?
        }
        Value::Timestamp(time) => {
            let zone = match zone {
                None => TimeZone::UTC,
                Some(text) => found_zone(text).ok_or_else(|| Stop::failed(format!("unknown time zone {text}")))?,
            };
            of_zoned(name, &time.to_zoned(zone)).ok_or_else(Stop::no_overload)?
        }
        _other => return Err(Stop::no_overload()),
    };
    Ok(Value::Int(number))
}

fn found_zone(text: &str) -> Option<TimeZone> {
    let Some((hours, minutes)) = text.split_once(':') else { return TimeZone::get(text).ok() };
    let negative = hours.starts_with('-');
    let number = |text: &str| text.trim_start_matches(['+', '-']).parse::<i32>().ok().filter(|number| *number < 60);
    let seconds = number(hours)?.checked_mul(3600)?.checked_add(number(minutes)?.checked_mul(60)?)?;
    Offset::from_seconds(if negative { -seconds } else { seconds }).ok().map(TimeZone::fixed)
}

fn of_zoned(name: &str, time: &Zoned) -> Option<i64> {
    Some(match name {
        "getFullYear" => i64::from(time.year()),
        "getMonth" => i64::from(time.month()) - 1,
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.millisecond()),
        _unknown => return None,
    })
}

/// The optional that holds a value.
pub(super) fn some(value: Value) -> Value {
    Value::Optional(Some(Arc::new(value)))
}
