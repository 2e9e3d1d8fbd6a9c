//! A reader that walks an RDB stream without keeping it: counts keys, checks structure and checksum. Pure.
//!
//! It needs a few bytes of memory whatever the size of the file, because strings are skipped and not read. A value type
//! it does not know (a newer engine's) does not fail the walk: counting then rests on the sizes the file itself states,
//! and the checksum can no longer be found; [`Summary::walked`] says so.

mod grammar;

use crc_fast::{CrcAlgorithm, Digest};
use grammar::{Dialect, Many, Step, Version, value_steps};

/// What is wrong with a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not begin with `REDIS` or `VALKEY` and a version.
    #[error("read RDB: the stream does not begin with REDIS or VALKEY and a version")]
    NotRdb,
    /// A length where none may stand.
    #[error("read RDB: byte {at}: a special encoding where a length is expected")]
    BadLength {
        /// Offset.
        at: u64,
    },
    /// A special string encoding that does not exist.
    #[error("read RDB: byte {at}: unknown string encoding {encoding}")]
    BadString {
        /// Offset.
        at: u64,
        /// Which.
        encoding: u8,
    },
    /// A module value with an unknown part.
    #[error("read RDB: byte {at}: unknown part {part} in a module's value")]
    BadModule {
        /// Offset.
        at: u64,
        /// Which.
        part: u64,
    },
    /// The checksum at the end does not match the bytes.
    #[error("read RDB: the file's checksum is {stated:016x}, its bytes give {computed:016x}")]
    Checksum {
        /// As in the file.
        stated: u64,
        /// As computed.
        computed: u64,
    },
    /// More bytes after the end.
    #[error("read RDB: {0} bytes follow the end of the file")]
    Trailing(usize),
    /// The stream ended before the file did.
    #[error("read RDB: the stream ended at byte {at}, before the end of the file")]
    Short {
        /// Offset.
        at: u64,
    },
}

/// What a complete stream held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Keys: counted one by one if `walked`, else as the file states them.
    pub keys: u64,
    /// Whether every element was understood and the checksum agreed.
    pub walked: bool,
    /// Bytes.
    pub bytes: u64,
}

/// Longest element that is looked at as a whole: the magic.
const LONGEST: usize = 9;

/// The reader.
#[derive(Debug)]
pub struct Reader {
    steps: Vec<Step>,
    /// The head of an element that was cut by the end of a chunk.
    head: [u8; LONGEST],
    held: usize,
    /// CRC-64 with the Jones polynomial, as it ends the file.
    crc: Digest,
    summed: bool,
    dialect: Dialect,
    keys: u64,
    stated: u64,
    bytes: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            steps: vec![Step::Opcode, Step::Magic],
            head: [0; LONGEST],
            held: 0,
            crc: Digest::new(CrcAlgorithm::Crc64Redis),
            summed: false,
            dialect: Dialect::Redis,
            keys: 0,
            stated: 0,
            bytes: 0,
        }
    }
}

/// The rest of the chunk that is being read.
struct Input<'a> {
    chunk: &'a [u8],
    used: usize,
}

impl<'a> Input<'a> {
    fn rest(&self) -> &'a [u8] {
        self.chunk.get(self.used..).unwrap_or_default()
    }
}

