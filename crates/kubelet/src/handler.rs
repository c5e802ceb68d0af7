//! What is run in or against a container: by probes and by hooks.
mod grpc;
mod hook;
mod web;

pub use web::get;

use crate::container::expand::expand;
use crate::runtime::{RuntimeError, cri};
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::{Container, ExecAction, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::time::Duration;
use tokio::net::TcpStream;

/// A running container.
#[derive(Debug, Clone)]
pub struct Target {
    pub id: String,
    pub ip: String,
    pub container: Container,
}

/// What a probe's question came to (`Result` in upstream's `pkg/probe`).
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Success(String),
    /// It succeeded, and still something is odd.
    Warning(String),
    Failure(String),
    /// It could not be asked: that says nothing of the container.
    Unknown(String),
}

/// Most of an answer that is read: upstream's.
const ANSWER: usize = 10 << 10;

impl Target {
    /// A probe's command. Only its exit code counts, or that it took too long.
    pub async fn probe(
        &self,
        kubelet: &Kubelet,
        action: &ExecAction,
        timeout: Duration,
    ) -> Outcome {
        let known = |name: &str| {
            let mut all = self.container.env.iter().flatten();
            all.find(|one| one.name == name).map(|one| one.value.clone().unwrap_or_default())
        };
        let command: Vec<String> =
            action.command.iter().flatten().map(|part| expand(part, known)).collect();
        let shown = command.join(" ");
        match self.exec(kubelet, command, timeout).await {
            Ok(mut ended) => {
                ended.stdout.extend(ended.stderr);
                ended.stdout.truncate(ANSWER);
                let output = String::from_utf8_lossy(&ended.stdout).into_owned();
                match ended.exit_code {
                    0 => Outcome::Success(output),
                    _ => Outcome::Failure(output),
                }
            }
            Err(error) => ended_without_code(&error, &shown, timeout),
        }
    }

    async fn exec(
        &self,
        kubelet: &Kubelet,
        cmd: Vec<String>,
        timeout: Duration,
    ) -> Result<cri::ExecSyncResponse, RuntimeError> {
        let timeout = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request = cri::ExecSyncRequest { container_id: self.id.clone(), cmd, timeout };
        kubelet.runtime.exec_sync(request).await
    }

    pub async fn tcp(&self, action: &TCPSocketAction, timeout: Duration) -> Outcome {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.ip);
        let port = match self.port(&action.port) {
            Ok(port) => port,
            Err(why) => return Outcome::Unknown(why),
        };
        let connecting = tokio::time::timeout(timeout, TcpStream::connect((host, port))).await;
        let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        match connecting {
            Ok(Ok(_)) => Outcome::Success(String::new()),
            Ok(Err(error)) => Outcome::Failure(format!("dial tcp {shown}:{port}: {error}")),
            Err(_) => Outcome::Failure(format!("dial tcp {shown}:{port}: i/o timeout")),
        }
    }

    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_ref() == Some(name));
                named.ok_or_else(|| format!("port {name:?} not found"))?.container_port
            }
        };
        let port = u16::try_from(number).ok().filter(|number| *number > 0);
        port.ok_or_else(|| format!("invalid port number: {number}"))
    }
}

/// A command that the runtime says nothing of: it took too long, or it was not run.
fn ended_without_code(error: &RuntimeError, command: &str, timeout: Duration) -> Outcome {
    match error.code.as_str() {
        "DeadlineExceeded" => {
            let timeout = crate::worker::go_duration(timeout.try_into().unwrap_or_default());
            Outcome::Failure(format!("command timed out: {command:?} timed out after {timeout}"))
        }
        _ => Outcome::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_exit_code_or_a_timeout_is_a_failure() {
        let check = |code: &str, expected: Outcome| {
            let error = RuntimeError::new(code, "why");
            let said = ended_without_code(&error, "sleep 9", Duration::from_secs(61));
            assert_eq!(said, expected, "{code}");
        };
        let late = r#"command timed out: "sleep 9" timed out after 1m1s"#;
        check("DeadlineExceeded", Outcome::Failure(late.to_owned()));
        let unknown = "rpc error: code = Unavailable desc = why";
        check("Unavailable", Outcome::Unknown(unknown.to_owned()));
    }

    #[test]
    fn ports_have_names() {
        let container = json!({ "name": "c", "ports": [{ "name": "web", "containerPort": 80 }] });
        let container = serde_json::from_value(container).expect("a container");
        let target = Target { id: String::new(), ip: String::new(), container };
        let check = |port: serde_json::Value, expected: Result<u16, &str>| {
            let port = serde_json::from_value(port).expect("a port");
            assert_eq!(target.port(&port), expected.map_err(str::to_owned));
        };
        check(json!(8080), Ok(8080));
        check(json!("web"), Ok(80));
        check(json!("gone"), Err("port \"gone\" not found"));
        check(json!(0), Err("invalid port number: 0"));
    }
}
