//! What can be a password of Redis' users: agents read it from a mounted Secret, and the controller tells of one that they do not take.

/// Longest password; ACL rules are hashed, but `masterauth` and AUTH carry it whole.
const BYTES_MOST: usize = 512;

/// The password in a file. One line end after it is dropped: `echo secret > file` is how people make Secrets.
///
/// # Errors
/// What is wrong with it, without the content, to go on a sentence with.
pub fn of_file(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err("is empty");
    }
    if text.len() > BYTES_MOST {
        return Err("is longer than 512 bytes");
    }
    if text.chars().any(char::is_control) {
        return Err("contains a control character");
    }
    Ok(text)
}
