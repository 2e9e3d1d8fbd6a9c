//! Kubernetes' resource quantities: "1500m", "2Gi", "1e3", exact to a billionth, never overflowing.
//!
//! It knows arithmetic and spelling, not which field a quantity stands in.

use std::fmt;

/// Longest text that is read: the largest quantity has 19 digits before and 9 after the point, sign and suffix.
const TEXT_MAX: usize = 64;
/// One unit in the resolution of a quantity (10⁻⁹), Kubernetes' own.
const NANO: i128 = 1_000_000_000;
/// The largest quantity: 2⁶³−1 units, as in Kubernetes.
const MOST: i128 = (i64::MAX as i128) * NANO;

/// An amount. Ordered by amount; its spelling is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Quantity {
    nanos: i128,
    spelling: Spelling,
}

/// The family of suffixes the author used; the canonical form keeps to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
enum Spelling {
    /// n u m k M G T P E
    #[default]
    Decimal,
    /// Ki Mi Gi Ti Pi Ei
    Binary,
    /// e3, E-2
    Exponent,
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not of the form number and suffix.
    #[error(
        "must be a number with an optional suffix of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or an exponent such as e3"
    )]
    Malformed,
    /// More than 2⁶³−1 units.
    #[error("must be at most 2^63-1")]
    TooLarge,
}

impl Quantity {
    /// Reads a quantity. Digits finer than a billionth are rounded away from zero, as Kubernetes does.
    ///
    /// # Errors
    /// `Malformed` or `TooLarge`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() || text.len() > TEXT_MAX {
            return Err(Error::Malformed);
        }
        let (negative, rest) = sign(text);
        let whole_len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = rest.split_at(whole_len);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(Error::Malformed);
        }
        let (scale, spelling) = suffix_scale(suffix)?;
        let nanos = amount(whole, fraction, scale)?;
        Ok(Self { nanos: if negative { -nanos } else { nanos }, spelling })
    }

    /// A number of bytes, spelled in binary suffixes.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        let nanos = i128::from(bytes).saturating_mul(NANO).min(MOST);
        Self { nanos, spelling: Spelling::Binary }
    }

    /// Whole units, rounded up; negative amounts are 0.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::try_from(div_up(self.nanos, NANO)).unwrap_or(0)
    }

    /// Thousandths (of a core), rounded up; negative amounts are 0.
    #[must_use]
    pub fn millis(self) -> u64 {
        let millis = div_up(self.nanos, NANO / 1000).max(0);
        u64::try_from(millis).unwrap_or(u64::MAX)
    }

    /// Whether two texts stand for the same amount.
    #[must_use]
    pub fn same(one: &str, other: &str) -> bool {
        matches!((Self::parse(one), Self::parse(other)), (Ok(one), Ok(other)) if one.nanos == other.nanos)
    }

    /// One text for one amount, however it was spelled: in binary suffixes where that takes one, else in decimal ones.
    #[must_use]
    pub fn uniform(self) -> String {
        let is_binary = self.nanos % (NANO * 1024) == 0;
        let spelling = if is_binary { Spelling::Binary } else { Spelling::Decimal };
        Self { spelling, ..self }.to_string()
    }

    /// Whether it is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is nothing.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }
}

/// The canonical form: no fraction, the largest suffix that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        const EXPONENT: [&str; 10] = ["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"];
        if self.nanos == 0 {
            return out.write_str("0");
        }
        if self.spelling == Spelling::Binary && self.nanos % NANO == 0 {
            let (number, suffix) = reduce(self.nanos / NANO, 1024, "", &BINARY);
            return write!(out, "{number}{suffix}");
        }
        let suffixes = if self.spelling == Spelling::Exponent { &EXPONENT } else { &DECIMAL };
        let (first, rest) = suffixes.split_first().unwrap_or((&"n", &[]));
        let (number, suffix) = reduce(self.nanos, 1000, first, rest);
        write!(out, "{number}{suffix}")
    }
}

fn reduce<'s>(mut number: i128, base: i128, first: &'s str, suffixes: &[&'s str]) -> (i128, &'s str) {
    let mut suffix = first;
    for next in suffixes {
        if number % base != 0 {
            break;
        }
        number /= base;
        suffix = next;
    }
    (number, suffix)
}

fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// How many nano-units one of this suffix is, as numerator and denominator (one of them 1 for powers of ten).
struct Scale {
    times: i128,
    over: i128,
}

fn suffix_scale(suffix: &str) -> Result<(Scale, Spelling), Error> {
    let decimal = |power: i32| Ok((ten_power(power + 9), Spelling::Decimal));
    let binary = |power: u32| Ok((Scale { times: NANO << (10 * power), over: 1 }, Spelling::Binary));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E']).ok_or(Error::Malformed)?;
            let (negative, digits) = sign(digits);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Error::Malformed);
            }
            // Beyond ±30 every amount but 0 is too large or rounds to one billionth; clamping keeps the arithmetic small.
            let power = digits.parse::<i32>().unwrap_or(30).min(30);
            Ok((ten_power(if negative { 9 - power } else { 9 + power }), Spelling::Exponent))
        }
    }
}

fn ten_power(power: i32) -> Scale {
    let size = 10_i128.saturating_pow(power.unsigned_abs());
    if power >= 0 { Scale { times: size, over: 1 } } else { Scale { times: 1, over: size } }
}

