//! Versions of an engine as users write them ("7", "7.0", "7.0.15"), and ranges of them (">=7.0, <9").

use std::{cmp::Ordering, fmt, str::FromStr};

/// Longest version or range that is read.
const TEXT_MAX: usize = 128;
/// Most bounds in one range.
const BOUNDS_MAX: usize = 8;

/// A version with one to three numbers. What is not given is open: "7.0" stands for any 7.0.x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// First number.
    pub major: u16,
    /// Second number, if given.
    pub minor: Option<u16>,
    /// Third number, if given.
    pub patch: Option<u16>,
}

/// Why a text is not a version or range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not one to three numbers.
    #[error("must be a version such as \"7\", \"7.0\" or \"7.0.15\"")]
    Version,
    /// Not a list of bounds.
    #[error("must be bounds such as \">=7.0, <9\", each with one of the operators >=, >, <=, <, =")]
    Range,
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split('.').map(number);
        let major = parts.next().ok_or(Error::Version)??;
        let minor = parts.next().transpose()?;
        let patch = parts.next().transpose()?;
        if parts.next().is_some() { Err(Error::Version) } else { Ok(Self { major, minor, patch }) }
    }
}

/// A number without leading zeros and without sign.
fn number(text: &str) -> Result<u16, Error> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (text.len() > 1 && text.starts_with('0')) {
        return Err(Error::Version);
    }
    text.parse().map_err(|_| Error::Version)
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.major)?;
        for part in [self.minor, self.patch].into_iter().flatten() {
            write!(out, ".{part}")?;
        }
        Ok(())
    }
}

impl Version {
    /// The numbers, with 0 for what is open.
    #[must_use]
    pub fn triple(self) -> (u16, u16, u16) {
        (self.major, self.minor.unwrap_or(0), self.patch.unwrap_or(0))
    }

    /// Order by numbers, open ones counting as 0.
    #[must_use]
    pub fn compare(self, other: Self) -> Ordering {
        self.triple().cmp(&other.triple())
    }

    /// Whether `other` is a spelling of this version: "7.0" covers "7.0.15".
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.major == other.major
            && (self.minor.is_none() || self.minor == other.minor)
            && (self.patch.is_none() || self.patch == other.patch)
    }

    /// Whether either covers the other, so that both may speak of one server.
    #[must_use]
    pub fn agrees(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Whether going to `new` lowers the minor or major version. An engine does not read the files of a later one.
    #[must_use]
    pub fn is_downgrade_to(self, new: Self) -> bool {
        let (major, minor, _) = self.triple();
        let (new_major, new_minor, _) = new.triple();
        (new_major, new_minor) < (major, minor)
    }
}

/// Bounds that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    bounds: Vec<(Operator, Version)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    AtLeast,
    Above,
    AtMost,
    Below,
    Equal,
}

impl FromStr for Range {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > TEXT_MAX {
            return Err(Error::Range);
        }
        let bounds = text.split(',').map(|part| bound(part.trim())).collect::<Result<Vec<_>, _>>()?;
        if bounds.len() > BOUNDS_MAX { Err(Error::Range) } else { Ok(Self { bounds }) }
    }
}

fn bound(text: &str) -> Result<(Operator, Version), Error> {
    const OPERATORS: [(&str, Operator); 5] = [
        (">=", Operator::AtLeast),
        ("<=", Operator::AtMost),
        (">", Operator::Above),
        ("<", Operator::Below),
        ("=", Operator::Equal),
    ];
    let found = OPERATORS.iter().find_map(|(sign, operator)| text.strip_prefix(sign).map(|rest| (*operator, rest)));
    let (operator, rest) = found.unwrap_or((Operator::Equal, text));
    Ok((operator, rest.trim_start().parse().map_err(|_| Error::Range)?))
}

impl Range {
    /// Whether every version that `version` may stand for, as far as it is known, lies within.
    ///
    /// A bound compares only the numbers it gives: "<=7.0" holds for 7.0.15, ">7.0" does not.
    #[must_use]
    pub fn contains(&self, version: Version) -> bool {
        self.bounds.iter().all(|(operator, bound)| {
            let order = compare_to_bound(version, *bound);
            match operator {
                Operator::AtLeast => order != Ordering::Less,
                Operator::Above => order == Ordering::Greater,
                Operator::AtMost => order != Ordering::Greater,
                Operator::Below => order == Ordering::Less,
                Operator::Equal => order == Ordering::Equal,
            }
        })
    }
}

fn compare_to_bound(version: Version, bound: Version) -> Ordering {
    let (major, minor, patch) = version.triple();
    let by_minor = bound.minor.map_or(Ordering::Equal, |given| minor.cmp(&given));
    let by_patch = bound.patch.map_or(Ordering::Equal, |given| patch.cmp(&given));
    major.cmp(&bound.major).then(by_minor).then(by_patch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn one_to_three_numbers_are_a_version() {
        for text in ["7", "7.0", "7.0.15", "65535.0.0"] {
            assert_eq!(version(text).to_string(), text);
        }
        for text in ["", ".", "7.", "v7", "07", "7.00", "7.0.1.2", "7.0-rc1", "-7", "65536", "7 ", "７"] {
            assert_eq!(text.parse::<Version>(), Err(Error::Version), "{text:?}");
        }
    }

    #[test]
    fn only_a_lower_minor_or_major_is_a_downgrade() {
        let table = [
            ("7.0", "7.2", false),
            ("7.2", "7.0", true),
            ("8.0", "7.4", true),
            ("7.0.15", "7.0.10", false),
            ("7.0.15", "7.0", false),
            ("7.2", "7", true),
            ("7", "7.0", false),
        ];
        for (old, new, downgrade) in table {
            assert_eq!(version(old).is_downgrade_to(version(new)), downgrade, "{old} -> {new}");
        }
    }

    #[test]
    fn a_version_agrees_with_its_own_spellings_only() {
        assert!(version("7.0").agrees(version("7.0.15")));
        assert!(version("7.0.15").agrees(version("7")));
        assert!(!version("7.0").agrees(version("7.2.1")));
        assert!(!version("7.0.14").agrees(version("7.0.15")));
    }

    #[test]
    fn a_range_compares_the_numbers_its_bounds_give() {
        let table = [
            (">=7.0, <9", "7.0", true),
            (">=7.0, <9", "8.2.1", true),
            (">=7.0, <9", "9", false),
            (">=7.0, <9", "6.2.14", false),
            ("<=7.0", "7.0.15", true),
            (">7.0", "7.0.15", false),
            ("7.2", "7.2.4", true),
            ("=7.2.4", "7.2.5", false),
        ];
        for (range, text, inside) in table {
            assert_eq!(range.parse::<Range>().unwrap().contains(version(text)), inside, "{range} {text}");
        }
        for text in ["", ",", ">=", "~7", ">=7,,<9", ">=7.0 <9", "1,1,1,1,1,1,1,1,1"] {
            assert_eq!(text.parse::<Range>(), Err(Error::Range), "{text:?}");
        }
    }
}
