//! How an object is kept: as JSON, deflated, and read when it is asked for. As a typed value, with room for every field that Kubernetes
//! knows, it takes some twenty times as much. It must not know where objects come from.

use std::marker::PhantomData;
use std::sync::Arc;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Cached;

/// Room for a text, deflated or not: one that cannot be deflated grows by five bytes in each 16 KiB, and the end takes some.
fn room(size: usize) -> Vec<u8> {
    Vec::with_capacity(size.saturating_add(size / 1000).saturating_add(64))
}

/// An object as it is kept. Maps have room for eleven of them where there are two or three: what is inline costs four times its size.
#[derive(Clone, Debug)]
pub(super) struct Kept<K> {
    inner: Arc<Inner>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Inner {
    uid: Option<Box<str>>,
    version: Option<u128>,
    /// What only [`Kept::new`] makes, from a `K`.
    deflated: Box<[u8]>,
    /// Its length as JSON.
    size: usize,
    /// It is kept with all that is read of it.
    is_whole: bool,
}

impl<K: Cached> Kept<K> {
    #[expect(
        clippy::expect_used,
        reason = "Kubernetes' types and ours have text for keys: nothing in them cannot be JSON, and memory takes every byte"
    )]
    pub(super) fn new(object: &K, is_whole: bool) -> Self {
        let json = serde_json::to_vec(object).expect("an object is JSON");
        let mut deflated = room(json.len());
        // The fastest level: the others save a tenth and take three times as long.
        let mut deflate = Compress::new(Compression::fast(), false);
        deflate.compress_vec(&json, &mut deflated, FlushCompress::Finish).expect("memory is written to");
        let meta = object.meta();
        let (version, uid) = (version(meta), meta.uid.as_deref().map(Box::from));
        let inner = Inner { uid, version, deflated: deflated.into_boxed_slice(), size: json.len(), is_whole };
        Self { inner: Arc::new(inner), kind: PhantomData }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.inner.is_whole
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.inner.deflated.len()
    }

    pub(super) fn uid(&self) -> Option<&str> {
        self.inner.uid.as_deref()
    }

    /// Its resourceVersion. Those of etcd and of our own store are decimal and grow.
    pub(super) fn version(&self) -> Option<u128> {
        self.inner.version
    }

    #[expect(clippy::expect_used, reason = "it was written from a value of the same type")]
    pub(super) fn read(&self) -> K {
        let mut json = room(self.inner.size);
        let mut inflate = Decompress::new(false);
        inflate
            .decompress_vec(&self.inner.deflated, &mut json, FlushDecompress::Finish)
            .expect("what was deflated is inflated");
        serde_json::from_slice(&json).expect("what was written is read")
    }

    /// Whether it is this version of this object.
    pub(super) fn is_of(&self, meta: &ObjectMeta) -> bool {
        self.uid() == meta.uid.as_deref() && self.version().is_some() && self.version() == version(meta)
    }

    /// Whether it should replace `old`: it is another object of the same name, or not an older version of it.
    pub(super) fn supersedes(&self, old: &Self) -> bool {
        self.uid() != old.uid()
            || match (self.version(), old.version()) {
                (Some(new), Some(old)) => new >= old,
                (None, _) | (_, None) => true,
            }
    }
}

fn version(meta: &ObjectMeta) -> Option<u128> {
    meta.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn what_is_kept_is_read_as_it_was_however_well_it_can_be_deflated() {
        let mut random = 1_u32;
        let mut noise = |length: usize| -> String {
            let next = |_| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                char::from_u32(0x4e00 + (random >> 18)).unwrap_or('x')
            };
            (0..length).map(next).collect()
        };
        // Secrets and ConfigMaps hold a mebibyte at most.
        for text in ["x".repeat(1 << 20), noise(300_000), noise(1), String::new()] {
            let object = ConfigMap { data: Some([("text".to_owned(), text)].into()), ..ConfigMap::default() };
            assert_eq!(Kept::new(&object, true).read(), object);
        }
    }
}
