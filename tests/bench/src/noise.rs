//! Values that do not compress, as those of applications that compress by themselves: the same in every run.

/// A seeded xorshift64 generator.
pub(crate) struct Noise(u64);

impl Default for Noise {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Noise {
    /// The next so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut value = Vec::with_capacity(bytes + 8);
        while value.len() < bytes {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            value.extend_from_slice(&self.0.to_le_bytes());
        }
        value.truncate(bytes);
        value
    }
}
