//! What goes over the RESP2 wire: commands out, replies in, and the limits both ends keep. Pure.
//!
//! How bytes become replies is [`crate::decode`]'s.

use bytes::Bytes;

/// Everything the decoder refuses to exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string in bytes.
    pub bulk: usize,
    /// Longest status, error or length line in bytes.
    pub line: usize,
    /// Most elements of one reply, nested ones included.
    pub elements: usize,
    /// Deepest nesting of arrays.
    pub depth: usize,
    /// Most payload bytes of one reply.
    pub total: usize,
}

impl Limits {
    /// Replies of an administrator: `CLUSTER NODES` of a thousand nodes is 200 KB, `GETKEYSINSLOT` may be a few MB.
    pub const ADMIN: Self = Self { bulk: 64 << 20, line: 64 << 10, elements: 1 << 20, depth: 8, total: 128 << 20 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::ADMIN
    }
}

/// What the peer sent that is no RESP2, or more than we take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first byte of an element is none of `+ - : $ *`.
    #[error("decode reply: byte 0x{0:02x} begins no RESP2 element")]
    UnknownType(u8),
    /// A length or integer is not a number.
    #[error("decode reply: {0:?} is not a number")]
    NotANumber(String),
    /// A bulk string is not followed by CRLF.
    #[error("decode reply: a bulk string of {0} bytes is not followed by CRLF")]
    BulkNotTerminated(usize),
    /// More than a limit allows.
    #[error("decode reply: {what} of {got} exceeds the limit of {limit}")]
    TooLarge {
        /// Which limit.
        what: &'static str,
        /// What the peer announced.
        got: usize,
        /// The limit.
        limit: usize,
    },
}

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Status(String),
    /// `-ERR …`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$5`
    Bulk(Bytes),
    /// `$-1` or `*-1`
    Nil,
    /// `*2`
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a status or bulk string, if it is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Status(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Error(_) | Self::Integer(_) | Self::Nil | Self::Array(_) => None,
        }
    }

    /// The integer, also when it comes as a string.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            Self::Status(_) | Self::Bulk(_) => self.text()?.parse().ok(),
            Self::Error(_) | Self::Nil | Self::Array(_) => None,
        }
    }

    /// The elements of an array.
    #[must_use]
    pub fn items(&self) -> Option<&[Reply]> {
        match self {
            Self::Array(items) => Some(items),
            Self::Status(_) | Self::Error(_) | Self::Integer(_) | Self::Bulk(_) | Self::Nil => None,
        }
    }

    /// Whether this is the status `OK`.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Status(text) if text == "OK")
    }

    /// Writes the reply as RESP2, as a server would. For servers in tests.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => line(out, b'-', text.as_bytes()),
            Self::Integer(value) => line(out, b':', value.to_string().as_bytes()),
            Self::Bulk(bytes) => {
                line(out, b'$', bytes.len().to_string().as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Array(items) => {
                line(out, b'*', items.len().to_string().as_bytes());
                items.iter().for_each(|item| item.encode(out));
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// One command, encoded as it is built. Its `Debug` shows the name and the number of arguments, never their content.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    name: String,
    arguments: usize,
    body: Vec<u8>,
}

/// Commands whose second word names what they do.
const CONTAINERS: [&str; 7] = ["CLUSTER", "CONFIG", "ACL", "CLIENT", "FUNCTION", "MEMORY", "DEBUG"];

impl Command {
    /// Starts a command with its name.
    #[must_use]
    pub fn new(name: impl AsRef<[u8]>) -> Self {
        let mut command = Self { name: String::new(), arguments: 0, body: Vec::new() };
        command.name = String::from_utf8_lossy(name.as_ref()).to_ascii_uppercase();
        command.push(name);
        command
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.push(argument);
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<A: AsRef<[u8]>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        arguments.into_iter().for_each(|argument| self.push(argument));
        self
    }

    /// Adds one argument in place.
    pub fn push(&mut self, argument: impl AsRef<[u8]>) {
        let bytes = argument.as_ref();
        if self.arguments == 1 && CONTAINERS.contains(&self.name.as_str()) {
            self.name = format!("{} {}", self.name, String::from_utf8_lossy(bytes).to_ascii_uppercase());
        }
        self.arguments = self.arguments.saturating_add(1);
        line(&mut self.body, b'$', bytes.len().to_string().as_bytes());
        self.body.extend_from_slice(bytes);
        self.body.extend_from_slice(b"\r\n");
    }

    /// A command from all its words; an empty list is the empty command, which Redis ignores, so it becomes PING.
    #[must_use]
    pub fn from_words<A: AsRef<[u8]>>(words: &[A]) -> Self {
        match words.split_first() {
            Some((name, rest)) => Self::new(name).args(rest),
            None => Self::new("PING"),
        }
    }

    /// The command's name, with its subcommand; safe to print.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends the command to a buffer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        line(out, b'*', self.arguments.to_string().as_bytes());
        out.extend_from_slice(&self.body);
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Command({} with {} words)", self.name, self.arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_never_shows_its_arguments() {
        let auth = Command::new("AUTH").arg("user").arg("canary-secret");
        assert_eq!(format!("{auth:?}"), "Command(AUTH with 3 words)");
        assert_eq!(Command::from_words(&["cluster", "failover", "force"]).name(), "CLUSTER FAILOVER");
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut wire = Vec::new();
        Command::new("SET").arg("k").arg(b"a\r\n\0").encode(&mut wire);
        assert_eq!(wire, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\n\0\r\n");
    }
}
