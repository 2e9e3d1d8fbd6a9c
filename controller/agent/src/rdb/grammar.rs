//! The grammar of an RDB file as far as a reader that skips values needs it: what may come next, and what each type of
//! value consists of. Types are those of Redis up to 7.2 and of Valkey up to 9.1; a type that is not here is not known.

/// Whose numbers the types of a file are. They were the same until Redis 7.2, and Valkey's files say so until 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Redis,
    Valkey,
}

impl Dialect {
    /// `REDIS0011`, or `VALKEY080`.
    pub(super) fn of_magic(magic: [u8; 9]) -> Option<Self> {
        let (version, dialect) = match (magic.strip_prefix(b"REDIS"), magic.strip_prefix(b"VALKEY")) {
            (Some(version), _) => (version, Self::Redis),
            (None, Some(version)) => (version, Self::Valkey),
            (None, None) => return None,
        };
        version.iter().all(u8::is_ascii_digit).then_some(dialect)
    }
}

/// What is to be read next. The reader is a stack of these: what is on top comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Magic,
    Opcode,
    /// This many bytes of no interest.
    Skip(u64),
    /// A length of no interest.
    Length,
    /// A length that says how many follow.
    Count(Many),
    /// This many of a kind.
    Repeat(Many, u64),
    String,
    /// Two lengths and then the first one's bytes: a compressed string.
    Compressed,
    /// The number of keys of a database, for readers that cannot count.
    Stated,
    /// A score as text: one byte of length, of which three values mean a constant.
    TextScore,
    /// The parts of a module's value, to the part that ends it.
    Module,
    Checksum,
    End,
    /// Not understood from here on.
    Blind,
}

/// Things that come in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Many {
    Strings,
    Pairs,
    TextScored,
    Scored,
    /// Fields of a hash, with values and times.
    Expiring,
    /// First and last slots.
    Ranges,
    QuickList,
    Groups(Version),
    Pending,
    Consumers(Version),
    OwnPending,
}

/// Versions of the stream encoding, by the value type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    One,
    Two,
    Three,
}

/// The steps of a value, last first; `None`: the type is not known.
pub(super) fn value_steps(dialect: Dialect, kind: u8) -> Option<&'static [Step]> {
    Some(match kind {
        0 | 9..=13 | 16 | 17 | 20 => &[Step::String],
        1 | 2 | 14 => &[Step::Count(Many::Strings)],
        3 => &[Step::Count(Many::TextScored)],
        4 => &[Step::Count(Many::Pairs)],
        5 => &[Step::Count(Many::Scored)],
        7 => &[Step::Module, Step::Length],
        15 => &[
            Step::Count(Many::Groups(Version::One)),
            Step::Length,
            Step::Length,
            Step::Length,
            Step::Count(Many::Pairs),
        ],
        18 => &[Step::Count(Many::QuickList)],
        19 => STREAM_TWO,
        21 => STREAM_THREE,
        22 if dialect == Dialect::Valkey => &[Step::Count(Many::Expiring)],
        _ => return None,
    })
}

const STREAM_TWO: &[Step] = &stream(Version::Two);
const STREAM_THREE: &[Step] = &stream(Version::Three);

/// Nodes; number of entries; last, first and greatest deleted ID; entries ever added; groups.
const fn stream(version: Version) -> [Step; 10] {
    let length = Step::Length;
    let groups = Step::Count(Many::Groups(version));
    [groups, length, length, length, length, length, length, length, length, Step::Count(Many::Pairs)]
}
