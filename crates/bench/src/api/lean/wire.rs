//! A connection, and what was read from it to be looked at and is not used yet.
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::ServerName;
use testkit::client::Endpoint;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const BUFFER: usize = 256 << 10;
/// Heads and lines are searched for so far at a time.
const LINES: usize = 1 << 10;

pub struct Wire {
    stream: TlsStream<BufReader<TcpStream>>,
    kept: Vec<u8>,
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
        Ok(Wire { stream, kept: Vec::new() })
    }

    pub fn is_http2(&self) -> bool {
        self.stream.get_ref().1.alpn_protocol() == Some(b"h2")
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    pub fn unused(&self) -> &[u8] {
        &self.kept
    }

    /// So many of the unused bytes are used now.
    pub fn used(&mut self, bytes: usize) {
        self.kept.drain(..bytes);
    }

    /// Reads until so many bytes are unused, and no more than those.
    pub async fn at_least(&mut self, bytes: usize) -> Result<()> {
        while self.kept.len() < bytes {
            let come = self.stream.fill_buf().await?;
            ensure!(!come.is_empty(), "the connection ended");
            let some = come.len().min(bytes - self.kept.len());
            self.kept.extend_from_slice(&come[..some]);
            self.stream.consume(some);
        }
        Ok(())
    }

    /// Reads until some bytes are there, and says where they begin.
    pub async fn until(&mut self, bytes: &[u8]) -> Result<usize> {
        loop {
            let come = self.stream.fill_buf().await?;
            ensure!(!come.is_empty(), "the connection ended");
            let come = &come[..come.len().min(LINES)];
            let (before, read) = (self.kept.len(), come.len());
            self.kept.extend_from_slice(come);
            // They may have begun in what came before.
            let from = before.saturating_sub(bytes.len() - 1);
            let found = self.kept[from..].windows(bytes.len()).position(|some| some == bytes);
            let Some(at) = found else {
                self.stream.consume(read);
                continue;
            };
            self.kept.truncate(from + at + bytes.len());
            self.stream.consume(self.kept.len() - before);
            return Ok(from + at);
        }
    }

    /// Uses so many bytes where they lie, without looking at them.
    pub async fn skip(&mut self, bytes: usize) -> Result<()> {
        let here = self.kept.len().min(bytes);
        self.used(here);
        let mut left = bytes - here;
        while left > 0 {
            let come = self.stream.fill_buf().await?;
            ensure!(!come.is_empty(), "the connection ended");
            let some = come.len().min(left);
            self.stream.consume(some);
            left -= some;
        }
        Ok(())
    }
}
