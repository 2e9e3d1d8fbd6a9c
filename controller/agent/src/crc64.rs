//! CRC-64 with the Jones polynomial, as it ends an RDB file. Pure.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5; // Jones' 0xad93d23594c935a9 with its bits reversed.

const TABLES: [[u64; 256]; 8] = tables();

#[allow(clippy::indexing_slicing)] // Evaluated at compile time only: an index out of range would not compile.
const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ POLYNOMIAL };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// A running CRC-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crc64(u64);

impl Crc64 {
    /// Adds bytes, eight at a time.
    pub fn update(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut crc = self.0;
        for word in words {
            let [a, b, c, d, e, f, g, h] = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
            crc = at(7, a) ^ at(6, b) ^ at(5, c) ^ at(4, d) ^ at(3, e) ^ at(2, f) ^ at(1, g) ^ at(0, h);
        }
        for byte in rest {
            let [low, ..] = crc.to_le_bytes();
            crc = (crc >> 8) ^ at(0, low ^ byte);
        }
        self.0 = crc;
    }

    /// The value so far.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

fn at(table: usize, byte: u8) -> u64 {
    TABLES.get(table).and_then(|table| table.get(usize::from(byte))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_redis_holds_however_the_bytes_are_cut() {
        let text = b"123456789";
        for cut in 0..=text.len() {
            let (head, tail) = text.split_at(cut);
            let mut crc = Crc64::default();
            crc.update(head);
            crc.update(tail);
            assert_eq!(crc.value(), 0xe9c6_d914_c4b8_d9ca);
        }
    }
}
