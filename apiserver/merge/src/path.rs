//! A path that is kept as steps while walking and only written out when there is something to say.

use std::fmt::Write as _;

/// One step from a value to a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    /// A field of an object or an entry of a map: Kubernetes writes both with a dot.
    Field(&'a str),
    /// An item of a list.
    Index(usize),
}

/// A path as a chain of borrowed steps on the stack; nothing is allocated until it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    before: Option<&'a Path<'a>>,
    step: Option<Step<'a>>,
}

impl<'a> Path<'a> {
    pub(crate) const ROOT: Path<'static> = Path { before: None, step: None };

    pub(crate) const fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { before: Some(self), step: Some(Step::Field(name)) }
    }

    pub(crate) const fn index(&'a self, at: usize) -> Path<'a> {
        Path { before: Some(self), step: Some(Step::Index(at)) }
    }

    /// `spec.snapshots[0].seconds`; the root is empty.
    pub(crate) fn text(&self) -> String {
        let mut text = self.before.map(Path::text).unwrap_or_default();
        match self.step {
            None => {}
            Some(Step::Field(name)) if text.is_empty() => text.push_str(name),
            Some(Step::Field(name)) => {
                text.push('.');
                text.push_str(name);
            }
            Some(Step::Index(at)) => {
                // Writing to a String cannot fail.
                let _ = write!(text, "[{at}]");
            }
        }
        text
    }
}
