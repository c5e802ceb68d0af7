//! SPDY/3.1 frames: what is on the wire, and the compression of headers.
//!
//! Only what streams need: a control frame has a type and flags, a data frame a stream. Windows are
//! not kept: the clients that still speak SPDY do not keep them either.
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use tokio::io::{AsyncRead, AsyncReadExt};

pub const SYN_STREAM: u16 = 1;
pub const SYN_REPLY: u16 = 2;
pub const RST_STREAM: u16 = 3;
pub const PING: u16 = 6;
pub const GOAWAY: u16 = 7;
pub const FIN: u8 = 1;
const VERSION: u16 = 3;
/// Longest frame taken.
const LIMIT: usize = 1 << 20;

#[derive(Debug)]
pub enum Frame {
    Control { kind: u16, body: Vec<u8> },
    Data { stream: u32, flags: u8, body: Vec<u8> },
}

/// The next frame; an error at the end of the connection.
pub async fn read(source: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Frame> {
    let mut header = [0; 8];
    source.read_exact(&mut header).await?;
    let [a, b, c, d, flags, x, y, z] = header;
    let length = u32::from_be_bytes([0, x, y, z]) as usize;
    if length > LIMIT {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "frame too long"));
    }
    let mut body = vec![0; length];
    source.read_exact(&mut body).await?;
    if a & 0x80 != 0 {
        return Ok(Frame::Control { kind: u16::from_be_bytes([c, d]), body });
    }
    Ok(Frame::Data { stream: u32::from_be_bytes([a, b, c, d]), flags, body })
}

pub fn control(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let [v, w] = (VERSION | 0x8000).to_be_bytes();
    let [k, l] = kind.to_be_bytes();
    frame([v, w, k, l], flags, body)
}

pub fn data(stream: u32, flags: u8, body: &[u8]) -> Vec<u8> {
    frame(stream.to_be_bytes(), flags, body)
}

fn frame(start: [u8; 4], flags: u8, body: &[u8]) -> Vec<u8> {
    let [_, x, y, z] = (body.len() as u32).to_be_bytes();
    let mut bytes = start.to_vec();
    bytes.extend([flags, x, y, z]);
    bytes.extend_from_slice(body);
    bytes
}

/// The decompressor of a connection: every block goes on where the last one ended.
pub struct HeaderReader(Decompress);

impl HeaderReader {
    pub fn new() -> Self {
        HeaderReader(Decompress::new(true))
    }

    /// Names and values of a block.
    pub fn read(&mut self, mut block: &[u8]) -> Option<Vec<(String, String)>> {
        let mut plain = Vec::with_capacity(4096);
        while !block.is_empty() {
            let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
            plain.reserve(4096);
            let result = self.0.decompress_vec(block, &mut plain, FlushDecompress::Sync);
            block = &block[(self.0.total_in() - before_in) as usize..];
            match result {
                Ok(Status::Ok | Status::BufError) => {
                    if self.0.total_in() == before_in && self.0.total_out() == before_out {
                        break;
                    }
                }
                Ok(Status::StreamEnd) => break,
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary()).ok()?;
                }
                Err(_) => return None,
            }
            if plain.len() > LIMIT {
                return None;
            }
        }
        parse(&plain)
    }
}

fn parse(plain: &[u8]) -> Option<Vec<(String, String)>> {
    let mut rest = plain;
    let number = |rest: &mut &[u8]| {
        let (start, end) = rest.split_first_chunk::<4>()?;
        *rest = end;
        Some(u32::from_be_bytes(*start) as usize)
    };
    let word = |rest: &mut &[u8]| {
        let length = number(rest)?;
        let (text, end) = rest.split_at_checked(length)?;
        *rest = end;
        String::from_utf8(text.to_vec()).ok()
    };
    let count = number(&mut rest)?;
    (0..count.min(1024)).map(|_| Some((word(&mut rest)?, word(&mut rest)?))).collect()
}

/// The compressor of a connection.
pub struct HeaderWriter(Compress);

impl HeaderWriter {
    pub fn new() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        // A compressor that has written nothing takes any dictionary.
        let _ = compress.set_dictionary(&dictionary());
        HeaderWriter(compress)
    }

    pub fn write(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend((text.len() as u32).to_be_bytes());
            plain.extend(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 256);
        // There is room for all of it, so one call is enough.
        let _ = self.0.compress_vec(&plain, &mut block, FlushCompress::Sync);
        block
    }
}

/// The text both sides start from, as the protocol lays it down.
fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS.iter().flat_map(|line| line.split(' ')) {
        let word = word.replace('_', " ");
        bytes.extend((word.len() as u32).to_be_bytes());
        bytes.extend(word.as_bytes());
    }
    bytes.extend(REST.concat().as_bytes());
    bytes
}

/// Each with its length before it; an underscore is a space.
const WORDS: &[&str] = &[
    "options head post put delete trace accept accept-charset accept-encoding accept-language",
    "accept-ranges age allow authorization cache-control connection content-base",
    "content-encoding content-language content-length content-location content-md5",
    "content-range content-type date etag expect expires from host if-match if-modified-since",
    "if-none-match if-range if-unmodified-since last-modified location max-forwards pragma",
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer",
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status",
    "200_OK version HTTP/1.1 url public set-cookie keep-alive origin",
];

const REST: &[&str] = &[
    "1001012012022052063003023033043053063074024054064074084094104114124134144154164175025045",
    "05203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401",
    " Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 S",
    "ervice UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, We",
    "d, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xm",
    "l,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdc",
    "hcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_and_blocks_go_on_from_each_other() {
        assert_eq!(dictionary().len(), 1423);
        let (mut writer, mut reader) = (HeaderWriter::new(), HeaderReader::new());
        for headers in
            [&[("streamtype", "error"), ("port", "80")][..], &[("streamtype", "data")], &[]]
        {
            let read = reader.read(&writer.write(headers)).unwrap();
            let read: Vec<(&str, &str)> =
                read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(read, headers);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(HeaderReader::new().read(b"no zlib").is_none());
        assert!(parse(&[0, 0, 0, 1, 0, 0, 0, 9, b'x']).is_none());
    }
}
