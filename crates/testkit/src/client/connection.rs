//! One connection to an API server: a worker's own, so that nobody waits for another's answer.
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::kubeconfig::Endpoint;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");

/// What a server may send ahead on one stream: client-go's figure.
const WINDOW: u32 = 4 << 20;

pub struct Connection {
    endpoint: Arc<Endpoint>,
    sender: Sender,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Speaks what the endpoint's TLS settings offer.
    pub async fn open(endpoint: &Arc<Endpoint>) -> Result<Connection> {
        let host = endpoint.server.host().context("the server has no host")?;
        let port = endpoint.server.port_u16().unwrap_or(443);
        let stream = TcpStream::connect((host, port))
            .await
            .with_context(|| format!("failed to connect to {host}:{port}"))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(endpoint.tls.clone()).connect(name, stream).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = TokioIo::new(stream);
        // A connection that breaks is noticed by its next request.
        let sender = if http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(WINDOW).initial_connection_window_size(16 * WINDOW);
            let (sender, connection) = builder.handshake(stream).await?;
            tokio::spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::spawn(connection);
            Sender::Http1(sender)
        };
        Ok(Connection { endpoint: endpoint.clone(), sender })
    }

    /// Sends a request and returns the head of its answer, which must be a success.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        accept: HeaderValue,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let answer = self.exchange(method.clone(), path, accept, JSON, body).await?;
        if !answer.status().is_success() {
            let status = answer.status();
            let text = answer.into_body().collect().await?.to_bytes();
            bail!("{method} {path}: {status}: {}", String::from_utf8_lossy(&text));
        }
        Ok(answer)
    }

    /// Sends a request and returns the head of its answer, whatever that is.
    pub async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        accept: HeaderValue,
        content_type: HeaderValue,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let server = &self.endpoint.server;
        let authority = server.authority().context("the server has no address")?.as_str();
        let mut request = Request::builder()
            .method(method)
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::USER_AGENT, "testkit");
        if let Some(authorization) = &self.endpoint.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some(user) = &self.endpoint.acting_as {
            request = request.header("impersonate-user", user);
        }
        let body = Full::new(body);
        let answer = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                let request = request.uri(path).header(header::HOST, authority).body(body)?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                let request = request.uri(format!("https://{authority}{path}")).body(body)?;
                sender.send_request(request).await?
            }
        };
        Ok(answer)
    }

    /// Sends a request and returns its code and its answer.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        content_type: HeaderValue,
        body: Bytes,
    ) -> Result<(u16, Bytes)> {
        let answer = self.exchange(method, path, JSON, content_type, body).await?;
        let code = answer.status().as_u16();
        Ok((code, answer.into_body().collect().await?.to_bytes()))
    }

    /// Sends a request and returns the answer's body.
    pub async fn call(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let answer = self.send(method, path, JSON, body).await?;
        Ok(answer.into_body().collect().await?.to_bytes())
    }

    /// Sends a request and reads its answer to the end; returns the number of bytes.
    pub async fn drain(
        &mut self,
        method: Method,
        path: &str,
        accept: HeaderValue,
        body: Bytes,
    ) -> Result<usize> {
        let mut answer = self.send(method, path, accept, body).await?.into_body();
        let mut bytes = 0;
        while let Some(frame) = answer.frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(bytes)
    }
}