impl Reader {
    /// Reads the next bytes.
    ///
    /// # Errors
    /// When they cannot be part of an RDB file.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), Error> {
        let mut input = Input { chunk, used: 0 };
        while let Some(step) = self.steps.pop() {
            if let Some(unfinished) = self.step(step, &mut input)? {
                self.steps.push(unfinished);
                break;
            }
        }
        if !self.summed {
            self.crc.update(chunk);
        }
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        Ok(())
    }

    /// The summary of a stream that has ended.
    ///
    /// # Errors
    /// When the file had not.
    pub fn finish(self) -> Result<Summary, Error> {
        let bytes = self.bytes;
        match self.steps.last() {
            Some(Step::End) => Ok(Summary { keys: self.keys, walked: true, bytes }),
            Some(Step::Blind) => Ok(Summary { keys: self.stated, walked: false, bytes }),
            _ => Err(Error::Short { at: bytes }),
        }
    }

    fn at(&self, input: &Input<'_>) -> u64 {
        self.bytes.saturating_add(input.used as u64)
    }

    /// Does one step. What it returns is to be done when more bytes have come.
    fn step(&mut self, step: Step, input: &mut Input<'_>) -> Result<Option<Step>, Error> {
        match step {
            Step::Magic => {
                let Some(magic) = self.take(input, LONGEST) else { return Ok(Some(step)) };
                self.dialect = Dialect::of_magic(magic).ok_or(Error::NotRdb)?;
            }
            Step::Opcode => {
                let Some(byte) = self.byte(input) else { return Ok(Some(step)) };
                self.opcode(byte, input);
            }
            Step::Skip(count) => {
                let now = count.min(input.rest().len() as u64);
                input.used = input.used.saturating_add(usize::try_from(now).unwrap_or(usize::MAX));
                let left = count.saturating_sub(now);
                if left > 0 {
                    return Ok(Some(Step::Skip(left)));
                }
            }
            Step::Length | Step::Stated | Step::Count(_) | Step::Compressed | Step::Module | Step::String => {
                return self.length_step(step, input);
            }
            Step::Repeat(many, count) => self.repeat(many, count),
            Step::TextScore => {
                let Some(length) = self.byte(input) else { return Ok(Some(step)) };
                // 253 to 255 stand for not-a-number and the infinities.
                if length < 253 {
                    self.steps.push(Step::Skip(u64::from(length)));
                }
            }
            Step::Checksum => {
                let Some(bytes) = self.take(input, 8) else { return Ok(Some(step)) };
                let stated = bytes.iter().rev().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
                let computed = self.crc.finalize();
                // Zero: the server was told not to compute checksums.
                if stated != 0 && stated != computed {
                    return Err(Error::Checksum { stated, computed });
                }
            }
            Step::End if input.rest().is_empty() => return Ok(Some(step)),
            Step::End => return Err(Error::Trailing(input.rest().len())),
            Step::Blind => return Ok(Some(step)),
        }
        Ok(None)
    }

    fn opcode(&mut self, opcode: u8, input: &Input<'_>) {
        if opcode == 0xff {
            self.crc.update(input.chunk.get(..input.used).unwrap_or_default());
            self.summed = true;
            self.steps.extend([Step::End, Step::Checksum]);
            return;
        }
        self.steps.push(Step::Opcode);
        match opcode {
            0xfe | 0xf8 => self.steps.push(Step::Length), // database, idle time
            0xfd => self.steps.push(Step::Skip(4)),       // expiry in seconds
            0xfc => self.steps.push(Step::Skip(8)),       // expiry in milliseconds
            0xfb => self.steps.extend([Step::Length, Step::Stated]), // sizes of the database
            0xfa => self.steps.push(Step::Repeat(Many::Strings, 2)), // a fact about the server
            0xf9 => self.steps.push(Step::Skip(1)),       // access frequency
            0xf7 => self.steps.extend([Step::Module, Step::Length, Step::Length, Step::Length]),
            0xf5 => self.steps.push(Step::String), // a function library
            0xf4 => self.steps.extend([Step::Length, Step::Length, Step::Length]), // sizes of a slot
            // Slots that are being taken over: a name, and ranges.
            0xf3 if self.dialect == Dialect::Valkey => self.steps.extend([Step::Count(Many::Ranges), Step::String]),
            value => match value_steps(self.dialect, value) {
                Some(steps) => {
                    self.keys = self.keys.saturating_add(1);
                    self.steps.extend(steps.iter().copied());
                    self.steps.push(Step::String);
                }
                None => {
                    self.steps.clear();
                    self.steps.push(Step::Blind);
                }
            },
        }
    }

    /// Steps that begin with a length.
    fn length_step(&mut self, step: Step, input: &mut Input<'_>) -> Result<Option<Step>, Error> {
        let at = self.at(input);
        let Some(length) = self.length(input) else { return Ok(Some(step)) };
        let number = match length {
            Length::Number(number) => number,
            Length::Special(encoding) if step == Step::String => {
                self.steps.push(match encoding {
                    0 => Step::Skip(1),
                    1 => Step::Skip(2),
                    2 => Step::Skip(4),
                    3 => Step::Compressed,
                    encoding => return Err(Error::BadString { at, encoding }),
                });
                return Ok(None);
            }
            Length::Special(_) => return Err(Error::BadLength { at }),
        };
        match step {
            Step::String => self.steps.push(Step::Skip(number)),
            Step::Stated => self.stated = self.stated.saturating_add(number),
            Step::Count(many) => self.steps.push(Step::Repeat(many, number)),
            Step::Compressed => self.steps.extend([Step::Skip(number), Step::Length]),
            Step::Module => match number {
                0 => {}
                1 | 2 => self.steps.extend([Step::Module, Step::Length]),
                3 => self.steps.extend([Step::Module, Step::Skip(4)]),
                4 => self.steps.extend([Step::Module, Step::Skip(8)]),
                5 => self.steps.extend([Step::Module, Step::String]),
                part => return Err(Error::BadModule { at, part }),
            },
            Step::Length
            | Step::Magic
            | Step::Opcode
            | Step::Skip(_)
            | Step::Repeat(..)
            | Step::TextScore
            | Step::Checksum
            | Step::End
            | Step::Blind => {}
        }
        Ok(None)
    }

    fn repeat(&mut self, many: Many, count: u64) {
        let Some(left) = count.checked_sub(1) else { return };
        self.steps.push(Step::Repeat(many, left));
        match many {
            Many::Strings => self.steps.push(Step::String),
            Many::Pairs => self.steps.extend([Step::String, Step::String]),
            Many::TextScored => self.steps.extend([Step::TextScore, Step::String]),
            Many::Expiring => self.steps.extend([Step::Skip(8), Step::String, Step::String]),
            Many::Ranges => self.steps.extend([Step::Length, Step::Length]),
            Many::Scored => self.steps.extend([Step::Skip(8), Step::String]),
            Many::QuickList => self.steps.extend([Step::String, Step::Length]),
            Many::Groups(version) => {
                self.steps.extend([Step::Count(Many::Consumers(version)), Step::Count(Many::Pending)]);
                // Entries read, since version two; before it the last delivered ID.
                self.steps.extend((version >= Version::Two).then_some(Step::Length));
                self.steps.extend([Step::Length, Step::Length, Step::String]);
            }
            // ID, delivery time, delivery count.
            Many::Pending => self.steps.extend([Step::Length, Step::Skip(24)]),
            Many::Consumers(version) => {
                let times = if version >= Version::Three { 16 } else { 8 };
                self.steps.extend([Step::Count(Many::OwnPending), Step::Skip(times), Step::String]);
            }
            Many::OwnPending => self.steps.push(Step::Skip(16)),
        }
    }

    fn length(&mut self, input: &mut Input<'_>) -> Option<Length> {
        let first = if self.held > 0 { self.head.first().copied() } else { input.rest().first().copied() }?;
        let size = match first >> 6 {
            0 | 3 => 1,
            1 => 2,
            _ if first == 0x80 => 5,
            _ => 9,
        };
        let bytes = self.take(input, size)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
        let (_, rest) = bytes.split_first()?;
        Some(match first >> 6 {
            0 => Length::Number(u64::from(first & 0x3f)),
            3 => Length::Special(first & 0x3f),
            1 => Length::Number((u64::from(first & 0x3f) << 8) | number(rest.get(..1)?)),
            _ => Length::Number(number(rest.get(..size.saturating_sub(1))?)),
        })
    }

    fn byte(&mut self, input: &mut Input<'_>) -> Option<u8> {
        let byte = input.rest().first().copied()?;
        input.used = input.used.saturating_add(1);
        Some(byte)
    }

    /// The next `count` bytes, at most [`LONGEST`]; those beyond `count` are zero. `None`: not all are there yet, what is
    /// there is kept.
    fn take(&mut self, input: &mut Input<'_>, count: usize) -> Option<[u8; LONGEST]> {
        let missing = count.saturating_sub(self.held);
        let got = input.rest().get(..missing.min(input.rest().len()))?;
        let room = self.head.get_mut(self.held..self.held.saturating_add(got.len()))?;
        room.copy_from_slice(got);
        self.held = self.held.saturating_add(got.len());
        input.used = input.used.saturating_add(got.len());
        if self.held < count {
            return None;
        }
        let taken = self.head;
        self.head = [0; LONGEST];
        self.held = 0;
        Some(taken)
    }
}

