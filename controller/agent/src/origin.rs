//! Which history a snapshot is of, and how far it goes: Redis writes its replication ID and offset into the head of the file. Two data sets of one
//! replication ID are of one history, so their offsets tell which of them has more, whatever clocks and links say. Of a server that never had a
//! replica there is no such line.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::disk::RDB_FILE;

/// The head is some hundred bytes.
const HEAD: u64 = 4096;
/// `REDIS0011`, `VALKEY080`.
const MAGIC: usize = 9;
/// Before each line of the head.
const LINE: u8 = 0xfa;

/// A point in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The replication ID.
    pub stream: String,
    /// Bytes of it that are in the data set.
    pub offset: i64,
}

/// What the snapshot in this folder says. One that cannot be read, or is compressed there, says nothing.
#[must_use]
pub fn read(dir: &Path) -> Option<Origin> {
    head(&dir.join(RDB_FILE)).ok().and_then(|head| parse(&head))
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

fn parse(file: &[u8]) -> Option<Origin> {
    let (magic, mut rest) = file.split_at_checked(MAGIC)?;
    if !magic.starts_with(b"REDIS") && !magic.starts_with(b"VALKEY") {
        return None;
    }
    let (mut stream, mut offset) = (None, None);
    while take(&mut rest, 1)? == [LINE] {
        let (name, value) = (text(&mut rest)?, text(&mut rest)?);
        match name.as_str() {
            "repl-id" => stream = Some(value),
            "repl-offset" => offset = value.parse().ok().filter(|offset| *offset >= 0),
            _ => {}
        }
        if let (Some(stream), Some(offset)) = (&stream, offset) {
            return Some(Origin { stream: stream.clone(), offset });
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// A string, or a number that is written as one (`rdbSaveRawString`).
fn text(rest: &mut &[u8]) -> Option<String> {
    let first = *take(rest, 1)?.first()?;
    let low = first & 0x3f;
    let length = match (first >> 6, low) {
        (0, low) => usize::from(low),
        (1, low) => (usize::from(low) << 8) | usize::from(*take(rest, 1)?.first()?),
        (3, 0) => return Some(i8::from_le_bytes(take(rest, 1)?.try_into().ok()?).to_string()),
        (3, 1) => return Some(i16::from_le_bytes(take(rest, 2)?.try_into().ok()?).to_string()),
        (3, 2) => return Some(i32::from_le_bytes(take(rest, 4)?.try_into().ok()?).to_string()),
        // Longer than any of these lines, or compressed.
        _ => return None,
    };
    String::from_utf8(take(rest, length)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    const ID: &[u8; 40] = b"8371445ee9a3a2a9a8bc5a2b9c1a94e3f2b1c0d7";

    /// The head of a file of Redis 7.0, with its offset written like this.
    fn file(offset: &[u8]) -> Vec<u8> {
        let lines: [(&[u8], &[u8]); 4] = [
            (b"\x09redis-ver", b"\x067.0.15"),
            (b"\x05ctime", b"\xc2\x00\x11\x22\x33"),
            (b"\x0erepl-stream-db", b"\xc0\x00"),
            (b"\x07repl-id", &[b"\x28", ID.as_slice()].concat()),
        ];
        let lines = lines.map(|(name, value)| [&[LINE], name, value].concat()).concat();
        let rest = [b"\xfa\x0brepl-offset", offset, b"\xfa\x08aof-base\xc0\x00\xfe\x00"].concat();
        [b"REDIS0010".to_vec(), lines, rest].concat()
    }

    #[test]
    fn a_snapshot_says_of_which_history_it_is_and_how_far_it_goes() {
        let stream = String::from_utf8(ID.to_vec()).unwrap();
        let of = |offset| Some(Origin { stream: stream.clone(), offset });
        let numbers: [(&[u8], i64); 4] = [
            (b"\xc0\x0e", 14),
            (b"\xc1\x00\x10", 4096),
            (b"\xc2\x00\x00\x01\x00", 65536),
            (b"\x0c123456789012", 123_456_789_012),
        ];
        for (written, offset) in numbers {
            assert_eq!(parse(&file(written)), of(offset));
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), None);
        std::fs::write(dir.path().join(RDB_FILE), file(b"\xc0\x0e")).unwrap();
        assert_eq!(read(dir.path()), of(14));
    }

    #[test]
    fn a_head_without_such_lines_says_nothing() {
        let whole = file(b"\xc0\x0e");
        let end = whole.len() - b"\xfa\x08aof-base\xc0\x00\xfe\x00".len();
        assert!((0..end).all(|cut| parse(&whole[..cut]).is_none()));
        assert_eq!(parse(b"REDIS0010\xfa\x09redis-ver\x067.0.15\xfe\x00"), None, "it never had a replica");
        assert_eq!([parse(&file(b"\xc3\x02\x0c123")), parse(&file(b"\xc0\xff"))], [None, None], "compressed, and none");
        assert_eq!(parse(&[b"RODIS0010", &whole[MAGIC..]].concat()), None);
    }

    proptest! {
        #[test]
        fn no_head_makes_it_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&[b"REDIS0010\xfa".to_vec(), tail].concat());
        }
    }
}
