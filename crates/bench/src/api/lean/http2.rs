//! HTTP/2, with one stream at a time and the settings that client-go has.
use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use testkit::client::Endpoint;

use super::super::load::Call;
use super::wire::Wire;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a server may send ahead on a stream, and on the connection.
const STREAM_WINDOW: u32 = 4 << 20;
const WINDOW: u32 = 1 << 30;
/// What a connection's window is before anybody changes it, and how much a frame may carry.
const INITIAL: u32 = 65_535;
const MAX_FRAME: usize = 16 << 10;
const FRAME_HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Names in HPACK's static table.
const AUTHORITY: u8 = 1;
const METHOD: u8 = 2;
const PATH: u8 = 4;
const SCHEME_HTTPS: u8 = 7;
/// It is there with several values.
const STATUS: RangeInclusive<u8> = 8..=14;
const ACCEPT: u8 = 19;
const AUTHORIZATION: u8 = 23;
const CONTENT_TYPE: u8 = 31;
const USER_AGENT: u8 = 58;

pub struct Http2 {
    wire: Wire,
    /// The header fields that every request has, those first that say what it is.
    fields: Vec<u8>,
    stream: u32,
    /// What may be sent of bodies on the connection. Each stream may have as much to begin with,
    /// and bodies are shorter.
    window: i64,
    /// What was read since the server was last told to go on.
    unacknowledged: u32,
}

struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Http2 {
    pub async fn begin(mut wire: Wire, endpoint: &Arc<Endpoint>) -> Result<Http2> {
        let mut fields = vec![0x80 | SCHEME_HTTPS];
        let authority = endpoint.server.authority().context("the server has no address")?;
        field(&mut fields, AUTHORITY, authority.as_str());
        field(&mut fields, CONTENT_TYPE, "application/json");
        field(&mut fields, USER_AGENT, "bench");
        if let Some(authorization) = &endpoint.authorization {
            field(&mut fields, AUTHORIZATION, authorization.to_str()?);
        }
        let mut hello = PREFACE.to_vec();
        // Without a table of header fields seen before, the status is always told in full.
        let settings =
            [(HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, STREAM_WINDOW)];
        head(&mut hello, settings.len() * 6, SETTINGS, 0, 0);
        for (name, value) in settings {
            hello.extend_from_slice(&name.to_be_bytes());
            hello.extend_from_slice(&value.to_be_bytes());
        }
        window_update(&mut hello, 0, WINDOW - INITIAL);
        wire.send(&hello).await?;
        Ok(Http2 { wire, fields, stream: 1, window: INITIAL.into(), unacknowledged: 0 })
    }

    pub async fn drain(&mut self, call: &Call) -> Result<usize> {
        let body = &call.body;
        ensure!(body.len() <= MAX_FRAME, "a body of {} bytes is too long", body.len());
        while self.window < body.len() as i64 {
            self.other_frame().await?;
        }
        self.window -= body.len() as i64;
        self.wire.send(&self.request(call)?).await?;
        let answer = self.answer().await;
        self.stream += 2;
        answer.with_context(|| format!("{} {}", call.method, call.path))
    }

    fn request(&self, call: &Call) -> Result<Vec<u8>> {
        let mut fields = Vec::with_capacity(256);
        field(&mut fields, METHOD, call.method.as_str());
        field(&mut fields, PATH, &call.path);
        fields.extend_from_slice(&self.fields);
        field(&mut fields, ACCEPT, call.accept.to_str()?);
        let mut request = Vec::with_capacity(2 * FRAME_HEAD + fields.len() + call.body.len());
        let ends = if call.body.is_empty() { END_STREAM } else { 0 };
        head(&mut request, fields.len(), HEADERS, END_HEADERS | ends, self.stream);
        request.extend_from_slice(&fields);
        if !call.body.is_empty() {
            head(&mut request, call.body.len(), DATA, END_STREAM, self.stream);
            request.extend_from_slice(&call.body);
        }
        Ok(request)
    }

    async fn answer(&mut self) -> Result<usize> {
        let mut total = 0;
        let mut failed = false;
        loop {
            let frame = self.frame().await?;
            let ends = frame.flags & END_STREAM != 0;
            match frame.kind {
                DATA if failed => {
                    self.wire.at_least(frame.length).await?;
                    bail!("{}", String::from_utf8_lossy(&self.wire.unused()[..frame.length]));
                }
                DATA => {
                    self.wire.skip(frame.length).await?;
                    total += frame.length;
                    self.acknowledge(frame.length, ends).await?;
                }
                HEADERS => {
                    self.wire.at_least(frame.length).await?;
                    ensure!(frame.flags & END_HEADERS != 0, "the answer's head is too long");
                    failed = !is_success(&self.wire.unused()[..frame.length]);
                    self.wire.used(frame.length);
                    ensure!(!(failed && ends), "the request failed");
                }
                _ => {
                    self.other(frame).await?;
                    continue;
                }
            }
            if ends {
                return Ok(total);
            }
        }
    }

    /// Lets the server go on before it has to wait.
    async fn acknowledge(&mut self, read: usize, ends: bool) -> Result<()> {
        self.unacknowledged += read as u32;
        if self.unacknowledged < STREAM_WINDOW / 2 {
            return Ok(());
        }
        let mut frames = Vec::new();
        window_update(&mut frames, 0, self.unacknowledged);
        if !ends {
            window_update(&mut frames, self.stream, self.unacknowledged);
        }
        self.unacknowledged = 0;
        self.wire.send(&frames).await
    }

    async fn frame(&mut self) -> Result<Frame> {
        self.wire.at_least(FRAME_HEAD).await?;
        let head = self.wire.unused();
        let frame = Frame {
            length: u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize,
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
        };
        self.wire.used(FRAME_HEAD);
        Ok(frame)
    }

    async fn other_frame(&mut self) -> Result<()> {
        let frame = self.frame().await?;
        self.other(frame).await
    }

    /// What is said about the connection.
    async fn other(&mut self, frame: Frame) -> Result<()> {
        self.wire.at_least(frame.length).await?;
        let payload = self.wire.unused()[..frame.length].to_vec();
        self.wire.used(frame.length);
        let mut reply = Vec::new();
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => head(&mut reply, 0, SETTINGS, ACK, 0),
            PING if frame.flags & ACK == 0 => {
                head(&mut reply, payload.len(), PING, ACK, 0);
                reply.extend_from_slice(&payload);
            }
            WINDOW_UPDATE if frame.stream == 0 => {
                let more: [u8; 4] = payload.as_slice().try_into()?;
                self.window += i64::from(u32::from_be_bytes(more));
            }
            RST_STREAM | GOAWAY => bail!("the server ends it: {payload:?}"),
            _ => {}
        }
        if !reply.is_empty() {
            self.wire.send(&reply).await?;
        }
        Ok(())
    }
}