enum Length {
    Number(u64),
    Special(u8),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_vector_of_redis_holds_however_the_bytes_are_cut() {
        let text = b"123456789";
        for cut in 0..=text.len() {
            let (head, tail) = text.split_at(cut);
            let mut crc = Digest::new(CrcAlgorithm::Crc64Redis);
            crc.update(head);
            crc.update(tail);
            assert_eq!(crc.finalize(), 0xe9c6_d914_c4b8_d9ca);
        }
    }

    /// A file with one element of most kinds, written by hand after the format's description.
    fn file(checksum: bool) -> Vec<u8> {
        let mut file = b"REDIS0010".to_vec();
        file.extend(b"\xfa\x09redis-ver\x067.0.15");
        file.extend(b"\xfe\x00\xfb\x06\x01");
        file.extend(b"\x00\x01a\x03xyz"); // string
        file.extend(b"\xfc\x01\x02\x03\x04\x05\x06\x07\x08\x00\x01b\xc1\x34\x12"); // expiring, a 16-bit number
        file.extend(b"\xf8\x41\x00\x00\x01c\xc3\x04\x40\x64abcd"); // idle 256, compressed
        file.extend(b"\x02\x01d\x02\x01x\x01y"); // set
        file.extend(b"\x05\x01e\x01\x01m\x00\x00\x00\x00\x00\x00\x00\x00"); // sorted set
        file.extend(b"\x12\x01f\x01\x02\x80\x00\x00\x00\x02zz"); // list, 32-bit length
        file.push(0xff);
        let crc = crc_fast::checksum(CrcAlgorithm::Crc64Redis, &file);
        file.extend(if checksum { crc } else { 0 }.to_le_bytes());
        file
    }

