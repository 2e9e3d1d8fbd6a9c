//! SHA-256 in hex. Pure.

use aws_lc_rs::digest::{Context, SHA256};

/// A running SHA-256.
pub struct Sha256(Context);

impl Default for Sha256 {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Sha256 {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest in lower-case hex.
    #[must_use]
    pub fn hex(self) -> String {
        hex(self.0.finish().as_ref())
    }
}

/// SHA-256 of one text.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut sum = Sha256::default();
    sum.update(bytes);
    sum.hex()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_the_standard_holds() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
