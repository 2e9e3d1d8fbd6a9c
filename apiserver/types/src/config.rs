//! Which redis.conf parameters a user may set, with which values, and what setting them costs.
//!
//! An allow-list: what is not in `table` is refused. Directives that KUN owns are refused with the reason, so that the
//! user learns which field of the spec does it instead. It knows Redis 7.0, whose parameters later versions and Valkey take
//! too (some without effect); it writes no files.

mod owned;
mod shown;
mod table;

use crate::engine::Engine;

pub use owned::reason as owned_reason;
pub use shown::shows;
pub use table::PARAMETERS;

/// Longest value of one parameter; the longest sensible one (three client-output-buffer-limits) has about 100.
pub const VALUE_MAX: usize = 256;
/// Most parameters in `spec.config`: there are fewer than this in the table.
pub const ENTRIES_MAX: usize = 128;
/// How many similar names an unknown one is answered with.
const NEAREST_MAX: usize = 3;
/// Most edits between a name and one that may have been meant.
const NEAREST_EDITS: usize = 3;

/// What a change of the parameter costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `CONFIG SET` at run time.
    Live,
    /// Each member restarts, in the safe order.
    Restart,
}

/// The values a parameter takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A whole number within bounds.
    Int(i64, i64),
    /// A number of bytes within bounds, with Redis' units (`64mb`).
    Memory(u64, u64),
    /// One of these words.
    Enum(&'static [&'static str]),
    /// A form of its own, how to describe it, and whether what a server shows means what was asked for.
    Form(fn(&str) -> bool, &'static str, fn(&str, &str) -> bool),
}

/// One parameter that users may set.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name in redis.conf.
    pub name: &'static str,
    /// What a change costs.
    pub class: Class,
    /// The values it takes.
    pub kind: Kind,
    /// Redis' own default, to return to when the parameter is taken out of the spec.
    pub default: &'static str,
}

impl Parameter {
    /// The engine's own default, to return to when the parameter is taken out of the spec.
    #[must_use]
    pub fn default_of(&self, engine: Engine) -> &'static str {
        match engine {
            Engine::Redis => self.default,
            Engine::Valkey => {
                table::OF_VALKEY.iter().find(|(name, _)| *name == self.name).map_or(self.default, |own| own.1)
            }
        }
    }
}

/// Why a parameter is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// KUN owns it.
    #[error("is set by KUN: {0}")]
    Owned(&'static str),
    /// It is not in the table.
    #[error("is not a redis.conf parameter that may be set{}", similar(.0))]
    Unknown(Vec<&'static str>),
    /// The value is not one it takes.
    #[error("must be {0}")]
    Value(String),
}

fn similar(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!("; similar: {}", names.join(", ")) }
}

/// The parameter of this exact name (Redis' own names are lower case).
#[must_use]
pub fn parameter(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.binary_search_by(|one| one.name.cmp(name)).ok().and_then(|at| PARAMETERS.get(at))
}

/// Whether `name` may be set to `value`.
///
/// # Errors
/// The reason why not.
pub fn check(name: &str, value: &str) -> Result<&'static Parameter, Refusal> {
    let Some(found) = parameter(name) else {
        return Err(owned_reason(name).map_or_else(|| Refusal::Unknown(nearest(name)), Refusal::Owned));
    };
    if takes(&found.kind, value) { Ok(found) } else { Err(Refusal::Value(describe(&found.kind))) }
}

fn takes(kind: &Kind, value: &str) -> bool {
    let plain = |byte: u8| byte == b' ' || (byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#'));
    if value.len() > VALUE_MAX || !value.bytes().all(plain) {
        return false;
    }
    match kind {
        Kind::Bool => matches!(value, "yes" | "no"),
        Kind::Int(least, most) => integer(value).is_some_and(|number| (*least..=*most).contains(&number)),
        Kind::Memory(least, most) => memory(value).is_some_and(|bytes| (*least..=*most).contains(&bytes)),
        Kind::Enum(words) => words.contains(&value),
        Kind::Form(fits, ..) => fits(value),
    }
}

fn describe(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "\"yes\" or \"no\" (in quotes: YAML reads a bare yes as true)".to_owned(),
        Kind::Int(least, most) => format!("a whole number from {least} to {most}"),
        Kind::Memory(least, most) => format!("a number of bytes from {least} to {most}, such as 64mb"),
        Kind::Enum(words) => format!("one of {}", words.join(", ")),
        Kind::Form(_, description, _) => (*description).to_owned(),
    }
}

/// As Redis reads them (`string2ll`): `00` and `-0` are none, and a server does not start with them.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = text == "0" || !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain && !digits.is_empty() { text.parse().ok() } else { None }
}

/// Bytes as Redis writes them: `b`, `k` = 1000, `kb` = 1024 and so on, upper or lower case.
#[must_use]
pub fn memory(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("b", 1),
        ("k", 1000),
        ("kb", 1 << 10),
        ("m", 1_000_000),
        ("mb", 1 << 20),
        ("g", 1_000_000_000),
        ("gb", 1 << 30),
    ];
    let (digits, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let unit = unit.to_ascii_lowercase();
    let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*size)
}

/// One line of redis.conf. Only for what [`check`] accepts: such values need no escaping, an empty one needs quotes.
#[must_use]
pub fn line(name: &str, value: &str) -> String {
    if value.is_empty() { format!("{name} \"\"") } else { format!("{name} {value}") }
}

/// Names of the table that are few edits away, nearest first.
fn nearest(name: &str) -> Vec<&'static str> {
    if name.len() > 64 {
        return Vec::new();
    }
    let wanted = name.to_ascii_lowercase();
    let mut found: Vec<(usize, &'static str)> = PARAMETERS
        .iter()
        .map(|one| (edits(&wanted, one.name), one.name))
        .filter(|(distance, _)| *distance <= NEAREST_EDITS)
        .collect();
    found.sort_unstable();
    found.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect()
}

/// Levenshtein's distance, one row at a time.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, left) in from.bytes().enumerate() {
        let mut diagonal = line;
        let mut before = line + 1;
        for (cell, right) in row.iter_mut().skip(1).zip(to.bytes()) {
            let replaced = diagonal + usize::from(left != right);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests;
