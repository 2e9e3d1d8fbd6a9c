//! Whether a server shows what it was asked for. `CONFIG GET` answers in the engine's own words: `1gb` is shown as 1073741824, `Elg` as
//! `glE`, `replica` as `slave`. Pure.

use std::collections::BTreeMap;

use super::{Kind, integer, memory, parameter};

/// All classes of events that `A` stands for.
const ALL_EVENTS: &str = "g$lshzxetd";
/// Redis 7.0 does not show it beside `A`.
const NEW_KEYS: char = 'n';

/// Whether `shown`, a server's answer to `CONFIG GET name`, means `wanted`, which [`super::check`] accepts.
#[must_use]
pub fn shows(name: &str, wanted: &str, shown: &str) -> bool {
    let alike = |read: fn(&str) -> Option<u64>| read(wanted).is_some() && read(wanted) == read(shown);
    wanted == shown
        || parameter(name).is_some_and(|one| match one.kind {
            Kind::Bool | Kind::Enum(_) => false,
            Kind::Int(..) => integer(wanted).is_some() && integer(wanted) == integer(shown),
            Kind::Memory(..) => alike(memory),
            Kind::Form(_, _, same) => same(wanted, shown),
        })
}

/// Classes that are not named stay as they were; of a class that is named twice the last counts.
pub(super) fn same_output_limits(wanted: &str, shown: &str) -> bool {
    let shown = output_limits(shown);
    output_limits(wanted).iter().all(|(class, limits)| shown.get(class) == Some(limits))
}

fn output_limits(text: &str) -> BTreeMap<&str, [Option<u64>; 3]> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let groups = words.chunks_exact(4).filter_map(|group| match group {
        [class, hard, soft, seconds] => {
            let class = if *class == "slave" { "replica" } else { *class };
            Some((class, [memory(hard), memory(soft), seconds.parse().ok()]))
        }
        _ => None,
    });
    groups.collect()
}

/// They are shown with six digits.
pub(super) fn same_percentiles(wanted: &str, shown: &str) -> bool {
    let numbers =
        |text: &str| -> Option<Vec<f64>> { text.split_ascii_whitespace().map(|word| word.parse().ok()).collect() };
    let (Some(wanted), Some(shown)) = (numbers(wanted), numbers(shown)) else { return false };
    wanted.len() == shown.len() && wanted.iter().zip(&shown).all(|(one, other)| (one - other).abs() < 1e-6)
}

/// Nothing of anything is shown as 0.
pub(super) fn same_memory_or_percent(wanted: &str, shown: &str) -> bool {
    let amount = |text: &str| match text.strip_suffix('%') {
        Some(percent) => percent.parse::<u64>().ok().map(|number| (number != 0, number)),
        None => memory(text).map(|bytes| (false, bytes)),
    };
    amount(wanted).is_some() && amount(wanted) == amount(shown)
}

pub(super) fn same_events(wanted: &str, shown: &str) -> bool {
    let classes = |text: &str| {
        let all = if text.contains('A') { ALL_EVENTS } else { "" };
        let mut letters: Vec<char> = text.chars().filter(|letter| *letter != 'A').chain(all.chars()).collect();
        letters.sort_unstable();
        letters.dedup();
        if ALL_EVENTS.chars().all(|class| letters.contains(&class)) {
            letters.retain(|letter| *letter != NEW_KEYS);
        }
        letters
    };
    classes(wanted) == classes(shown)
}
