//! What names, labels and their keys may look like, in the words of Kubernetes: each function says what is wrong, nothing if
//! nothing is. Pure text checks, which the API server shares.

/// Longest DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;
/// Longest DNS label, and longest value or name part of a key of a label.
const LABEL_MAX: usize = 63;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
     an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
     is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What is wrong with a DNS subdomain.
#[must_use]
pub fn subdomain(text: &str) -> Vec<String> {
    faults(text, SUBDOMAIN_MAX, SUBDOMAIN, text.split('.').all(is_label))
}

/// What is wrong with a DNS label.
#[must_use]
pub fn label(text: &str) -> Vec<String> {
    faults(text, LABEL_MAX, LABEL, is_label(text))
}

/// What is wrong with a DNS label that begins with a letter, as a Service's name does.
#[must_use]
pub fn letter_label(text: &str) -> Vec<String> {
    faults(text, LABEL_MAX, LABEL_1035, is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// What is wrong with a key of a label or an annotation.
#[must_use]
pub fn key(text: &str) -> Vec<String> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if name.contains('/') {
        return vec![format!(
            "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )];
    }
    let mut found = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")).collect(),
        None => Vec::new(),
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    }
    found.extend(
        faults(name, LABEL_MAX, QUALIFIED, is_word(name)).into_iter().map(|fault| format!("name part {fault}")),
    );
    found
}

/// What is wrong with the value of a label.
#[must_use]
pub fn value(text: &str) -> Vec<String> {
    faults(text, LABEL_MAX, VALUE, text.is_empty() || is_word(text))
}

fn faults(text: &str, most: usize, form: &str, fits: bool) -> Vec<String> {
    let long = (text.len() > most).then(|| format!("must be no more than {most} characters"));
    long.into_iter().chain((!fits).then(|| form.to_owned())).collect()
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
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn every_fault_of_a_key_is_told_as_kubernetes_tells_it() {
        let word = format!("name part {QUALIFIED}");
        let table: [(&str, Vec<String>); 8] = [
            ("example.com/A.b_c-d", vec![]),
            ("", vec!["name part must be non-empty".to_owned(), word.clone()]),
            ("a b", vec![word.clone()]),
            ("/a", vec!["prefix part must be non-empty".to_owned()]),
            ("A.com/x", vec![format!("prefix part {SUBDOMAIN}")]),
            ("A.com/-", vec![format!("prefix part {SUBDOMAIN}"), word.clone()]),
            (&"a".repeat(64), vec!["name part must be no more than 63 characters".to_owned()]),
            (
                "a/b/c",
                vec![format!(
                    "a qualified name {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                )],
            ),
        ];
        for (text, expected) in table {
            assert_eq!(key(text), expected, "{text}");
        }
    }

    #[test]
    fn values_and_names_have_lengths_and_forms() {
        assert_eq!((value(""), value("a_B.1")), (vec![], vec![]));
        assert_eq!(value("-"), [VALUE]);
        assert_eq!(value(&"-".repeat(64)), ["must be no more than 63 characters", VALUE]);
        assert_eq!((subdomain("a.b-1"), subdomain("a..b")), (vec![], vec![SUBDOMAIN.to_owned()]));
        assert_eq!(subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!((label("1a"), label("a.b")), (vec![], vec![LABEL.to_owned()]));
        assert_eq!((letter_label("a1"), letter_label("1a")), (vec![], vec![LABEL_1035.to_owned()]));
    }
}
