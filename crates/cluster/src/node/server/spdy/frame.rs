//! Frames of SPDY/3.1, as far as streaming clients of Kubernetes send them.
//!
//! kubectl forwards ports over it (inside a WebSocket or after an upgrade), and API servers speak it to kubelets.
//! Flow control is left out on purpose: no such client takes part in it.

use flate2::{Decompress, FlushDecompress};

/// Bytes before every frame's payload.
pub const HEADER: usize = 8;
/// The longest payload that is taken; clients send pieces of 32 KiB.
const LONGEST: usize = 4 << 20;
/// The longest block of headers after decompression.
const LONGEST_HEADERS: usize = 64 << 10;
const VERSION: u16 = 3;
const FIN: u8 = 1;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// The status of a stream that is ended by intent.
const CANCEL: u32 = 5;

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Open {
        stream: u32,
        headers: Vec<(String, String)>,
        end: bool,
    },
    Data {
        stream: u32,
        bytes: Vec<u8>,
        end: bool,
    },
    Reset {
        stream: u32,
    },
    /// To be sent back as it came.
    Ping(u32),
    GoAway,
    /// Settings, windows, late headers: nothing that a server here acts on.
    Other,
}

/// Bytes that are no SPDY.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("a frame ends before its fields do")]
    Short,
    #[error("the headers cannot be decompressed")]
    Compression,
}

/// The length of the payload that follows this header.
pub fn payload(header: [u8; HEADER]) -> Result<usize, FrameError> {
    let [_, _, _, _, _, a, b, c] = header;
    let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
    match length > LONGEST {
        true => Err(FrameError::TooLong(length)),
        false => Ok(length),
    }
}

/// Takes frames apart. Header blocks share one compressed stream, so one value serves one connection.
pub struct Parser {
    inflate: Decompress,
    begun: bool,
}

impl Default for Parser {
    fn default() -> Parser {
        Parser {
            inflate: Decompress::new(false),
            begun: false,
        }
    }
}

impl Parser {
    pub fn frame(&mut self, header: [u8; HEADER], payload: Vec<u8>) -> Result<Frame, FrameError> {
        let [a, b, c, d, flags, ..] = header;
        let end = flags & FIN != 0;
        if a & 0x80 == 0 {
            return Ok(Frame::Data {
                stream: u32::from_be_bytes([a, b, c, d]),
                bytes: payload,
                end,
            });
        }
        let number = |at: usize| -> Result<u32, FrameError> {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or(FrameError::Short)
        };
        Ok(match u16::from_be_bytes([c, d]) {
            SYN_STREAM => Frame::Open {
                stream: number(0)? & 0x7fff_ffff,
                headers: self.headers(payload.get(10..).ok_or(FrameError::Short)?)?,
                end,
            },
            RST_STREAM => Frame::Reset {
                stream: number(0)? & 0x7fff_ffff,
            },
            PING => Frame::Ping(number(0)?),
            GOAWAY => Frame::GoAway,
            _ => Frame::Other,
        })
    }

    fn headers(&mut self, compressed: &[u8]) -> Result<Vec<(String, String)>, FrameError> {
        let block = self.inflate(compressed)?;
        let mut rest = block.as_slice();
        let number = |rest: &mut &[u8]| -> Result<usize, FrameError> {
            let (bytes, after) = rest.split_first_chunk::<4>().ok_or(FrameError::Short)?;
            *rest = after;
            usize::try_from(u32::from_be_bytes(*bytes)).map_err(|_| FrameError::Short)
        };
        let text = |rest: &mut &[u8]| -> Result<String, FrameError> {
            let length = number(rest)?;
            let (bytes, after) = rest.split_at_checked(length).ok_or(FrameError::Short)?;
            *rest = after;
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        let (count, after) = rest.split_first_chunk::<4>().ok_or(FrameError::Short)?;
        rest = after;
        // A false count runs out of bytes; it never asks for memory.
        (0..u32::from_be_bytes(*count))
            .map(|_| Ok((text(&mut rest)?, text(&mut rest)?)))
            .collect()
    }

    fn inflate(&mut self, mut from: &[u8]) -> Result<Vec<u8>, FrameError> {
        if !std::mem::replace(&mut self.begun, true) {
            // The zlib header, and if it says so the dictionary's checksum; what follows is a raw stream.
            let flags = *from.get(1).ok_or(FrameError::Short)?;
            let skip = if flags & 0x20 != 0 { 6 } else { 2 };
            from = from.get(skip..).ok_or(FrameError::Short)?;
            if flags & 0x20 != 0 {
                // A block stored as it is puts the dictionary where the stream expects it: before its first byte.
                let dictionary = dictionary();
                let mut thrown_away = Vec::with_capacity(dictionary.len() + 64);
                self.feed(&stored(&dictionary), &mut thrown_away)?;
            }
        }
        let mut block = Vec::with_capacity(512);
        self.feed(from, &mut block)?;
        Ok(block)
    }

    fn feed(&mut self, mut from: &[u8], to: &mut Vec<u8>) -> Result<(), FrameError> {
        loop {
            let before = self.inflate.total_in();
            self.inflate
                .decompress_vec(from, to, FlushDecompress::Sync)
                .map_err(|_| FrameError::Compression)?;
            let taken = usize::try_from(self.inflate.total_in() - before).unwrap_or(0);
            from = from.get(taken..).unwrap_or_default();
            let full = to.len() == to.capacity();
            if from.is_empty() && !full {
                return Ok(());
            }
            if to.len() > LONGEST_HEADERS || (taken == 0 && !full) {
                return Err(FrameError::Compression);
            }
            to.reserve(1024);
        }
    }
}

/// Puts frames together. Answers carry no headers, so theirs is one block that is stored, not compressed.
#[derive(Default)]
pub struct Builder {
    begun: bool,
}

impl Builder {
    /// The answer to a stream that was opened.
    pub fn reply(&mut self, stream: u32) -> Vec<u8> {
        let mut payload = stream.to_be_bytes().to_vec();
        if !std::mem::replace(&mut self.begun, true) {
            payload.extend([0x78, 0x01]);
        }
        payload.extend(stored(&[0; 4]));
        // An empty block makes the other side give out what it has; without it, it would look for more and fail.
        payload.extend(stored(&[]));
        control(SYN_REPLY, &payload)
    }
}

/// Bytes of a stream; the last ones end this side of it.
pub fn data(stream: u32, bytes: &[u8], last: Last) -> Vec<u8> {
    let flags = match last {
        Last::Yes => FIN,
        Last::No => 0,
    };
    let mut frame = stream.to_be_bytes().to_vec();
    frame.extend(head(flags, bytes.len()));
    frame.extend_from_slice(bytes);
    frame
}

/// Whether more follows on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Yes,
    No,
}

