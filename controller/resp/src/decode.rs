//! From bytes to replies, however they are cut up. Pure.
//!
//! The peer may be anything that answers on a pod's address, so the decoder bounds every length it is told before it
//! believes it, allocates only for bytes that have arrived, and works through each byte once.

use bytes::{Buf, Bytes, BytesMut};

use crate::frame::{Error, Limits, Reply};

/// Bytes that an element is counted as, however little it says: what is kept of it takes memory, too.
const ELEMENT: usize = 4;

/// An array whose elements are still arriving.
#[derive(Debug)]
struct Open {
    missing: usize,
    items: Vec<Reply>,
}

/// Incremental decoder: feed bytes, take replies. After an error it must not be used further.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    buffer: BytesMut,
    /// Bytes of `buffer` already searched for a line end.
    searched: usize,
    /// Length of the bulk string whose header has been read.
    bulk: Option<usize>,
    open: Vec<Open>,
    elements: usize,
    payload: usize,
    /// What the reply that is being read may have in all.
    most: usize,
}

impl Decoder {
    /// An empty decoder.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            buffer: BytesMut::new(),
            searched: 0,
            bulk: None,
            open: Vec::new(),
            elements: 0,
            payload: 0,
            most: limits.total,
        }
    }

    /// The reply that comes next may have so many bytes; `None`: as many as any.
    pub fn expect(&mut self, most: Option<usize>) {
        self.most = most.unwrap_or(usize::MAX).min(self.limits.total);
    }

    /// The buffer that bytes from the peer are appended to.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Bytes that follow the last complete reply, for protocols that leave RESP (PSYNC).
    #[must_use]
    pub fn into_rest(self) -> BytesMut {
        self.buffer
    }

    /// The next complete reply, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// When the bytes are no RESP2 or exceed a limit.
    pub fn decode(&mut self) -> Result<Option<Reply>, Error> {
        loop {
            let Some(element) = self.element()? else { return Ok(None) };
            if let Some(reply) = self.close(element) {
                self.elements = 0;
                self.payload = 0;
                return Ok(Some(reply));
            }
        }
    }

    /// Hands a complete element to the innermost open array; returns the reply once nothing is open.
    fn close(&mut self, element: Element) -> Option<Reply> {
        let mut done = match element {
            Element::Opened(missing) => {
                // Capacity follows what arrived, not what the peer announced.
                self.open.push(Open { missing, items: Vec::with_capacity(missing.min(64)) });
                return None;
            }
            Element::Complete(reply) => reply,
        };
        while let Some(mut open) = self.open.pop() {
            open.items.push(done);
            open.missing = open.missing.saturating_sub(1);
            if open.missing > 0 {
                self.open.push(open);
                return None;
            }
            done = Reply::Array(open.items);
        }
        Some(done)
    }

    fn element(&mut self) -> Result<Option<Element>, Error> {
        if let Some(length) = self.bulk {
            return self.bulk_body(length);
        }
        let Some(text) = self.take_line()? else { return Ok(None) };
        let Some((kind, rest)) = text.split_first() else { return Err(Error::UnknownType(b'\r')) };
        self.count_element(rest.len())?;
        let complete = |reply| Ok(Some(Element::Complete(reply)));
        match kind {
            b'+' => complete(Reply::Status(String::from_utf8_lossy(rest).into_owned())),
            b'-' => complete(Reply::Error(without_arguments(&String::from_utf8_lossy(rest)))),
            b':' => complete(Reply::Integer(number(rest)?)),
            b'$' => match self.length(rest, "a bulk string", self.limits.bulk.min(self.most))? {
                None => complete(Reply::Nil),
                Some(length) => {
                    self.bulk = Some(length);
                    self.bulk_body(length)
                }
            },
            b'*' => match self.length(rest, "an array", self.limits.elements)? {
                None => complete(Reply::Nil),
                Some(0) => complete(Reply::Array(Vec::new())),
                Some(length) => {
                    check("nesting", self.open.len().saturating_add(1), self.limits.depth)?;
                    Ok(Some(Element::Opened(length)))
                }
            },
            other => Err(Error::UnknownType(*other)),
        }
    }

    fn count_element(&mut self, payload: usize) -> Result<(), Error> {
        self.elements = self.elements.saturating_add(1);
        self.payload = self.payload.saturating_add(payload);
        let elements = self.limits.elements.min(self.most / ELEMENT);
        check("a reply's number of elements", self.elements, elements.saturating_add(1))?;
        check("a reply's size", self.payload, self.most)
    }

    fn length(&self, text: &[u8], what: &'static str, limit: usize) -> Result<Option<usize>, Error> {
        let announced = number(text)?;
        if announced == -1 {
            return Ok(None);
        }
        let length = usize::try_from(announced).map_err(|_| Error::NotANumber(lossy(text)))?;
        check(what, length, limit)?;
        Ok(Some(length))
    }

    fn bulk_body(&mut self, length: usize) -> Result<Option<Element>, Error> {
        check("a reply's size", self.payload.saturating_add(length), self.most)?;
        if self.buffer.len() < length.saturating_add(2) {
            return Ok(None);
        }
        let body = self.buffer.split_to(length).freeze();
        let end = self.buffer.split_to(2);
        if end.as_ref() != b"\r\n" {
            return Err(Error::BulkNotTerminated(length));
        }
        self.bulk = None;
        self.payload = self.payload.saturating_add(length);
        Ok(Some(Element::Complete(Reply::Bulk(body))))
    }

    /// Takes one line without its CRLF.
    fn take_line(&mut self) -> Result<Option<Bytes>, Error> {
        let unseen = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(found) = unseen.windows(2).position(|pair| pair == b"\r\n") else {
            check("a line", self.buffer.len(), self.limits.line)?;
            // The last byte may be the CR of a CRLF that is still on its way.
            self.searched = self.buffer.len().saturating_sub(1);
            return Ok(None);
        };
        let end = self.searched.saturating_add(found);
        check("a line", end, self.limits.line)?;
        let text = self.buffer.split_to(end).freeze();
        self.buffer.advance(2);
        self.searched = 0;
        Ok(Some(text))
    }
}

