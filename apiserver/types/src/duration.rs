//! Go's durations, the spelling of time spans in Kubernetes: "5s", "1m30s", "1500ms".

use std::{fmt::Write as _, time::Duration};

/// Longest text that is read; `2562047h47m16.854775807s`, the largest, has 24 characters.
const TEXT_MAX: usize = 48;
/// The largest span: 2⁶³−1 nanoseconds, as in Go.
const MOST: u128 = i64::MAX as u128;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a sequence of numbers with units.
    #[error("must be a duration such as \"5s\", \"1m30s\" or \"1500ms\"")]
    Malformed,
    /// Below zero.
    #[error("must not be negative")]
    Negative,
    /// More than 2⁶³−1 nanoseconds.
    #[error("must be at most 2562047h")]
    TooLarge,
}

/// Reads a duration as Go's `time.ParseDuration` does; a bare `0` is one.
///
/// # Errors
/// `Malformed`, `Negative` (nothing here may run backwards) or `TooLarge`.
pub fn parse(text: &str) -> Result<Duration, Error> {
    if text.is_empty() || text.len() > TEXT_MAX {
        return Err(Error::Malformed);
    }
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    if body == "0" {
        return Ok(Duration::ZERO);
    }
    if body.is_empty() {
        return Err(Error::Malformed);
    }
    let mut nanos: u128 = 0;
    let mut rest = body;
    while !rest.is_empty() {
        let (part, after) = leading_part(rest)?;
        nanos = nanos.checked_add(part).filter(|sum| *sum <= MOST).ok_or(Error::TooLarge)?;
        rest = after;
    }
    if text.starts_with('-') && nanos > 0 {
        return Err(Error::Negative);
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| Error::TooLarge)
}

/// Whether two texts stand for the same span.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    matches!((parse(one), parse(other)), (Ok(one), Ok(other)) if one == other)
}

/// Writes a duration as Go's `Duration.String` does.
#[must_use]
pub fn format(span: Duration) -> String {
    let nanos = span.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, size) in [("ns", 1_000), ("µs", 1_000_000), ("ms", 1_000_000_000)] {
        if nanos < size {
            return format!("{}{unit}", decimal(nanos, size / 1000));
        }
    }
    let (hours, minutes) = (span.as_secs() / 3600, span.as_secs() / 60 % 60);
    let mut text = String::new();
    // Writing to a String cannot fail.
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    let _ = write!(text, "{}s", decimal(nanos % 60_000_000_000, 1_000_000_000));
    text
}

/// One number with its unit in nanoseconds, and what follows it.
fn leading_part(text: &str) -> Result<(u128, &str), Error> {
    let (whole, rest) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(Error::Malformed);
    }
    let (unit, after) = leading_unit(rest).ok_or(Error::Malformed)?;
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| Error::TooLarge)? };
    let mut nanos = whole.checked_mul(unit).ok_or(Error::TooLarge)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        // Digits beyond the nanosecond fall away, as in Go; at most 13 digits count for the largest unit.
        place /= 10;
        nanos += u128::from(digit - b'0') * place;
    }
    Ok((nanos, after))
}

fn leading_unit(text: &str) -> Option<(u128, &str)> {
    const UNITS: [(&str, u128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    UNITS.iter().find_map(|(name, size)| text.strip_prefix(name).map(|after| (*size, after)))
}

fn decimal(number: u128, unit: u128) -> String {
    let (whole, part) = (number / unit, number % unit);
    if part == 0 {
        return whole.to_string();
    }
    let places = unit.ilog10() as usize;
    let digits = format!("{part:0places$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_read_and_write_as_in_go() {
        let table = [
            ("5s", 5_000_000_000, "5s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("1500ms", 1_500_000_000, "1.5s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("0", 0, "0s"),
            ("-0s", 0, "0s"),
            (".5s", 500_000_000, "500ms"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("10us", 10_000, "10µs"),
            ("1ns", 1, "1ns"),
            ("1.0000000001s", 1_000_000_000, "1s"),
        ];
        for (text, nanos, canonical) in table {
            let span = parse(text).unwrap();
            assert_eq!((span.as_nanos(), format(span).as_str()), (nanos, canonical), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        let long = "1s".repeat(30);
        for text in ["", "5", "s", "5 s", "-", "1x", "1s\n", ".s", "1..5s", "5S", long.as_str()] {
            assert_eq!(parse(text), Err(Error::Malformed), "{text:?}");
        }
        assert_eq!(parse("-5s"), Err(Error::Negative));
        assert_eq!(parse("9223372037s"), Err(Error::TooLarge));
        assert_eq!(parse("99999999999999999999999999999999999999999h"), Err(Error::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanos in 0..=i64::MAX as u64) {
            let span = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(span)).unwrap(), span);
        }

        #[test]
        fn any_text_is_answered(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
