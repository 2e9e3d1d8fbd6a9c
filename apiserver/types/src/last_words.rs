//! What a server said last, out of its log: why it ended. Pure.
//!
//! Redis' and Valkey's lines are `pid:role day month year time level text`, but for a configuration that is refused, which is told without
//! any of that. Lines of ours, among them, are no words of the engine.

/// Longest words that are passed on: they end in a condition.
const MOST: usize = 300;
/// What a refused configuration begins with.
const REFUSED: &str = "FATAL CONFIG FILE ERROR";
/// Words before the text of a line.
const HEAD: usize = 6;

/// The engine's last words; `None`: the log holds none.
#[must_use]
pub fn last_words(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty() && !is_ours(line)).collect();
    let refused = lines.iter().rposition(|line| line.contains(REFUSED));
    let words = match refused.map(|at| lines.get(at..).unwrap_or_default()) {
        Some([head, told @ ..]) => refusal(told).unwrap_or_else(|| (*head).to_owned()),
        Some([]) | None => last_line(&lines)?.to_owned(),
    };
    Some(words.chars().take(MOST).collect())
}

/// Whether the engine found fault with its configuration: then it ends however often it is started with it. What else ends it may not come again.
#[must_use]
pub fn refuses_its_configuration(log: &str) -> bool {
    log.lines().any(|line| !is_ours(line.trim()) && line.contains(REFUSED))
}

/// The last line of a log that names this word.
#[must_use]
pub fn last_about<'a>(log: &'a str, word: &str) -> Option<&'a str> {
    log.lines().map(str::trim).filter(|line| !is_ours(line) && line.contains(word)).map(text).next_back()
}

/// The line of the file and what is wrong with it.
fn refusal(told: &[&str]) -> Option<String> {
    let line = told.iter().find_map(|line| line.strip_prefix(">>> "));
    let why = told
        .iter()
        .copied()
        .find(|line| !line.starts_with(">>> ") && !line.starts_with("Reading the configuration file"));
    match (line, why) {
        (Some(line), Some(why)) => Some(format!("{line}: {why}")),
        (None, Some(word)) | (Some(word), None) => Some(word.to_owned()),
        (None, None) => None,
    }
}

/// Warnings tell more than what is said on the way out.
fn last_line<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let warning = lines.iter().rev().find(|line| level(line) == Some("#"));
    warning.or(lines.last()).map(|line| text(line))
}

fn level(line: &str) -> Option<&str> {
    is_logged(line).then(|| line.split(' ').nth(HEAD - 1)).flatten()
}

fn text(line: &str) -> &str {
    if is_logged(line) { line.splitn(HEAD + 1, ' ').last().unwrap_or(line) } else { line }
}

/// `25015:M 24 Nov 2026 05:44:49.430 # Server initialized`
fn is_logged(line: &str) -> bool {
    let Some((pid, role)) = line.split(' ').next().and_then(|first| first.split_once(':')) else { return false };
    pid.bytes().all(|byte| byte.is_ascii_digit()) && role.len() == 1 && line.split(' ').count() > HEAD
}

/// The agent logs JSON, or lines that begin with a time of RFC 3339.
fn is_ours(line: &str) -> bool {
    line.starts_with('{') || line.get(4..5) == Some("-") && line.get(10..11) == Some("T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_configuration_is_told_by_its_line_and_its_fault() {
        let log = "1:C 24 Nov 2026 05:44:49.320 # Configuration loaded\n\n*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\n\
            Reading the configuration file, at line 3\n>>> 'timeout 00'\nargument couldn't be parsed into an integer\n\
            {\"level\":\"ERROR\",\"message\":\"redis-server ended by itself\"}\n";
        assert_eq!(last_words(log).as_deref(), Some("'timeout 00': argument couldn't be parsed into an integer"));
        assert_eq!(last_words("\nFATAL CONFIG FILE ERROR\n").as_deref(), Some("FATAL CONFIG FILE ERROR"));
    }

    #[test]
    fn only_the_engines_own_word_on_its_configuration_is_a_refusal() {
        for (log, refuses) in [
            ("\n*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\nReading the configuration file, at line 3\n", true),
            ("\n*** FATAL CONFIG FILE ERROR (Version 8.1.1) ***\nReading the configuration file, at line 3\n", true),
            ("9:M 24 Nov 2026 05:44:49.3 # WARNING Memory overcommit must be enabled!\n", false),
            ("9:M 24 Nov 2026 05:44:49.3 # Fatal: Can't initialize Background Jobs.\n", false),
            ("{\"message\":\"FATAL CONFIG FILE ERROR\"}\n", false),
            ("", false),
        ] {
            assert_eq!(refuses_its_configuration(log), refuses, "{log}");
        }
    }

    #[test]
    fn else_the_last_warning_counts_without_its_time_and_no_line_of_ours() {
        let log = "9:M 24 Nov 2026 05:44:49.430 # Bad file format reading the append only file\n\
            9:M 24 Nov 2026 05:44:49.431 * bye\n2026-11-24T05:44:49.432Z ERROR agent: redis-server ended by itself\n";
        assert_eq!(last_words(log).as_deref(), Some("Bad file format reading the append only file"));
        assert_eq!(last_words("Segmentation fault\n").as_deref(), Some("Segmentation fault"));
        assert_eq!(last_words("{\"level\":\"ERROR\"}\n"), None);
        assert_eq!(last_words(&"x".repeat(5000)).map(|words| words.len()), Some(MOST));
    }

    #[test]
    fn what_was_said_about_a_parameter_is_found() {
        let log = "9:M 24 Nov 2026 05:44:49.4 # You requested maxclients of 1\n9:M 24 Nov 2026 05:44:49.4 # maxclients has been reduced\n";
        assert_eq!(last_about(log, "maxclients"), Some("maxclients has been reduced"));
        assert_eq!(last_about(log, "timeout"), None);
    }
}
