//! What names, labels and annotations may look like, in the words of Kubernetes. Pure text checks.

/// Longest generated base: five random characters must fit behind it in a DNS label.
pub const GENERATED_BASE_MAX: usize = 58;
/// Characters of generated suffixes: no vowels, no digits that look like letters.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
     an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
     is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

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
        let (max, text, valid) = match self {
            Self::Subdomain => (253, SUBDOMAIN, name.split('.').all(is_label)),
            Self::Label => (63, LABEL, is_label(name)),
            Self::Own => return None,
            Self::Letter => (63, LABEL_1035, is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())),
        };
        if name.len() > max {
            return Some(format!("must be no more than {max} characters"));
        }
        (!valid).then(|| text.to_owned())
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
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if name.contains('/') {
        let word = QUALIFIED.strip_prefix("name part").unwrap_or(QUALIFIED);
        return Some(format!(
            "a qualified name{word} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ));
    }
    match prefix {
        Some("") => return Some("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if let Some(fault) = NameRule::Subdomain.fault(prefix) {
                return Some(format!("prefix part {fault}"));
            }
        }
        None => {}
    }
    match name {
        "" => Some("name part must be non-empty".to_owned()),
        long if long.len() > 63 => Some("name part must be no more than 63 characters".to_owned()),
        other => (!is_word(other)).then(|| QUALIFIED.to_owned()),
    }
}

/// What is wrong with a label value; `None` if nothing.
#[must_use]
pub fn label_value(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 characters".to_owned());
    }
    (!value.is_empty() && !is_word(value)).then(|| VALUE.to_owned())
}

fn is_label(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.chars().all(|c| fits(c) || c == '-') && text.starts_with(fits) && text.ends_with(fits)
}

fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(|c| fits(c) || "-_.".contains(c)) && text.starts_with(fits) && text.ends_with(fits)
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