pub fn reset(stream: u32) -> Vec<u8> {
    control(RST_STREAM, &[stream.to_be_bytes(), CANCEL.to_be_bytes()].concat())
}

pub fn ping(id: u32) -> Vec<u8> {
    control(PING, &id.to_be_bytes())
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = (VERSION | 0x8000).to_be_bytes().to_vec();
    frame.extend(kind.to_be_bytes());
    frame.extend(head(0, payload.len()));
    frame.extend_from_slice(payload);
    frame
}

/// Flags and length: 8 and 24 bits.
fn head(flags: u8, length: usize) -> [u8; 4] {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(0).to_be_bytes();
    [flags, a, b, c]
}

/// A piece of a deflate stream that is not compressed and not the last.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(0);
    let mut block = vec![0];
    block.extend(length.to_le_bytes());
    block.extend((!length).to_le_bytes());
    block.extend_from_slice(bytes);
    block
}

/// The words that every SPDY/3 header stream may refer to before it has said anything.
fn dictionary() -> Vec<u8> {
    const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
        accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
        content-length content-location content-md5 content-range content-type date etag expect expires from host \
        if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards \
        pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding \
        upgrade user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public \
        set-cookie keep-alive origin";
    const CODES: &str = "100 101 201 202 205 206 300 302 303 304 305 306 307 402 405 406 407 408 409 410 411 412 413 \
        414 415 416 417 502 504 505";
    const PHRASES: &str = "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 \
        Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan \
        Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, \
        GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
        text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
    let mut bytes = Vec::new();
    for word in WORDS.split(' ') {
        let word = word.replace('_', " ");
        bytes.extend(u32::try_from(word.len()).unwrap_or(0).to_be_bytes());
        bytes.extend(word.as_bytes());
    }
    bytes.extend(CODES.split(' ').flat_map(str::bytes));
    bytes.extend(PHRASES.bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN_STREAM as a client of kubectl's kind sends it: headers compressed by zlib with the dictionary.
    /// `streamtype: data`, `port: 80`, `requestid: 0`, made by another implementation.
    const OPENED: &[u8] = include_bytes!("opened.bin");

    #[test]
    fn the_dictionary_is_the_one_of_the_specification() {
        let bytes = dictionary();
        assert_eq!(bytes.len(), 1423);
        // Its Adler-32 checksum stands in the header of every stream that uses it.
        let (mut a, mut b) = (1u32, 0u32);
        for byte in &bytes {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((b << 16) | a, 0xe3c6_a7c2);
    }

    #[test]
    fn a_stream_that_a_client_opens_is_understood() {
        let mut parser = Parser::default();
        let mut rest = OPENED;
        let mut opened = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<HEADER>() {
            let length = payload(*header).unwrap();
            opened.push(parser.frame(*header, after[..length].to_vec()).unwrap());
            rest = &after[length..];
        }
        let headers = |kind: &str| {
            let pairs = [("port", "80"), ("requestid", "0"), ("streamtype", kind)];
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
        };
        let [
            Frame::Open {
                stream: 1,
                headers: first,
                end: false,
            },
            Frame::Open {
                stream: 3,
                headers: second,
                end: false,
            },
        ] = &mut opened[..]
        else {
            panic!("{opened:?}");
        };
        first.sort();
        second.sort();
        assert_eq!((&*first, &*second), (&headers("error"), &headers("data")));
    }

    #[test]
    fn nonsense_is_an_error_and_never_a_panic() {
        let control = [0x80, 3, 0, 1, 0, 0, 0, 12];
        for payload in [
            vec![],
            vec![0; 10],
            vec![0xff; 40],
            [vec![0; 10], vec![0x78, 0xbb]].concat(),
        ] {
            assert!(Parser::default().frame(control, payload).is_err());
        }
        assert_eq!(
            payload([0, 0, 0, 1, 0, 0xff, 0xff, 0xff]),
            Err(FrameError::TooLong(0xff_ffff))
        );
    }

    #[test]
    fn answers_are_frames_too() {
        let reply = Builder::default().reply(1);
        assert_eq!(&reply[..8], [0x80, 3, 0, 2, 0, 0, 0, 20]);
        let bytes = data(3, b"hi", Last::Yes);
        let frame = Parser::default().frame(bytes[..8].try_into().unwrap(), bytes[8..].to_vec());
        let whole = Frame::Data {
            stream: 3,
            bytes: b"hi".to_vec(),
            end: true,
        };
        assert_eq!(frame, Ok(whole));
    }
}
