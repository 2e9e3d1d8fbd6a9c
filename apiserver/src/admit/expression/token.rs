//! The words of an expression: text into tokens; pure.

use super::Issue;

/// One word and where it begins, counted in characters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) word: Word,
}

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    /// A name, keywords included.
    Name(String),
    /// Digits of an integer, as written.
    Int(String),
    /// Digits of an unsigned integer, as written, without its suffix.
    Uint(String),
    /// A number with a fraction or an exponent.
    Double(f64),
    /// A string.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Punctuation.
    Sign(&'static str),
    /// The end.
    End,
}

/// Longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 26] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "=", "`",
];

/// Reads all words.
pub(super) fn read(source: &str) -> Result<Vec<Token>, Issue> {
    let mut reader = Reader { text: source.chars().collect(), at: 0 };
    let mut tokens = Vec::new();
    loop {
        reader.skip_blanks();
        let at = reader.at;
        let word = reader.word()?;
        let is_end = word == Word::End;
        tokens.push(Token { at, word });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Reader {
    text: Vec<char>,
    at: usize,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at.saturating_add(ahead)).copied()
    }

    fn fault(&self, at: usize, what: &str) -> Issue {
        let rest: String = self.text.iter().skip(at).take(1).collect();
        Issue { at, text: format!("Syntax error: {what}: '{rest}'") }
    }

    fn skip_blanks(&mut self) {
        while let Some(next) = self.peek(0) {
            if next == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|next| next != '\n') {
                    self.at += 1;
                }
            } else if matches!(next, ' ' | '\t' | '\n' | '\r' | '\u{c}') {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn word(&mut self) -> Result<Word, Issue> {
        let Some(first) = self.peek(0) else { return Ok(Word::End) };
        if let Some((raw, bytes, skip)) = self.literal_prefix() {
            return self.literal(raw, bytes, skip);
        }
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|next| next.is_ascii_digit())) {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let name = self.run(|next| next.is_ascii_alphanumeric() || next == '_');
            return Ok(Word::Name(name));
        }
        let is_here = |sign: &&&str| sign.chars().enumerate().all(|(index, next)| self.peek(index) == Some(next));
        let Some(sign) = SIGNS.iter().find(is_here) else {
            return Err(self.fault(self.at, "token recognition error at"));
        };
        self.at += sign.len();
        Ok(Word::Sign(sign))
    }

    fn run(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let begin = self.at;
        while self.peek(0).is_some_and(&belongs) {
            self.at += 1;
        }
        self.text.iter().skip(begin).take(self.at - begin).collect()
    }

    fn number(&mut self) -> Result<Word, Issue> {
        let begin = self.at;
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            let digits = format!("0x{}", self.run(|next| next.is_ascii_hexdigit()));
            return Ok(self.suffixed(digits));
        }
        let mut text = self.run(|next| next.is_ascii_digit());
        let mut is_double = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|next| next.is_ascii_digit()) {
            self.at += 1;
            is_double = true;
            text = format!("{text}.{}", self.run(|next| next.is_ascii_digit()));
        }
        let signed = matches!(self.peek(1), Some('+' | '-')) && self.peek(2).is_some_and(|next| next.is_ascii_digit());
        let has_exponent = signed || self.peek(1).is_some_and(|next| next.is_ascii_digit());
        if matches!(self.peek(0), Some('e' | 'E')) && has_exponent {
            let skip = if signed { 2 } else { 1 };
            let sign = if signed && self.peek(1) == Some('-') { "-" } else { "" };
            self.at += skip;
            is_double = true;
            text = format!("{text}e{sign}{}", self.run(|next| next.is_ascii_digit()));
        }
        if !is_double {
            return Ok(self.suffixed(text));
        }
        text.parse().map(Word::Double).map_err(|_| self.fault(begin, "invalid double literal"))
    }

    fn suffixed(&mut self, digits: String) -> Word {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return Word::Uint(digits);
        }
        Word::Int(digits)
    }

    /// Whether a string begins here: raw, of bytes, and how long its prefix is.
    fn literal_prefix(&self) -> Option<(bool, bool, usize)> {
        let is_quote = |ahead: usize| matches!(self.peek(ahead), Some('"' | '\''));
        let lower = |ahead: usize| self.peek(ahead).map(|next| next.to_ascii_lowercase());
        match (lower(0), lower(1)) {
            _ if is_quote(0) => Some((false, false, 0)),
            (Some('r'), _) if is_quote(1) => Some((true, false, 1)),
            (Some('b'), _) if is_quote(1) => Some((false, true, 1)),
            (Some('b'), Some('r')) | (Some('r'), Some('b')) if is_quote(2) => Some((true, true, 2)),
            _none => None,
        }
    }

    fn literal(&mut self, raw: bool, bytes: bool, skip: usize) -> Result<Word, Issue> {
        let begin = self.at;
        self.at += skip;
        let quote = self.peek(0).unwrap_or('"');
        let width = if self.peek(1) == Some(quote) && self.peek(2) == Some(quote) { 3 } else { 1 };
        self.at += width;
        let mut found: Vec<u8> = Vec::new();
        loop {
            if (0..width).all(|index| self.peek(index) == Some(quote)) {
                self.at += width;
                break;
            }
            match self.peek(0) {
                None => return Err(self.fault(begin, "token recognition error at")),
                Some('\n' | '\r') if width == 1 => return Err(self.fault(begin, "token recognition error at")),
                Some('\\') if !raw => self.escape(bytes, &mut found)?,
                Some(next) => {
                    self.at += 1;
                    found.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        if bytes {
            return Ok(Word::Bytes(found));
        }
        String::from_utf8(found).map(Word::Text).map_err(|_| self.fault(begin, "invalid string literal"))
    }

    fn escape(&mut self, bytes: bool, found: &mut Vec<u8>) -> Result<(), Issue> {
        let begin = self.at;
        let fault = |reader: &Self| reader.fault(begin, "unable to unescape string");
        let Some(kind) = self.peek(1) else { return Err(fault(self)) };
        self.at += 2;
        let (digits, radix) = match kind {
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            plain => {
                let byte = match plain {
                    'a' => 7,
                    'b' => 8,
                    'f' => 12,
                    'n' => b'\n',
                    'r' => b'\r',
                    't' => b'\t',
                    'v' => 11,
                    '\\' | '\'' | '"' | '`' | '?' => u8::try_from(plain).unwrap_or(b'?'),
                    _unknown => return Err(fault(self)),
                };
                found.push(byte);
                return Ok(());
            }
        };
        let text: String = self.text.iter().skip(self.at).take(digits).collect();
        self.at += digits;
        let number = u32::from_str_radix(&text, radix).ok().filter(|_| text.chars().count() == digits);
        let number = number.ok_or_else(|| fault(self))?;
        if bytes && digits < 4 {
            found.push(u8::try_from(number).map_err(|_| fault(self))?);
            return Ok(());
        }
        let character = char::from_u32(number).ok_or_else(|| fault(self))?;
        found.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(source: &str) -> Vec<Word> {
        read(source).unwrap().into_iter().map(|token| token.word).collect()
    }

    #[test]
    fn numbers_strings_and_signs_are_told_apart() {
        assert_eq!(
            words("a1 >= 0x1F u 2u 1.5e-3 // rest"),
            [
                Word::Name("a1".into()),
                Word::Sign(">="),
                Word::Int("0x1F".into()),
                Word::Name("u".into()),
                Word::Uint("2".into()),
                Word::Double(0.0015),
                Word::End
            ]
        );
        assert_eq!(words(r#"'a\'\n\u00e4'"#)[..1], [Word::Text("a'\nä".into())]);
        assert_eq!(
            words(r#"r'\d' b'\xff' """x"y""""#)[..3],
            [Word::Text(r"\d".into()), Word::Bytes(vec![255]), Word::Text("x\"y".into())]
        );
    }

    #[test]
    fn what_is_no_word_is_told_with_its_place() {
        assert_eq!(
            read("a #").unwrap_err(),
            Issue { at: 2, text: "Syntax error: token recognition error at: '#'".into() }
        );
        assert_eq!(read("'open").unwrap_err().at, 0);
        assert_eq!(read(r"'\q'").unwrap_err().text, "Syntax error: unable to unescape string: '\\'");
    }
}