enum Element {
    Complete(Reply),
    Opened(usize),
}

/// A server that does not have a command repeats its arguments (`commandCheckExistence` in Redis' server.c), and some are passwords: nobody is to
/// see, log or store them.
fn without_arguments(text: &str) -> String {
    text.split(", with args").next().unwrap_or_default().to_owned()
}

fn check(what: &'static str, got: usize, limit: usize) -> Result<(), Error> {
    if got > limit { Err(Error::TooLarge { what, got, limit }) } else { Ok(()) }
}

fn number(text: &[u8]) -> Result<i64, Error> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| Error::NotANumber(lossy(text)))
}

/// At most 32 characters of what the peer sent, for an error message.
fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    fn decode_all(bytes: &[u8], cut: usize) -> Result<Vec<Reply>, Error> {
        let mut decoder = Decoder::new(Limits::ADMIN);
        let mut replies = Vec::new();
        for piece in bytes.chunks(cut.max(1)) {
            decoder.buffer().extend_from_slice(piece);
            while let Some(reply) = decoder.decode()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let wire = b"+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*1\r\n:1\r\n$0\r\n\r\n";
        let expected = vec![
            Reply::Status("OK".into()),
            Reply::Error("ERR no".into()),
            Reply::Integer(-7),
            Reply::Bulk(Bytes::from_static(b"a\r\n")),
            Reply::Nil,
            Reply::Nil,
            Reply::Array(vec![]),
            Reply::Array(vec![Reply::Array(vec![Reply::Integer(1)]), Reply::Bulk(Bytes::new())]),
        ];
        // "$3\r\na\r\n" holds three bytes: 'a', CR, LF.
        for cut in 1..wire.len() {
            assert_eq!(decode_all(wire, cut), Ok(expected.clone()), "cut every {cut} bytes");
        }
    }

    #[test]
    fn announced_lengths_are_refused_before_anything_is_allocated() {
        let limits = Limits { bulk: 10, line: 20, elements: 4, depth: 2, total: 16 };
        let refused = |wire: &[u8]| {
            let mut decoder = Decoder::new(limits);
            decoder.buffer().extend_from_slice(wire);
            loop {
                match decoder.decode() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("not refused: {}", String::from_utf8_lossy(wire)),
                    Err(error) => return error,
                }
            }
        };
        assert_eq!(refused(b"$11\r\n"), Error::TooLarge { what: "a bulk string", got: 11, limit: 10 });
        assert_eq!(refused(b"*5\r\n"), Error::TooLarge { what: "an array", got: 5, limit: 4 });
        assert_eq!(refused(b"*1\r\n*1\r\n*1\r\n"), Error::TooLarge { what: "nesting", got: 3, limit: 2 });
        assert_eq!(
            refused(b"*4\r\n*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n"),
            Error::TooLarge { what: "a reply's number of elements", got: 6, limit: 5 }
        );
        assert_eq!(refused(b"+aaaaaaaaaaaaaaaaaaaaaaaaa"), Error::TooLarge { what: "a line", got: 26, limit: 20 });
        assert_eq!(
            refused(b"*2\r\n$8\r\n12345678\r\n$8\r\n"),
            Error::TooLarge { what: "a reply's size", got: 19, limit: 16 }
        );
        assert_eq!(refused(b"$2\r\nabXX"), Error::BulkNotTerminated(2));
        assert_eq!(refused(b"$-2\r\n"), Error::NotANumber("-2".into()));
        assert_eq!(refused(b":x\r\n"), Error::NotANumber("x".into()));
        assert_eq!(refused(b"HTTP/1.1\r\n"), Error::UnknownType(b'H'));
        assert_eq!(refused(b"\r\n"), Error::UnknownType(b'\r'));
    }

    #[test]
    fn a_reply_is_no_longer_than_is_expected_of_it_and_the_next_may_be() {
        let mut decoder = Decoder::new(Limits::ADMIN);
        decoder.expect(Some(40));
        decoder.buffer().extend_from_slice(b"$40\r\n0123456789012345678901234567890123456789\r\n");
        assert_eq!(decoder.decode(), Err(Error::TooLarge { what: "a reply's size", got: 42, limit: 40 }));

        let read = |most, wire: &[u8]| {
            let mut decoder = Decoder::new(Limits::ADMIN);
            decoder.expect(most);
            decoder.buffer().extend_from_slice(wire);
            decoder.decode()
        };
        assert_eq!(read(Some(10), b"$11\r\n"), Err(Error::TooLarge { what: "a bulk string", got: 11, limit: 10 }));
        let many = b"*9\r\n".iter().chain(b"+\r\n".repeat(9).iter()).copied().collect::<Vec<_>>();
        assert_eq!(
            read(Some(8), &many),
            Err(Error::TooLarge { what: "a reply's number of elements", got: 4, limit: 3 })
        );
        assert_eq!(read(None, &many).map(|reply| reply.is_some()), Ok(true));
    }

    fn any_reply() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            "[^\r\n]{0,20}".prop_map(Reply::Status),
            "[^\r\n]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Reply::Bulk(bytes.into())),
            Just(Reply::Nil),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Reply::Array))
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_however_it_is_cut(
            replies in prop::collection::vec(any_reply(), 0..6), cut in 1usize..50
        ) {
            let mut wire = Vec::new();
            replies.iter().for_each(|reply| reply.encode(&mut wire));
            prop_assert_eq!(decode_all(&wire, cut), Ok(replies));
        }

        #[test]
        fn garbage_never_panics_and_never_outgrows_its_input(
            bytes in prop::collection::vec(prop_oneof![
                4 => prop::sample::select(b"+-:$*0123456789\r\n".to_vec()), 1 => any::<u8>()
            ], 0..400), cut in 1usize..30
        ) {
            if let Ok(replies) = decode_all(&bytes, cut) {
                prop_assert!(replies.len() <= bytes.len());
            }
        }

        #[test]
        fn the_cut_does_not_change_the_verdict(
            bytes in prop::collection::vec(prop::sample::select(b"+-:$*012\r\n\r\n\r\n".to_vec()), 0..60)
        ) {
            prop_assert_eq!(decode_all(&bytes, 1), decode_all(&bytes, usize::MAX));
        }
    }
}