    fn read(bytes: &[u8], cut: usize) -> Result<Summary, Error> {
        let mut reader = Reader::default();
        for chunk in bytes.chunks(cut) {
            reader.feed(chunk)?;
        }
        reader.finish()
    }

    #[test]
    fn keys_are_counted_and_the_checksum_is_checked_however_the_stream_is_cut() {
        for checksum in [true, false] {
            let file = file(checksum);
            for cut in 1..=file.len() {
                let expected = Summary { keys: 6, walked: true, bytes: file.len() as u64 };
                assert_eq!(read(&file, cut), Ok(expected), "cut every {cut}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_a_missing_tail_and_a_longer_tail_are_refused() {
        let good = file(true);
        let mut flipped = good.clone();
        flipped[40] ^= 1;
        assert!(read(&flipped, 7).is_err());
        for end in 0..good.len() {
            assert!(matches!(read(&good[..end], 7), Err(Error::Short { .. })), "{end}");
        }
        let longer = [good, vec![0]].concat();
        assert!(matches!(read(&longer, 1000), Err(Error::Trailing(1))));
        assert_eq!(read(b"REDIX0010", 9), Err(Error::NotRdb));
    }

    #[test]
    fn what_only_valkey_writes_is_read_in_its_files_and_not_known_in_others() {
        let body = b"\xf3\x03job\x01\x05\x09\xfe\x00\xfb\x02\x00\x16\x01h\x01\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01k\x01v";
        let file = |magic: &[u8]| {
            let mut file = [magic, body, b"\xff"].concat();
            file.extend(crc_fast::checksum(CrcAlgorithm::Crc64Redis, &file).to_le_bytes());
            file
        };
        for cut in 1..70 {
            let bytes = file(b"VALKEY080");
            let whole = Summary { keys: 2, walked: true, bytes: bytes.len() as u64 };
            assert_eq!(read(&bytes, cut), Ok(whole));
            // Redis uses these numbers for something else.
            assert!(matches!(read(&file(b"REDIS0012"), cut), Ok(Summary { walked: false, .. })));
        }
        for magic in [b"VALKEY08x", b"VALKEX080", b"REDIS08x0", b"VALKE0080"] {
            assert_eq!(read(magic, 9), Err(Error::NotRdb));
        }
    }

    #[test]
    fn an_unknown_type_leaves_the_stated_number_of_keys() {
        let mut file = b"REDIS0099\xfe\x00\xfb\x07\x00".to_vec();
        file.extend([0x30; 50]);
        assert_eq!(read(&file, 3), Ok(Summary { keys: 7, walked: false, bytes: 64 }));
    }

    proptest! {
        #[test]
        fn arbitrary_streams_never_panic_and_the_cut_does_not_matter(
            tail in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..20
        ) {
            let bytes = [b"REDIS0010".to_vec(), tail].concat();
            prop_assert_eq!(read(&bytes, cut).is_ok(), read(&bytes, 1000).is_ok());
        }
    }
}
