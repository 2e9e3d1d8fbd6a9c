//! Which etcd will do. Pure.
//!
//! Before these versions a progress notification could run ahead of events that were still on their way: a read that
//! relies on it would miss an acknowledged write. Kubernetes draws the line at the same versions.

/// The oldest version of each line that will do, as a sentence has it.
pub(super) const NEEDED: &str = "3.4.31, 3.5.13 or 3.6.0";

/// Whether `version`, such as `3.6.4`, will do.
pub(super) fn is_recent_enough(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else { return false };
    let patch = parts.next().flatten().unwrap_or(0);
    match (major, minor) {
        (3, 4) => patch >= 31,
        (3, 5) => patch >= 13,
        (major, minor) => (major, minor) > (3, 5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_tell_progress_correctly_are_accepted_and_no_others() {
        for version in ["3.4.31", "3.4.40", "3.5.13", "3.6.0", "3.6.0-rc.1", "3.7.1", "4.0.0"] {
            assert!(is_recent_enough(version), "{version}");
        }
        for version in ["3.4.23", "3.5.12", "3.5.0-alpha.1", "3.3.99", "2.3.8", "", "new", "3"] {
            assert!(!is_recent_enough(version), "{version}");
        }
    }
}
