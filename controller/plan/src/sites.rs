//! Where members run. A site is whatever fails as a whole, such as a machine: its name is compared and shown, and nothing else is known of it.

use alloc::collections::BTreeMap;
use alloc::string::String;

/// Where a member runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// It may run anywhere.
    Unknown,
    /// There is no pod, or no site has been given to it yet: nothing of it has ever run, and it holds nothing.
    Nowhere,
    /// Here.
    At(String),
}

impl Site {
    /// Its name, where it is known.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::At(name) => Some(name),
            Self::Unknown | Self::Nowhere => None,
        }
    }
}

/// How many primaries each site holds.
pub(crate) struct Crowd<'a> {
    held: BTreeMap<&'a str, usize>,
    all: usize,
}

impl<'a> Crowd<'a> {
    pub(crate) fn of(primaries: impl Iterator<Item = &'a str>) -> Self {
        let (mut held, mut all) = (BTreeMap::new(), 0);
        for site in primaries {
            *held.entry(site).or_insert(0) += 1;
            all += 1;
        }
        Self { held, all }
    }

    pub(crate) fn at(&self, site: &str) -> usize {
        self.held.get(site).copied().unwrap_or(0)
    }

    /// Without this site less than a majority is left, which is what Redis needs to elect anybody: half of the primaries are too many.
    pub(crate) fn is_too_much(&self, site: &str) -> bool {
        self.at(site) * 2 >= self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_may_hold_as_many_primaries_as_leave_a_majority_elsewhere() {
        for (primaries, too_many) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)] {
            for here in 1..=primaries {
                let sites = (0..primaries).map(|index| if index < here { "here" } else { "elsewhere" });
                assert_eq!(Crowd::of(sites).is_too_much("here"), here >= too_many, "{here} of {primaries}");
            }
        }
    }
}
