//! A connection, and what was read from it and not used yet.
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::ServerName;
use testkit::client::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const BUFFER: usize = 256 << 10;

pub struct Wire {
    stream: TlsStream<BufReader<TcpStream>>,
    buffer: Box<[u8]>,
    unused: Range<usize>,
}

impl Wire {
    pub async fn open(endpoint: &Arc<Endpoint>) -> Result<Wire> {
        let host = endpoint.server.host().context("the server has no host")?;
        let port = endpoint.server.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        // Left to itself the TLS library reads four kilobytes at a time.
        let stream = BufReader::with_capacity(BUFFER, stream);
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(endpoint.tls.clone()).connect(name, stream).await?;
        Ok(Wire { stream, buffer: vec![0; BUFFER].into(), unused: 0..0 })
    }

    pub fn is_http2(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(b"h2")
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    pub fn unused(&self) -> &[u8] {
        &self.buffer[self.unused.clone()]
    }

    /// So many of the unused bytes are used now.
    pub fn used(&mut self, bytes: usize) {
        self.unused.start += bytes;
    }

    /// Reads more behind what is unused, which is short.
    pub async fn more(&mut self) -> Result<()> {
        if self.unused.start > 0 {
            self.buffer.copy_within(self.unused.clone(), 0);
            self.unused = 0..self.unused.len();
        }
        let read = self.stream.read(&mut self.buffer[self.unused.end..]).await?;
        ensure!(read > 0, "the connection ended, or what must be read at once is too long");
        self.unused.end += read;
        Ok(())
    }

    /// Reads until so many bytes are unused.
    pub async fn at_least(&mut self, bytes: usize) -> Result<()> {
        while self.unused.len() < bytes {
            self.more().await?;
        }
        Ok(())
    }

    /// Reads until some bytes are there, and says where they begin.
    pub async fn until(&mut self, bytes: &[u8]) -> Result<usize> {
        loop {
            let found = self.unused().windows(bytes.len()).position(|some| some == bytes);
            match found {
                Some(at) => return Ok(at),
                None => self.more().await?,
            }
        }
    }

    /// Uses so many bytes, without looking at them.
    pub async fn skip(&mut self, bytes: usize) -> Result<()> {
        let mut left = bytes;
        loop {
            let here = self.unused.len().min(left);
            left -= here;
            self.unused.start += here;
            if left == 0 {
                return Ok(());
            }
            self.unused = 0..0;
            self.more().await?;
        }
    }
}
