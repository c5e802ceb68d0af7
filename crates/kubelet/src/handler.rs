//! What is run in or against a container: by probes and by hooks.
mod grpc;

use crate::runtime::cri;
use crate::worker::Kubelet;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{
    Container, ExecAction, HTTPGetAction, LifecycleHandler, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// A running container.
#[derive(Debug, Clone)]
pub struct Target {
    pub id: String,
    pub ip: String,
    pub container: Container,
}

/// Most of an answer that is read: upstream's.
const ANSWER: usize = 10 << 10;

impl Target {
    /// Output of a command, or why it failed.
    pub async fn exec(
        &self,
        kubelet: &Kubelet,
        action: &ExecAction,
        timeout: Duration,
    ) -> Result<String, String> {
        let request = cri::ExecSyncRequest {
            container_id: self.id.clone(),
            cmd: action.command.clone().unwrap_or_default(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        match kubelet.runtime.exec_sync(request).await {
            Ok(answer) => {
                let mut output = answer.stdout;
                output.extend(answer.stderr);
                let output = String::from_utf8_lossy(&output).into_owned();
                if answer.exit_code == 0 { Ok(output) } else { Err(output) }
            }
            Err(error) => Err(error.to_string()),
        }
    }

    pub async fn tcp(&self, action: &TCPSocketAction, timeout: Duration) -> Result<String, String> {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.ip);
        let port = self.port(&action.port)?;
        let connecting = tokio::time::timeout(timeout, TcpStream::connect((host, port))).await;
        match connecting {
            Ok(Ok(_)) => Ok(String::new()),
            Ok(Err(error)) => Err(format!("dial tcp {host}:{port}: {error}")),
            Err(_) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
        }
    }

    pub async fn http(
        &self,
        action: &HTTPGetAction,
        timeout: Duration,
        agent: &str,
    ) -> Result<String, String> {
        let asking = tokio::time::timeout(timeout, Box::pin(self.ask(action, agent))).await;
        asking.unwrap_or_else(|_| {
            Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
                .to_owned())
        })
    }

    async fn ask(&self, action: &HTTPGetAction, agent: &str) -> Result<String, String> {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.ip);
        let port = self.port(&action.port)?;
        let path = action.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let is_https = action.scheme.as_deref() == Some("HTTPS");
        let scheme = if is_https { "https" } else { "http" };
        let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut request = http::Request::get(&path).header(http::header::CONNECTION, "close");
        let headers = action.http_headers.iter().flatten();
        for header in headers.clone() {
            request = request.header(&header.name, &header.value);
        }
        let given =
            |name: &str| headers.clone().any(|header| header.name.eq_ignore_ascii_case(name));
        if !given("host") {
            request = request.header(http::header::HOST, format!("{shown}:{port}"));
        }
        if !given("user-agent") {
            request = request.header(http::header::USER_AGENT, agent);
        }
        if !given("accept") {
            request = request.header(http::header::ACCEPT, "*/*");
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let url = format!("Get \"{scheme}://{shown}:{port}{path}\"");
        let failed = |error: &dyn std::fmt::Display| format!("{url}: {error}");
        let stream = TcpStream::connect((host, port)).await;
        let stream =
            stream.map_err(|error| failed(&format!("dial tcp {shown}:{port}: {error}")))?;
        let answer = if is_https {
            let stream = encrypted(host, stream, &[]).await.map_err(|error| failed(&error))?;
            exchange(stream, request, ANSWER).await
        } else {
            exchange(stream, request, ANSWER).await
        };
        let (code, body) = answer.map_err(|error| failed(&error))?;
        match code {
            200..=399 => Ok(body),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        }
    }

    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => {
                let mut named = self
                    .container
                    .ports
                    .iter()
                    .flatten()
                    .filter(|port| port.name.as_ref() == Some(name));
                named.next().map(|port| port.container_port).or_else(|| name.parse().ok())
            }
        };
        let number =
            number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
        number.ok_or_else(|| format!("invalid port number: {port:?}"))
    }

    /// `postStart` and `preStop`.
    pub async fn run_hook(&self, kubelet: &Kubelet, hook: &LifecycleHandler) -> Result<(), String> {
        let forever = Duration::from_secs(30);
        if let Some(action) = &hook.exec {
            return self.exec(kubelet, action, Duration::ZERO).await.map(drop);
        }
        if let Some(action) = &hook.http_get {
            return self.http(action, forever, "kube-lifecycle/1.37").await.map(drop);
        }
        if let Some(action) = &hook.sleep {
            kubelet.context.sleep(Duration::from_secs(action.seconds.unsigned_abs())).await;
            return Ok(());
        }
        Err("tcpSocket is not supported as a lifecycle handler".to_owned())
    }
}

/// TLS with whoever answers: a probe asks whether somebody is there, not who it is.
async fn encrypted(
    host: &str,
    stream: TcpStream,
    protocols: &[&[u8]],
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let mut config = client::http::tls::client_config(&client::http::tls::Believed::Anyone, None)?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = host.parse::<std::net::IpAddr>().map(rustls::pki_types::ServerName::from);
    let name = name.or_else(|_| rustls::pki_types::ServerName::try_from(host.to_owned()));
    let name = name.map_err(|error| error.to_string())?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| error.to_string())
}

/// What is behind a URL without encryption, if that is not too much.
pub async fn get(url: &str, headers: &[(String, String)]) -> Result<String, String> {
    const LIMIT: usize = 10 << 20;
    let uri: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    let host = uri.host().ok_or("it has no host")?;
    if uri.scheme_str() != Some("http") {
        return Err("only http is supported".to_owned());
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = http::Request::get(path).header(http::header::CONNECTION, "close");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    request = request.header(http::header::HOST, authority);
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
    let stream = stream.map_err(|error| error.to_string())?;
    match exchange(stream, request, LIMIT).await? {
        (200, body) => Ok(body),
        (code, _) => Err(format!("it answers {code}")),
    }
}

async fn exchange<S>(
    stream: S,
    request: http::Request<Empty<Bytes>>,
    limit: usize,
) -> Result<(u16, String), String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let talking = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(text)?;
    let code = answer.status().as_u16();
    // A body that is too long is not read to its end; that is no failure.
    let body = Limited::new(answer.into_body(), limit).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    talking.abort();
    Ok((code, String::from_utf8_lossy(&body).into_owned()))
}
