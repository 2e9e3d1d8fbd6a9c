//! Key to hash slot: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16384.

/// Number of hash slots.
pub const SLOTS: u16 = 16384;

const TABLE: [u16; 256] = table();

#[allow(clippy::indexing_slicing)] // Evaluated at compile time only: an index out of range would not compile.
const fn table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// CRC16 with polynomial 0x1021, initial value 0, as Redis Cluster uses it.
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let index = usize::from((crc >> 8) ^ u16::from(*byte));
        (crc << 8) ^ TABLE.get(index).copied().unwrap_or_default()
    })
}

/// The part of a key that is hashed: what stands between the first `{` and the next `}`, unless that is nothing.
#[must_use]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let after = key.get(open.saturating_add(1)..).unwrap_or_default();
    match after.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => after.get(..close).unwrap_or(key),
    }
}

/// The hash slot of a key.
#[must_use]
pub fn key_slot(key: impl AsRef<[u8]>) -> u16 {
    crc16(hash_tag(key.as_ref())) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_cluster_specification_hold() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
        // From `CLUSTER KEYSLOT` of Redis 7.0.15.
        let vectors: [(&str, u16); 6] =
            [("foo", 12182), ("bar", 5061), ("hello", 866), ("somekey", 11058), ("foo{hash_tag}", 2515), ("", 0)];
        for (key, slot) in vectors {
            assert_eq!(key_slot(key), slot, "{key}");
        }
    }

    #[test]
    fn only_a_tag_that_is_closed_and_not_empty_counts() {
        assert_eq!(hash_tag(b"{user1000}.following"), b"user1000");
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
        assert_eq!(hash_tag(b"foo{bar"), b"foo{bar");
        assert_eq!(hash_tag(b"foo}bar{"), b"foo}bar{");
    }
}
