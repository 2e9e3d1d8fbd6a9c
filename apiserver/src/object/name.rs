//! What names, labels and annotations may look like, in the words of Kubernetes. Pure text checks.

use types::label;

/// Longest generated base: five random characters must fit behind it in a DNS label.
pub const GENERATED_BASE_MAX: usize = 58;
/// Characters of generated suffixes: no vowels, no digits that look like letters.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Rule for the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// The kind's own validation knows its names.
    Own,
    /// Dots allowed, 253 characters.
    Subdomain,
    /// One DNS label, 63 characters.
    Label,
    /// One DNS label that begins with a letter (services).
    Letter,
}

impl NameRule {
    /// What is wrong with a name; `None` if nothing.
    #[must_use]
    pub fn fault(self, name: &str) -> Option<String> {
        let faults = match self {
            Self::Subdomain => label::subdomain(name),
            Self::Label => label::label(name),
            Self::Own => return None,
            Self::Letter => label::letter_label(name),
        };
        faults.into_iter().next()
    }
}

/// A name from a base and sixteen random bytes: the base cut to 58 characters, then five of the alphabet.
#[must_use]
pub fn generate(base: &str, random: &[u8; 16]) -> String {
    let base: String = base.chars().take(GENERATED_BASE_MAX).collect();
    // Bytes that would make the first letters likelier are skipped; sixteen leave five with certainty enough.
    let fair = random.iter().filter(|byte| **byte < 243).chain(random.iter());
    let suffix = fair.filter_map(|byte| SUFFIX_ALPHABET.get(usize::from(*byte) % SUFFIX_ALPHABET.len())).take(5);
    base.chars().chain(suffix.map(|byte| char::from(*byte))).collect()
}

/// What is wrong with a label or annotation key, or a finalizer; `None` if nothing.
#[must_use]
pub fn qualified_name(key: &str) -> Option<String> {
    label::key(key).into_iter().next()
}

/// What is wrong with a label value; `None` if nothing.
#[must_use]
pub fn label_value(value: &str) -> Option<String> {
    label::value(value).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        for (rule, good, bad) in [
            (NameRule::Subdomain, vec!["a", "a.b", "1-2.x"], vec!["", "A", "-a", "a-", "a..b", "a_b", ".a"]),
            (NameRule::Label, vec!["a", "1a", "a-b"], vec!["a.b", "", "a\n"]),
            (NameRule::Letter, vec!["a", "a-b1"], vec!["1a", "a."]),
        ] {
            for name in good {
                assert_eq!(rule.fault(name), None, "{name}");
            }
            for name in bad {
                assert!(rule.fault(name).is_some(), "{name}");
            }
        }
        assert!(NameRule::Subdomain.fault(&"a".repeat(254)).is_some());
    }

    #[test]
    fn label_keys_and_values_follow_kubernetes() {
        for key in ["a", "A.b_c-d", "example.com/x"] {
            assert_eq!(qualified_name(key), None, "{key}");
        }
        for key in ["", "/a", "a/", "a/b/c", "-a", "A.com/x", "a b"] {
            assert!(qualified_name(key).is_some(), "{key}");
        }
        assert_eq!((label_value(""), label_value("a_B.1")), (None, None));
        assert!(label_value("-").is_some() && label_value(&"a".repeat(64)).is_some());
    }

    #[test]
    fn a_generated_name_fits_a_label_and_has_five_characters_of_the_alphabet() {
        let name = generate(&"x".repeat(100), &[0, 1, 2, 255, 26, 27, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        assert_eq!(name, format!("{}bcd9b", "x".repeat(58)));
        assert_eq!(generate("a-", &[255; 16]).len(), 7);
    }
}
