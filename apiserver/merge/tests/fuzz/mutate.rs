//! Texts close to right ones: most random bytes are refused by the first character, these get further. Shared by the fuzz
//! tests of several crates. `KUN_SOAK` multiplies their cases.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::time::Instant;

use proptest::prelude::*;

/// What grammars are made of.
const PIECES: [&str; 36] = [
    "",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "/",
    "-",
    "+",
    ".",
    "=",
    "!",
    "(",
    ")",
    "~1",
    "~0",
    "$",
    "null",
    "true",
    "0",
    "9",
    "18446744073709551616",
    "1e400",
    "\u{0}",
    "\u{feff}",
    "é",
    "\u{1F600}",
    "\n",
    " ",
    "f:",
    "k:",
    "%",
    "&",
];

/// One change of a text.
#[derive(Debug, Clone)]
enum Edit {
    Insert {
        at: usize,
        piece: usize,
    },
    Delete {
        at: usize,
        count: usize,
    },
    /// A part of it once more, somewhere else.
    Copy {
        from: usize,
        count: usize,
        to: usize,
    },
    Swap {
        one: usize,
        other: usize,
    },
}

/// How many cases a test tries.
pub(crate) fn cases(everyday: u32) -> ProptestConfig {
    let soak = std::env::var("KUN_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u32);
    ProptestConfig { cases: everyday.saturating_mul(soak), failure_persistence: None, ..ProptestConfig::default() }
}

/// One of the texts, with a few changes.
pub(crate) fn near(seeds: &'static [&'static str]) -> impl Strategy<Value = String> {
    let edit = prop_oneof![
        3 => (any::<usize>(), 0..PIECES.len()).prop_map(|(at, piece)| Edit::Insert { at, piece }),
        2 => (any::<usize>(), 1..8_usize).prop_map(|(at, count)| Edit::Delete { at, count }),
        2 => (any::<usize>(), 1..40_usize, any::<usize>()).prop_map(|(from, count, to)| Edit::Copy { from, count, to }),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(one, other)| Edit::Swap { one, other }),
    ];
    (prop::sample::select(seeds), prop::collection::vec(edit, 0..5)).prop_map(|(seed, edits)| changed(seed, &edits))
}

fn changed(seed: &str, edits: &[Edit]) -> String {
    let mut text: Vec<char> = seed.chars().collect();
    for edit in edits {
        let place = |at: usize| at % (text.len() + 1);
        match *edit {
            Edit::Insert { at, piece } => {
                let at = place(at);
                drop(text.splice(at..at, PIECES[piece].chars()));
            }
            Edit::Delete { at, count } => {
                let at = place(at);
                let end = (at + count).min(text.len());
                drop(text.drain(at..end));
            }
            Edit::Copy { from, count, to } => {
                let (from, to) = (place(from), place(to));
                let part: Vec<char> = text[from..(from + count).min(text.len())].to_vec();
                drop(text.splice(to..to, part));
            }
            Edit::Swap { one, other } if !text.is_empty() => {
                let (one, other) = (one % text.len(), other % text.len());
                text.swap(one, other);
            }
            Edit::Swap { .. } => {}
        }
    }
    text.into_iter().collect()
}

/// Runs what must not hang: what is quadratic in a kilobyte is far below the limit, what hangs is beyond.
pub(crate) fn soon<T>(run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let outcome = run();
    assert!(begun.elapsed() < hung::answer(), "it took {:?}", begun.elapsed());
    outcome
}
