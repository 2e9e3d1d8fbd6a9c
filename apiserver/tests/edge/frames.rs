//! HTTP/2 by hand: frames as bytes over TLS, so that a client can do what no client library lets it do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use certs::{ALPN_H2, Issued};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::client::dial;
use crate::stage::Server;

// Kinds of frames, flags and reasons of RFC 9113.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
/// The setting of how much the server may send on a stream unasked.
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// One frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn setting(name: u16, value: u32) -> Vec<u8> {
    [name.to_be_bytes().as_slice(), &value.to_be_bytes()].concat()
}

/// A header that is in no table, without compression.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    [&[0], text(name).as_slice(), &text(value)].concat()
}

/// A string of HPACK: its length in seven bits, or more bytes.
pub(crate) fn text(value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match value.len().checked_sub(127) {
        None => bytes.push(u8::try_from(value.len()).unwrap()),
        Some(mut rest) => {
            bytes.push(127);
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
        }
    }
    bytes.extend(value.as_bytes());
    bytes
}

/// The head of a GET: `:method` and `:scheme` from the static table, `:path` and `:authority` with names from there.
pub(crate) fn head(path: &str) -> Vec<u8> {
    [&[0x82, 0x87, 0x04], text(path).as_slice(), &[0x01], &text("server")].concat()
}

/// A whole GET.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(path))
}

/// The n-th stream of a client.
pub(crate) fn stream(n: u32) -> u32 {
    2 * n + 1
}

/// A frame that came.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Came {
    /// The last stream that is still taken, in a GOAWAY.
    pub(crate) fn last_stream(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().unwrap())
    }

    /// Why, in a RST_STREAM or a GOAWAY.
    pub(crate) fn reason(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// The next frame; none when the server has closed.
pub(crate) async fn next(from: &mut ReadHalf<TlsStream<TcpStream>>) -> Option<Came> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut payload).await.ok()?;
    let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
    Some(Came { kind: head[3], flags: head[4], stream, payload })
}

/// A connection after its preface.
pub(crate) struct Raw {
    pub(crate) from: ReadHalf<TlsStream<TcpStream>>,
    pub(crate) to: WriteHalf<TlsStream<TcpStream>>,
}

impl Raw {
    pub(crate) async fn open(server: &Server, identity: &Issued, settings: &[u8]) -> Raw {
        let stream = dial(server, Some(identity), &[ALPN_H2]).await.unwrap();
        let (from, to) = tokio::io::split(stream);
        let mut raw = Raw { from, to };
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, settings)].concat();
        assert!(raw.send(&preface).await);
        raw
    }

    /// Sends; false when the server has closed.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.to.write_all(bytes).await.is_ok() && self.to.flush().await.is_ok()
    }

    /// Sends the same again and again, at most so often or until the server closes, and reads nothing. How many bytes were
    /// taken is counted meanwhile.
    pub(crate) async fn flood(&mut self, bytes: &[u8], times: usize, taken: &AtomicUsize) {
        for _ in 0..times {
            let mut rest = bytes;
            while !rest.is_empty() {
                let Ok(count @ 1..) = self.to.write(rest).await else { return };
                taken.fetch_add(count, Ordering::SeqCst);
                rest = &rest[count..];
            }
            if self.to.flush().await.is_err() {
                return;
            }
        }
    }

    /// The next frame; none when the server has closed.
    pub(crate) async fn next(&mut self) -> Option<Came> {
        next(&mut self.from).await
    }

    /// Reads up to a frame of this kind, which must come.
    pub(crate) async fn until_told(&mut self, kind: u8) -> Vec<Came> {
        self.until(|came| came.last().is_some_and(|came| came.kind == kind)).await
    }

    /// Reads until what came is enough, which it must become.
    pub(crate) async fn until(&mut self, is_enough: impl Fn(&[Came]) -> bool) -> Vec<Came> {
        let mut all = Vec::new();
        let told = timeout(hung::answer(), async {
            while !is_enough(&all) {
                all.push(self.next().await.expect("a frame before the end"));
            }
        });
        told.await.expect("the frame that was awaited");
        all
    }

    /// Reads until the server closes, which it must, and answers its pings meanwhile.
    pub(crate) async fn until_closed(&mut self) -> Vec<Came> {
        let mut all = Vec::new();
        let end = timeout(hung::answer(), async {
            while let Some(came) = self.next().await {
                if came.kind == PING && came.flags & ACK == 0 {
                    self.send(&frame(PING, ACK, 0, &came.payload)).await;
                }
                all.push(came);
            }
        });
        end.await.expect("the server keeps a connection it must close");
        all
    }

    /// Reads until there is nothing more for a moment: what must not come has not come, what must is read by `until`.
    pub(crate) async fn until_quiet(&mut self) -> Vec<Came> {
        let mut all = Vec::new();
        while let Ok(Some(came)) = timeout(Duration::from_millis(300), self.next()).await {
            all.push(came);
        }
        all
    }
}
