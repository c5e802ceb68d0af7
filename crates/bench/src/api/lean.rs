//! A client that does as little as a client can: HTTP/1.1, one request at a time, nothing kept of the
//! answer but its length.
//!
//! Client and server share the machine here, and what the client takes is taken from the server: a
//! client that costs as much as a fast server would show half of it. A server's real clients have
//! processors of their own.
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::ServerName;
use testkit::client::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::load::Call;

const BUFFER: usize = 64 << 10;
const HEAD_END: &[u8] = b"\r\n\r\n";

pub struct Lean {
    stream: TlsStream<TcpStream>,
    /// The headers that every request has.
    headers: String,
    request: Vec<u8>,
    buffer: Box<[u8]>,
    /// What of the buffer is read and not used.
    unused: std::ops::Range<usize>,
}

impl Lean {
    pub async fn open(endpoint: &Arc<Endpoint>) -> Result<Lean> {
        let host = endpoint.server.host().context("the server has no host")?;
        let port = endpoint.server.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(endpoint.tls.clone()).connect(name, stream).await?;
        let mut headers = format!(
            "host: {host}:{port}\r\ncontent-type: application/json\r\nuser-agent: bench\r\n"
        );
        if let Some(authorization) = &endpoint.authorization {
            headers.push_str(&format!("authorization: {}\r\n", authorization.to_str()?));
        }
        let buffer = vec![0; BUFFER].into();
        Ok(Lean { stream, headers, request: Vec::new(), buffer, unused: 0..0 })
    }

    /// Sends a request, which must succeed, and reads its answer to the end; returns the number of
    /// bytes in its body.
    pub async fn drain(&mut self, call: &Call) -> Result<usize> {
        let accept = call.accept.to_str()?;
        self.request.clear();
        let head = format!(
            "{} {} HTTP/1.1\r\n{}accept: {accept}\r\ncontent-length: {}\r\n\r\n",
            call.method,
            call.path,
            self.headers,
            call.body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(&call.body);
        self.stream.write_all(&self.request).await?;
        self.stream.flush().await?;
        let (code, length) = self.head().await?;
        if !(200..300).contains(&code) {
            let text = String::from_utf8_lossy(&self.buffer[self.unused.clone()]);
            bail!("{} {}: {code}: {text}", call.method, call.path);
        }
        match length {
            Some(length) => self.skip(length).await,
            None => self.chunks().await,
        }
    }

    /// The answer's code and its body's length, unless that comes in chunks.
    async fn head(&mut self) -> Result<(u16, Option<usize>)> {
        let end = loop {
            let unused = &self.buffer[self.unused.clone()];
            if let Some(at) = unused.windows(HEAD_END.len()).position(|four| four == HEAD_END) {
                break at;
            }
            self.more().await?;
        };
        let head = std::str::from_utf8(&self.buffer[self.unused.start..self.unused.start + end])?;
        self.unused.start += end + HEAD_END.len();
        let mut lines = head.split("\r\n");
        let code = lines.next().and_then(|line| line.split(' ').nth(1)).context("no status")?;
        let length = lines.filter_map(|line| line.split_once(':'));
        let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        Ok((code.parse()?, length.map(|(_, value)| value.trim().parse()).next().transpose()?))
    }

    /// Reads more behind what is unused, which is short.
    async fn more(&mut self) -> Result<()> {
        if self.unused.start > 0 {
            self.buffer.copy_within(self.unused.clone(), 0);
            self.unused = 0..self.unused.len();
        }
        let read = self.stream.read(&mut self.buffer[self.unused.end..]).await?;
        ensure!(read > 0, "the connection ended, or a line is too long");
        self.unused.end += read;
        Ok(())
    }

    async fn skip(&mut self, length: usize) -> Result<usize> {
        let mut left = length;
        loop {
            let here = self.unused.len().min(left);
            left -= here;
            self.unused.start += here;
            if left == 0 {
                return Ok(length);
            }
            self.unused = 0..0;
            self.more().await?;
        }
    }

    async fn chunks(&mut self) -> Result<usize> {
        let mut total = 0;
        loop {
            let end = loop {
                let unused = &self.buffer[self.unused.clone()];
                if let Some(at) = unused.windows(2).position(|two| two == b"\r\n") {
                    break at;
                }
                self.more().await?;
            };
            let line = &self.buffer[self.unused.start..self.unused.start + end];
            let size = usize::from_str_radix(std::str::from_utf8(line)?.trim(), 16)?;
            self.unused.start += end + 2;
            // What follows a chunk, and the last one, is an empty line.
            self.skip(size + 2).await?;
            total += size;
            if size == 0 {
                return Ok(total);
            }
        }
    }
}
