//! A connection on which a test says what it likes, byte by byte: what no honest client would.
use super::kubeconfig::Endpoint;
use anyhow::{Context, Result};
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An answer that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Wire(TlsStream<TcpStream>);

impl Wire {
    /// The endpoint's settings say which protocol is agreed on.
    pub async fn open(endpoint: &Endpoint) -> Result<Wire> {
        let host = endpoint.server.host().context("the server has no host")?;
        let port = endpoint.server.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Wire(TlsConnector::from(endpoint.tls.clone()).connect(name, stream).await?))
    }

    pub async fn say(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.0.write_all(bytes.as_ref()).await?;
        Ok(self.0.flush().await?)
    }

    /// What comes next; nothing when the server has hung up.
    pub async fn hear(&mut self) -> Result<Vec<u8>> {
        let mut buffer = vec![0; 16 << 10];
        let read = tokio::time::timeout(PATIENCE, self.0.read(&mut buffer)).await;
        buffer.truncate(read.context("no answer in time")?.unwrap_or(0));
        Ok(buffer)
    }

    /// The code of an HTTP/1.1 answer; 0 when the server has hung up instead.
    pub async fn code(&mut self) -> Result<u16> {
        let heard = self.hear().await?;
        let line = String::from_utf8_lossy(heard.get(..16.min(heard.len())).unwrap_or_default());
        Ok(line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0))
    }
}
