//! Hash slots: how a key finds its slot, and sets of slots. Knows nothing of nodes or pods.

use alloc::vec::Vec;
use core::fmt;

/// Number of hash slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: CRC16 (XMODEM) of the key, or of what stands between its first `{` and the next `}` if that is not empty.
#[must_use]
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) & (SLOTS - 1)
}

fn hashed_part(key: &[u8]) -> &[u8] {
    let tagged = key.iter().position(|byte| *byte == b'{').and_then(|open| key.get(open + 1..));
    let tag = tagged.and_then(|rest| rest.split(|byte| *byte == b'}').next().filter(|tag| tag.len() < rest.len()));
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ POLYNOMIAL },
        )
    })
}

/// A set of slots, kept as sorted ranges that neither overlap nor touch. Its text is Redis' own: `0-5460,5462`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotSet {
    ranges: Vec<(u16, u16)>,
}

impl SlotSet {
    /// No slot.
    pub const EMPTY: Self = Self { ranges: Vec::new() };

    /// All slots.
    #[must_use]
    pub fn all() -> Self {
        Self::range(0, SLOTS - 1)
    }

    /// The slots `first..=last`; those beyond the last slot there is are left out.
    #[must_use]
    pub fn range(first: u16, last: u16) -> Self {
        let mut set = Self::EMPTY;
        set.insert_range(first, last);
        set
    }

    /// From text such as `0-5460,5462`; `None` if it is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut set = Self::EMPTY;
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= SLOTS {
                return None;
            }
            set.insert_range(first, last);
        }
        Some(set)
    }

    /// Adds one slot.
    pub fn insert(&mut self, slot: u16) {
        self.insert_range(slot, slot);
    }

    /// Adds `first..=last`; those beyond the last slot there is are left out.
    pub fn insert_range(&mut self, first: u16, last: u16) {
        let last = last.min(SLOTS - 1);
        if first > last {
            return;
        }
        if self.ranges.last().is_none_or(|(_, end)| *end < first) {
            return self.push(first, last);
        }
        let mut old = core::mem::take(&mut self.ranges);
        let at = old.partition_point(|(start, _)| *start < first);
        old.insert(at, (first, last));
        old.into_iter().for_each(|(first, last)| self.push(first, last));
    }

    /// Appends a range that begins no earlier than every range before it.
    fn push(&mut self, first: u16, last: u16) {
        match self.ranges.last_mut() {
            Some((_, end)) if end.saturating_add(1) >= first => *end = last.max(*end),
            Some(_) | None => self.ranges.push((first, last)),
        }
    }

    /// Takes one slot out.
    pub fn remove(&mut self, slot: u16) {
        *self = self.difference(&Self::range(slot, slot));
    }

    /// Whether the slot is in it.
    #[must_use]
    pub fn contains(&self, slot: u16) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= slot);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| slot <= *last)
    }

    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> u16 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether no slot is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, ascending, both ends included.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.ranges.iter().copied()
    }

    /// The slots, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u16> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut both: Vec<_> = self.ranges().chain(other.ranges()).collect();
        both.sort_unstable();
        let mut set = Self::EMPTY;
        both.into_iter().for_each(|(first, last)| set.push(first, last));
        set
    }

    /// What is in this and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.intersection(&other.complement())
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut set = Self::EMPTY;
        let mut rest = other.ranges().peekable();
        for (first, last) in self.ranges() {
            while let Some((other_first, other_last)) = rest.peek().copied() {
                if other_first > last {
                    break;
                }
                if other_last >= first {
                    set.push(first.max(other_first), last.min(other_last));
                }
                if other_last > last {
                    break;
                }
                rest.next();
            }
        }
        set
    }

    /// All slots that are not in it.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut set = Self::EMPTY;
        let mut next = 0;
        for (first, last) in self.ranges() {
            if next < first {
                set.push(next, first - 1);
            }
            next = last + 1;
        }
        if next < SLOTS {
            set.push(next, SLOTS - 1);
        }
        set
    }

    /// The highest `count` slots, or all of them.
    #[must_use]
    pub fn highest(&self, count: u16) -> Self {
        self.difference(&self.lowest(self.len().saturating_sub(count)))
    }

    /// The lowest `count` slots, or all of them.
    #[must_use]
    pub fn lowest(&self, count: u16) -> Self {
        let mut set = Self::EMPTY;
        let mut left = count;
        for (first, last) in self.ranges() {
            if left == 0 {
                break;
            }
            let last = last.min(first.saturating_add(left - 1));
            left -= last - first + 1;
            set.push(first, last);
        }
        set
    }
}

impl FromIterator<u16> for SlotSet {
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> Self {
        let mut all: Vec<u16> = slots.into_iter().filter(|slot| *slot < SLOTS).collect();
        all.sort_unstable();
        let mut set = Self::EMPTY;
        all.into_iter().for_each(|slot| set.push(slot, slot));
        set
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn keys_hash_as_the_specification_says() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(key_slot(b""), 0);
        assert_eq!(key_slot(b"foo"), 12_182);
        assert_eq!(key_slot(b"{user1000}.following"), key_slot(b"{user1000}.followers"));
        assert_eq!(key_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") & 0x3fff);
        assert_eq!(key_slot(b"foo{{bar}}zap"), key_slot(b"{bar"));
        assert_eq!(key_slot(b"foo{bar}{zap}"), key_slot(b"bar"));
        assert_eq!(key_slot(b"foo{bar"), crc16(b"foo{bar") & 0x3fff);
    }

    #[test]
    fn a_set_reads_and_prints_as_redis_writes_it() {
        for text in ["", "0", "0-5460,5462", "16383", "1-2,4-5,7"] {
            assert_eq!(SlotSet::parse(text).unwrap().to_string(), text);
        }
        for text in ["16384", "5-3", "a", "1-", "-1", "1-2-3"] {
            assert_eq!(SlotSet::parse(text), None, "{text}");
        }
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut set = SlotSet::parse("0-4,6-9").unwrap();
        set.insert(5);
        assert_eq!(set, SlotSet::range(0, 9));
        set.insert_range(3, 20);
        assert_eq!(set, SlotSet::range(0, 20));
    }

    #[test]
    fn operations_agree_with_a_plain_list_of_booleans() {
        let mut seed = 7_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u16::try_from(seed >> 50).unwrap()
        };
        for _ in 0..20 {
            let a: SlotSet = (0..40).map(|_| random() % 64).collect();
            let b: SlotSet = (0..20).map(|_| random() % 64).collect();
            let slots = |keep: &dyn Fn(u16) -> bool| (0..SLOTS).filter(|slot| keep(*slot)).collect::<SlotSet>();
            assert_eq!(a.union(&b), slots(&|s| a.contains(s) || b.contains(s)));
            assert_eq!(a.intersection(&b), slots(&|s| a.contains(s) && b.contains(s)));
            assert_eq!(a.difference(&b), slots(&|s| a.contains(s) && !b.contains(s)));
            assert_eq!(a.complement(), slots(&|s| !a.contains(s)));
            assert_eq!(usize::from(a.len()), a.iter().count());
            assert_eq!(a.highest(3).union(&a.lowest(a.len().saturating_sub(3))), a);
        }
    }
}