fn head(into: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    into.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    into.extend_from_slice(&[kind, flags]);
    into.extend_from_slice(&stream.to_be_bytes());
}

fn window_update(into: &mut Vec<u8>, stream: u32, more: u32) {
    head(into, 4, WINDOW_UPDATE, 0, stream);
    into.extend_from_slice(&more.to_be_bytes());
}

/// A number in HPACK's form, in the lower bits of a byte and those after it.
fn number(into: &mut Vec<u8>, first: u8, bits: u8, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        return into.push(first | value as u8);
    }
    into.push(first | most as u8);
    let mut left = value - most;
    while left >= 128 {
        into.push(0x80 | (left % 128) as u8);
        left /= 128;
    }
    into.push(left as u8);
}

/// A header field that nobody remembers, in plain letters.
fn field(into: &mut Vec<u8>, name: u8, value: &str) {
    number(into, 0, 4, name.into());
    number(into, 0, 7, value.len());
    into.extend_from_slice(value.as_bytes());
}

/// Whether an answer's header fields, of which the status is the first, tell of one.
fn is_success(fields: &[u8]) -> bool {
    // The sizes of tables may be told before.
    let Some((&first, rest)) = fields.split_first() else { return false };
    match first {
        0x20..=0x3f => is_success(rest),
        // 200, 204 and 206 are in the static table.
        0x88..=0x8a => true,
        // Otherwise its number is spelled out, in plain letters or Huffman's, where 2 is 00010.
        _ if STATUS.contains(&(first & 0xf)) && matches!(first & 0xf0, 0 | 0x10 | 0x40) => {
            match rest {
                [length, digit, ..] if length & 0x80 == 0 => *digit == b'2',
                [_, digits, ..] => digits >> 3 == 0b00010,
                _ => false,
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_by_their_status() {
        let cases: [(&[u8], bool); 9] = [
            (&[0x88], true),
            (&[0x20, 0x88], true),
            (&[0x8d], false),
            (b"\x48\x03201", true),
            (b"\x0e\x03201", true),
            (b"\x48\x82\x10\x03", true),
            (b"\x48\x03403", false),
            // Its first letter is a 4 in Huffman's code.
            (b"\x08\x82\x68\x0c", false),
            (b"", false),
        ];
        for (fields, success) in cases {
            assert_eq!(is_success(fields), success, "{fields:x?}");
        }
    }

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        let encoded = |bits, value| {
            let mut bytes = Vec::new();
            number(&mut bytes, 0, bits, value);
            bytes
        };
        // The examples of the standard.
        assert_eq!(encoded(5, 10), [10]);
        assert_eq!(encoded(5, 1337), [31, 154, 10]);
        assert_eq!(encoded(8, 42), [42]);
    }
}
