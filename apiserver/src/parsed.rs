//! What objects say, read once: webhooks, policies and rights are asked for by every request and change rarely.
//!
//! It must not know what is read, nor where the objects come from.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// What some objects say, and the objects it was read from.
pub(crate) struct Parsed<O, T>(ArcSwapOption<Memory<O, T>>);

struct Memory<O, T> {
    objects: Vec<Arc<O>>,
    read: T,
}

impl<O, T> Default for Parsed<O, T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<O, T: Clone> Parsed<O, T> {
    /// What the objects say; they are read only if they are not the very ones of the last time.
    pub(crate) fn of<E>(&self, objects: Vec<Arc<O>>, read: impl FnOnce(&[Arc<O>]) -> Result<T, E>) -> Result<T, E> {
        if let Some(memory) = self.0.load().as_ref().filter(|memory| memory.is_of(&objects)) {
            return Ok(memory.read.clone());
        }
        let read = read(&objects)?;
        self.0.store(Some(Arc::new(Memory { objects, read: read.clone() })));
        Ok(read)
    }
}

impl<O, T> Memory<O, T> {
    fn is_of(&self, objects: &[Arc<O>]) -> bool {
        self.objects.len() == objects.len() && self.objects.iter().zip(objects).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_objects_are_read_once_and_others_anew() {
        let parsed = Parsed::default();
        let (a, b) = (Arc::new(1), Arc::new(2));
        let sum = |objects: &[Arc<i32>]| Ok::<i32, ()>(objects.iter().map(|object| **object).sum());
        assert_eq!(parsed.of(vec![Arc::clone(&a), Arc::clone(&b)], sum), Ok(3));
        assert_eq!(parsed.of(vec![Arc::clone(&a), Arc::clone(&b)], |_| Err(())), Ok(3));
        assert_eq!(parsed.of(vec![Arc::clone(&a)], sum), Ok(1));
        assert_eq!(parsed.of(vec![Arc::new(1)], |_| Err(())), Err(()), "an equal object is another one");
        assert_eq!(parsed.of(vec![a], |_| Err(())), Ok(1), "what could not be read is not remembered");
    }
}