/// `whole.fraction × scale` in nano-units, rounded up.
fn amount(whole: &str, fraction: &str, scale: Scale) -> Result<i128, Error> {
    let whole = digits(whole)?.checked_mul(scale.times).ok_or(Error::TooLarge)?;
    let mut nanos = div_up(whole, scale.over);
    if nanos > MOST {
        return Err(Error::TooLarge);
    }
    // 30 digits of fraction (times a scale below 2^90) could overflow; what lies beyond the 12th digit of a number that is
    // not rounded anyway can only round up, which one more billionth stands for.
    let kept: String = fraction.chars().take(12).collect();
    let rest_matters = fraction.chars().skip(12).any(|digit| digit != '0');
    let over = 10_i128.saturating_pow(u32::try_from(kept.len()).unwrap_or(0)).checked_mul(scale.over);
    let parts = digits(&kept)?.checked_mul(scale.times).ok_or(Error::TooLarge)?;
    nanos = nanos.checked_add(div_up(parts, over.ok_or(Error::Malformed)?)).ok_or(Error::TooLarge)?;
    nanos += i128::from(rest_matters && (parts == 0 || scale.times <= NANO));
    if nanos > MOST { Err(Error::TooLarge) } else { Ok(nanos) }
}

fn digits(text: &str) -> Result<i128, Error> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| Error::TooLarge) }
}

fn div_up(number: i128, by: i128) -> i128 {
    let floor = number.div_euclid(by);
    if number.rem_euclid(by) == 0 { floor } else { floor + 1 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_suffix_is_read_and_written_canonically() {
        let table = [
            ("0", 0, "0"),
            ("1", 1, "1"),
            ("1500m", 2, "1500m"),
            ("0.5", 1, "500m"),
            (".5", 1, "500m"),
            ("1.", 1, "1"),
            ("+2", 2, "2"),
            ("1k", 1000, "1k"),
            ("1000k", 1_000_000, "1M"),
            ("1Ki", 1024, "1Ki"),
            ("1024Ki", 1 << 20, "1Mi"),
            ("1.5Gi", 3 << 29, "1536Mi"),
            ("8Ei", 0, "too large"),
            ("7Ei", 7 << 60, "7Ei"),
            ("1e3", 1000, "1e3"),
            ("1E3", 1000, "1e3"),
            ("1E", 1_000_000_000_000_000_000, "1E"),
            ("12e-1", 2, "1200e-3"),
            ("1e-30", 1, "1e-9"),
            ("0.0000000001", 1, "1n"),
            ("9223372036854775807", i64::MAX as u64, "9223372036854775807"),
            ("9223372036854775808", 0, "too large"),
            ("1e400", 0, "too large"),
            ("99999999999999999999999999999999999999999", 0, "too large"),
        ];
        for (text, bytes, canonical) in table {
            match Quantity::parse(text) {
                Ok(quantity) => {
                    assert_eq!((quantity.bytes(), quantity.to_string().as_str()), (bytes, canonical), "{text}")
                }
                Err(error) => assert_eq!((error, canonical), (Error::TooLarge, "too large"), "{text}"),
            }
        }
    }

    #[test]
    fn equal_amounts_have_one_text() {
        for (texts, text) in [
            (["1Gi", "1024Mi", "1048576Ki", "1073741824", "1073741824000m"], "1Gi"),
            (["1", "1000m", "1.0", "1e0", "+1"], "1"),
            (["1500m", "1.5", "1500e-3", "0.0015k", "1500000u"], "1500m"),
            (["2k", "2000", "2e3", "2000000m", "0.002M"], "2k"),
        ] {
            for one in texts {
                assert_eq!(Quantity::parse(one).unwrap().uniform(), text, "{one}");
                assert!(Quantity::same(one, text));
            }
        }
        assert!(!Quantity::same("1Gi", "1G") && !Quantity::same("x", "x"));
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        let long = "1".repeat(65);
        for text in
            ["", " 1", "1 ", "1kb", "Gi", "-", "1e", "1e+", "0x10", "1,5", "1_0", "1\n", "١", "--1", long.as_str()]
        {
            assert_eq!(Quantity::parse(text), Err(Error::Malformed), "{text:?}");
        }
    }

    #[test]
    fn a_negative_amount_is_read_and_counts_as_no_bytes() {
        let minus = Quantity::parse("-1Gi").unwrap();
        assert_eq!((minus.is_negative(), minus.bytes(), minus.to_string()), (true, 0, "-1Gi".to_owned()));
    }

    proptest! {
        #[test]
        fn parsing_is_total_and_the_canonical_form_reads_back_as_itself(text in "[-+]?[0-9]{0,22}(\\.[0-9]{0,14})?([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,4})?") {
            if let Ok(quantity) = Quantity::parse(&text) {
                let canonical = quantity.to_string();
                let again = Quantity::parse(&canonical).unwrap();
                prop_assert_eq!((again.nanos, again.to_string()), (quantity.nanos, canonical));
            }
        }

        #[test]
        fn any_text_is_answered(text in "\\PC*") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn bytes_survive(bytes in 0..=i64::MAX as u64) {
            let text = Quantity::from_bytes(bytes).to_string();
            prop_assert_eq!(Quantity::parse(&text).unwrap().bytes(), bytes);
        }
    }
}
